//! What an extended proof tells beside the proof: everything that its verifier would read or compute on the
//! way to the roots.

use hashbrown::HashMap;
use itertools::Itertools as _;
use stwo::core::fields::qm31::SecureField;
use stwo::core::fri::{FriLayerProofAux, FriProofAux};
use stwo::core::pcs::TreeVec;
use stwo::core::pcs::quotients::CommitmentSchemeProofAux;
use stwo::core::vcs_lifted::merkle_hasher::MerkleHasherLifted;
use stwo::core::vcs_lifted::verifier::MerkleDecommitmentLiftedAux;
use stwo::prover::CommitmentSchemeProver;
use stwo::prover::backend::{BackendForChannel, ColumnOps};
use stwo::prover::secure_column::SecureColumnByCoords;
use stwo::prover::vcs_lifted::ops::MerkleOpsLifted;
use stwo::prover::vcs_lifted::prover::MerkleProverLifted;

use super::fri::{Layers, Opening};
use super::openings::{Hashes, Openings, Read, Values, positions_in};
use super::transcript::{DeviceChannel, Digest};
use crate::backend::CudaBackend;
use crate::column::DeviceColumn;
use crate::element::Element;

/// Hashes of a tree on the way from leaves to the root, layer by layer, by the indices of their nodes.
struct Nodes(Vec<(Vec<usize>, Hashes)>);

impl Nodes {
    /// Asks for both children of every node above the leaves at `positions`.
    fn above<'a, H: MerkleHasherLifted<Hash: Element>>(
        tree: &'a MerkleProverLifted<CudaBackend, H>,
        positions: &[usize],
        openings: &mut Openings<'a, H::Hash>,
    ) -> Self
    where
        CudaBackend: MerkleOpsLifted<H> + ColumnOps<H::Hash, Column = DeviceColumn<H::Hash>>,
    {
        let mut parents = positions.iter().map(|place| place >> 1).dedup().collect_vec();
        let layers = tree.layers.iter().skip(1).rev().map(|layer| {
            let children = parents.iter().flat_map(|parent| [2 * parent, 2 * parent + 1]).collect_vec();
            parents = parents.iter().map(|parent| parent >> 1).dedup().collect();
            let hashes = openings.hashes(layer, children.iter().copied());
            (children, hashes)
        });
        Self(layers.collect())
    }

    fn finish<H: MerkleHasherLifted<Hash: Element>>(
        self,
        read: &Read<H::Hash>,
    ) -> MerkleDecommitmentLiftedAux<H> {
        let layer = |(indices, hashes): (Vec<usize>, Hashes)| -> HashMap<usize, H::Hash> {
            indices.into_iter().zip(read.hashes(&hashes)).collect()
        };
        MerkleDecommitmentLiftedAux { all_node_values: self.0.into_iter().map(layer).collect() }
    }
}

/// Values of a layer of FRI that are folded, by their positions.
struct Folded {
    positions: Vec<usize>,
    coordinates: [Values; 4],
    nodes: Nodes,
}

impl Folded {
    fn of<'a, H: MerkleHasherLifted<Hash: Element>>(
        tree: &'a MerkleProverLifted<CudaBackend, H>,
        values: &'a SecureColumnByCoords<CudaBackend>,
        opening: Opening,
        openings: &mut Openings<'a, H::Hash>,
    ) -> Self
    where
        CudaBackend: MerkleOpsLifted<H> + ColumnOps<H::Hash, Column = DeviceColumn<H::Hash>>,
    {
        let Opening { positions, leaves, .. } = opening;
        let all = || positions.iter().copied();
        Self {
            coordinates: values.columns.each_ref().map(|column| openings.values(column, all())),
            nodes: Nodes::above(tree, &leaves, openings),
            positions,
        }
    }

    fn finish<H: MerkleHasherLifted<Hash: Element>>(self, read: &Read<H::Hash>) -> FriLayerProofAux<H> {
        let values = read.secures(&self.coordinates);
        let by_position: HashMap<usize, SecureField> = self.positions.into_iter().zip(values).collect();
        FriLayerProofAux { all_values: vec![by_position], decommitment: self.nodes.finish(read) }
    }
}

/// Auxiliary data that is yet to be read.
pub(super) struct Pending {
    unsorted_query_locations: Vec<usize>,
    trees: Vec<Nodes>,
    layers: Vec<Folded>,
}

impl Pending {
    /// Asks for all that belongs to the queries. `unsorted` are those as they were drawn.
    pub(super) fn open<'a, MC: DeviceChannel>(
        scheme: &'a CommitmentSchemeProver<'_, CudaBackend, MC>,
        layers: &'a Layers<MC>,
        quotients: &'a SecureColumnByCoords<CudaBackend>,
        unsorted: Vec<usize>,
        openings: &mut Openings<'a, Digest<MC>>,
    ) -> Self
    where
        CudaBackend: BackendForChannel<MC> + ColumnOps<Digest<MC>, Column = DeviceColumn<Digest<MC>>>,
    {
        let queries = layers.queries(&unsorted);
        let log_lifted = queries.log_domain_size;
        let trees = (0..scheme.trees.len()).map(|tree| {
            let positions = positions_in(scheme, tree, &queries.positions, log_lifted);
            Nodes::above(&scheme.trees[tree].commitment, &positions, openings)
        });
        let trees = trees.collect();
        let folded = layers.opened(quotients, &queries);
        let layers =
            folded.map(|(layer, values, opening)| Folded::of(&layer.tree, values, opening, openings));
        Self { layers: layers.collect(), trees, unsorted_query_locations: unsorted }
    }

    pub(super) fn finish<H: MerkleHasherLifted<Hash: Element>>(
        self,
        read: &Read<H::Hash>,
    ) -> CommitmentSchemeProofAux<H> {
        let trees = self.trees.into_iter().map(|nodes| nodes.finish(read));
        let mut layers = self.layers.into_iter().map(|layer| layer.finish(read));
        let Some(first_layer) = layers.next() else { unreachable!("FRI has a first layer") };
        CommitmentSchemeProofAux {
            unsorted_query_locations: self.unsorted_query_locations,
            trace_decommitment: TreeVec(trees.collect()),
            fri: FriProofAux { first_layer, inner_layers: layers.collect() },
        }
    }
}
