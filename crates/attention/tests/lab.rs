//! The engine's workloads through the lab's suite, on the emulated device.

use std::process::ExitCode;

use gatework_attention::workloads::workloads;
use gatework_gpu::{Device, Kind, Source};
use gatework_lab::{
    Case, Control, ErrorBudget, Excused, KernelSpec, Outputs, RunError, Work, Workload, suite,
};

const EXCUSED: &[Excused] = &[
    Excused {
        workload: "attention/mission-1",
        mutant: "gw::barrier_sync(1 + group, 256) -> dropped",
        why: "without turns the result is the same; only its time is not",
    },
    Excused {
        workload: "attention/mission-1",
        mutant: "gw::sync_warp() -> dropped",
        why: "the barrier of the turns before it waits for the warp too; without turns, tests of windows need it",
    },
];

/// Whose mutants are those of `slices.cuh` alone: others of its kernel's are those of the mission.
struct Slices(Box<dyn Workload>);

impl Workload for Slices {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn summary(&self) -> &str {
        self.0.summary()
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let text =
            self.0.kernels().iter().find_map(|spec| Some(spec.source.included("slices.cuh")?.to_owned()));
        vec![KernelSpec::new(Source::new("slices", text.expect("the kernel includes it")))]
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        self.0.cases(kind).into_iter().take(1).collect()
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        self.0.run(device, case, seed)
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        self.0.reference(case, seed)
    }

    fn budget(&self, case: &Case) -> ErrorBudget {
        self.0.budget(case)
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        self.0.controls(case, seed, reference)
    }

    fn work(&self, case: &Case) -> Work {
        self.0.work(case)
    }
}

fn main() -> ExitCode {
    let all = workloads();
    let mission = all.iter().find(|workload| workload.name() == "attention/mission-1");
    let tunable = mission.and_then(|workload| workload.tunable()).expect("the mission can be tuned");
    // Two consumers that take turns, in blocks that have several items.
    let busy =
        tunable.default_configuration().with("CONSUMERS", 2).with("STAGES", 2).with("ISSUE", "in turn");
    let busy = tunable.configured(&busy);
    let named = |name: &str| {
        let found = workloads().into_iter().find(|workload| workload.name() == name);
        found.unwrap_or_else(|| panic!("{name} is gated"))
    };
    let slices = Box::new(Slices(named("attention/long-256")));
    let hunted: Vec<Box<dyn Workload>> = vec![busy, named("attention/cache-64"), slices];
    suite(workloads()).controls(5).mutants_of(hunted, 60, EXCUSED).run()
}
