//! `stark/merkle`: a Blake2s tree over the rows of columns.

use gatework_lab::{KernelSpec, Work};
use itertools::Itertools as _;
use stwo::core::fields::m31::BaseField;
use stwo::core::vcs_lifted::blake2_merkle::Blake2sMerkleHasher;
use stwo::core::vcs_lifted::merkle_hasher::MerkleHasherLifted;
use stwo::prover::backend::{Col, Column as _, ColumnOps, CpuBackend};
use stwo::prover::vcs_lifted::ops::MerkleOpsLifted;
use stwo::prover::vcs_lifted::prover::MerkleProverLifted;

use super::{Run, Size, Task, Timed, copying};
use crate::airs::HostColumn;
use crate::element::Element;
use crate::{CudaBackend, DeviceColumn, kernels};

#[derive(Clone, Copy)]
pub(super) struct Merkle;

/// The words of digests.
pub(super) fn words<T: Element>(layers: impl IntoIterator<Item = Vec<T>>) -> Vec<u32> {
    let mut words = Vec::new();
    layers.into_iter().flatten().for_each(|hash| hash.write(&mut words));
    words
}

fn candidate(columns: Vec<DeviceColumn<BaseField>>) -> Box<dyn Run> {
    Box::new(Trees::new(columns, <CudaBackend as MerkleOpsLifted<Blake2sMerkleHasher>>::build_leaves))
}

/// The leaves of a tree, which is computed with them.
type Build<T> = fn(&[&DeviceColumn<BaseField>], u32) -> DeviceColumn<T>;

/// The same tree again and again.
pub(super) struct Trees<T> {
    columns: Vec<DeviceColumn<BaseField>>,
    build: Build<T>,
    leaves: Option<DeviceColumn<T>>,
}

impl<T: Element> Trees<T> {
    pub(super) fn new(columns: Vec<DeviceColumn<BaseField>>, build: Build<T>) -> Self {
        Self { columns, build, leaves: None }
    }
}

impl<T: Element> Run for Trees<T> {
    fn run(&mut self) {
        let log_rows = self.columns[0].len().ilog2();
        let columns = self.columns.iter().collect_vec();
        // The one before goes first, so that there is one at a time.
        self.leaves = None;
        self.leaves = Some((self.build)(&columns, log_rows));
    }

    fn spoil(&mut self) {
        self.leaves = None;
    }

    fn words(&mut self) -> Vec<u32> {
        words(self.leaves.as_ref().map(|leaves| leaves.to_cpu()))
    }
}

/// All layers of the tree over `columns`.
pub(super) fn tree<B, H>(columns: &[HostColumn]) -> Vec<u32>
where
    B: MerkleOpsLifted<H> + ColumnOps<BaseField>,
    H: MerkleHasherLifted<Hash: Element>,
{
    let columns = columns.iter().map(|column| column.iter().copied().collect()).collect_vec();
    let log_rows = columns.first().map_or(0, |column: &Col<B, BaseField>| column.len().ilog2());
    let tree = MerkleProverLifted::<B, H>::commit(columns.iter().collect(), log_rows, 0);
    words(tree.layers.iter().map(|layer| layer.to_cpu()))
}

/// The tree of a caller who took the columns in the wrong order.
pub(super) fn back_to_front<H>(columns: &[HostColumn]) -> (&'static str, Vec<u32>)
where
    H: MerkleHasherLifted<Hash: Element>,
    CpuBackend: MerkleOpsLifted<H>,
{
    let reversed = columns.iter().rev().cloned().collect_vec();
    ("columns back to front", tree::<CpuBackend, H>(&reversed))
}

fn expected(columns: &[HostColumn], _: u32) -> Vec<u32> {
    let log_rows = columns[0].len().ilog2();
    let columns = columns.iter().collect_vec();
    words([<CpuBackend as MerkleOpsLifted<Blake2sMerkleHasher>>::build_leaves(&columns, log_rows)])
}

impl Task for Merkle {
    fn name(&self) -> &'static str {
        "stark/merkle"
    }

    fn summary(&self) -> &'static str {
        "Blake2s Merkle trees over the rows of many columns, all layers"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let spec = KernelSpec::new(kernels::MERKLE.source()).threads(256);
        vec![spec.entries(["merkle_leaves", "merkle_rows", "merkle_layers", "merkle_parents", "merkle_pack"])]
    }

    fn on_device(&self, columns: &[HostColumn]) -> Vec<u32> {
        tree::<CudaBackend, Blake2sMerkleHasher>(columns)
    }

    fn on_host(&self, columns: &[HostColumn]) -> Vec<u32> {
        tree::<CpuBackend, Blake2sMerkleHasher>(columns)
    }

    fn mistaken(&self, columns: &[HostColumn]) -> (&'static str, Vec<u32>) {
        back_to_front::<Blake2sMerkleHasher>(columns)
    }

    /// Every value read and every node written once, and 840 operations a compression.
    fn work(&self, Size { log_rows, columns }: Size) -> Work {
        let rows = 1u64 << log_rows;
        let compressions = rows * (columns as u64).div_ceil(16) + rows;
        Work { operations: 840 * compressions, bytes: 4 * rows * columns as u64 + 64 * rows }
    }

    fn timed(&self) -> Option<Timed> {
        Some(Timed {
            candidate,
            baseline: copying,
            expected,
            baseline_name: "device-to-device copy",
            at_most: 8.0,
            why: "a compression takes 840 operations for 64 bytes, at half the integer rate",
        })
    }
}
