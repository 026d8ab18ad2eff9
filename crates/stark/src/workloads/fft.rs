//! `stark/fft`: values to coefficients to values on twice the points.

use gatework_lab::{KernelSpec, Work};
use itertools::Itertools as _;
use stwo::core::fields::m31::BaseField;
use stwo::core::poly::circle::{CanonicCoset, CircleDomain};
use stwo::prover::backend::Column as _;
use stwo::prover::backend::cpu::{CpuCircleEvaluation, CpuCirclePoly};
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::{CircleEvaluation, PolyOps as _};

use super::{Run, Size, Task, Timed, copying};
use crate::airs::HostColumn;
use crate::cuda::circle_fft::{Direction, transform};
use crate::cuda::schedule::{PASSES, Pass};
use crate::error::OrRaise as _;
use crate::queue::Queue;
use crate::{CudaBackend, DeviceColumn, DeviceTwiddles, kernels};

#[derive(Clone, Copy)]
pub(super) struct Fft;

fn words(column: impl IntoIterator<Item = BaseField>) -> impl Iterator<Item = u32> {
    column.into_iter().map(|value| value.0)
}

fn candidate(columns: Vec<DeviceColumn<BaseField>>) -> Box<dyn Run> {
    let log_rows = columns[0].len().ilog2();
    let wide = CanonicCoset::new(log_rows + 1).circle_domain();
    let domain = CanonicCoset::new(log_rows).circle_domain();
    let twiddles = CudaBackend::precompute_twiddles(wide.half_coset);
    let (inverses, twiddles) = (twiddles.itwiddles, twiddles.twiddles);
    let queue = columns[0].queue().clone();
    let targets = DeviceColumn::batch(&queue, columns.iter().map(|_| wide.size()));
    let start = columns[columns.len() - 1].to_cpu();
    Box::new(Transforms { queue, domain, wide, inverses, twiddles, columns, targets, start })
}

/// Columns that are interpolated where they lie, again and again, and evaluated on twice the points.
struct Transforms {
    queue: Queue,
    domain: CircleDomain,
    wide: CircleDomain,
    inverses: DeviceTwiddles,
    twiddles: DeviceTwiddles,
    columns: Vec<DeviceColumn<BaseField>>,
    targets: Vec<DeviceColumn<BaseField>>,
    /// The last column as it was.
    start: HostColumn,
}

impl Run for Transforms {
    fn run(&mut self) {
        let Self { queue, domain, wide, inverses, twiddles, columns, targets, .. } = &*self;
        let rows = domain.size();
        transform(queue, Direction::Inverse, *domain, inverses, columns, rows, columns);
        transform(queue, Direction::Forward, *wide, twiddles, columns, rows, targets);
    }

    fn spoil(&mut self) {
        let last = self.columns.len() - 1;
        let start = DeviceColumn::<BaseField>::upload(&self.start);
        let mut column = self.columns[last].part(0, self.start.len());
        self.queue.stream().copy(&start.words(&self.queue), &mut column.words_mut()).or_raise();
        let mut target = self.targets[last].part(0, self.wide.size());
        self.queue.stream().fill(&mut target.words_mut(), 0).or_raise();
    }

    fn words(&mut self) -> Vec<u32> {
        words(self.targets[self.targets.len() - 1].to_cpu()).collect()
    }
}

/// The last column, interpolated as often as it was and evaluated.
fn expected(columns: &[HostColumn], runs: u32) -> Vec<u32> {
    let log_rows = columns[0].len().ilog2();
    let domain = CanonicCoset::new(log_rows).circle_domain();
    let mut values = columns[columns.len() - 1].clone();
    for _ in 0..runs {
        values = CpuCircleEvaluation::<_, BitReversedOrder>::new(domain, values).interpolate().coeffs;
    }
    let wide = CanonicCoset::new(log_rows + 1).circle_domain();
    words(CpuCirclePoly::new(values).evaluate(wide).values).collect()
}

impl Task for Fft {
    fn name(&self) -> &'static str {
        "stark/fft"
    }

    fn summary(&self) -> &'static str {
        "circle transforms of many columns: interpolated, and evaluated on twice the points"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let small = KernelSpec::new(kernels::CIRCLE_FFT.source()).threads(256);
        let pass = |layers| {
            let pass = Pass::full(layers);
            let spec = KernelSpec::new(pass.module().source()).threads(pass.threads());
            spec.entries(["pass_forward", "pass_inverse"])
        };
        let passes = PASSES.map(pass);
        [small.entries(["fft_forward", "fft_inverse", "fft_small"])].into_iter().chain(passes).collect()
    }

    /// With tiles of full size, and with exchanges in the pass above them.
    fn larger_sizes(&self) -> Vec<(u32, usize)> {
        vec![(12, 1), (17, 1)]
    }

    /// With passes of every length.
    fn largest_sizes(&self) -> Vec<(u32, usize)> {
        (18..=22).map(|log_rows| (log_rows, 1)).collect()
    }

    fn on_device(&self, columns: &[HostColumn]) -> Vec<u32> {
        let log_rows = columns[0].len().ilog2();
        let wide = CanonicCoset::new(log_rows + 1).circle_domain();
        let twiddles = CudaBackend::precompute_twiddles(wide.half_coset);
        let domain = CanonicCoset::new(log_rows).circle_domain();
        let evaluation = |column: &HostColumn| CircleEvaluation::new(domain, DeviceColumn::upload(column));
        let polynomials =
            CudaBackend::interpolate_columns(columns.iter().map(evaluation).collect(), &twiddles);
        let words = polynomials.iter().flat_map(|polynomial| {
            let values = CudaBackend::evaluate(polynomial, wide, &twiddles).values;
            words(polynomial.coeffs.to_cpu()).chain(words(values.to_cpu()))
        });
        words.collect()
    }

    fn on_host(&self, columns: &[HostColumn]) -> Vec<u32> {
        let log_rows = columns[0].len().ilog2();
        let wide = CanonicCoset::new(log_rows + 1).circle_domain();
        let domain = CanonicCoset::new(log_rows).circle_domain();
        let words = columns.iter().flat_map(|column| {
            let polynomial =
                CpuCircleEvaluation::<_, BitReversedOrder>::new(domain, column.clone()).interpolate();
            let values = polynomial.evaluate(wide).values;
            words(polynomial.coeffs).chain(words(values)).collect_vec()
        });
        words.collect()
    }

    fn mistaken(&self, columns: &[HostColumn]) -> (&'static str, Vec<u32>) {
        let natural = columns.iter().map(|column| {
            let mut column = column.clone();
            stwo::core::utils::bit_reverse(&mut column);
            column
        });
        ("values in natural order", self.on_host(&natural.collect_vec()))
    }

    /// Every value in and out once, and eight operations a butterfly.
    fn work(&self, Size { log_rows, columns }: Size) -> Work {
        let values = (columns as u64) << log_rows;
        let butterflies = values / 2 * u64::from(log_rows) * 3;
        Work { operations: 8 * butterflies, bytes: 4 * values * 5 }
    }

    fn timed(&self) -> Option<Timed> {
        Some(Timed {
            candidate,
            baseline: copying,
            expected,
            baseline_name: "device-to-device copy",
            at_most: 16.0,
            why: "three times the layers at eight operations a butterfly, at half the integer rate",
        })
    }
}
