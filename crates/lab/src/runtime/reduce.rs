//! The sum of a vector, in an order that never changes.

use std::cell::RefCell;
use std::rc::Rc;

use gatework_gpu::{Buffer, Device, Grid, Kind, args};

use super::{BENCH_SEED, PATTERN};
use crate::budget::{ErrorBudget, Format, Rounding};
use crate::kernels;
use crate::measure::Arithmetic;
use crate::{
    Bench, Case, Control, Evidence, Inputs, KernelSpec, Outputs, RunError, Side, Timing, Work, Workload,
    poisoned, repeated,
};

const THREADS: u32 = 256;
/// A sum for each of the block's 8 warps, and whether the block is the last.
const SHARED_BYTES: u32 = 4 * 8 + 4;
/// Neighbours that a thread loads at once and adds in sums of their own.
const RUN: usize = 4;
/// Blocks of the largest grid: more elements make each thread add up more of them first.
const MAX_BLOCKS: u32 = 1024;
/// The part of a copy's bandwidth that the sum must reach.
const BENCH_WORTH: f64 = 0.60;

/// `gpu/reduce`.
pub(super) struct Reduce;

/// Small integers add up without rounding, so that one lost element shows; fractions round, as real data
/// does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    Integers,
    Fractions,
}

fn values(case: &Case) -> Values {
    if case.dimension("fractions") == 1 { Values::Fractions } else { Values::Integers }
}

fn input(case: &Case, seed: u64) -> Vec<f32> {
    let n = case.dimension("n");
    let mut inputs = Inputs::new(seed);
    match values(case) {
        // At most 4 * 4_000_000 < 2^24: every partial sum is an integer that f32 holds.
        Values::Integers => inputs.integers(n, 1..5).into_iter().map(|value| value as f32).collect(),
        Values::Fractions => inputs.uniform(n, 0.0..1.0),
    }
}

fn sum(input: &[f32]) -> Vec<f64> {
    vec![input.iter().map(|&value| f64::from(value)).sum()]
}

fn grid(n: usize) -> Grid {
    let mut grid = Grid::covering(n.div_ceil(RUN), THREADS).shared(SHARED_BYTES);
    grid.blocks[0] = grid.blocks[0].min(MAX_BLOCKS);
    grid
}

/// Additions on the longest way from an element to the sum: its thread's share, its block's tree, and the
/// partials.
fn depth(n: usize) -> usize {
    let grid = grid(n);
    // Each of four sums, these four, and one element that is left over.
    let share = n.div_ceil(RUN * (grid.block_count() * grid.threads_per_block()) as usize) + 3;
    let partials = (grid.block_count() as usize).div_ceil(THREADS as usize);
    share + partials + 2 * THREADS.ilog2() as usize
}

/// The sum of a pattern that repeats.
fn evidence(budget: ErrorBudget, pattern: Vec<f32>, n: usize, out: Rc<RefCell<Buffer<f32>>>) -> Evidence {
    let seen = out.clone();
    Evidence::new(
        budget,
        move |stream| Ok(stream.fill(&mut *out.borrow_mut(), f32::NAN)?),
        move |stream| Ok(Outputs::new().with("sum", stream.download(&*seen.borrow())?)),
        move |_| {
            let (whole, rest) = (n / pattern.len(), n % pattern.len());
            let total = whole as f64 * sum(&pattern)[0] + sum(&pattern[..rest])[0];
            Ok(Outputs::new().with("sum", vec![total]))
        },
    )
}

impl Workload for Reduce {
    fn name(&self) -> &str {
        "gpu/reduce"
    }

    fn summary(&self) -> &str {
        "the sum of an f32 vector in one launch, always in the same order"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        vec![KernelSpec::new(kernels::REDUCE.source()).require("FADD").threads(THREADS)]
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let sizes: &[usize] = match kind {
            Kind::Emulated => &[1, 31, 33, 257, 10_007],
            Kind::Cuda => &[1, 31, 33, 257, 10_007, 1_000_003],
        };
        let case = |name: &str, n: usize, fractions: usize| {
            Case::new(format!("{name}{n}")).with("n", n).with("fractions", fractions)
        };
        let both = sizes.iter().flat_map(|&n| [case("integers", n, 0), case("fractions", n, 1)]);
        let large = (kind == Kind::Cuda).then(|| case("fractions", 1 << 24, 1));
        both.chain(large).collect()
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let input = input(case, seed);
        let stream = device.stream()?;
        let reduce = device.kernel_of(&kernels::REDUCE, "reduce")?;
        let grid = grid(input.len());
        let x = stream.upload(&input)?;
        let mut partials = poisoned::<f32>(&stream, grid.block_count() as usize)?;
        let mut ticket = stream.alloc_zeros::<u32>(1)?;
        let mut out = poisoned::<f32>(&stream, 1)?;
        reduce.launch(
            &stream,
            &grid,
            &args![&x, &mut partials, &mut ticket, &mut out, input.len() as u64],
        )?;
        Ok(Outputs::new().with("sum", stream.download(&out)?).with("ticket", stream.download(&ticket)?))
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        Outputs::new().with("sum", sum(&input(case, seed))).with("ticket", vec![0u32])
    }

    fn budget(&self, case: &Case) -> ErrorBudget {
        if values(case) == Values::Integers {
            return ErrorBudget::Exact;
        }
        let n = case.dimension("n");
        // No term cancels another, so that the sum is the largest value on the way: n at most, n / 2 in the
        // mean.
        ErrorBudget::rounding(Rounding {
            format: Format::F32,
            depth: depth(n),
            magnitude: n as f64,
            output_rms: n as f64 / 2.0,
            outputs: 1,
        })
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let input = input(case, seed);
        let wrong = |name: &str, input: &[f32]| {
            Control::new(name, Outputs::new().with("sum", sum(input)).with("ticket", vec![0u32]))
        };
        let block = input.len().div_ceil(grid(input.len()).block_count() as usize);
        let twice: Vec<f32> = input.iter().chain(&input[..block]).copied().collect();
        let mut controls = vec![
            Control::zeros(reference),
            Control::one_off(reference, "ticket", 0, 1.0),
            wrong("a block is missing", &input[block..]),
            wrong("a block counts twice", &twice),
        ];
        if values(case) == Values::Integers {
            controls.push(wrong("the last element is missing", &input[..input.len() - 1]));
        }
        controls
    }

    fn work(&self, case: &Case) -> Work {
        let n = case.dimension("n") as u64;
        Work { operations: n, bytes: 4 * n }
    }

    fn bench_cases(&self, kind: Kind) -> Vec<Case> {
        // 1 GiB.
        let n = if kind == Kind::Cuda { 1 << 28 } else { 1000 };
        vec![Case::new(format!("fractions{n}")).with("n", n).with("fractions", 1)]
    }

    fn bench(&self, device: &Device, case: &Case) -> Result<Option<Bench>, RunError> {
        let n = case.dimension("n");
        let stream = device.stream()?;
        let mut inputs = Inputs::new(BENCH_SEED);
        let pattern = inputs.uniform(n.min(PATTERN), 0.0..1.0);
        let x = repeated(&stream, &pattern, n)?;
        // The copy moves as many bytes: half of them read and half of them written.
        let from = repeated(&stream, &inputs.uniform(n.min(PATTERN), 0.0..1.0), n / 2)?;
        let mut to = stream.alloc::<f32>(n / 2)?;
        let grid = grid(n);
        let mut partials = stream.alloc::<f32>(grid.block_count() as usize)?;
        let mut ticket = stream.alloc_zeros::<u32>(1)?;
        let out = Rc::new(RefCell::new(stream.alloc::<f32>(1)?));
        let reduce = device.kernel_of(&kernels::REDUCE, "reduce")?;
        stream.synchronize()?;
        let evidence = evidence(self.budget(case), pattern, n, out.clone());
        let candidate = Side::new("reduce", move |stream| {
            let out = &mut *out.borrow_mut();
            reduce.launch(stream, &grid, &args![&x, &mut partials, &mut ticket, out, n as u64])
        });
        let baseline = Side::new("device-to-device copy", move |stream| stream.copy(&from, &mut to));
        let bench = Bench::new(self.work(case), candidate, baseline).timing(Timing::Graph { repeats: 1 });
        let bench = bench.shown_by(evidence);
        let bench = bench.cold().arithmetic(Arithmetic::F32).peer("sum", case);
        Ok(Some(
            bench.expect_at_most(
                1.0 / BENCH_WORTH,
                "60 % of the copy's bandwidth: one load in flight a thread",
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_sum_is_allowed_more_rounding_but_far_less_than_a_lost_block() {
        let bound = |n: usize| {
            let case = Case::new("c").with("n", n).with("fractions", 1);
            let ErrorBudget::Bounded(bounds) = Reduce.budget(&case) else { unreachable!("fractions round") };
            bounds.max_abs
        };
        assert!(bound(1000) < bound(100_000));
        assert!(bound(1_000_003) < f64::from(THREADS) / 2.0 / 4.0);
    }
}
