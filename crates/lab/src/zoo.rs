//! The zoo: bugs of public reports, each written anew as a small kernel beside its mended twin.
//!
//! A file of `zoo/` holds both: the kernel `exhibit(u32* out, const u32* in)`, and the mended one where
//! `MENDED` is 1.

use gatework_gpu::{Device, Error, Fault, FaultKind, Grid, Result, Source, args, on_all_cores};
use serde::Serialize;

/// Words of each of the two buffers.
const WORDS: usize = 4096;

/// A bug of a public report.
pub struct Exhibit {
    /// Its name, which is its file's.
    pub name: &'static str,
    /// Where it was reported.
    pub report: &'static str,
    /// A summary of the public report.
    pub says: &'static str,
    /// The rules that it breaks: which of them shows may be up to the schedule.
    pub kinds: &'static [FaultKind],
    /// The kernel, and its twin.
    pub text: &'static str,
    grid: fn() -> Grid,
}

/// The emulated device's findings for one exhibit.
#[derive(Debug, Clone, Serialize)]
pub struct Visit {
    /// The exhibit.
    pub name: &'static str,
    /// Where it was reported.
    pub report: &'static str,
    /// A summary of the public report.
    pub says: &'static str,
    /// Schedules that it was run under.
    pub seeds: u64,
    /// Schedules that showed the bug.
    pub found: u64,
    /// The fault of the first schedule that showed it.
    pub fault: Option<Fault>,
    /// A fault found in the mended twin: a false alarm.
    pub alarm: Option<Fault>,
}

impl Visit {
    /// Whether every schedule showed the bug as what it is, and none an alarm in the twin.
    pub fn is_found(&self) -> bool {
        self.found == self.seeds && self.alarm.is_none()
    }
}

fn grid(blocks: u32, threads: u32) -> Grid {
    Grid::new([blocks, 1, 1], [threads, 1, 1]).shared(16 << 10)
}

/// All of them.
pub const EXHIBITS: &[Exhibit] = &[
    Exhibit {
        name: "state-store",
        report: "https://github.com/MoonshotAI/FlashKDA/issues/24",
        says: "A state in shared memory was written by ordinary stores and stored by TMA with only __syncthreads between: it mostly works, and can store stale data.",
        kinds: &[FaultKind::Race],
        text: include_str!("../zoo/state-store.cuh"),
        grid: || grid(1, 128),
    },
    Exhibit {
        name: "empty-sequence",
        report: "https://github.com/MoonshotAI/FlashKDA/issues/24",
        says: "With an empty sequence the main loop, and the fence in it, never runs before the TMA store of the zeroed state.",
        kinds: &[FaultKind::Race],
        text: include_str!("../zoo/empty-sequence.cuh"),
        grid: || grid(1, 128),
    },
    Exhibit {
        name: "mbarrier-init",
        report: "https://github.com/MoonshotAI/FlashKDA/issues/24",
        says: "Three mbarriers were used by TMA without fence.mbarrier_init after their initialisation.",
        kinds: &[FaultKind::Protocol],
        text: include_str!("../zoo/mbarrier-init.cuh"),
        grid: || grid(1, 128),
    },
    Exhibit {
        name: "polled-flag",
        report: "https://github.com/deepseek-ai/DeepEP/pull/642",
        says: "A rank polls a flag by ordinary loads and then loads the data by TMA, which without fence.proxy.async can see stale data.",
        kinds: &[FaultKind::Race],
        text: include_str!("../zoo/polled-flag.cuh"),
        grid: || grid(2, 1),
    },
    Exhibit {
        name: "store-wait",
        report: "https://github.com/deepseek-ai/DeepEP/issues/657",
        says: "A wait for all but one store lets the next TMA load overwrite the stage that this one store still reads.",
        kinds: &[FaultKind::Race],
        text: include_str!("../zoo/store-wait.cuh"),
        grid: || grid(1, 1),
    },
    Exhibit {
        name: "leader-waits",
        report: "https://github.com/NVIDIA/TransformerEngine/pull/3417",
        says: "Only the thread that issued TMA stores can wait for them; others reused the buffer with no barrier after the leader's wait.",
        kinds: &[FaultKind::Race],
        text: include_str!("../zoo/leader-waits.cuh"),
        grid: || grid(1, 128),
    },
    Exhibit {
        name: "wgmma-operand",
        report: "https://github.com/tile-ai/tilelang/issues/2634",
        says: "The sparse product was emitted without the fence.proxy.async between the stores of its operand and wgmma.",
        kinds: &[FaultKind::Race],
        text: include_str!("../zoo/wgmma-operand.cuh"),
        grid: || grid(1, 128),
    },
    Exhibit {
        name: "loop-back",
        report: "https://github.com/tile-ai/tilelang/issues/2613",
        says: "A missing __syncthreads at the end of the loop: 21 to 27 of 30 results wrong on an H100, none on a card without wgmma.",
        kinds: &[FaultKind::Race],
        text: include_str!("../zoo/loop-back.cuh"),
        grid: || grid(1, 256),
    },
    Exhibit {
        name: "wait-parity",
        report: "https://github.com/tile-ai/tilelang/pull/3087",
        says: "A barrier of one slot was waited for with the parity of a ring: the wait returned at once, and a stage in use was overwritten.",
        kinds: &[FaultKind::Race],
        text: include_str!("../zoo/wait-parity.cuh"),
        grid: || grid(1, 128),
    },
    Exhibit {
        name: "partial-threads",
        report: "https://github.com/tile-ai/tilelang/issues/2556",
        says: "A required __syncthreads was dropped where the threads of a region are no multiple of 32.",
        kinds: &[FaultKind::Race],
        text: include_str!("../zoo/partial-threads.cuh"),
        grid: || grid(1, 64),
    },
    Exhibit {
        name: "register-pool",
        report: "https://github.com/tile-ai/tilelang/issues/2559",
        says: "Two blocks a multiprocessor, asked for by an annotation, make a warp-specialised kernel with setmaxnreg hang at launch.",
        kinds: &[FaultKind::Deadlock],
        text: include_str!("../zoo/register-pool.cuh"),
        grid: || grid(1, 384),
    },
    Exhibit {
        name: "init-barrier",
        report: "https://github.com/NVIDIA/Fuser/issues/1552",
        says: "A test of mbarriers hung on an H100: there was no __syncthreads after the initialisation.",
        kinds: &[FaultKind::Race, FaultKind::Protocol],
        text: include_str!("../zoo/init-barrier.cuh"),
        grid: || grid(1, 64),
    },
    Exhibit {
        name: "release-before-wait",
        report: "https://github.com/NVIDIA/Fuser/issues/3561",
        says: "wgmma was not committed and waited for before the arrival that lets its operands be overwritten; the sanitizer found nothing.",
        kinds: &[FaultKind::Race],
        text: include_str!("../zoo/release-before-wait.cuh"),
        grid: || grid(1, 160),
    },
    Exhibit {
        name: "split-k",
        report: "https://github.com/NVIDIA/Fuser/pull/2391",
        says: "The semaphore of a split-K reduction was released without __threadfence.",
        kinds: &[FaultKind::Race],
        text: include_str!("../zoo/split-k.cuh"),
        grid: || grid(3, 64),
    },
    Exhibit {
        name: "elected-branch",
        report: "https://github.com/flashinfer-ai/flashinfer/pull/2996",
        says: "248 of 384 threads never reach a __syncthreads in the branch of the compute warps: it hung on some H100s.",
        kinds: &[FaultKind::Divergence],
        text: include_str!("../zoo/elected-branch.cuh"),
        grid: || grid(1, 128),
    },
    Exhibit {
        name: "barrier-count",
        report: "https://github.com/deepseek-ai/FlashMLA/pull/57",
        says: "A named barrier for 256 threads in code that one warpgroup of 128 runs may wait for threads that never come.",
        kinds: &[FaultKind::Deadlock],
        text: include_str!("../zoo/barrier-count.cuh"),
        grid: || grid(1, 256),
    },
    Exhibit {
        name: "max-scratch",
        report: "https://github.com/NVIDIA/cutlass/issues/3597",
        says: "A maximum's scratch is overwritten before all four warps have read it: wrong attention output under racecheck.",
        kinds: &[FaultKind::Race],
        text: include_str!("../zoo/max-scratch.cuh"),
        grid: || grid(1, 128),
    },
    Exhibit {
        name: "cluster-exit",
        report: "https://github.com/triton-lang/triton/issues/11730",
        says: "Blocks read a word of block 0's shared memory, and nothing keeps block 0 there: the launch fails.",
        kinds: &[FaultKind::FreedMemory],
        text: include_str!("../zoo/cluster-exit.cuh"),
        grid: || grid(4, 32).cluster([2, 1, 1]),
    },
    Exhibit {
        name: "multicast-reuse",
        report: "https://github.com/inclusionAI/humming/pull/56",
        says: "The leader of a cluster reused memory by multicast when its own epilogue was over: 5 to 18.5 percent of elements differed.",
        kinds: &[FaultKind::Race],
        text: include_str!("../zoo/multicast-reuse.cuh"),
        grid: || grid(2, 128).cluster([2, 1, 1]),
    },
    Exhibit {
        name: "early-read",
        report: "https://github.com/NVIDIA/cccl/pull/11569",
        says: "A kernel launched early read partitions before the grid dependency sync that should guard them, with intermittent races.",
        kinds: &[FaultKind::Protocol],
        text: include_str!("../zoo/early-read.cuh"),
        grid: || grid(2, 32).early(),
    },
    Exhibit {
        name: "vote-is-no-fence",
        report: "https://github.com/NVIDIA/cuCollections/pull/337",
        says: "Counters in shared memory were reset and read around warp votes, which guarantee no order of memory.",
        kinds: &[FaultKind::Race],
        text: include_str!("../zoo/vote-is-no-fence.cuh"),
        grid: || grid(1, 32),
    },
    Exhibit {
        name: "odd-tail",
        report: "https://github.com/tile-ai/tilelang/issues/2525",
        says: "A bulk store whose size is no multiple of 16 bytes dropped its tail without a word.",
        kinds: &[FaultKind::Misaligned],
        text: include_str!("../zoo/odd-tail.cuh"),
        grid: || grid(1, 64),
    },
    Exhibit {
        name: "epilogue-barrier",
        report: "https://github.com/NVIDIA/cudnn-frontend/pull/784",
        says: "An epilogue met at a named barrier and stored by TMA without the proxy fence: 120 elements differed between two launches.",
        kinds: &[FaultKind::Race],
        text: include_str!("../zoo/epilogue-barrier.cuh"),
        grid: || grid(1, 128),
    },
];

impl Exhibit {
    /// The source of the bug, or of its mended twin.
    pub fn source(&self, mended: bool) -> Source {
        Source::new("exhibit", self.text).define("MENDED", if mended { "1" } else { "0" })
    }

    /// How it is launched.
    pub fn grid(&self) -> Grid {
        (self.grid)()
    }

    /// Runs it under one schedule: a fault, or nothing.
    pub fn run(&self, mended: bool, seed: u64) -> Result<Option<Fault>> {
        let device = Device::emulated(seed)?;
        let stream = device.stream()?;
        let numbers: Vec<u32> = (0..WORDS as u32).map(|i| i.wrapping_mul(2_654_435_761) >> 4).collect();
        let input = stream.upload(&numbers)?;
        let mut output = stream.upload(&vec![0u32; WORDS])?;
        let kernel = device.kernel(&self.source(mended))?;
        let launched = kernel.launch(&stream, &self.grid(), &args![&mut output, &input]);
        match launched.and_then(|()| stream.synchronize()) {
            Ok(()) => Ok(None),
            Err(Error::Fault(fault)) => Ok(Some(*fault)),
            Err(other) => Err(other),
        }
    }

    /// Runs it and its twin under `seeds` schedules.
    pub fn visit(&self, seeds: u64) -> Result<Visit> {
        let Self { name, report, says, .. } = *self;
        let mut visit = Visit { name, report, says, seeds, found: 0, fault: None, alarm: None };
        for seed in 0..seeds {
            if let Some(fault) = self.run(false, seed)? {
                visit.found += u64::from(self.kinds.contains(&fault.kind));
                visit.fault.get_or_insert(fault);
            }
            if let Some(alarm) = self.run(true, seed)? {
                visit.alarm.get_or_insert(alarm);
            }
        }
        Ok(visit)
    }
}

/// Visits all exhibits whose name holds `part`, on all cores; `done` hears of each that is over.
pub fn visit_all(part: &str, seeds: u64, done: impl Fn(&str) + Sync) -> Result<Vec<Visit>> {
    let chosen: Vec<&Exhibit> = EXHIBITS.iter().filter(|exhibit| exhibit.name.contains(part)).collect();
    let visits = on_all_cores(chosen.len(), |index| {
        let visit = chosen[index].visit(seeds);
        done(chosen[index].name);
        visit
    });
    visits.into_iter().collect()
}
