//! A component without the constraint framework, whose constraint is evaluated by a kernel of its own on
//! columns of the device: every row has a number and its square.
//!
//! ```sh
//! cargo run -p gatework-stark --example own_component -- cuda
//! ```

use std::borrow::Cow;

use gatework_gpu::{ByValue, Device, Grid, Module, args};
use gatework_stark::{Context, CudaBackend, Error, KERNEL_HEADERS, ToDevice as _};
use stwo::core::ColumnVec;
use stwo::core::air::Component;
use stwo::core::air::accumulation::PointEvaluationAccumulator;
use stwo::core::channel::Blake2sChannel;
use stwo::core::circle::CirclePoint;
use stwo::core::constraints::coset_vanishing;
use stwo::core::fields::FieldExpOps as _;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::pcs::{CommitmentSchemeVerifier, PcsConfig, TreeVec};
use stwo::core::poly::circle::CanonicCoset;
use stwo::core::proof::StarkProof;
use stwo::core::utils::bit_reverse;
use stwo::core::vcs_lifted::blake2_merkle::{Blake2sMerkleChannel, Blake2sMerkleHasher};
use stwo::core::verifier::{VerificationError, verify};
use stwo::prover::backend::simd::column::BaseColumn;
use stwo::prover::poly::circle::PolyOps as _;
use stwo::prover::{
    CommitmentSchemeProver, ComponentProver, DomainEvaluationAccumulator, EvaluationMode, Trace,
};

/// Adds alpha (square - number^2) / vanishing to each row of the sums, which are of QM31 by coordinates. One
/// thread a row.
static KERNEL: Module = Module::new(
    "squares",
    r#"
#include "field.cuh"

GW_KERNEL(add_squares)(const u32* numbers, const u32* squares, const u32* inverses, QM31 alpha, u32 log_trace, u32 rows,
                       u32* a, u32* b, u32* c, u32* d) {
    const u32 row = (u32)gw::global_thread();
    if (row >= rows) return;
    const u32 difference = m31::sub(squares[row], m31::square(numbers[row]));
    const QM31 quotient = qm31::mul_m31(alpha, m31::mul(difference, inverses[row >> log_trace]));
    a[row] = m31::add(a[row], quotient.a);
    b[row] = m31::add(b[row], quotient.b);
    c[row] = m31::add(c[row], quotient.c);
    d[row] = m31::add(d[row], quotient.d);
}
"#,
    KERNEL_HEADERS,
);

/// Rows of numbers and their squares, in the first two columns of the trace.
pub struct Squares {
    /// The logarithm of their number.
    pub log_rows: u32,
}

impl Component for Squares {
    fn n_constraints(&self) -> usize {
        1
    }

    fn max_constraint_log_degree_bound(&self) -> u32 {
        self.log_rows + 1
    }

    fn trace_log_degree_bounds(&self) -> TreeVec<ColumnVec<u32>> {
        TreeVec(vec![vec![], vec![self.log_rows; 2]])
    }

    fn mask_points(
        &self,
        point: CirclePoint<SecureField>,
        _: u32,
    ) -> TreeVec<ColumnVec<Vec<CirclePoint<SecureField>>>> {
        TreeVec(vec![vec![], vec![vec![point]; 2]])
    }

    fn preprocessed_column_indices(&self) -> ColumnVec<usize> {
        vec![]
    }

    /// What the verifier computes: the same quotient at one point, of columns that are lifted to the largest
    /// domain.
    fn evaluate_constraint_quotients_at_point(
        &self,
        point: CirclePoint<SecureField>,
        mask: &TreeVec<ColumnVec<Vec<SecureField>>>,
        accumulator: &mut PointEvaluationAccumulator,
        max_log_degree_bound: u32,
    ) {
        let (number, square) = (mask[1][0][0], mask[1][1][0]);
        let folded = point.repeated_double(max_log_degree_bound - self.log_rows);
        let vanishing = coset_vanishing(CanonicCoset::new(self.log_rows).coset(), folded);
        accumulator.accumulate((square - number.square()) * vanishing.inverse());
    }
}

impl ComponentProver<CudaBackend> for Squares {
    fn evaluate_constraint_quotients_on_domain(
        &self,
        trace: &Trace<'_, CudaBackend>,
        accumulator: &mut DomainEvaluationAccumulator<CudaBackend>,
    ) {
        // The domain of constraints is a part of that of the committed columns, or they are evaluated on it
        // anew.
        let mode = accumulator.evaluation_mode();
        let log_expansion = match mode {
            EvaluationMode::SubDomain { log_expansion } => log_expansion,
            EvaluationMode::ExtendToEvalDomain => 0,
        };
        let log_bound = self.max_constraint_log_degree_bound();
        let domain = CanonicCoset::new(log_bound + log_expansion).circle_domain().split(log_expansion).0;
        let columns = [0, 1].map(|column| {
            let polynomial = trace.polys[1][column];
            match mode {
                EvaluationMode::SubDomain { .. } => Cow::Borrowed(&polynomial.evals),
                EvaluationMode::ExtendToEvalDomain => {
                    let twiddles = CudaBackend::precompute_twiddles(domain.half_coset);
                    Cow::Owned(polynomial.get_evaluation_on_domain(domain, &twiddles))
                }
            }
        });

        // In bit-reversed order the vanishing polynomial has one value on each run of as many rows as the
        // trace has.
        let coset = CanonicCoset::new(self.log_rows).coset();
        let mut inverses: Vec<BaseField> = (0..1 << (domain.log_size() - self.log_rows))
            .map(|run| coset_vanishing(coset, domain.at(run)).inverse())
            .collect();
        bit_reverse(&mut inverses);
        let inverses = gatework_stark::upload(&[&inverses]).remove(0);

        let [sums] = accumulator.columns([(domain.log_size(), 1)]);
        let alpha = sums.random_coeff_powers[0].to_m31_array().map(|coordinate| coordinate.0);
        let [a, b, c, d] = &mut sums.col.columns;
        let stream = a.stream().clone();
        let [numbers, squares] = columns.each_ref().map(|column| column.values.view());
        let arguments = args![
            numbers,
            squares,
            inverses.view(),
            ByValue(&alpha),
            self.log_rows,
            domain.size() as u32,
            a.view_mut(),
            b.view_mut(),
            c.view_mut(),
            d.view_mut()
        ];
        // The trait returns no error; `Context::scope` would not know this panic from any other.
        let kernel = stream.device().kernel_of(&KERNEL, "add_squares").expect("the kernel compiles");
        kernel
            .launch(&stream, &Grid::covering(domain.size(), 256), &arguments)
            .expect("the kernel is launched");
    }
}

/// A proof that the second column has the squares of the first, by columns of `SimdBackend`.
pub fn prove(
    component: &impl ComponentProver<CudaBackend>,
    numbers: &[BaseField],
    config: PcsConfig,
) -> Result<StarkProof<Blake2sMerkleHasher>, Error> {
    let log_rows = numbers.len().ilog2();
    let log_largest = log_rows + config.fri_config.log_blowup_factor.max(1);
    let twiddles =
        CudaBackend::precompute_twiddles(CanonicCoset::new(log_largest).circle_domain().half_coset);
    let channel = &mut Blake2sChannel::default();
    let mut scheme = CommitmentSchemeProver::<CudaBackend, Blake2sMerkleChannel>::new(config, &twiddles);
    scheme.tree_builder().commit(channel);
    let mut tree = scheme.tree_builder();
    let squares = numbers.iter().map(|number| number.square());
    let columns: [BaseColumn; 2] = [numbers.iter().copied().collect(), squares.collect()];
    tree.extend_polys(columns.interpolate_on_device(&twiddles));
    tree.commit(channel);
    gatework_stark::prove(&[component], channel, scheme)
}

/// By stwo's verifier.
pub fn check(
    component: &Squares,
    config: PcsConfig,
    proof: StarkProof<Blake2sMerkleHasher>,
) -> Result<(), VerificationError> {
    let channel = &mut Blake2sChannel::default();
    let mut scheme = CommitmentSchemeVerifier::<Blake2sMerkleChannel>::new(config);
    let sizes = component.trace_log_degree_bounds();
    scheme.commit(proof.commitments[0], &sizes[0], channel);
    scheme.commit(proof.commitments[1], &sizes[1], channel);
    verify(&[component], channel, &mut scheme, proof)
}

// Where this file is a part of a test, nothing calls it.
#[allow(dead_code)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = std::env::args().nth(1).unwrap_or("emulated".into());
    let context = Context::new(&Device::open(&device)?)?;
    let component = Squares { log_rows: 10 };
    let numbers: Vec<BaseField> = (0..1u32 << component.log_rows).map(BaseField::from).collect();
    let config = PcsConfig::default();
    let proof = context.scope(|| prove(&component, &numbers, config))??;
    check(&component, config, proof)?;
    println!("{} rows of squares were proved on {:?} and verified", numbers.len(), context.device());
    Ok(())
}
