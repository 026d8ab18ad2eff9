//! Every target over its corpus, over truncations of it, and over altered copies, in bounded time and memory.
//!
//! An input that breaks a target is left under the build folder, and the test says where. Mend the reader,
//! give it a test of its own, and move the input to `corpus/<target>/findings/`.

mod memory;
mod watchdog;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{env, fs};

use gatework_fuzz::{Mutator, TARGETS, Target, Verdict, corpus};
use libtest_mimic::{Arguments, Failed, Trial};

use self::watchdog::Watchdog;

/// Altered inputs of one target at most, and the longest that they are tried. With `GATEWORK_FUZZ_SECONDS`
/// they are tried for that long, however many those are; `GATEWORK_FUZZ_SEED` makes other ones.
const INPUTS: usize = 100_000;
const TIME: Duration = Duration::from_secs(10);
/// Truncations of one file at most: of a longer one they are spread evenly.
const TRUNCATIONS: usize = 2048;
/// No reader takes that long for a short input, however busy the machine is.
const ENDLESS: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let trials = TARGETS.iter().map(|target| Trial::test(target.name, move || Bench::new(target)?.run()));
    let every = Trial::test("every_target_has_a_fuzzer", every_target_has_a_fuzzer);
    libtest_mimic::run(&Arguments::from_args(), trials.chain([every]).collect()).exit_code()
}

/// A target with what is tried on it.
struct Bench {
    target: &'static Target,
    watchdog: Watchdog,
    tried: usize,
    /// The most that was held, over what may be.
    fullest: f64,
}

impl Bench {
    fn new(target: &'static Target) -> Result<Self, Failed> {
        Ok(Self { target, watchdog: Watchdog::new(target.name, ENDLESS), tried: 0, fullest: 0.0 })
    }

    fn run(mut self) -> Result<(), Failed> {
        let seeds = corpus::seeds(self.target.name)?;
        let findings = corpus::findings(self.target.name)?;
        if seeds.is_empty() {
            return Err("it has no seeds: cargo run -p gatework-fuzz --example seeds".into());
        }
        for seed in &seeds {
            // What is made once for all inputs is made here.
            catch_unwind(|| (self.target.read)(&seed.bytes)).map_err(said)?;
            if self.check(&seed.bytes)? != Verdict::Accepted {
                return Err(format!("{} is refused: write the seeds anew", seed.path.display()).into());
            }
        }
        let all: Vec<&[u8]> = seeds.iter().chain(&findings).map(|input| input.bytes.as_slice()).collect();
        for input in &all {
            self.check(input)?;
            let step = input.len().div_ceil(TRUNCATIONS).max(1);
            for end in (0..input.len()).step_by(step) {
                self.check(&input[..end])?;
            }
        }
        let (most, time) = match setting("GATEWORK_FUZZ_SECONDS")? {
            Some(seconds) => (usize::MAX, Duration::from_secs(seconds)),
            None => (INPUTS, TIME),
        };
        let mut mutator = Mutator::new(setting("GATEWORK_FUZZ_SEED")?.unwrap_or(1));
        let (started, mut altered) = (Instant::now(), 0);
        while altered < most && started.elapsed() < time {
            let input = mutator.altered(all[altered % all.len()], &all);
            self.check(&input)?;
            altered += 1;
        }
        let (name, tried, full) = (self.target.name, self.tried, 100.0 * self.fullest);
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "{name}: {tried} inputs, {seconds:.0} s, at most {full:.0} % of the memory that it may hold"
        );
        Ok(())
    }

    /// Gives an input to the target, and fails if that panics or holds too much.
    fn check(&mut self, input: &[u8]) -> Result<Verdict, Failed> {
        self.tried += 1;
        self.watchdog.begin(input);
        let (outcome, held) =
            memory::peak_of(|| catch_unwind(AssertUnwindSafe(|| (self.target.read)(input))));
        self.watchdog.end();
        let verdict = match outcome {
            Ok(verdict) => verdict,
            Err(payload) => return Err(self.broken(input, &said(payload))),
        };
        let allowed = self.target.allowance.bytes(input.len());
        self.fullest = self.fullest.max(held as f64 / allowed as f64);
        if held > allowed {
            let what = format!("it held {held} bytes for {} of input, and may hold {allowed}", input.len());
            return Err(self.broken(input, &what));
        }
        Ok(verdict)
    }

    fn broken(&self, input: &[u8], what: &str) -> Failed {
        let kept = keep(self.target.name, input);
        format!("{what}\nthe input is kept as {}", kept.display()).into()
    }
}

/// A number of the environment, if it is there.
fn setting(name: &str) -> Result<Option<u64>, Failed> {
    match env::var(name) {
        Ok(value) => {
            value.parse().map(Some).map_err(|_| format!("{name} is '{value}', which is no number").into())
        }
        Err(_) => Ok(None),
    }
}

/// What a panic said.
fn said(payload: Box<dyn Any + Send>) -> String {
    let words = payload.downcast_ref::<String>().cloned();
    words.or_else(|| payload.downcast_ref::<&str>().map(|&words| words.to_owned())).unwrap_or_default()
}

/// Keeps an input that broke something.
fn keep(name: &str, input: &[u8]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("broken");
    let path = folder.join(name);
    if let Err(error) = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, input)) {
        eprintln!("{} cannot be written: {error}", path.display());
    }
    path
}

/// The fuzzers at the root are these targets and no others.
fn every_target_has_a_fuzzer() -> Result<(), Failed> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !fs::read_to_string(&path)?.contains(&format!("run(\"{name}\", bytes)")) {
            return Err(format!("{} does not run '{name}'", path.display()).into());
        }
        found.push(name);
    }
    found.sort();
    let mut wanted: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    wanted.sort_unstable();
    if found != wanted {
        return Err(format!("the fuzzers are {found:?}, the targets {wanted:?}").into());
    }
    Ok(())
}
