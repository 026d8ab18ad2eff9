//! `stark/constraints`: a generated kernel for wide Fibonacci, against one that was written by hand.

use gatework_gpu::{Buffer, ByValue, Grid, Kernel, Source, args};
use gatework_lab::{KernelSpec, Work};
use stwo::core::fields::m31::{BaseField, P};
use stwo::core::fields::qm31::SecureField;
use stwo::core::pcs::TreeVec;
use stwo::core::poly::circle::CanonicCoset;
use stwo::prover::backend::{Backend, Col, Column as _, CpuBackend};
use stwo::prover::poly::circle::CircleEvaluation;
use stwo::prover::secure_column::SecureColumnByCoords;
use stwo::prover::{
    AccumulationOps as _, ComponentProver, DomainEvaluationAccumulator, EvaluationMode, Poly, Trace,
};
use stwo_constraint_framework::{FrameworkComponent, TraceLocationAllocator};

use super::{Run, Size, Task, Timed, Unseen};
use crate::airs::{HostColumn, WideFibonacci};
use crate::column::{coordinates, secure_column, table};
use crate::constraints::{THREADS, Workshop, compile, denominators, record, unrolled};
use crate::cuda::flat_words;
use crate::error::OrRaise as _;
use crate::shared::Rows;
use crate::{CudaBackend, DeviceColumn, Tier, kernels, row_operations};

#[derive(Clone, Copy)]
pub(super) struct Constraints;

const ALPHA: SecureField = SecureField::from_u32_unchecked(3, 1, 4, 1);

/// A component whose columns, as they are evaluated on, have 2^`log_evaluation` rows: twice those of its
/// trace.
fn component(log_evaluation: u32, columns: usize) -> FrameworkComponent<WideFibonacci> {
    let air = WideFibonacci { log_rows: log_evaluation - 1, columns };
    FrameworkComponent::new(&mut TraceLocationAllocator::default(), air, SecureField::default())
}

/// The kernels that are generated for so many columns.
fn generated_sources(columns: usize) -> Vec<Source> {
    unrolled(&record(&WideFibonacci { log_rows: 4, columns }, SecureField::default()))
}

/// Adds the component's quotients on columns up, on any backend.
fn quotients<B: Backend>(columns: &[Poly<B>]) -> SecureColumnByCoords<B>
where
    FrameworkComponent<WideFibonacci>: ComponentProver<B>,
{
    let log_evaluation = columns[0].evals.domain.log_size();
    let component = component(log_evaluation, columns.len());
    let trace = Trace { polys: TreeVec(vec![Vec::new(), columns.iter().collect()]) };
    let constraints = columns.len() - 2;
    let mode = EvaluationMode::SubDomain { log_expansion: 0 };
    let mut sums = DomainEvaluationAccumulator::new(ALPHA, log_evaluation, constraints, mode);
    component.evaluate_constraint_quotients_on_domain(&trace, &mut sums);
    let [sums] = sums.columns([(log_evaluation, 0)]);
    sums.col.clone()
}

fn polynomials<B: Backend>(
    columns: &[HostColumn],
    column: impl Fn(&HostColumn) -> Col<B, BaseField>,
) -> Vec<Poly<B>> {
    let domain = CanonicCoset::new(columns[0].len().ilog2()).circle_domain();
    columns.iter().map(|values| Poly::new(None, CircleEvaluation::new(domain, column(values)))).collect()
}

fn words(sums: &SecureColumnByCoords<CpuBackend>) -> Vec<u32> {
    sums.columns.iter().flatten().map(|value| value.0).collect()
}

/// The generated kernel alone, as the one written by hand is timed alone.
fn candidate(columns: Vec<DeviceColumn<BaseField>>) -> Box<dyn Run> {
    let on_columns = OnColumns::new(columns);
    let queue = on_columns.columns[0].queue();
    let kernels = compile(queue, &generated_sources(on_columns.columns.len())).or_raise();
    Box::new(Generated { on_columns, kernels })
}

fn baseline(columns: Vec<DeviceColumn<BaseField>>) -> Box<dyn Run> {
    let prepared = OnColumns::new(columns);
    Box::new(Unseen(move || prepared.launch_by_hand()))
}

/// Generated kernels and what they add to.
struct Generated {
    on_columns: OnColumns,
    kernels: Vec<Kernel>,
}

impl Run for Generated {
    fn run(&mut self) {
        self.on_columns.launch_generated(&self.kernels);
    }

    fn spoil(&mut self) {
        self.on_columns.clear();
    }

    fn words(&mut self) -> Vec<u32> {
        words(&self.on_columns.sums.to_cpu())
    }
}

/// The quotients, added up as often as the kernel ran.
fn expected(columns: &[HostColumn], runs: u32) -> Vec<u32> {
    let once = Constraints.on_host(columns);
    once.into_iter().map(|word| (u64::from(word) * u64::from(runs) % u64::from(P)) as u32).collect()
}

impl Task for Constraints {
    fn name(&self) -> &'static str {
        "stark/constraints"
    }

    fn summary(&self) -> &'static str {
        "quotients of the constraints of wide Fibonacci by a generated kernel"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let generated = generated_sources(100).into_iter().map(|source| KernelSpec::new(source).threads(128));
        let by_hand = KernelSpec::new(kernels::WIDE_FIBONACCI.source()).threads(256);
        generated.chain([by_hand]).collect()
    }

    fn on_device(&self, columns: &[HostColumn]) -> Vec<u32> {
        let columns = polynomials::<CudaBackend>(columns, |values| DeviceColumn::upload(values));
        let queue = columns[0].evals.values.queue();
        let workshop = Workshop::of(queue);
        let tier = workshop.tier();
        workshop.set_tier(Tier::Generated);
        let sums = quotients(&columns);
        workshop.set_tier(tier);
        words(&sums.to_cpu())
    }

    fn on_host(&self, columns: &[HostColumn]) -> Vec<u32> {
        words(&quotients(&polynomials::<CpuBackend>(columns, HostColumn::clone)))
    }

    fn mistaken(&self, columns: &[HostColumn]) -> (&'static str, Vec<u32>) {
        let mut columns = columns.to_vec();
        columns.rotate_left(1);
        ("columns one off", self.on_host(&columns))
    }

    fn work(&self, Size { log_rows, columns }: Size) -> Work {
        let rows = 1u64 << log_rows;
        let operations = row_operations(&WideFibonacci { log_rows: log_rows - 1, columns });
        Work { operations: rows * operations, bytes: rows * (4 * columns as u64 + 32) }
    }

    fn timed(&self) -> Option<Timed> {
        Some(Timed {
            candidate,
            baseline,
            expected,
            baseline_name: "a kernel written by hand",
            at_most: 1.15,
            why: "generated code is what one would write, with a table of columns",
        })
    }
}

/// Columns, with all that a kernel needs beside them.
struct OnColumns {
    columns: Vec<DeviceColumn<BaseField>>,
    addresses: Buffer<u64>,
    coefficients: Buffer<u32>,
    denominators: Buffer<u32>,
    sums: SecureColumnByCoords<CudaBackend>,
}

impl OnColumns {
    fn new(columns: Vec<DeviceColumn<BaseField>>) -> Self {
        let queue = columns[0].queue();
        let (rows, log_rows) = (columns[0].len(), columns[0].len().ilog2());
        let mut powers = CudaBackend::generate_secure_powers(ALPHA, columns.len() - 2);
        powers.reverse();
        let sums = secure_column(queue, rows);
        let domain = CanonicCoset::new(log_rows).circle_domain();
        let prepared = Self {
            addresses: table(queue, &columns),
            coefficients: queue.upload(&flat_words(&powers)),
            denominators: queue.upload(&denominators(log_rows - 1, domain)),
            sums,
            columns,
        };
        prepared.clear();
        prepared
    }

    /// Sums start from zero.
    fn clear(&self) {
        let rows = self.columns[0].len();
        for mut coordinate in self.sums.columns.each_ref().map(|column| column.part(0, rows)) {
            self.columns[0].queue().stream().fill(&mut coordinate.words_mut(), 0).or_raise();
        }
    }

    fn component(&self) -> Rows {
        let rows = self.columns[0].len();
        Rows {
            columns: self.addresses.as_raw(),
            parameters: self.coefficients.as_raw(),
            coefficients: self.coefficients.as_raw(),
            denominators: self.denominators.as_raw(),
            sums: coordinates(self.columns[0].queue(), &self.sums),
            log_trace: rows.ilog2() - 1,
            log_rows: rows.ilog2(),
        }
    }

    fn launch_by_hand(&self) {
        let component = self.component();
        let arguments = args![ByValue(&component), self.columns.len() as u32];
        let grid = Grid::covering(self.columns[0].len(), 256);
        self.columns[0].queue().launch(&kernels::WIDE_FIBONACCI, "wide_fibonacci", &grid, &arguments);
    }

    fn launch_generated(&self, kernels: &[Kernel]) {
        let component = self.component();
        let grid = Grid::covering(self.columns[0].len(), THREADS);
        for kernel in kernels {
            kernel.launch(self.columns[0].queue().stream(), &grid, &args![ByValue(&component)]).or_raise();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Context;

    #[test]
    fn both_kernels_that_are_timed_are_right() {
        let columns = super::super::columns(Size { log_rows: 6, columns: 9 }, 3);
        let context = Context::new(&gatework_gpu::Device::emulated(1).unwrap()).unwrap();
        let sums = |launch: fn(&OnColumns)| {
            let found = context.scope(|| {
                let prepared =
                    OnColumns::new(columns.iter().map(|column| DeviceColumn::upload(column)).collect());
                launch(&prepared);
                words(&prepared.sums.to_cpu())
            });
            found.unwrap()
        };
        assert_eq!(sums(OnColumns::launch_by_hand), Constraints.on_host(&columns));
        let generated = |prepared: &OnColumns| {
            let queue = prepared.columns[0].queue();
            prepared.launch_generated(&compile(queue, &generated_sources(9)).or_raise());
        };
        assert_eq!(sums(generated), Constraints.on_host(&columns));
    }
}
