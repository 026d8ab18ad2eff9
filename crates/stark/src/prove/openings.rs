//! What a proof shows of what was committed to: asked for first, then read in one transfer.

use std::ops::Range;

use stwo::core::ColumnVec;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::pcs::utils::prepare_preprocessed_query_positions;
use stwo::core::vcs_lifted::merkle_hasher::MerkleHasherLifted;
use stwo::core::vcs_lifted::verifier::MerkleDecommitmentLifted;
use stwo::core::verifier::PREPROCESSED_TRACE_IDX;
use stwo::prover::CommitmentSchemeProver;
use stwo::prover::backend::{BackendForChannel, Column as _, ColumnOps};
use stwo::prover::vcs_lifted::ops::MerkleOpsLifted;
use stwo::prover::vcs_lifted::prover::MerkleProverLifted;

use super::{DeviceChannel, Digest, log_leaves};
use crate::backend::CudaBackend;
use crate::column::DeviceColumn;
use crate::cuda::{Runs, gather};
use crate::element::Element;
use crate::queue::Queue;

/// Elements that will be read.
pub(super) struct Openings<'a, T> {
    values: Vec<(&'a DeviceColumn<BaseField>, usize)>,
    hashes: Vec<(&'a DeviceColumn<T>, usize)>,
}

/// Elements that were read.
pub(super) struct Read<T> {
    values: Vec<BaseField>,
    hashes: Vec<T>,
}

/// Values of one column, by their place among those read.
pub(super) struct Values(Range<usize>);

/// Hashes of one tree, by their place among those read.
pub(super) struct Hashes(Range<usize>);

impl<'a, T: Element> Openings<'a, T> {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Self { values: Vec::new(), hashes: Vec::new() }
    }

    /// Asks for elements of a column.
    pub(super) fn values(
        &mut self,
        column: &'a DeviceColumn<BaseField>,
        indices: impl IntoIterator<Item = usize>,
    ) -> Values {
        let first = self.values.len();
        self.values.extend(indices.into_iter().map(|index| (column, index)));
        Values(first..self.values.len())
    }

    /// Asks for hashes of a layer of a tree.
    pub(super) fn hashes(
        &mut self,
        layer: &'a DeviceColumn<T>,
        indices: impl IntoIterator<Item = usize>,
    ) -> Hashes {
        let first = self.hashes.len();
        self.hashes.extend(indices.into_iter().map(|index| (layer, index)));
        Hashes(first..self.hashes.len())
    }

    /// Asks for the root of a tree.
    pub(super) fn root<H: MerkleHasherLifted<Hash = T>>(
        &mut self,
        tree: &'a MerkleProverLifted<CudaBackend, H>,
    ) -> Hashes
    where
        CudaBackend: MerkleOpsLifted<H> + ColumnOps<T, Column = DeviceColumn<T>>,
    {
        self.hashes(&tree.layers[0], [0])
    }

    /// Asks for the hashes that a verifier needs beside the leaves at `positions`, which ascend.
    pub(super) fn witness<H: MerkleHasherLifted<Hash = T>>(
        &mut self,
        tree: &'a MerkleProverLifted<CudaBackend, H>,
        positions: &[usize],
    ) -> Hashes
    where
        CudaBackend: MerkleOpsLifted<H> + ColumnOps<T, Column = DeviceColumn<T>>,
    {
        let first = self.hashes.len();
        let mut nodes = positions.to_vec();
        nodes.dedup();
        for layer in tree.layers.iter().skip(1).rev() {
            let siblings = nodes.chunk_by(|left, right| left ^ 1 == *right);
            self.hashes.extend(siblings.filter(|pair| pair.len() == 1).map(|pair| (layer, pair[0] ^ 1)));
            nodes = nodes.iter().map(|node| node >> 1).collect();
            nodes.dedup();
        }
        Hashes(first..self.hashes.len())
    }

    /// Reads everything that was asked for, in one transfer from each device.
    pub(super) fn read(self, queue: &Queue) -> Read<T> {
        let mut values = vec![BaseField::default(); self.values.len()];
        // Which of them each device has: hashes are the lead's.
        let mut asked = vec![(queue, Vec::new())];
        for (place, &(column, index)) in self.values.iter().enumerate() {
            if column.is_streamed() {
                // What is streamed is the host's already.
                values[place] = column.at(index);
                continue;
            }
            let owner = column.there().unwrap_or(column).queue();
            queue.require_beside(owner);
            match asked.iter_mut().find(|(known, _)| known.is(owner)) {
                Some((_, places)) => places.push(place),
                None => asked.push((owner, vec![place])),
            }
        }
        let mut hashes = Vec::new();
        for (owner, places) in asked {
            let element = |&place: &usize| {
                let (column, index) = self.values[place];
                (column.there().unwrap_or(column), index)
            };
            let wanted: Vec<_> = places.iter().map(element).collect();
            let of_owner = if owner.is(queue) { &self.hashes[..] } else { &[] };
            let [found, digests] = gather(owner, [Runs::of(owner, &wanted), Runs::of(owner, of_owner)]);
            for (place, value) in places.into_iter().zip(elements(&found)) {
                values[place] = value;
            }
            hashes.extend(elements::<T>(&digests));
        }
        Read { values, hashes }
    }
}

fn elements<T: Element>(words: &[u32]) -> Vec<T> {
    words.chunks_exact(T::WORDS).map(T::read).collect()
}

impl<T: Element> Read<T> {
    pub(super) fn values(&self, values: &Values) -> Vec<BaseField> {
        self.values[values.0.clone()].to_vec()
    }

    /// Elements of QM31 by their coordinates.
    pub(super) fn secures(&self, coordinates: &[Values; 4]) -> Vec<SecureField> {
        let [a, b, c, d] = coordinates.each_ref().map(|values| &self.values[values.0.clone()]);
        let coordinates = itertools::izip!(a, b, c, d);
        coordinates.map(|(&a, &b, &c, &d)| SecureField::from_m31_array([a, b, c, d])).collect()
    }

    pub(super) fn hashes(&self, hashes: &Hashes) -> Vec<T> {
        self.hashes[hashes.0.clone()].to_vec()
    }

    pub(super) fn root(&self, root: &Hashes) -> T {
        self.hashes[root.0.start]
    }

    pub(super) fn decommitment<H: MerkleHasherLifted<Hash = T>>(
        &self,
        witness: &Hashes,
    ) -> MerkleDecommitmentLifted<H> {
        MerkleDecommitmentLifted { hash_witness: self.hashes(witness) }
    }
}

/// The openings of the trees of the commitment scheme.
pub(super) struct Trees {
    trees: Vec<Tree>,
}

struct Tree {
    root: Hashes,
    columns: Vec<Values>,
    witness: Hashes,
}

/// The rows of a tree that belong to `queries`, which are positions of 2^`lifting_log_size` rows.
pub(super) fn positions_in<MC: DeviceChannel>(
    scheme: &CommitmentSchemeProver<'_, CudaBackend, MC>,
    tree: usize,
    queries: &[usize],
    lifting_log_size: u32,
) -> Vec<usize>
where
    CudaBackend: BackendForChannel<MC> + ColumnOps<Digest<MC>, Column = DeviceColumn<Digest<MC>>>,
{
    match tree {
        PREPROCESSED_TRACE_IDX => {
            prepare_preprocessed_query_positions(queries, lifting_log_size, log_leaves(scheme, tree))
        }
        _ => queries.to_vec(),
    }
}

/// Asks for the rows of all trees at `queries`, which are positions of 2^`lifting_log_size` rows.
pub(super) fn open_trees<'a, MC: DeviceChannel>(
    scheme: &'a CommitmentSchemeProver<'_, CudaBackend, MC>,
    queries: &[usize],
    lifting_log_size: u32,
    openings: &mut Openings<'a, Digest<MC>>,
) -> Trees
where
    CudaBackend: BackendForChannel<MC> + ColumnOps<Digest<MC>, Column = DeviceColumn<Digest<MC>>>,
{
    let trees = scheme.trees.iter().enumerate().map(|(index, tree)| {
        let log_rows = log_leaves(scheme, index);
        let positions = positions_in(scheme, index, queries, lifting_log_size);
        let columns = tree.polynomials.iter().map(|polynomial| {
            let column = &polynomial.evals.values;
            let shift = log_rows - column.len().ilog2();
            openings.values(column, positions.iter().map(|row| (row >> (shift + 1) << 1) | (row & 1)))
        });
        let columns = columns.collect();
        let witness = openings.witness(&tree.commitment, &positions);
        Tree { root: openings.root(&tree.commitment), columns, witness }
    });
    Trees { trees: trees.collect() }
}

/// For each tree, what its columns have at the queries, and the hashes beside.
type Opened<H> = (Vec<ColumnVec<Vec<BaseField>>>, Vec<MerkleDecommitmentLifted<H>>);

impl Trees {
    pub(super) fn roots<T: Element>(&self, read: &Read<T>) -> Vec<T> {
        self.trees.iter().map(|tree| read.root(&tree.root)).collect()
    }

    pub(super) fn finish<H: MerkleHasherLifted<Hash: Element>>(&self, read: &Read<H::Hash>) -> Opened<H> {
        let opened = self.trees.iter().map(|tree| {
            let columns = tree.columns.iter().map(|values| read.values(values)).collect();
            (columns, read.decommitment(&tree.witness))
        });
        opened.unzip()
    }
}
