//! `MerkleOpsLifted` and `PackLeavesOps`: Blake2s trees.

use gatework_gpu::{Buffer, ByValue, Code as _, Grid, args};
use itertools::Itertools as _;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SECURE_EXTENSION_DEGREE;
use stwo::core::vcs::blake2_hash::Blake2sHash;
use stwo::core::vcs_lifted::blake2_merkle::Blake2sMerkleHasherGeneric;
use stwo::core::vcs_lifted::merkle_hasher::MerkleHasherLifted;
use stwo::core::vcs_lifted::verifier::PACKED_LEAF_SIZE;
use stwo::prover::backend::{Column as _, ColumnOps};
use stwo::prover::secure_column::SecureColumnByCoords;
use stwo::prover::vcs_lifted::ops::{MerkleOpsLifted, PackLeavesOps};
use stwo::prover::vcs_lifted::prover::MerkleProverLifted;

use super::fri::Challenge;
use super::groups::{Wanted, by_groups};
use super::subtrees::{Layers, Leaves, hash_subtrees};
use super::{THREADS, one_thread_each};
use crate::backend::CudaBackend;
use crate::column::{DeviceColumn, table};
use crate::element::Element;
use crate::kernels;
use crate::queue::Queue;
use crate::shared::{self, DigestWords, FewColumns, LeafColumn};
use crate::stages::Stage;

/// Columns that go into one block of the hash.
const BLOCK_COLUMNS: usize = shared::BLOCK_COLUMNS as usize;
/// Layers of one launch on a large tree: above them, warps would be partly idle.
const LAYERS_PER_LAUNCH: u32 = 4;
/// Children that one block hashes to their last common ancestor.
const LOG_BLOCK_CHILDREN: u32 = THREADS.ilog2() + 1;

impl<const IS_M31_OUTPUT: bool> MerkleOpsLifted<Blake2sMerkleHasherGeneric<IS_M31_OUTPUT>> for CudaBackend {
    /// Computes the whole tree, of which this is the last layer: fewer launches than one a layer.
    fn build_leaves(
        columns: &[&DeviceColumn<BaseField>],
        lifting_log_size: u32,
    ) -> DeviceColumn<Blake2sHash> {
        let form = DigestWords::of(IS_M31_OUTPUT);
        // The digest of nothing is no secret to the host.
        let of_nothing = || Blake2sMerkleHasherGeneric::<IS_M31_OUTPUT>::new().finalize();
        whole_tree(
            columns,
            lifting_log_size,
            of_nothing,
            &|queue, columns, leaves| hash_leaves(queue, columns, leaves, form),
            &|queue, tree, log_children| hash_layers(queue, tree, log_children, form),
        )
    }

    fn build_next_layer(layer: &DeviceColumn<Blake2sHash>) -> DeviceColumn<Blake2sHash> {
        if let Some(parents) = layer.parents() {
            return parents;
        }
        let (queue, nodes) = (layer.queue(), layer.len() / 2);
        assert!(layer.len() == 2 * nodes && nodes > 0, "{} nodes have no layer above", layer.len());
        let mut parents = DeviceColumn::<Blake2sHash>::new(queue, nodes);
        let arguments = args![
            layer.words(queue),
            parents.words_mut(),
            nodes as u32,
            DigestWords::of(IS_M31_OUTPUT).code()
        ];
        queue.launch(&kernels::MERKLE, "merkle_parents", &one_thread_each(nodes), &arguments);
        parents
    }
}

/// The leaves of a tree over `columns`, all layers of which lie in one allocation. Where columns lie on
/// several devices, each does its part.
pub(super) fn whole_tree<T: Element>(
    columns: &[&DeviceColumn<BaseField>],
    log_leaves: u32,
    of_nothing: impl FnOnce() -> T,
    leaves: &Leaves<'_, T>,
    layers: &Layers<'_, T>,
) -> DeviceColumn<T> {
    let queue = match columns.first() {
        Some(first) => first.queue().clone(),
        None => Queue::current(),
    };
    require_liftable(columns, log_leaves);
    let _stage = queue.stage(Stage::Merkle);
    if columns.is_empty() {
        return DeviceColumn::of_one(&queue, of_nothing());
    }
    let rows = 1usize << log_leaves;
    let tree = DeviceColumn::<T>::new(&queue, 2 * rows - 1);
    let mut layer = tree.part(rows - 1, rows);
    let log_children = if columns.iter().any(|column| column.there().is_some()) {
        hash_subtrees(&queue, columns, log_leaves, &tree, leaves, layers)
    } else {
        leaves(&queue, columns, &mut layer);
        log_leaves
    };
    layers(&queue, tree, log_children);
    layer.mark_as_tree();
    layer
}

/// Panics unless the columns can be lifted to one tree: their lengths are powers of two, ascend, and are no
/// more than its leaves.
fn require_liftable(columns: &[&DeviceColumn<BaseField>], log_leaves: u32) {
    let lens = columns.iter().map(|column| column.len()).collect_vec();
    let Some(longest) = lens.last() else { return };
    assert!(
        lens.is_sorted() && lens[0] >= 2 && lens.iter().all(|len| len.is_power_of_two()),
        "columns of a tree have lengths of powers of two from two on, in ascending order"
    );
    assert!(*longest <= 1 << log_leaves, "a column of {longest} values is not lifted to 2^{log_leaves}");
}

/// Hashes rows of columns into `leaves`. Blocks of columns that are all shorter than the tree are hashed once
/// for each of their own rows, and the state is lifted from there.
fn hash_leaves(
    queue: &Queue,
    columns: &[&DeviceColumn<BaseField>],
    leaves: &mut DeviceColumn<Blake2sHash>,
    form: DigestWords,
) {
    let log_leaves = leaves.len().ilog2();
    let are_alike = columns.iter().all(|column| column.len() == leaves.len() && !column.is_away());
    if columns.len() <= BLOCK_COLUMNS && are_alike {
        return hash_rows(queue, columns, leaves, form);
    }
    let log_sizes = columns.iter().map(|column| column.len().ilog2()).collect_vec();
    // Where all columns are on the device, one table serves all launches.
    let all = columns.iter().all(|column| !column.is_away());
    let all = all.then(|| leaf_table(queue, columns.len(), 0, columns.iter().copied()));
    let blocks = columns.len().div_ceil(BLOCK_COLUMNS);
    // The rows that a block needs are those of its last column, the longest.
    let log_rows = |block: usize| {
        let last = (BLOCK_COLUMNS * (block + 1)).min(columns.len()) - 1;
        if block == blocks - 1 { log_leaves } else { log_sizes[last] }
    };
    let mut before: Option<DeviceColumn<Blake2sHash>> = None;
    for (rows, stage) in &(0..blocks).chunk_by(|&block| log_rows(block)) {
        let stage = stage.collect_vec();
        let (first, end) = (stage[0], stage[stage.len() - 1] + 1);
        let mut states = (end < blocks).then(|| DeviceColumn::<Blake2sHash>::new(queue, 1 << rows));
        let of_stage = &columns[BLOCK_COLUMNS * first..columns.len().min(BLOCK_COLUMNS * end)];
        by_groups(queue, of_stage, &Wanted { unit: BLOCK_COLUMNS, ..Wanted::WHOLE }, |part, arrived| {
            let (first_block, end_block) =
                (first + part.start / BLOCK_COLUMNS, first + part.end.div_ceil(BLOCK_COLUMNS));
            let of_group = || leaf_table(queue, columns.len(), BLOCK_COLUMNS * first_block, arrived);
            let entries = all.is_none().then(of_group);
            let Some(entries) = all.as_ref().or(entries.as_ref()) else { unreachable!("one is there") };
            let digests = states.as_mut().unwrap_or(leaves);
            // A row's state goes on where it is.
            let own = digests.alias();
            let (initial, log_initial) = match &before {
                _ if first_block > first => (own.words(queue), rows),
                Some(states) => (states.words(queue), states.len().ilog2()),
                // Before the first block no state is read: any memory will do.
                None => (entries.slice(..).cast(), 0),
            };
            let arguments = args![
                entries,
                columns.len() as u32,
                first_block as u32,
                end_block as u32,
                rows,
                initial,
                log_initial,
                digests.words_mut(),
                form.code()
            ];
            queue.launch(&kernels::MERKLE, "merkle_leaves", &one_thread_each(1 << rows).early(), &arguments);
        });
        before = states;
    }
}

/// The table of `count` columns that leaves are made of, of which only those from `first` on are known.
pub(super) fn leaf_table<'a>(
    queue: &Queue,
    count: usize,
    first: usize,
    columns: impl IntoIterator<Item = &'a DeviceColumn<BaseField>>,
) -> Buffer<LeafColumn> {
    let mut entries = vec![LeafColumn { values: 0, log_size: 0, unused: 0 }; count];
    for (entry, column) in entries[first..].iter_mut().zip(columns) {
        (entry.values, entry.log_size) = (column.address(queue), column.len().ilog2());
    }
    queue.upload(&entries)
}

/// Hashes rows of few columns that are as long as the tree.
fn hash_rows<T: Element>(
    queue: &Queue,
    columns: &[&DeviceColumn<BaseField>],
    leaves: &mut DeviceColumn<T>,
    form: DigestWords,
) {
    // Of addresses that stand for no column nothing is read.
    let at = std::array::from_fn(|index| columns.get(index).map_or(0, |column| column.address(queue)));
    let addresses = FewColumns { at };
    let rows = leaves.len();
    let (count, log_rows) = (columns.len() as u32, rows.ilog2());
    let arguments = args![ByValue(&addresses), count, log_rows, leaves.words_mut(), form.code()];
    queue.launch(&kernels::MERKLE, "merkle_rows", &one_thread_each(rows).early(), &arguments);
}

/// Computes all layers above the one of 2^`log_children` nodes of a tree in breadth-first order.
fn hash_layers(queue: &Queue, mut tree: DeviceColumn<Blake2sHash>, log_children: u32, form: DigestWords) {
    let log_children = hash_lower_layers(queue, &mut tree, log_children, form);
    if log_children > 0 {
        launch_layers(queue, &mut tree, log_children, log_children, form);
    }
}

/// Computes layers above the leaves until one block can do the others: the logarithm of the nodes that they
/// start from.
fn hash_lower_layers<T: Element>(
    queue: &Queue,
    tree: &mut DeviceColumn<T>,
    log_leaves: u32,
    form: DigestWords,
) -> u32 {
    let mut log_children = log_leaves;
    while log_children > LOG_BLOCK_CHILDREN {
        // One launch less for small trees, where launches are what takes time.
        let above = log_children - LOG_BLOCK_CHILDREN;
        let layers = if above <= LOG_BLOCK_CHILDREN { above } else { LAYERS_PER_LAUNCH };
        launch_layers(queue, tree, log_children, layers, form);
        log_children -= layers;
    }
    log_children
}

fn launch_layers<T: Element>(
    queue: &Queue,
    tree: &mut DeviceColumn<T>,
    log_children: u32,
    layers: u32,
    form: DigestWords,
) {
    let parents = 1u32 << (log_children - 1);
    let threads = parents.min(THREADS);
    let grid = Grid::new([parents / threads, 1, 1], [threads, 1, 1]).shared(32 * threads);
    let arguments = args![tree.words_mut(), log_children, layers, form.code()];
    queue.launch(&kernels::MERKLE, "merkle_layers", &grid.early(), &arguments);
}

/// A tree of Blake2s over one column of QM31 whose root goes into a transcript on the device, with digests as
/// the channel names them.
pub(crate) struct SecureTree<T> {
    nodes: DeviceColumn<T>,
    log_leaves: u32,
}

impl<T: Element> SecureTree<T> {
    /// Memory for a tree of 2^`log_leaves` leaves, more than one.
    pub(crate) fn new(queue: &Queue, log_leaves: u32) -> Self {
        Self { nodes: DeviceColumn::new(queue, (2 << log_leaves) - 1), log_leaves }
    }

    /// The nodes, root first.
    pub(crate) fn nodes(&self) -> &DeviceColumn<T> {
        &self.nodes
    }

    fn leaves(&self) -> DeviceColumn<T> {
        let leaves = 1usize << self.log_leaves;
        self.nodes.part(leaves - 1, leaves)
    }

    /// Where the leaves lie, for kernels on `queue`.
    pub(crate) fn leaves_address(&self, queue: &Queue) -> u64 {
        self.leaves().address(queue)
    }

    /// Hashes `values` into the leaves.
    pub(crate) fn hash_leaves(
        &self,
        queue: &Queue,
        values: &SecureColumnByCoords<CudaBackend>,
        form: DigestWords,
    ) {
        hash_rows(queue, &values.columns.each_ref(), &mut self.leaves(), form);
    }

    /// Hashes the layers above the leaves, takes the root into `digest` and draws `alpha`.
    pub(crate) fn finish(
        &mut self,
        queue: &Queue,
        digest: &mut DeviceColumn<T>,
        alpha: &mut Challenge,
        form: DigestWords,
    ) {
        let log_children = hash_lower_layers(queue, &mut self.nodes, self.log_leaves, form);
        let threads = 1u32 << (log_children - 1);
        let grid = Grid::new([1; 3], [threads, 1, 1]).shared(32 * threads);
        let (nodes, digest) = (self.nodes.words_mut(), digest.words_mut());
        let arguments = args![nodes, log_children, digest, alpha, form.code()];
        queue.launch(&kernels::MERKLE, "finish_tree", &grid.early(), &arguments);
    }

    /// The layers as stwo keeps them.
    pub(crate) fn into_prover<H: MerkleHasherLifted<Hash = T>>(self) -> MerkleProverLifted<CudaBackend, H>
    where
        CudaBackend: MerkleOpsLifted<H> + ColumnOps<T, Column = DeviceColumn<T>>,
    {
        let layer = |log: u32| self.nodes.part((1 << log) - 1, 1 << log);
        MerkleProverLifted { layers: (0..=self.log_leaves).map(layer).collect() }
    }
}

impl PackLeavesOps for CudaBackend {
    fn pack_leaves_input(
        values: &[&DeviceColumn<BaseField>; SECURE_EXTENSION_DEGREE],
    ) -> [DeviceColumn<BaseField>; SECURE_EXTENSION_DEGREE * PACKED_LEAF_SIZE] {
        let rows = values[0].len();
        assert!(rows.is_multiple_of(PACKED_LEAF_SIZE), "{rows} rows are no whole number of leaves");
        assert!(values.iter().all(|column| column.len() == rows), "coordinates have one length");
        let queue = values[0].queue();
        let lens = [rows / PACKED_LEAF_SIZE; SECURE_EXTENSION_DEGREE * PACKED_LEAF_SIZE];
        let packed: [_; SECURE_EXTENSION_DEGREE * PACKED_LEAF_SIZE] =
            DeviceColumn::batch(queue, lens).try_into().expect("one column for each length");
        let (from, to) = (table(queue, *values), table(queue, &packed));
        let mut grid = one_thread_each(rows);
        grid.blocks[1] = SECURE_EXTENSION_DEGREE as u32;
        queue.launch(&kernels::MERKLE, "merkle_pack", &grid, &args![&from, &to, rows as u32]);
        packed
    }
}
