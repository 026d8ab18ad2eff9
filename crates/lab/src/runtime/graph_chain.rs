//! 64 launches that depend on each other, one by one and as a graph.

use std::cell::RefCell;
use std::rc::Rc;

use gatework_gpu::{Buffer, Device, Graph, Grid, Kernel, Kind, Stream, args};

use super::BENCH_SEED;
use crate::kernels;
use crate::{
    Bench, Case, Control, ErrorBudget, Evidence, Inputs, KernelSpec, Outputs, RunError, Side, Timing, Work,
    Workload,
};

const STEPS: usize = 64;
const THREADS: u32 = 256;
/// The launch whose parameters change after the graph is made: neither the first nor the last.
const UPDATED: usize = 37;

/// `gpu/graph-chain`.
pub(super) struct GraphChain;

struct Problem {
    x: Vec<u32>,
    /// What each launch adds.
    steps: Vec<u32>,
    /// What the updated launch adds instead.
    replacement: u32,
}

impl Problem {
    fn new(case: &Case, seed: u64) -> Self {
        let mut inputs = Inputs::new(seed);
        let x = inputs.words(case.dimension("n"));
        let steps = inputs.words(STEPS);
        let replacement = !steps[UPDATED];
        Self { x, steps, replacement }
    }

    fn updated_steps(&self) -> Vec<u32> {
        let mut steps = self.steps.clone();
        steps[UPDATED] = self.replacement;
        steps
    }

    /// `x <- 1664525 x + step` for every step, modulo 2^32.
    fn after(&self, steps: &[u32]) -> Vec<u32> {
        let advance = |x: u32, step: &u32| x.wrapping_mul(1_664_525).wrapping_add(*step);
        self.x.iter().map(|&x| steps.iter().fold(x, advance)).collect()
    }

    fn outputs(&self, steps: &[u32], updated_steps: &[u32]) -> Outputs {
        let (chained, updated) = (self.after(steps), self.after(updated_steps));
        Outputs::new().with("single", chained.clone()).with("graph", chained).with("updated", updated)
    }
}

/// The chain on a device: where `x` lies and what steps it.
struct Chain {
    stream: Stream,
    kernel: Kernel,
    x: Buffer<u32>,
    grid: Grid,
}

impl Chain {
    fn new(device: &Device, n: usize) -> gatework_gpu::Result<Self> {
        let stream = device.stream()?;
        let x = stream.alloc(n)?;
        Ok(Self {
            stream,
            kernel: device.kernel_of(&kernels::CHAIN, "chain")?,
            x,
            grid: Grid::covering(n, THREADS),
        })
    }

    fn launch_all(&mut self, steps: &[u32]) -> gatework_gpu::Result<()> {
        let stream = self.stream.clone();
        self.launch_all_on(&stream, steps)
    }

    fn launch_all_on(&mut self, stream: &Stream, steps: &[u32]) -> gatework_gpu::Result<()> {
        let n = self.x.len() as u32;
        for &step in steps {
            self.kernel.launch(stream, &self.grid, &args![&mut self.x, step, n])?;
        }
        Ok(())
    }

    fn capture(&mut self, steps: &[u32]) -> gatework_gpu::Result<Graph> {
        let stream = self.stream.clone();
        stream.capture(|_| self.launch_all(steps))
    }

    fn update(&mut self, graph: &mut Graph, index: usize, step: u32) -> gatework_gpu::Result<()> {
        let n = self.x.len() as u32;
        graph.update(index, &args![&mut self.x, step, n])
    }

    /// Starts from `x`, queues `work`, and returns what became of it.
    fn from(
        &mut self,
        x: &[u32],
        work: impl FnOnce(&mut Self) -> gatework_gpu::Result<()>,
    ) -> gatework_gpu::Result<Vec<u32>> {
        let stream = self.stream.clone();
        stream.copy_from_host(x, &mut self.x)?;
        work(self)?;
        stream.download(&self.x)
    }
}

/// The chain from where the problem starts, as often as it ran.
fn evidence(problem: Problem, chain: Chain) -> Evidence {
    let (start, chain) = (problem.x.clone(), Rc::new(RefCell::new(chain)));
    let seen = chain.clone();
    Evidence::new(
        ErrorBudget::Exact,
        move |stream| Ok(stream.copy_from_host(&start, &mut chain.borrow_mut().x)?),
        move |stream| Ok(Outputs::new().with("x", stream.download(&seen.borrow().x)?)),
        move |runs| {
            let steps = problem.steps.repeat(runs as usize);
            Ok(Outputs::new().with("x", problem.after(&steps)))
        },
    )
}

impl Workload for GraphChain {
    fn name(&self) -> &str {
        "gpu/graph-chain"
    }

    fn summary(&self) -> &str {
        "64 dependent launches, one by one, as a graph, and as that graph with one launch updated"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        vec![KernelSpec::new(kernels::CHAIN.source()).require("IMAD").threads(THREADS)]
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let sizes: &[usize] = match kind {
            Kind::Emulated => &[1, 33, 1000],
            Kind::Cuda => &[1, 33, 1000, 1_000_003],
        };
        sizes.iter().map(|&n| Case::new(format!("n{n}")).with("n", n)).collect()
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let problem = Problem::new(case, seed);
        let mut chain = Chain::new(device, problem.x.len())?;
        let single = chain.from(&problem.x, |chain| chain.launch_all(&problem.steps))?;
        let mut graph = chain.capture(&problem.steps)?;
        let whole = chain.from(&problem.x, |chain| graph.launch(&chain.stream))?;
        chain.update(&mut graph, UPDATED, problem.replacement)?;
        let updated = chain.from(&problem.x, |chain| graph.launch(&chain.stream))?;
        Ok(Outputs::new().with("single", single).with("graph", whole).with("updated", updated))
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        let problem = Problem::new(case, seed);
        problem.outputs(&problem.steps, &problem.updated_steps())
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let problem = Problem::new(case, seed);
        let missing_last = &problem.steps[..STEPS - 1];
        let mut swapped = problem.steps.clone();
        swapped.swap(0, 1);
        vec![
            Control::zeros(reference),
            Control::unwritten_tail(reference, 1),
            Control::new(
                "the last launch is missing",
                problem.outputs(missing_last, &problem.updated_steps()),
            ),
            Control::new("two launches swapped", problem.outputs(&swapped, &problem.updated_steps())),
            Control::new("the update did nothing", problem.outputs(&problem.steps, &problem.steps)),
        ]
    }

    fn work(&self, case: &Case) -> Work {
        let touched = (STEPS * case.dimension("n")) as u64;
        Work { operations: 2 * touched, bytes: 2 * 4 * touched }
    }

    fn bench_cases(&self, _: Kind) -> Vec<Case> {
        // Short kernels: what counts is how they are launched.
        vec![Case::new("n1000").with("n", 1000)]
    }

    fn bench(&self, device: &Device, case: &Case) -> Result<Option<Bench>, RunError> {
        let problem = Problem::new(case, BENCH_SEED);
        let [mut chain, mut captured] =
            [Chain::new(device, problem.x.len())?, Chain::new(device, problem.x.len())?];
        for chain in [&mut chain, &mut captured] {
            let stream = chain.stream.clone();
            stream.copy_from_host(&problem.x, &mut chain.x)?;
            stream.synchronize()?;
        }
        let graph = captured.capture(&problem.steps)?;
        let candidate = Side::new("one graph", move |stream| graph.launch(stream));
        let evidence = evidence(Problem::new(case, BENCH_SEED), captured);
        let steps = problem.steps;
        let baseline = Side::new("64 single launches", move |stream| chain.launch_all_on(stream, &steps));
        let bench = Bench::new(self.work(case), candidate, baseline).timing(Timing::Wall).shown_by(evidence);
        Ok(Some(bench.expect_at_most(0.40, "a graph is launched once, not 64 times")))
    }
}
