//! One committed layer of FRI.

use stwo::core::channel::MerkleChannel;
use stwo::core::vcs_lifted::verifier::LOG_PACKED_LEAF_SIZE;
use stwo::prover::backend::{BackendForChannel, Column as _};
use stwo::prover::secure_column::SecureColumnByCoords;
use stwo::prover::vcs_lifted::prover::MerkleProverLifted;

use crate::backend::CudaBackend;

/// A committed layer: what is folded next, and by how much.
pub(super) struct Layer<MC: MerkleChannel>
where
    CudaBackend: BackendForChannel<MC>,
{
    pub(super) tree: MerkleProverLifted<CudaBackend, MC::H>,
    /// Whether a leaf has four values.
    pub(super) packed: bool,
    pub(super) fold_step: u32,
}

impl<MC: MerkleChannel> Layer<MC>
where
    CudaBackend: BackendForChannel<MC>,
{
    pub(super) fn new(values: &SecureColumnByCoords<CudaBackend>, fold_step: u32) -> Self {
        let log_size = values.columns[0].len().ilog2();
        let packed = log_size >= LOG_PACKED_LEAF_SIZE && fold_step > 1;
        let log_rows_per_leaf = if packed { LOG_PACKED_LEAF_SIZE } else { 0 };
        let tree = MerkleProverLifted::commit(
            values.columns.iter().collect(),
            log_size - log_rows_per_leaf,
            log_rows_per_leaf,
        );
        Self { tree, packed, fold_step }
    }
}
