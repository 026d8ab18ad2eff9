//! Proofs of Cairo programs on a GPU.
//!
//! `stwo-cairo-prover` 1.3.0 proves on stwo's `SimdBackend`. Its trace writers stay as they are; what they
//! wrote moves to a device, where [`gatework_stark::CudaBackend`] commits to it, makes the interaction traces
//! and proves. The proof is the same, byte for byte, and `cairo-air`'s verifier accepts it.

mod components;
mod error;
pub mod input;
mod prove;
mod verify;

pub use components::{claimed_sums, provers};
pub use error::{Error, Result};
pub use prove::{Parameters, Proved, prove};
pub use verify::verify;
