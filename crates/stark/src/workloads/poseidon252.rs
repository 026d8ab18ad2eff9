//! `stark/poseidon252`: a tree of Poseidon252 over the rows of columns.

use gatework_lab::{KernelSpec, Work};
use itertools::Itertools as _;
use stwo::core::fields::m31::BaseField;
use stwo::core::vcs_lifted::poseidon252_merkle::Poseidon252MerkleHasher;
use stwo::prover::backend::CpuBackend;
use stwo::prover::backend::simd::SimdBackend;
use stwo::prover::backend::simd::column::BaseColumn;
use stwo::prover::vcs_lifted::ops::MerkleOpsLifted;

use super::merkle::{Trees, back_to_front, tree, words};
use super::{Run, Size, Task, Timed, copying};
use crate::airs::HostColumn;
use crate::floor::{PERMUTATION, permutations_of_row};
use crate::{CudaBackend, DeviceColumn, kernels};

#[derive(Clone, Copy)]
pub(super) struct Poseidon252;

fn candidate(columns: Vec<DeviceColumn<BaseField>>) -> Box<dyn Run> {
    Box::new(Trees::new(columns, <CudaBackend as MerkleOpsLifted<Poseidon252MerkleHasher>>::build_leaves))
}

/// By `SimdBackend`, which hashes on all cores: on one, a large tree takes minutes.
fn expected(columns: &[HostColumn], _: u32) -> Vec<u32> {
    let log_rows = columns[0].len().ilog2();
    let columns = columns.iter().map(|column| BaseColumn::from_cpu(column)).collect_vec();
    let columns = columns.iter().collect_vec();
    words([<SimdBackend as MerkleOpsLifted<Poseidon252MerkleHasher>>::build_leaves(&columns, log_rows)])
}

impl Task for Poseidon252 {
    fn name(&self) -> &'static str {
        "stark/poseidon252"
    }

    fn summary(&self) -> &'static str {
        "Poseidon252 Merkle trees over the rows of many columns, all layers"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let merkle = KernelSpec::new(kernels::POSEIDON252_MERKLE.source()).threads(128);
        let grind = KernelSpec::new(kernels::POSEIDON252_GRIND.source()).threads(128);
        vec![
            merkle.entries(["poseidon252_leaves", "poseidon252_parents"]),
            grind.entries(["poseidon252_grind"]),
        ]
    }

    fn on_device(&self, columns: &[HostColumn]) -> Vec<u32> {
        tree::<CudaBackend, Poseidon252MerkleHasher>(columns)
    }

    fn on_host(&self, columns: &[HostColumn]) -> Vec<u32> {
        tree::<CpuBackend, Poseidon252MerkleHasher>(columns)
    }

    fn mistaken(&self, columns: &[HostColumn]) -> (&'static str, Vec<u32>) {
        back_to_front::<Poseidon252MerkleHasher>(columns)
    }

    /// Every value read and every node written once, and the operations of all permutations.
    fn work(&self, Size { log_rows, columns }: Size) -> Work {
        let rows = 1u64 << log_rows;
        let permutations = rows * permutations_of_row(columns as u64) + rows - 1;
        Work { operations: PERMUTATION as u64 * permutations, bytes: 4 * rows * columns as u64 + 64 * rows }
    }

    fn timed(&self) -> Option<Timed> {
        Some(Timed {
            candidate,
            baseline: copying,
            expected,
            baseline_name: "device-to-device copy",
            at_most: 400.0,
            why: "a permutation takes 34,000 operations for 64 bytes, at half the integer rate",
        })
    }
}
