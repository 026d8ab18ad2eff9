//! The small layers of FRI, in one launch.

use gatework_gpu::{Code as _, Grid, args};
use stwo::prover::backend::{BackendForChannel, ColumnOps};
use stwo::prover::line::LineEvaluation;
use stwo::prover::poly::twiddles::TwiddleTree;

use super::layer::Layer;
use super::transcript::{DeviceChannel, Digest, Transcript};
use crate::backend::CudaBackend;
use crate::column::{DeviceColumn, coordinates, secure_column};
use crate::cuda::merkle::SecureTree;
use crate::kernels;
use crate::shared::{LineLayer, TAIL_THREADS};

/// The largest layer that one block folds faster than launches for each step would.
pub(super) const LOG_TAIL: u32 = 10;

/// A layer with its tree.
type Committed<MC> = (LineEvaluation<CudaBackend>, Layer<MC>);

/// Commits to `first` and folds it, by two, until 2^`log_last` values are left: the committed layers, and
/// those values.
pub(super) fn fold_to_last<MC: DeviceChannel>(
    transcript: &mut Transcript<Digest<MC>>,
    first: LineEvaluation<CudaBackend>,
    log_last: u32,
    twiddles: &TwiddleTree<CudaBackend>,
) -> (Vec<Committed<MC>>, LineEvaluation<CudaBackend>)
where
    CudaBackend: BackendForChannel<MC> + ColumnOps<Digest<MC>, Column = DeviceColumn<Digest<MC>>>,
{
    let log_first = first.domain().log_size();
    let queue = transcript.queue().clone();
    let mut values = vec![first];
    let mut trees = Vec::new();
    for log_size in (log_last + 1..=log_first).rev() {
        let domain = values[values.len() - 1].domain().double();
        values.push(LineEvaluation::new(domain, secure_column(&queue, 1 << (log_size - 1))));
        trees.push(SecureTree::new(&queue, log_size));
    }
    let tree_address = |index: usize| trees.get(index).map_or(0, |tree| tree.nodes().address(&queue));
    let layers = values.iter().enumerate().map(|(index, layer)| LineLayer {
        values: coordinates(&queue, &layer.values),
        tree: tree_address(index),
        unused: 0,
    });
    let layers = queue.upload(&layers.collect::<Vec<_>>());
    let inverses = &twiddles.itwiddles;
    let log_table = inverses.log_table_for(values[0].domain().coset());
    let form = transcript.form().code();
    let (table, digest) = (inverses.table(&queue), transcript.digest_mut());
    let arguments = args![&layers, log_first, log_last, table, log_table, digest.words_mut(), form];
    let grid = Grid::new([1, 1, 1], [TAIL_THREADS, 1, 1]).shared(16).early();
    queue.launch(&kernels::FRI, "fold_to_last", &grid, &arguments);

    let Some(last) = values.pop() else { unreachable!("the first is there") };
    let committed = values
        .into_iter()
        .zip(trees)
        .map(|(values, tree)| (values, Layer { tree: tree.into_prover(), packed: false, fold_step: 1 }));
    (committed.collect(), last)
}
