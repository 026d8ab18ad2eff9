//! `MerkleOpsLifted`: trees of Poseidon252.
//!
//! The least that a proof takes is its permutations: with 2^20 rows of 100 columns 29 million, 7 for each
//! leaf of the trace, 1 for each of the composition and of a layer of FRI, and 1 for each node above. A
//! permutation has 214 products of felts, and the kernel here takes 34,000 instructions for one, 14,000 of
//! them products of words. On an H200, with 132 multiprocessors at 1.98 GHz and 64 lanes of each for
//! integers, that is 60 ms if all of them take turns on those lanes, as it would be 87 ms for 50,000, and
//! less as far as products run beside the others. Memory is no part of it: a permutation reads 64 bytes. A
//! layer of fewer nodes than the device has threads takes as long as one permutation.

use gatework_gpu::{Grid, args};
use itertools::Itertools as _;
use stwo::core::fields::m31::BaseField;
use stwo::core::vcs_lifted::poseidon252_merkle::{ELEMENTS_IN_BUFFER, Poseidon252MerkleHasher};
use stwo::prover::backend::Column as _;
use stwo::prover::vcs_lifted::ops::MerkleOpsLifted;

use super::groups::{Wanted, by_groups};
use super::merkle::{leaf_table, whole_tree};
use crate::backend::CudaBackend;
use crate::column::DeviceColumn;
use crate::element::Felt252;
use crate::kernels;
use crate::queue::Queue;

/// Threads of a block.
const THREADS: u32 = 128;
/// Felts of a state.
const STATE: usize = 3;

/// A thread for each of `items`.
pub(super) fn one_thread_each(items: usize) -> Grid {
    Grid::covering(items, THREADS)
}

impl MerkleOpsLifted<Poseidon252MerkleHasher> for CudaBackend {
    /// Computes the whole tree, of which this is the last layer, in one allocation.
    fn build_leaves(columns: &[&DeviceColumn<BaseField>], lifting_log_size: u32) -> DeviceColumn<Felt252> {
        // As `SimdBackend` has it; `CpuBackend` takes the hash of nothing.
        whole_tree(columns, lifting_log_size, Felt252::default, &hash_leaves, &hash_layers)
    }

    fn build_next_layer(layer: &DeviceColumn<Felt252>) -> DeviceColumn<Felt252> {
        if let Some(parents) = layer.parents() {
            return parents;
        }
        let nodes = layer.len() / 2;
        assert!(layer.len() == 2 * nodes && nodes > 0, "{} nodes have no layer above", layer.len());
        let mut parents = DeviceColumn::new(layer.queue(), nodes);
        hash_parents(layer.queue(), layer, &mut parents);
        parents
    }
}

/// Computes all layers above the one of 2^`log_children` nodes of a tree in breadth-first order.
fn hash_layers(queue: &Queue, tree: DeviceColumn<Felt252>, log_children: u32) {
    for log_nodes in (0..log_children).rev() {
        let nodes = 1usize << log_nodes;
        hash_parents(queue, &tree.part(2 * nodes - 1, 2 * nodes), &mut tree.part(nodes - 1, nodes));
    }
}

/// Hashes rows of columns into `leaves`. Steps of columns that are all shorter than the longest are taken
/// once for each of their own rows, and the state is lifted from there; so are digests, where no column is as
/// long as the tree.
fn hash_leaves(queue: &Queue, columns: &[&DeviceColumn<BaseField>], leaves: &mut DeviceColumn<Felt252>) {
    let log_leaves = leaves.len().ilog2();
    let log_sizes = columns.iter().map(|column| column.len().ilog2()).collect_vec();
    let all = columns.iter().all(|column| !column.is_away());
    let all = all.then(|| leaf_table(queue, columns.len(), 0, columns.iter().copied()));
    // Two felts a step, and a last one with the felt that is left, or none.
    let steps = columns.len().div_ceil(ELEMENTS_IN_BUFFER / 2) / 2 + 1;
    let log_rows = |step: usize| log_sizes[(ELEMENTS_IN_BUFFER * (step + 1)).min(columns.len()) - 1];
    let mut before: Option<DeviceColumn<Felt252>> = None;
    for (rows, run) in &(0..steps).chunk_by(|&step| log_rows(step)) {
        let run = run.collect_vec();
        let (first, end) = (run[0], run[run.len() - 1] + 1);
        let mut states = (end < steps).then(|| DeviceColumn::<Felt252>::new(queue, STATE << rows));
        let mut between: Option<DeviceColumn<Felt252>> = None;
        let last_column = columns.len().min(ELEMENTS_IN_BUFFER * end);
        let of_run = &columns[ELEMENTS_IN_BUFFER * first..last_column];
        by_groups(queue, of_run, &Wanted { unit: ELEMENTS_IN_BUFFER, ..Wanted::WHOLE }, |part, arrived| {
            let first_step = first + part.start / ELEMENTS_IN_BUFFER;
            // The last step of all may have no columns.
            let ends = part.end == of_run.len();
            let end_step = if ends { end } else { first + part.end / ELEMENTS_IN_BUFFER };
            let of_group = || leaf_table(queue, columns.len(), ELEMENTS_IN_BUFFER * first_step, arrived);
            let entries = all.is_none().then(of_group);
            let Some(entries) = all.as_ref().or(entries.as_ref()) else { unreachable!("one is there") };
            // Between two groups of the last run there are states as well.
            if !ends && between.is_none() && states.is_none() {
                between = Some(DeviceColumn::<Felt252>::new(queue, STATE << rows));
            }
            let own = states.as_ref().or(between.as_ref()).map(DeviceColumn::alias);
            let (initial, log_initial) = match (&before, &own) {
                // A row's state goes on where it is.
                (_, Some(own)) if first_step > first => (own.words(queue), rows),
                (Some(states), _) => (states.words(queue), (states.len() / STATE).ilog2()),
                // Before the first step no state is read: any memory will do.
                (None, _) => (entries.slice(..).cast(), 0),
            };
            let to = match (&mut states, &mut between) {
                (Some(states), _) => states,
                (None, Some(between)) if !ends => between,
                (None, _) => &mut *leaves,
            };
            let arguments = args![
                entries,
                columns.len() as u32,
                first_step as u32,
                end_step as u32,
                rows,
                initial,
                log_initial,
                to.words_mut(),
                log_leaves
            ];
            let grid = one_thread_each(1 << rows).early();
            queue.launch(&kernels::POSEIDON252_MERKLE, "poseidon252_leaves", &grid, &arguments);
        });
        before = states;
    }
}

/// Hashes pairs of `children`.
///
/// One launch a layer: a permutation takes tens of microseconds, beside which a launch that waits on the
/// device is nothing.
fn hash_parents(queue: &Queue, children: &DeviceColumn<Felt252>, parents: &mut DeviceColumn<Felt252>) {
    let nodes = parents.len();
    let arguments = args![children.words(queue), parents.words_mut(), nodes as u32];
    let grid = one_thread_each(nodes).early();
    queue.launch(&kernels::POSEIDON252_MERKLE, "poseidon252_parents", &grid, &arguments);
}

#[cfg(test)]
mod tests {
    use gatework_gpu::Source;
    use stwo::core::vcs_lifted::poseidon252_merkle::poseidon_update;

    use super::*;
    use crate::Context;
    use crate::element::Element as _;

    /// Products, squares, sums and forms of felts a[i] and b[i]; multiples of 2^251; then the permutation of
    /// (a, b, a b).
    const OPERATIONS: &str = r#"
#include "poseidon252.cuh"
using namespace felt252;
GW_KERNEL(operate)(const u32* a, const u32* b, u32* out, u32 count) {
    const u32 i = (u32)gw::global_thread();
    if (i >= count) return;
    const Felt x = load(a + 8 * i), y = load(b + 8 * i);
    const Felt p = multiple_of_p(1), product = mul<1>(x, y);
    const Felt folded = fold(add(add(x, y), p));
    poseidon252::State state = {{x, y, product}};
    poseidon252::permute(state);
    const Felt results[] = {
        canonical(product), canonical(fold(square(x))), canonical(fold(add(mul<0>(x, y), multiple_of_p(2)))),
        canonical(folded), canonical(half(x)), leave(x), canonical(enter(leave(y))),
        canonical(fold(mul<1>(add(x, multiple_of_p(6)), add(y, multiple_of_p(6))))),
        canonical(fold(square(add(x, multiple_of_p(28))))),
        canonical(fold({{0, 0, 0, 0, 0, 0, 0, (2 + i % 30) << 27}})),
        canonical(state.s[0]), canonical(state.s[1]), canonical(state.s[2]),
    };
    for (u32 k = 0; k < 13; ++k) store(out + 8 * ((u64)k * count + i), results[k]);
}"#;

    /// A field element from the words of a number, which may be p or more.
    fn felt(words: [u64; 4]) -> Felt252 {
        let shift = Felt252::from(1u128 << 64);
        words.iter().rev().fold(Felt252::default(), |sum, &word| sum * shift + word.into())
    }

    /// Values whose Montgomery forms are 0, 1, p - 1, one word of ones, and the like; and others.
    fn values() -> Vec<Felt252> {
        let p = [1, 0, 0, (1u64 << 59) + 17];
        let mut forms = vec![[0; 4], [1, 0, 0, 0], [0, 0, 0, p[3]], [u64::MAX, u64::MAX, u64::MAX, p[3] - 1]];
        forms.extend([[u64::MAX, 0, 0, 0], [0, u64::MAX, 0, 0], [0, 0, u64::MAX, 0], [0, 0, 0, 1 << 59]]);
        forms.extend([
            [0, 0, 0, 17],
            [2, 0, 0, 0],
            [u64::from(u32::MAX), 0, 0, 0],
            [0, 0, 1 << 63, p[3] - 1],
        ]);
        let mut values = forms.into_iter().map(Felt252::from_mont).collect_vec();
        values.extend([Felt252::ONE, Felt252::TWO, Felt252::MAX]);
        let mut state = 1u64;
        let mut word = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state ^ state >> 29
        };
        values.extend((0..40).map(|_| felt(std::array::from_fn(|_| word()))));
        values
    }

    fn to_words(felts: &[Felt252]) -> Vec<u32> {
        let mut words = Vec::new();
        felts.iter().for_each(|felt| felt.write(&mut words));
        words
    }

    #[test]
    fn operations_on_felts_and_permutations_are_starknets() {
        let values = values();
        let pairs = values.iter().copied().cartesian_product(values.iter().copied()).collect_vec();
        // All pairs of the values at the edges, and each of the others with some.
        let pairs = pairs.into_iter().enumerate().filter(|(at, _)| at % values.len() < 15 || at % 7 == 0);
        let (a, b): (Vec<_>, Vec<_>) = pairs.map(|(_, pair)| pair).unzip();
        let context = Context::new(&gatework_gpu::Device::emulated(1).unwrap()).unwrap();
        let count = a.len();
        let found = context
            .scope(|| {
                let queue = Queue::current();
                let source = kernels::with_headers(Source::new("operate", OPERATIONS));
                let kernel = queue.stream().device().kernel(&source).unwrap();
                let [a, b] =
                    [&a, &b].map(|felts| DeviceColumn::<Felt252>::from_words(&queue, &to_words(felts)));
                let mut out = DeviceColumn::<Felt252>::new(&queue, 13 * count);
                let arguments = args![a.words(&queue), b.words(&queue), out.words_mut(), count as u32];
                kernel.launch(queue.stream(), &one_thread_each(count), &arguments).unwrap();
                out.to_cpu()
            })
            .unwrap();
        let half = Felt252::TWO.invert().unwrap();
        for (at, (&x, &y)) in a.iter().zip(&b).enumerate() {
            let mut state = [x, y, x * y];
            poseidon_update(&[Felt252::ZERO, Felt252::ZERO], &mut state);
            let number = |felt: Felt252| {
                let bytes = felt.to_bytes_be();
                Felt252::from_mont(std::array::from_fn(|word| {
                    u64::from_be_bytes(std::array::from_fn(|byte| bytes[24 - 8 * word + byte]))
                }))
            };
            let high = Felt252::from_mont([0, 0, 0, 1 << 59]) * Felt252::from(2 + at % 30);
            let [s0, s1, s2] = state;
            let expected =
                [x * y, x * x, x * y, x + y, x * half, number(x), y, x * y, x * x, high, s0, s1, s2];
            let found: [Felt252; 13] = std::array::from_fn(|result| found[result * count + at]);
            assert_eq!(found, expected, "{x:?} and {y:?}");
        }
    }
}
