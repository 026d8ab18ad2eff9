//! `MleOps` and `GkrOps`: multilinear extensions and the layers of GKR.

use gatework_gpu::{ByValue, Code as _, Grid, Slice, args};
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::prover::backend::Column as _;
use stwo::prover::lookups::gkr_prover::{
    GkrMultivariatePolyOracle, GkrOps, Layer, correct_sum_as_poly_in_first_variable,
};
use stwo::prover::lookups::mle::{Mle, MleOps};
use stwo::prover::lookups::sumcheck::MultivariatePolyOracle as _;
use stwo::prover::lookups::utils::UnivariatePoly;

use super::{THREADS, flat_words, one_thread_each, words};
use crate::backend::CudaBackend;
use crate::column::DeviceColumn;
use crate::element::Element as _;
use crate::error::OrRaise as _;
use crate::kernels;
use crate::queue::Queue;
use crate::shared::LayerKind;

/// What a layer is made of.
struct Gates<'a> {
    kind: LayerKind,
    /// Any memory where there are none.
    numerators: Slice<'a, u32>,
    denominators: &'a DeviceColumn<SecureField>,
}

impl<'a> Gates<'a> {
    fn of(layer: &'a Layer<CudaBackend>) -> Self {
        let lens = match layer {
            Layer::GrandProduct(values) => [values.len(); 2],
            Layer::LogUpGeneric { numerators, denominators } => [numerators.len(), denominators.len()],
            Layer::LogUpMultiplicities { numerators, denominators } => [numerators.len(), denominators.len()],
            Layer::LogUpSingles { denominators } => [denominators.len(); 2],
        };
        assert!(lens[0] == lens[1], "{} numerators have {} denominators", lens[0], lens[1]);
        match layer {
            Layer::GrandProduct(values) => Self {
                kind: LayerKind::Product,
                numerators: values.words(values.queue()),
                denominators: values,
            },
            Layer::LogUpGeneric { numerators, denominators } => Self {
                kind: LayerKind::Fractions,
                numerators: numerators.words(denominators.queue()),
                denominators,
            },
            Layer::LogUpMultiplicities { numerators, denominators } => Self {
                kind: LayerKind::Multiplicities,
                numerators: numerators.words(denominators.queue()),
                denominators,
            },
            Layer::LogUpSingles { denominators } => Self {
                kind: LayerKind::Singles,
                numerators: denominators.words(denominators.queue()),
                denominators,
            },
        }
    }
}

/// Half of the values of a multilinear polynomial: what is left when a variable is fixed.
fn half(len: usize) -> usize {
    assert!(len >= 2, "a constant has no variable to fix");
    len / 2
}

impl MleOps<BaseField> for CudaBackend {
    fn fix_first_variable(mle: Mle<Self, BaseField>, assignment: SecureField) -> Mle<Self, SecureField> {
        let (queue, half) = (mle.queue(), half(mle.len()));
        let mut fixed = DeviceColumn::<SecureField>::new(queue, half);
        let arguments = args![mle.words(queue), fixed.quads_mut(), ByValue(&words(assignment)), half as u64];
        queue.launch(&kernels::LOOKUPS, "fix_first_m31", &one_thread_each(half), &arguments);
        Mle::new(fixed)
    }
}

impl MleOps<SecureField> for CudaBackend {
    fn fix_first_variable(mle: Mle<Self, SecureField>, assignment: SecureField) -> Mle<Self, SecureField> {
        let (queue, half) = (mle.queue(), half(mle.len()));
        let mut fixed = DeviceColumn::<SecureField>::new(queue, half);
        let arguments = args![mle.quads(queue), fixed.quads_mut(), ByValue(&words(assignment)), half as u64];
        queue.launch(&kernels::LOOKUPS, "fix_first_qm31", &one_thread_each(half), &arguments);
        Mle::new(fixed)
    }
}

impl GkrOps for CudaBackend {
    fn gen_eq_evals(y: &[SecureField], v: SecureField) -> Mle<Self, SecureField> {
        let queue = Queue::current();
        let len = 1usize << y.len();
        let mut column = DeviceColumn::<SecureField>::new(&queue, len);
        // No variables: still some memory for the argument.
        let y_words = queue.upload(&if y.is_empty() { vec![0; 4] } else { flat_words(y) });
        let arguments = args![
            y_words.slice(..).cast::<[u32; 4]>(),
            y.len() as u32,
            ByValue(&words(v)),
            column.quads_mut()
        ];
        queue.launch(&kernels::LOOKUPS, "eq_evaluations", &one_thread_each(len), &arguments);
        Mle::new(column)
    }

    fn next_layer(layer: &Layer<Self>) -> Layer<Self> {
        let Gates { kind, numerators, denominators } = Gates::of(layer);
        let (queue, half) = (denominators.queue(), half(denominators.len()));
        let mut next = DeviceColumn::<SecureField>::new(queue, half);
        let mut next_numerators = DeviceColumn::<SecureField>::new(queue, half);
        let arguments = args![
            numerators,
            denominators.quads(queue),
            next_numerators.quads_mut(),
            next.quads_mut(),
            kind.code(),
            half as u64
        ];
        queue.launch(&kernels::LOOKUPS, "next_layer", &one_thread_each(half), &arguments);
        match kind {
            LayerKind::Product => Layer::GrandProduct(Mle::new(next)),
            LayerKind::Fractions | LayerKind::Multiplicities | LayerKind::Singles => {
                Layer::LogUpGeneric { numerators: Mle::new(next_numerators), denominators: Mle::new(next) }
            }
        }
    }

    fn sum_as_poly_in_first_variable(
        oracle: &GkrMultivariatePolyOracle<'_, Self>,
        claim: SecureField,
    ) -> UnivariatePoly<SecureField> {
        assert!(oracle.input_layer.n_variables() > 0, "a layer of one value has no gates");
        let variables = oracle.n_variables();
        assert!(variables > 0, "a sum over no variables is no polynomial in the first");
        let terms = 1usize << (variables - 1);
        let eq = oracle.eq_evals.as_ref();
        let Gates { kind, numerators, denominators } = Gates::of(&oracle.input_layer);
        assert!(eq.len() >= terms, "{terms} terms have {} values of eq", eq.len());
        let queue = denominators.queue();
        let blocks = terms.div_ceil(THREADS as usize);
        let mut partials = queue.alloc::<[u32; 4]>(2 * blocks);
        let grid = Grid::new([blocks as u32, 1, 1], [THREADS, 1, 1]).shared(2 * THREADS / 32 * 16);
        let arguments = args![
            eq.quads(queue),
            numerators,
            denominators.quads(queue),
            ByValue(&words(oracle.lambda)),
            kind.code(),
            terms as u64,
            &mut partials
        ];
        queue.launch(&kernels::LOOKUPS, "gate_sums", &grid, &arguments);
        let partials = queue.stream().download(&partials).or_raise();
        let total = |part: &[[u32; 4]]| {
            part.iter().map(|words| SecureField::read(words)).sum::<SecureField>()
                * oracle.eq_fixed_var_correction
        };
        let (at_0, at_2) = partials.split_at(blocks);
        correct_sum_as_poly_in_first_variable(total(at_0), total(at_2), claim, eq.y(), variables)
    }
}
