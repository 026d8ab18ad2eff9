//! `stark/rates`: the arithmetic of the floors, with everything in registers.

use gatework_lab::{KernelSpec, Work};
use itertools::Itertools as _;
use stwo::core::fields::m31::BaseField;
use stwo::core::vcs::blake2_hash::{Blake2sHash, Blake2sHasher};
use stwo::core::vcs_lifted::merkle_hasher::MerkleHasherLifted as _;
use stwo::core::vcs_lifted::poseidon252_merkle::Poseidon252MerkleHasher;
use stwo::prover::backend::Column as _;

use super::{Size, Task};
use crate::airs::HostColumn;
use crate::element::{Element as _, Felt252};
use crate::floor::{BUTTERFLY, COMPRESSION, PERMUTATION};
use crate::queue::Queue;
use crate::rates::{TWIDDLES, VALUES, butterflies, compressions, felts, permutations};
use crate::{DeviceColumn, kernels};

#[derive(Clone, Copy)]
pub(super) struct Rates;

const TURNS: u32 = 3;

/// As many words of all columns, one after the other, as make whole runs.
fn words(columns: &[HostColumn], run: usize) -> Vec<u32> {
    let words = columns.iter().flatten().map(|value| value.0).collect_vec();
    words[..words.len() / run * run].to_vec()
}

fn on_host(columns: &[HostColumn], turns: u32) -> Vec<u32> {
    let mut values = words(columns, VALUES).into_iter().map(BaseField::from_u32_unchecked).collect_vec();
    for of_thread in values.chunks_mut(VALUES) {
        for step in (0..turns).flat_map(|_| (0..4).rev()) {
            for low in (0..VALUES).filter(|index| index >> step & 1 == 0) {
                let (a, b) = (of_thread[low], of_thread[low | 1 << step]);
                let product = b * BaseField::from_u32_unchecked(TWIDDLES[step]);
                (of_thread[low], of_thread[low | 1 << step]) = (a + product, a - product);
            }
        }
    }
    let mut result = values.iter().map(|value| value.0).collect_vec();
    for digest in words(columns, 8).chunks_exact(8).map(Blake2sHash::read) {
        let last = (0..turns).fold(digest, |digest, _| Blake2sHasher::concat_and_hash(&digest, &digest));
        last.write(&mut result);
    }
    for digest in felts(&words(columns, 8)).chunks_exact(8).map(Felt252::read) {
        let last =
            (0..turns).fold(digest, |digest, _| Poseidon252MerkleHasher::hash_children((digest, digest)));
        last.write(&mut result);
    }
    result
}

impl Task for Rates {
    fn name(&self) -> &'static str {
        "stark/rates"
    }

    fn summary(&self) -> &'static str {
        "butterflies, compressions and permutations with everything in registers: what floors are made of"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let spec = KernelSpec::new(kernels::RATES.source()).threads(256);
        vec![spec.entries(["rate_butterflies", "rate_compressions", "rate_permutations"])]
    }

    fn on_device(&self, columns: &[HostColumn]) -> Vec<u32> {
        let queue = Queue::current();
        let mut values = DeviceColumn::<BaseField>::from_words(&queue, &words(columns, VALUES));
        butterflies(&queue, &mut values, TURNS);
        let mut digests = DeviceColumn::<Blake2sHash>::from_words(&queue, &words(columns, 8));
        compressions(&queue, &mut digests, TURNS);
        let mut result = values.to_cpu().iter().map(|value| value.0).collect_vec();
        digests.to_cpu().iter().for_each(|digest| digest.write(&mut result));
        let mut digests = DeviceColumn::<Felt252>::from_words(&queue, &felts(&words(columns, 8)));
        permutations(&queue, &mut digests, TURNS);
        digests.to_cpu().iter().for_each(|digest| digest.write(&mut result));
        result
    }

    fn on_host(&self, columns: &[HostColumn]) -> Vec<u32> {
        on_host(columns, TURNS)
    }

    fn mistaken(&self, columns: &[HostColumn]) -> (&'static str, Vec<u32>) {
        ("one turn less", on_host(columns, TURNS - 1))
    }

    fn work(&self, Size { log_rows, columns }: Size) -> Work {
        let values = (columns as u64) << log_rows;
        // Two butterflies a value, and one compression and one permutation for eight.
        let of_value = 2 * BUTTERFLY as u64 + (COMPRESSION + PERMUTATION) as u64 / 8;
        Work { operations: u64::from(TURNS) * values * of_value, bytes: 3 * 8 * values }
    }
}
