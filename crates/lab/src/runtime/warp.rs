//! What the lanes of a warp tell each other, with all of them calling and with some.

use gatework_gpu::{Device, Grid, Kind, args};

use crate::kernels;
use crate::{Case, Control, ErrorBudget, Inputs, KernelSpec, Outputs, RunError, Work, Workload, poisoned};

const ENTRIES: [&str; 2] = ["warp_shuffle", "warp_vote"];
const WARP: usize = 32;
/// Threads of a block: several warps, which must not hear of each other.
const THREADS: usize = 96;
const BLOCKS: usize = 2;
const WARPS: usize = BLOCKS * THREADS / WARP;

const ALL_LANES: u32 = u32::MAX;
const EVEN_LANES: u32 = 0x5555_5555;
const ODD_LANES: u32 = 0xaaaa_aaaa;

/// `gpu/warp`.
pub(super) struct Warp;

/// What a case checks.
#[derive(Clone, Copy)]
enum Subject {
    /// Shuffles by a distance. A lane may only hear of lanes that call, so that masks and distances go
    /// together.
    Shuffles { mask: u32, distance: usize },
    /// Votes, matches and reductions.
    Votes { mask: u32 },
}

impl Subject {
    fn mask(self) -> u32 {
        match self {
            Self::Shuffles { mask, .. } | Self::Votes { mask } => mask,
        }
    }

    fn case(self) -> Case {
        match self {
            Self::Shuffles { mask, distance } => Case::new(format!("shuffle-{distance}-mask-{mask:08x}"))
                .with("mask", mask as usize)
                .with("distance", distance),
            Self::Votes { mask } => Case::new(format!("vote-mask-{mask:08x}")).with("mask", mask as usize),
        }
    }

    fn of(case: &Case) -> Self {
        let mask = case.dimension("mask") as u32;
        match case.dimensions.get("distance") {
            Some(&distance) => Self::Shuffles { mask, distance: distance as usize },
            None => Self::Votes { mask },
        }
    }
}

/// What every thread brings.
struct Problem {
    words: Vec<u32>,
    longs: Vec<u64>,
    floats: Vec<f32>,
    /// The lane that each thread asks for.
    sources: Vec<u32>,
}

impl Problem {
    fn new(subject: Subject, seed: u64) -> Self {
        let mut inputs = Inputs::new(seed);
        let count = WARPS * WARP;
        let mut words = inputs.words(count);
        // One warp in which all lanes match, though not in all bits.
        for word in &mut words[..WARP] {
            *word = (*word & !3) | 2;
        }
        let longs = inputs.words(2 * count);
        let longs = longs.chunks_exact(2).map(|pair| u64::from(pair[0]) << 32 | u64::from(pair[1])).collect();
        let floats = inputs.normal(count);
        let mut sources = inputs.words(count);
        if subject.mask() != ALL_LANES {
            // Only lanes of the caller's own kind call.
            for (thread, source) in sources.iter_mut().enumerate() {
                *source = (*source & !1) | (thread as u32 & 1);
            }
        }
        Self { words, longs, floats, sources }
    }

    /// Results by call, then by thread.
    fn results(&self, subject: Subject) -> Vec<u64> {
        let calls = match subject {
            Subject::Shuffles { mask, distance } => self.shuffles(mask, distance),
            Subject::Votes { mask } => self.votes(mask),
        };
        calls.into_iter().flatten().collect()
    }

    fn shuffles(&self, mask: u32, distance: usize) -> Vec<Vec<u64>> {
        // The instruction looks at five bits of a lane or a distance.
        let distance = distance % WARP;
        let bits: Vec<u64> = self.floats.iter().map(|value| value.to_bits().into()).collect();
        let words: Vec<u64> = self.words.iter().map(|&word| word.into()).collect();
        let mut calls = Vec::new();
        type Source<'a> = &'a dyn Fn(usize, usize) -> Option<usize>;
        let asked = |thread: usize, _: usize| Some(self.sources[thread] as usize % WARP);
        let up = |_: usize, lane: usize| lane.checked_sub(distance);
        let down = |_: usize, lane: usize| Some(lane + distance).filter(|&source| source < WARP);
        let across = |_: usize, lane: usize| Some(lane ^ distance);
        for source in [&asked as Source<'_>, &up, &down, &across] {
            for values in [&words, &self.longs, &bits] {
                calls.push(each_thread(mask, |thread, lane| {
                    // Beyond the warp's edge a lane hears itself.
                    values[thread - lane + source(thread, lane).unwrap_or(lane)]
                }));
            }
        }
        calls
    }

    fn votes(&self, mask: u32) -> Vec<Vec<u64>> {
        let callers = |warp: usize| {
            (0..WARP).filter(move |lane| mask >> lane & 1 == 1).map(move |lane| warp * WARP + lane)
        };
        let words = |warp: usize| callers(warp).map(|thread| self.words[thread]);
        let lanes_where = |warp: usize, told: &dyn Fn(u32) -> bool| -> u64 {
            callers(warp)
                .filter(|&thread| told(self.words[thread]))
                .map(|thread| 1u64 << (thread % WARP))
                .sum()
        };
        let by_warp = |result: &dyn Fn(usize) -> u64| each_thread(mask, |thread, _| result(thread / WARP));
        let odd = |word: u32| word % 2 == 1;
        let whole = u64::from(mask);
        vec![
            by_warp(&|warp| lanes_where(warp, &odd)),
            by_warp(&|warp| words(warp).any(odd).into()),
            by_warp(&|warp| words(warp).all(odd).into()),
            by_warp(&|_| 0),
            by_warp(&|_| 1),
            each_thread(mask, |thread, _| {
                lanes_where(thread / WARP, &|word| word % 4 == self.words[thread] % 4)
            }),
            each_thread(mask, |thread, _| {
                let same = words(thread / WARP).all(|word| word % 4 == self.words[thread] % 4);
                if same { whole } else { 0 }
            }),
            by_warp(&|_| whole),
            by_warp(&|warp| words(warp).fold(0u32, u32::wrapping_add).into()),
            by_warp(&|warp| words(warp).min().unwrap_or_default().into()),
            by_warp(&|warp| words(warp).max().unwrap_or_default().into()),
            by_warp(&|warp| words(warp).map(|word| word as i32).min().unwrap_or_default() as u32 as u64),
            by_warp(&|warp| words(warp).map(|word| word as i32).max().unwrap_or_default() as u32 as u64),
            by_warp(&|warp| words(warp).fold(u32::MAX, |all, word| all & !(1 << (word % 32))).into()),
            by_warp(&|warp| words(warp).fold(0, |all, word| all | 1u32 << (word % 32)).into()),
            by_warp(&|warp| words(warp).fold(0, |all, word| all ^ word).into()),
            each_thread(mask, |thread, lane| {
                let next = (1..=WARP).map(|step| (lane + step) % WARP).find(|lane| mask >> lane & 1 == 1);
                self.words[thread - lane + next.unwrap_or(lane)].into()
            }),
        ]
    }
}

/// A result for each thread that calls, 0 for the others. `result` is given the thread and its lane.
fn each_thread(mask: u32, result: impl Fn(usize, usize) -> u64) -> Vec<u64> {
    let one = |thread: usize| {
        let lane = thread % WARP;
        if mask >> lane & 1 == 1 { result(thread, lane) } else { 0 }
    };
    (0..WARPS * WARP).map(one).collect()
}

impl Workload for Warp {
    fn name(&self) -> &str {
        "gpu/warp"
    }

    fn summary(&self) -> &str {
        "shuffles, votes, matches and reductions of a warp, by all of its lanes and by some"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let source = kernels::WARP_EXCHANGE.source();
        vec![
            KernelSpec::new(source.clone()).entries([ENTRIES[0]]).require("SHFL").threads(THREADS as u32),
            KernelSpec::new(source)
                .entries([ENTRIES[1]])
                .require("VOTE")
                .require("MATCH")
                .require("REDUX")
                .threads(THREADS as u32),
        ]
    }

    fn cases(&self, _: Kind) -> Vec<Case> {
        let whole = [0, 1, 2, 5, 16, 31, 33].map(|distance| Subject::Shuffles { mask: ALL_LANES, distance });
        let even = [2, 8, 14].map(|distance| Subject::Shuffles { mask: EVEN_LANES, distance });
        let odd = [2, 30].map(|distance| Subject::Shuffles { mask: ODD_LANES, distance });
        let masks = [ALL_LANES, EVEN_LANES, ODD_LANES, 0x0000_00ff, 0xffff_0000, 0x8000_0001, 0x0040_0000];
        let votes = masks.map(|mask| Subject::Votes { mask });
        whole.into_iter().chain(even).chain(odd).chain(votes).map(Subject::case).collect()
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let subject = Subject::of(case);
        let problem = Problem::new(subject, seed);
        let stream = device.stream()?;
        let words = stream.upload(&problem.words)?;
        let mut out = poisoned::<u64>(&stream, problem.results(subject).len())?;
        let grid = Grid::new([BLOCKS as u32, 1, 1], [THREADS as u32, 1, 1]).shared(4 * THREADS as u32);
        match subject {
            Subject::Shuffles { mask, distance } => {
                let longs = stream.upload(&problem.longs)?;
                let floats = stream.upload(&problem.floats)?;
                let sources = stream.upload(&problem.sources)?;
                let kernel = device.kernel_of(&kernels::WARP_EXCHANGE, ENTRIES[0])?;
                let arguments = args![&words, &longs, &floats, &sources, &mut out, mask, distance as u32];
                kernel.launch(&stream, &grid, &arguments)?;
            }
            Subject::Votes { mask } => {
                let kernel = device.kernel_of(&kernels::WARP_EXCHANGE, ENTRIES[1])?;
                kernel.launch(&stream, &grid, &args![&words, &mut out, mask])?;
            }
        }
        Ok(Outputs::new().with("out", stream.download(&out)?))
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        let subject = Subject::of(case);
        Outputs::new().with("out", Problem::new(subject, seed).results(subject))
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let subject = Subject::of(case);
        let problem = Problem::new(subject, seed);
        let wrong = |name: &str, problem: &Problem, subject: Subject| {
            Control::new(name, Outputs::new().with("out", problem.results(subject)))
        };
        let first_caller = subject.mask().trailing_zeros() as usize;
        let mut controls =
            vec![Control::zeros(reference), Control::one_off(reference, "out", first_caller, 1.0)];
        let mut other_warps = Problem::new(subject, seed);
        other_warps.words.rotate_left(WARP);
        controls.push(wrong("a warp hears another warp", &other_warps, subject));
        match subject {
            Subject::Shuffles { mask, distance } => {
                let farther = Subject::Shuffles { mask, distance: distance + 2 };
                controls.push(wrong("shuffles go too far", &problem, farther));
            }
            Subject::Votes { mask } => {
                let one_more = Subject::Votes { mask: mask ^ 1 << 5 };
                controls.push(wrong("a lane counts that should not, or does not", &problem, one_more));
            }
        }
        controls
    }

    fn work(&self, case: &Case) -> Work {
        let threads = (WARPS * WARP) as u64;
        let (calls, bytes_in) = match Subject::of(case) {
            Subject::Shuffles { .. } => (12, 4 + 8 + 4 + 4),
            Subject::Votes { .. } => (17, 4),
        };
        Work { operations: calls * threads, bytes: (8 * calls + bytes_in) * threads }
    }
}
