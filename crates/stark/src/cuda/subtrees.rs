//! Trees over columns of several devices: each hashes a part of the rows, and the lead what is above.

use stwo::core::fields::m31::BaseField;
use stwo::prover::backend::Column as _;

use crate::column::DeviceColumn;
use crate::element::Element;
use crate::queue::Queue;
use crate::ranks::{Ranks, meet};

/// What fills the leaves of a tree, or of a part of it, from its rows of columns.
pub(super) type Leaves<'a, T> = dyn Fn(&Queue, &[&DeviceColumn<BaseField>], &mut DeviceColumn<T>) + 'a;
/// What computes all layers above the one of so many nodes, by their logarithm, of a tree in breadth-first
/// order.
pub(super) type Layers<'a, T> = dyn Fn(&Queue, DeviceColumn<T>, u32) + 'a;

/// Computes the subtrees of equal parts of the rows, each on a device, which fetches its rows of the columns
/// of others, and puts them into `tree`, which is the lead's. Gives the logarithm of their number.
pub(super) fn hash_subtrees<T: Element>(
    lead: &Queue,
    columns: &[&DeviceColumn<BaseField>],
    log_leaves: u32,
    tree: &DeviceColumn<T>,
    leaves: &Leaves<'_, T>,
    layers: &Layers<'_, T>,
) -> u32 {
    let (ranks, log_ranks) = Ranks::for_rows(lead, log_leaves);
    let log_rows = log_leaves - log_ranks;
    let subtree = |(rank, queue): (usize, &Queue)| {
        let rows = |column: &&DeviceColumn<BaseField>| {
            let column = column.at_home();
            let (first, count) = lifted_rows(column.len().ilog2(), rank, log_ranks);
            column.part(first, count).seen_from(queue)
        };
        let columns: Vec<_> = columns.iter().map(rows).collect();
        let subtree = DeviceColumn::<T>::new(queue, (2 << log_rows) - 1);
        let mut lowest = layer(&subtree, log_rows);
        leaves(queue, &columns.iter().collect::<Vec<_>>(), &mut lowest);
        layers(queue, subtree.alias(), log_rows);
        subtree
    };
    let subtrees: Vec<_> = meet(lead, || ranks.iter().enumerate().map(subtree).collect());
    for (rank, subtree) in subtrees.iter().enumerate() {
        for log_nodes in 0..=log_rows {
            let mut nodes = layer(tree, log_nodes + log_ranks).part(rank << log_nodes, 1 << log_nodes);
            nodes.fetch(&layer(subtree, log_nodes));
        }
    }
    log_ranks
}

/// The layer of 2^`log_nodes` nodes.
fn layer<T: Element>(tree: &DeviceColumn<T>, log_nodes: u32) -> DeviceColumn<T> {
    tree.part((1 << log_nodes) - 1, 1 << log_nodes)
}

/// The rows of a column of 2^`log_size` that are lifted to part `rank` of the leaves: where they start, and
/// how many. A pair of rows is the least, and may be lifted to several parts.
fn lifted_rows(log_size: u32, rank: usize, log_ranks: u32) -> (usize, usize) {
    let pair = (rank << (log_size - 1)) >> log_ranks;
    (2 * pair, 2 << (log_size - 1).saturating_sub(log_ranks))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the definition of lifting, for every leaf.
    #[test]
    fn parts_of_columns_are_what_is_lifted_to_parts_of_leaves() {
        let lifted = |row: usize, log_leaves: u32, log_size: u32| {
            let shift = log_leaves - log_size;
            (row >> (shift + 1) << 1) | (row & 1)
        };
        for (log_leaves, log_ranks) in [(6, 3), (6, 0), (4, 3), (3, 2)] {
            let log_rows = log_leaves - log_ranks;
            for (log_size, row) in
                (1..=log_leaves).flat_map(|log| (0..1 << log_leaves).map(move |row| (log, row)))
            {
                let (first, count) = lifted_rows(log_size, row >> log_rows, log_ranks);
                let within = lifted(row & ((1 << log_rows) - 1), log_rows, count.ilog2());
                assert!(within < count);
                let expected = lifted(row, log_leaves, log_size);
                assert_eq!(first + within, expected, "row {row} of 2^{log_leaves}, 2^{log_size}");
            }
        }
    }
}
