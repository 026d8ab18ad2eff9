//! The backend type that a stwo user names.

use serde::{Deserialize, Serialize};
use stwo::core::vcs_lifted::blake2_merkle::{Blake2sM31MerkleChannel, Blake2sMerkleChannel};
use stwo::core::vcs_lifted::poseidon252_merkle::Poseidon252MerkleChannel;
use stwo::prover::backend::{Backend, BackendForChannel};

/// stwo's backend on a device: the one of the [`Context::scope`](crate::Context::scope) that it is used in.
///
/// Columns, twiddles and trees lie in device memory, and every operation of a proof runs there.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct CudaBackend;

impl Backend for CudaBackend {}
impl BackendForChannel<Blake2sMerkleChannel> for CudaBackend {}
impl BackendForChannel<Blake2sM31MerkleChannel> for CudaBackend {}
impl BackendForChannel<Poseidon252MerkleChannel> for CudaBackend {}
