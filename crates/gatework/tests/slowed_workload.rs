//! A kernel slowed on purpose makes the command fail, and one made wrong on purpose is never timed. Needs a GPU.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gatework::command;
use gatework::gpu::{Device, Grid, Kind, Source, args};
use gatework::lab::{
    Bench, Case, Control, ErrorBudget, Evidence, Inputs, KernelSpec, Outputs, RunError, Side, Work, Workload,
    ends, poisoned, read_ends,
};

const THREADS: u32 = 256;

/// `out <- x + added`, slowly: every thread waits before it stores.
struct Slowed {
    /// Rounds of dependent arithmetic before the store.
    rounds: u32,
    added: u32,
    was_timed: Arc<AtomicBool>,
}

impl Slowed {
    fn source(&self) -> Source {
        let text = r#"
            #include "gw/gw.cuh"
            // out[i] <- x[i] + 1, after ROUNDS steps of a generator whose result is never stored but could be.
            GW_KERNEL(slowed)(const u32* x, u32* out, u32 n) {
                const u32 i = gw::global_thread();
                if (i >= n) return;
                u32 state = x[i];
                for (u32 round = 0; round < ROUNDS; ++round) state = 1664525u * state + 1013904223u;
                out[i] = x[i] + 1 + (state == 0x12345678u && x[i] == 0x9abcdef0u);
            }
        "#;
        Source::new("slowed", text).define("ROUNDS", self.rounds)
    }

    fn input(case: &Case, seed: u64) -> Vec<u32> {
        Inputs::new(seed).words(case.dimension("n"))
    }
}

impl Workload for Slowed {
    fn name(&self) -> &str {
        "test/slowed"
    }

    fn summary(&self) -> &str {
        "a vector plus one, after a while"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        vec![KernelSpec::new(self.source())]
    }

    fn cases(&self, _: Kind) -> Vec<Case> {
        vec![Case::new("n1000").with("n", 1000)]
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let input = Self::input(case, seed);
        let stream = device.stream()?;
        let x = stream.upload(&input)?;
        let mut out = poisoned::<u32>(&stream, input.len())?;
        let kernel = device.kernel(&self.source())?;
        kernel.launch(
            &stream,
            &Grid::covering(input.len(), THREADS),
            &args![&x, &mut out, input.len() as u32],
        )?;
        Ok(Outputs::new().with("out", stream.download(&out)?))
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        let sum = |x: u32| x.wrapping_add(self.added);
        Outputs::new().with("out", Self::input(case, seed).into_iter().map(sum).collect::<Vec<u32>>())
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, _: &Case, _: u64, reference: &Outputs) -> Vec<Control> {
        vec![Control::zeros(reference)]
    }

    fn work(&self, case: &Case) -> Work {
        Work { operations: 0, bytes: 8 * case.dimension("n") as u64 }
    }

    fn bench_cases(&self, _: Kind) -> Vec<Case> {
        vec![Case::new("n16777216").with("n", 1 << 24)]
    }

    fn bench(&self, device: &Device, case: &Case) -> Result<Option<Bench>, RunError> {
        self.was_timed.store(true, Ordering::Relaxed);
        let n = case.dimension("n");
        let stream = device.stream()?;
        let (x, source) = (stream.upload(&Self::input(case, 1))?, stream.upload(&Self::input(case, 2))?);
        let (out, mut copied) = (Rc::new(RefCell::new(stream.alloc::<u32>(n)?)), stream.alloc::<u32>(n)?);
        let kernel = device.kernel(&self.source())?;
        stream.synchronize()?;
        let grid = Grid::covering(n, THREADS);
        let (spoiled, seen, input) = (out.clone(), out.clone(), Self::input(case, 1));
        let evidence = Evidence::new(
            ErrorBudget::Exact,
            move |stream| Ok(stream.fill(&mut *spoiled.borrow_mut(), 0)?),
            move |stream| Ok(Outputs::new().with("out", read_ends(stream, &seen.borrow())?)),
            move |_| {
                let out = ends(input.len()).map(|index| input[index].wrapping_add(1));
                Ok(Outputs::new().with("out", out.collect::<Vec<u32>>()))
            },
        );
        let candidate = Side::new("slowed", move |stream| {
            kernel.launch(stream, &grid, &args![&x, &mut *out.borrow_mut(), n as u32])
        });
        let baseline = Side::new("copy", move |stream| stream.copy(&source, &mut copied));
        let bench = Bench::new(self.work(case), candidate, baseline).cold().shown_by(evidence);
        Ok(Some(bench.expect_at_most(1.5, "two thirds of the copy's bandwidth")))
    }
}

/// The exit code of a benchmark of `workload`, and whether it was timed.
fn bench(rounds: u32, added: u32) -> (u8, bool) {
    let was_timed = Arc::new(AtomicBool::new(false));
    let workload = Slowed { rounds, added, was_timed: was_timed.clone() };
    let arguments = ["gatework", "lab", "bench", "--device", "cuda", "--no-record", "--no-peers"];
    let code = command::run(arguments.map(Into::into), vec![Box::new(workload)]);
    (code, was_timed.load(Ordering::Relaxed))
}

#[test]
#[ignore = "needs a CUDA device and NVRTC"]
fn a_kernel_that_keeps_its_promise_ends_with_0() {
    assert_eq!(bench(1, 1), (0, true));
}

#[test]
#[ignore = "needs a CUDA device and NVRTC"]
fn a_kernel_slowed_on_purpose_ends_with_1() {
    assert_eq!(bench(4000, 1), (1, true));
}

#[test]
#[ignore = "needs a CUDA device and NVRTC"]
fn a_kernel_made_wrong_on_purpose_ends_with_1_and_is_never_timed() {
    assert_eq!(bench(1, 2), (1, false));
}
