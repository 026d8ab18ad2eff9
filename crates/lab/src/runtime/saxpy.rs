//! `y <- a x + y`.

use std::cell::RefCell;
use std::rc::Rc;

use gatework_gpu::{Buffer, Device, Grid, Kind, args};

use super::{BENCH_SEED, PATTERN, WORTH_OF_COPY};
use crate::kernels;
use crate::measure::Arithmetic;
use crate::{
    Bench, Case, Control, ErrorBudget, Evidence, Inputs, KernelSpec, Outputs, RunError, Side, Work, Workload,
    ends, read_ends, repeated,
};

const THREADS: u32 = 256;

/// One thread four elements.
fn grid(n: usize) -> Grid {
    Grid::covering(n.div_ceil(4), THREADS)
}

/// `gpu/saxpy`.
pub(super) struct Saxpy;

struct Problem {
    a: f32,
    x: Vec<f32>,
    y: Vec<f32>,
}

impl Problem {
    fn new(case: &Case, seed: u64) -> Self {
        let n = case.dimension("n");
        let mut inputs = Inputs::new(seed);
        Self { a: inputs.uniform(1, 0.5..2.0)[0], x: inputs.normal(n), y: inputs.normal(n) }
    }

    fn result(&self, element: impl Fn(f32, f32, f32) -> f32) -> Outputs {
        let y = self.x.iter().zip(&self.y).map(|(&x, &y)| element(self.a, x, y));
        Outputs::new().with("y", y.collect::<Vec<f32>>())
    }
}

/// Small: y stays finite over any number of runs of a benchmark.
const BENCH_FACTOR: f32 = 1e-3;

/// From a y of ones, so many steps of `y <- a x + y` at both ends.
fn evidence(pattern: Vec<f32>, n: usize, y: Rc<RefCell<Buffer<f32>>>) -> Evidence {
    let seen = y.clone();
    Evidence::new(
        ErrorBudget::Exact,
        move |stream| Ok(stream.fill(&mut *y.borrow_mut(), 1.0)?),
        move |stream| Ok(Outputs::new().with("y", read_ends(stream, &seen.borrow())?)),
        move |runs| {
            let after = |x: f32| (0..runs).fold(1.0, |y, _| BENCH_FACTOR * x + y);
            let y = ends(n).map(|index| after(pattern[index % pattern.len()]));
            Ok(Outputs::new().with("y", y.collect::<Vec<f32>>()))
        },
    )
}

impl Workload for Saxpy {
    fn name(&self) -> &str {
        "gpu/saxpy"
    }

    fn summary(&self) -> &str {
        "y <- a x + y in f32, to the last bit"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        vec![KernelSpec::new(kernels::SAXPY.source()).require("FMUL").require("FADD").threads(THREADS)]
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let sizes: &[usize] = match kind {
            Kind::Emulated => &[1, 31, 33, 256, 10_007],
            Kind::Cuda => &[1, 31, 33, 256, 10_007, 1_000_003, 1 << 24],
        };
        sizes.iter().map(|&n| Case::new(format!("n{n}")).with("n", n)).collect()
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let problem = Problem::new(case, seed);
        let n = problem.x.len();
        let stream = device.stream()?;
        let saxpy = device.kernel_of(&kernels::SAXPY, "saxpy")?;
        let x = stream.upload(&problem.x)?;
        let mut y = stream.upload(&problem.y)?;
        saxpy.launch(&stream, &grid(n), &args![&x, &mut y, problem.a, n as u64])?;
        Ok(Outputs::new().with("y", stream.download(&y)?))
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        Problem::new(case, seed).result(|a, x, y| a * x + y)
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        // The kernel rounds the product and then the sum, as Rust does.
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let problem = Problem::new(case, seed);
        let n = problem.x.len();
        let mut controls = vec![
            Control::zeros(reference),
            Control::unwritten_tail(reference, 1),
            Control::one_off(reference, "y", n / 2, 1e-5),
            Control::biased(reference, 1e-5),
            Control::new("y as it was", problem.result(|_, _, y| y)),
            Control::new(
                "rounded to bf16",
                problem.result(|a, x, y| half::bf16::from_f32(a * x + y).to_f32()),
            ),
        ];
        if n > 1 {
            controls.push(Control::swapped(reference, "y", 0, n - 1));
            // One rounding instead of two: the same for about half of the elements, so not for one alone.
            controls.push(Control::new("fused", problem.result(|a, x, y| a.mul_add(x, y))));
        }
        controls
    }

    fn work(&self, case: &Case) -> Work {
        let n = case.dimension("n") as u64;
        Work { operations: 2 * n, bytes: 3 * 4 * n }
    }

    fn bench_cases(&self, kind: Kind) -> Vec<Case> {
        // 1 GiB of x and y.
        let n = if kind == Kind::Cuda { 1 << 27 } else { 1000 };
        vec![Case::new(format!("n{n}")).with("n", n)]
    }

    fn bench(&self, device: &Device, case: &Case) -> Result<Option<Bench>, RunError> {
        let n = case.dimension("n");
        let stream = device.stream()?;
        let mut inputs = Inputs::new(BENCH_SEED);
        let pattern = inputs.normal(n.min(PATTERN));
        let x = repeated(&stream, &pattern, n)?;
        let y = Rc::new(RefCell::new(repeated(&stream, &inputs.normal(n.min(PATTERN)), n)?));
        // As many bytes as saxpy moves, half of them read and half of them written.
        let from = repeated(&stream, &inputs.normal(n.min(PATTERN)), 3 * n / 2)?;
        let mut to = stream.alloc::<f32>(3 * n / 2)?;
        let saxpy = device.kernel_of(&kernels::SAXPY, "saxpy")?;
        let grid = grid(n);
        stream.synchronize()?;
        let evidence = evidence(pattern, n, y.clone());
        let candidate = Side::new("saxpy", move |stream| {
            saxpy.launch(stream, &grid, &args![&x, &mut *y.borrow_mut(), BENCH_FACTOR, n as u64])
        });
        let baseline = Side::new("device-to-device copy", move |stream| stream.copy(&from, &mut to));
        let bench = Bench::new(self.work(case), candidate, baseline).cold().arithmetic(Arithmetic::F32);
        let bench = bench.shown_by(evidence);
        Ok(Some(
            bench.expect_at_most(1.0 / WORTH_OF_COPY, "85 % of the copy's bandwidth").peer("saxpy", case),
        ))
    }
}
