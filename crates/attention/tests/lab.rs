//! The engine's workloads through the lab's suite, on the emulated device.

use std::process::ExitCode;

use gatework_attention::workloads::workloads;
use gatework_lab::{Excused, suite};

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

fn main() -> ExitCode {
    let all = workloads();
    let mission = all.iter().find(|workload| workload.name() == "attention/mission-1");
    let tunable = mission.and_then(|workload| workload.tunable()).expect("the mission can be tuned");
    // Two consumers that take turns, in blocks that have several items.
    let busy =
        tunable.default_configuration().with("CONSUMERS", 2).with("STAGES", 2).with("ISSUE", "in turn");
    let busy = tunable.configured(&busy);
    let cache = workloads().into_iter().find(|workload| workload.name() == "attention/cache-64");
    let hunted = vec![busy, cache.expect("the cache is gated")];
    suite(workloads()).controls(5).mutants_of(hunted, 60, EXCUSED).run()
}
