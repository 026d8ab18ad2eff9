//! FRI: commitments to folds, then openings at queries.

use gatework_gpu::Code as _;
use itertools::Itertools as _;
use num_traits::Zero as _;
use stwo::core::channel::{Channel as _, MerkleChannel};
use stwo::core::fri::{FriConfig, FriLayerProof, FriProof};
use stwo::core::poly::line::LinePoly;
use stwo::core::queries::{Queries, draw_queries};
use stwo::core::vcs_lifted::merkle_hasher::MerkleHasherLifted;
use stwo::core::vcs_lifted::verifier::LOG_PACKED_LEAF_SIZE;
use stwo::prover::backend::{BackendForChannel, ColumnOps, CpuBackend};
use stwo::prover::line::LineEvaluation;
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::SecureEvaluation;
use stwo::prover::poly::twiddles::TwiddleTree;
use stwo::prover::secure_column::SecureColumnByCoords;

use super::layer::Layer;
use super::openings::{Hashes, Openings, Read, Values};
use super::tail::{LOG_TAIL, fold_to_last};
use super::transcript::{DeviceChannel, Digest, Transcript, draw_on_host};
use crate::Result;
use crate::backend::CudaBackend;
use crate::column::DeviceColumn;
use crate::cuda::fri::{Challenge, fold_circle_by, fold_line_by, fold_line_once};
use crate::cuda::merkle::SecureTree;
use crate::element::Element;
use crate::shared::Leaves;

/// All layers of a commitment.
pub(super) struct Layers<MC: MerkleChannel>
where
    CudaBackend: BackendForChannel<MC>,
{
    config: FriConfig,
    log_first: u32,
    first: Layer<MC>,
    inner: Vec<(LineEvaluation<CudaBackend>, Layer<MC>)>,
    last: LinePoly,
}

impl<MC: DeviceChannel> Layers<MC>
where
    CudaBackend: BackendForChannel<MC> + ColumnOps<Digest<MC>, Column = DeviceColumn<Digest<MC>>>,
{
    /// Folds `quotients` down to the last layer, with a commitment and a challenge before each fold. Where
    /// the device draws the challenges, all of it is queued at once: the host waits for the last layer alone,
    /// and does `meanwhile` before.
    pub(super) fn commit(
        channel: &mut MC::C,
        config: FriConfig,
        quotients: &SecureEvaluation<CudaBackend, BitReversedOrder>,
        twiddles: &TwiddleTree<CudaBackend>,
        meanwhile: impl FnOnce() -> Result<()>,
    ) -> Result<Self> {
        let queue = quotients.values.columns[0].queue();
        let log_last = config.last_layer_domain_size().ilog2();
        let log_first = quotients.domain.log_size();
        let (first, inner, domain, last_values) = if let Some(form) = MC::WORDS {
            let mut transcript = Transcript::of::<MC>(queue, channel, form);
            let (first, inner, values) = if config.fold_step == 1 {
                commit_by_two(&mut transcript, quotients, log_last, twiddles)
            } else {
                commit_by_more(|root| transcript.draw(root), config.fold_step, quotients, log_last, twiddles)
            };
            meanwhile()?;
            (first, inner, values.domain(), transcript.finish::<MC>(channel, &values.values))
        } else {
            meanwhile()?;
            let draw = |root: &_| draw_on_host::<MC>(queue, channel, root);
            let (first, inner, values) =
                commit_by_more(draw, config.fold_step, quotients, log_last, twiddles);
            (first, inner, values.domain(), values.values.to_cpu().to_vec())
        };
        let last_values = last_values.into_iter().collect();
        let mut coefficients =
            LineEvaluation::<CpuBackend>::new(domain, last_values).interpolate().into_ordered_coefficients();
        let rest = coefficients.split_off(1 << config.log_last_layer_degree_bound);
        assert!(rest.iter().all(|coefficient| coefficient.is_zero()), "the last layer has a higher degree");
        let last = LinePoly::from_ordered_coefficients(coefficients);
        channel.mix_felts(&last);
        Ok(Self { config, log_first, first, inner, last })
    }

    /// Draws positions of the first layer.
    pub(super) fn draw(&self, channel: &mut MC::C) -> Vec<usize> {
        draw_queries(channel, self.log_first, self.config.n_queries)
    }

    /// Positions in their order, each once.
    pub(super) fn queries(&self, drawn: &[usize]) -> Queries {
        Queries::new(drawn, self.log_first)
    }

    /// All layers with their values, and what `queries` of the first open of each.
    pub(super) fn opened<'a>(
        &'a self,
        quotients: &'a SecureColumnByCoords<CudaBackend>,
        queries: &Queries,
    ) -> impl Iterator<Item = (&'a Layer<MC>, &'a SecureColumnByCoords<CudaBackend>, Opening)> {
        let inner = self.inner.iter().map(|(values, layer)| (layer, &values.values));
        let mut folded = queries.clone();
        std::iter::once((&self.first, quotients)).chain(inner).map(move |(layer, values)| {
            let opening = Opening::of(layer, &folded);
            folded = folded.fold(layer.fold_step);
            (layer, values, opening)
        })
    }

    /// Asks for what the verifier needs at the queries.
    pub(super) fn open<'a>(
        &'a self,
        quotients: &'a SecureColumnByCoords<CudaBackend>,
        queries: &Queries,
        openings: &mut Openings<'a, Digest<MC>>,
    ) -> Pending {
        let opened = self.opened(quotients, queries);
        let layers = opened.map(|(layer, values, opening)| open_layer(layer, values, opening, openings));
        Pending { layers: layers.collect(), last: self.last.clone() }
    }
}

/// A commitment's first layer, the others with their values, and what is left after all folds.
type Folded<MC> = (Layer<MC>, Vec<(LineEvaluation<CudaBackend>, Layer<MC>)>, LineEvaluation<CudaBackend>);

/// Folds by two. A fold also hashes the leaves of the next tree, and the end of a tree draws the challenge.
fn commit_by_two<MC: DeviceChannel>(
    transcript: &mut Transcript<Digest<MC>>,
    quotients: &SecureEvaluation<CudaBackend, BitReversedOrder>,
    log_last: u32,
    twiddles: &TwiddleTree<CudaBackend>,
) -> Folded<MC>
where
    CudaBackend: BackendForChannel<MC> + ColumnOps<Digest<MC>, Column = DeviceColumn<Digest<MC>>>,
{
    let (queue, form) = (transcript.queue().clone(), transcript.form());
    // The tree over what is folded to, unless that is left to the end or is the last.
    let next_tree = |log_size: u32| {
        let tree = (log_size > LOG_TAIL.max(log_last)).then(|| SecureTree::new(&queue, log_size));
        let address = tree.as_ref().map_or(0, |tree| tree.leaves_address(&queue));
        (tree, Leaves { address, words: form.code(), unused: 0 })
    };
    let layer =
        |tree: SecureTree<Digest<MC>>| Layer { tree: tree.into_prover(), packed: false, fold_step: 1 };

    let mut log_size = quotients.domain.log_size();
    let mut tree = SecureTree::new(&queue, log_size);
    tree.hash_leaves(&queue, &quotients.values, form);
    let mut alpha = transcript.draw_by(&mut tree);
    let first = layer(tree);
    log_size -= 1;
    let (mut next, mut leaves) = next_tree(log_size);
    let mut values = fold_circle_by(quotients, &alpha, twiddles, leaves);
    let mut inner = Vec::new();
    while let Some(mut tree) = next {
        alpha = transcript.draw_by(&mut tree);
        log_size -= 1;
        (next, leaves) = next_tree(log_size);
        let folded = fold_line_once(&values, &alpha, 0, twiddles, leaves);
        inner.push((std::mem::replace(&mut values, folded), layer(tree)));
    }
    if log_size > log_last {
        let (layers, last) = fold_to_last(transcript, values, log_last, twiddles);
        inner.extend(layers);
        values = last;
    }
    (first, inner, values)
}

/// Folds by 2^`fold_step`. `draw` takes a root in and gives a challenge.
fn commit_by_more<MC: DeviceChannel>(
    mut draw: impl FnMut(&DeviceColumn<Digest<MC>>) -> Challenge,
    fold_step: u32,
    quotients: &SecureEvaluation<CudaBackend, BitReversedOrder>,
    log_last: u32,
    twiddles: &TwiddleTree<CudaBackend>,
) -> Folded<MC>
where
    CudaBackend: BackendForChannel<MC> + ColumnOps<Digest<MC>, Column = DeviceColumn<Digest<MC>>>,
{
    let first = Layer::<MC>::new(&quotients.values, fold_step);
    let alpha = draw(&first.tree.layers[0]);
    let mut values = fold_circle_by(quotients, &alpha, twiddles, Leaves::default());
    if fold_step > 1 {
        values = fold_line_by(&values, &alpha, 1, twiddles, fold_step - 1);
    }
    let mut inner = Vec::new();
    while values.domain().log_size() > log_last {
        let fold_step = (values.domain().log_size() - log_last).min(fold_step);
        let layer = Layer::<MC>::new(&values.values, fold_step);
        let alpha = draw(&layer.tree.layers[0]);
        let folded = fold_line_by(&values, &alpha, 0, twiddles, fold_step);
        inner.push((std::mem::replace(&mut values, folded), layer));
    }
    (first, inner, values)
}

/// What is opened of a layer.
pub(super) struct Opening {
    /// All values that are folded to what the next layer is asked for.
    pub(super) positions: Vec<usize>,
    /// Those of them that the verifier does not compute from the layer before.
    missing: Vec<usize>,
    /// The leaves that they lie in.
    pub(super) leaves: Vec<usize>,
}

impl Opening {
    fn of<MC: MerkleChannel>(layer: &Layer<MC>, queries: &[usize]) -> Self
    where
        CudaBackend: BackendForChannel<MC>,
    {
        let step = layer.fold_step;
        let cosets = queries.iter().map(|query| query >> step).dedup();
        let positions = cosets.flat_map(|coset| coset << step..(coset + 1) << step).collect_vec();
        let missing =
            positions.iter().copied().filter(|place| queries.binary_search(place).is_err()).collect_vec();
        let leaves = if layer.packed {
            positions.iter().map(|place| place >> LOG_PACKED_LEAF_SIZE).dedup().collect_vec()
        } else {
            positions.clone()
        };
        Self { positions, missing, leaves }
    }
}

/// The openings of one layer: coordinates of values that cannot be computed, and hashes.
struct Opened {
    coordinates: [Values; 4],
    witness: Hashes,
    root: Hashes,
}

fn open_layer<'a, MC: DeviceChannel>(
    layer: &'a Layer<MC>,
    values: &'a SecureColumnByCoords<CudaBackend>,
    opening: Opening,
    openings: &mut Openings<'a, Digest<MC>>,
) -> Opened
where
    CudaBackend: BackendForChannel<MC> + ColumnOps<Digest<MC>, Column = DeviceColumn<Digest<MC>>>,
{
    let Opening { missing, leaves, .. } = opening;
    Opened {
        coordinates: values.columns.each_ref().map(|column| openings.values(column, missing.iter().copied())),
        witness: openings.witness(&layer.tree, &leaves),
        root: openings.root(&layer.tree),
    }
}

/// A proof of FRI whose openings are yet to be read.
pub(super) struct Pending {
    /// The first layer is the first.
    layers: Vec<Opened>,
    last: LinePoly,
}

impl Pending {
    pub(super) fn finish<H: MerkleHasherLifted<Hash: Element>>(self, read: &Read<H::Hash>) -> FriProof<H> {
        let mut layers = self.layers.iter().map(|opened| FriLayerProof {
            fri_witness: read.secures(&opened.coordinates),
            decommitment: read.decommitment(&opened.witness),
            commitment: read.root(&opened.root),
        });
        let Some(first_layer) = layers.next() else { unreachable!("FRI has a first layer") };
        FriProof { first_layer, inner_layers: layers.collect(), last_layer_poly: self.last }
    }
}
