//! Runs that are killed, and go on as if they had not been.
//!
//! The test program is also the program that is killed: with `--child FOLDER` it trains there.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gatework_foresight::checkpoint::RunFolder;
use gatework_foresight::config::{Config, Prepared};
use gatework_foresight::data::Tokens;
use gatework_foresight::random::Random;
use gatework_foresight::run::{Listener, Run, configuration_of};
use gatework_foresight::{Error, NativeSnapshot, Saved};
use libtest_mimic::{Arguments, Failed, Trial};

type State = Saved<NativeSnapshot, Vec<f32>>;

fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("--child") {
        let folder = arguments.next().expect("the folder");
        train(Path::new(&folder)).expect("a run that nobody kills ends well");
        return;
    }
    let tests = vec![
        Trial::test("killed_twenty_times_the_engine_ends_with_the_same_bits", || killed(&config(true), 20)),
        Trial::test("killed_the_plain_loop_ends_with_the_same_bits", || killed(&config(false), 5)),
        Trial::test("killed_a_transformer_on_text_ends_with_the_same_bits", || on_text(false, 6)),
        Trial::test("killed_the_engine_on_text_ends_with_the_same_bits", || on_text(true, 6)),
        Trial::test("interrupted_a_run_is_saved_and_ends_with_the_same_bits", interrupted),
        Trial::test("a_broken_checkpoint_costs_steps_and_no_bits", broken),
        Trial::test("a_replay_folder_that_grows_changes_no_run_that_goes_on", replayed),
        Trial::test("a_folder_with_a_run_is_not_written_over", occupied),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit();
}

fn config(engine: bool) -> Config {
    let text = format!(
        "steps = 1000\n[model]\nhidden = [24, 16]\n[engine]\nenabled = {engine}\n[engine.options]\nwarmup_steps = 32\n\
         decide_every = 16\nexplore_every = 1\nrisk = 10\npredictor_share = 1\nconfidence_threshold = 0\nmax_predict_steps = 24\nlearn_every = 32\n[world]\nmembers = 2\nhidden = 12\ncategories = 3\n\
         classes = 3\n[run]\ncheckpoint_every = 7\nevaluate_every = 100"
    );
    Config::preset("digits").unwrap().with_text("test", &text).unwrap()
}

/// Trains in a folder to the end, from wherever it is.
fn train(folder: &Path) -> Result<State, Error> {
    let config = configuration_of(folder)?;
    let prepared = Prepared::of(&config, |_| ())?;
    let folder = RunFolder::open(folder)?;
    let mut run = if folder.steps()?.is_empty() {
        Run::start(&config, &prepared, Some(&folder))?
    } else {
        Run::resume(&config, &prepared, &folder, &mut ())?
    };
    run.finish(&(), &AtomicBool::new(false), &mut ())?;
    run.trainer().save()
}

fn prepare(folder: &Path, config: &Config) {
    std::fs::write(folder.join("config.toml"), config.text().unwrap()).unwrap();
}

/// What a run ends with that nothing disturbs and that writes nothing.
fn undisturbed(config: &Config) -> State {
    let prepared = Prepared::of(config, |_| ()).unwrap();
    let mut run = Run::start(config, &prepared, None).unwrap();
    let summary = run.finish(&(), &AtomicBool::new(false), &mut ()).unwrap();
    let acted = summary.counts.freezes.iter().chain(&summary.counts.jumps).sum::<u64>();
    assert!(
        acted > 3 || !config.engine.enabled,
        "the engine must have something to save: {:?}",
        summary.counts
    );
    run.trainer().save().unwrap()
}

fn require(same: bool, what: &str) -> Result<(), Failed> {
    if same { Ok(()) } else { Err(what.into()) }
}

/// A transformer on a text of few tokens, each of which depends on the one before.
fn on_text(engine: bool, times: usize) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let mut random = Random::new(1, "text");
    let mut tokens = |count: usize| -> Vec<u16> {
        let (mut token, mut all) = (0, Vec::new());
        for _ in 0..count {
            token = if random.below(5) == 0 { random.below(61) } else { (3 * token + 7) % 61 };
            all.push(token as u16);
        }
        all
    };
    let tokens = Tokens::new(61, tokens(2000), tokens(200))?;
    std::fs::write(folder.path().join("text.tokens"), tokens.bytes())?;
    let text = format!(
        "steps = 400\nbatch = 6\n[data]\nkind = \"text\"\nprobe = 12\nfolder = {:?}\n[model]\nkind = \"gpt\"\n\
         context = 9\nwidth = 12\nlayers = 2\nheads = 3",
        folder.path().display().to_string()
    );
    killed(&config(engine).with_text("text", &text)?, times)
}

fn killed(config: &Config, times: usize) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    prepare(folder.path(), config);
    let mut random = Random::new(if config.engine.enabled { 11 } else { 12 }, "kills");
    let mut landed = 0;
    for _ in 0..times {
        let before = newest(folder.path());
        let mut child = Command::new(std::env::current_exe()?)
            .arg("--child")
            .arg(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        // At some moment after it has got somewhere: between checkpoints, or in the middle of one.
        let target = before + 1 + random.below(12) as u64;
        let started = Instant::now();
        while newest(folder.path()) < target && child.try_wait()?.is_none() {
            require(started.elapsed() < Duration::from_secs(60), "the child does not get on")?;
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(Duration::from_micros(random.below(4000) as u64));
        // SIGKILL: the child cannot see it coming.
        let alive = child.try_wait()?.is_none();
        child.kill()?;
        child.wait()?;
        landed += usize::from(alive);
    }
    require(landed * 2 >= times, "most kills must hit a run that is under way")?;
    let end = train(folder.path())?;
    require(end.goes_on_as(&undisturbed(config)), "the run that was killed ended elsewhere")
}

/// The step of the newest checkpoint, or 0.
fn newest(folder: &Path) -> u64 {
    let steps = std::fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_prefix("step-")?.strip_suffix(".checkpoint")?.parse::<u64>().ok()
    });
    steps.max().unwrap_or(0)
}

/// Interrupts when the first evaluation is heard.
struct Interrupter<'a>(&'a AtomicBool);

impl Listener for Interrupter<'_> {
    fn evaluated(&mut self, _: &gatework_foresight::run::Evaluated) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn interrupted() -> Result<(), Failed> {
    let config = config(true);
    let folder = tempfile::tempdir()?;
    let prepared = Prepared::of(&config, |_| ())?;
    let flag = AtomicBool::new(false);
    {
        let folder = RunFolder::open(folder.path())?;
        let mut run = Run::start(&config, &prepared, Some(&folder))?;
        let stopped = run.finish(&(), &flag, &mut Interrupter(&flag));
        require(
            matches!(stopped, Err(Error::Interrupted { step, saved: true }) if step >= 100),
            "it must be interrupted",
        )?;
    }
    require(train(folder.path())?.goes_on_as(&undisturbed(&config)), "the interrupted run ended elsewhere")
}

fn broken() -> Result<(), Failed> {
    struct Refusals(Vec<String>);
    impl Listener for Refusals {
        fn refused(&mut self, error: &Error) {
            self.0.push(error.to_string());
        }
    }
    let config = config(true);
    let folder = tempfile::tempdir()?;
    let prepared = Prepared::of(&config, |_| ())?;
    let flag = AtomicBool::new(false);
    let run_folder = RunFolder::open(folder.path())?;
    let mut run = Run::start(&config, &prepared, Some(&run_folder))?;
    let _ = run.finish(&(), &flag, &mut Interrupter(&flag));
    drop(run);
    let last = run_folder.checkpoint(run_folder.steps()?[0]);
    let mut bytes = std::fs::read(&last)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&last, bytes)?;
    let mut refusals = Refusals(Vec::new());
    let mut run = Run::resume(&config, &prepared, &run_folder, &mut refusals)?;
    require(refusals.0.len() == 1 && refusals.0[0].contains("checksum"), "the damage must be said")?;
    run.finish(&(), &AtomicBool::new(false), &mut ())?;
    require(run.trainer().save().unwrap().goes_on_as(&undisturbed(&config)), "it ended elsewhere")
}

/// Runs that finish meanwhile, this one's own end included, are for later runs.
fn replayed() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let mut config = config(true);
    config.engine.replay = folder.path().join("replay");
    let teach = |seed| -> Result<(), Failed> {
        let config = Config { seed, ..config.clone() };
        let prepared = Prepared::of(&config, |_| ())?;
        Run::start(&config, &prepared, None)?.finish(&(), &AtomicBool::new(false), &mut ())?;
        Ok(())
    };
    teach(101)?;
    let prepared = Prepared::of(&config, |_| ())?;
    let home = RunFolder::open(&folder.path().join("run"))?;
    Run::start(&config, &prepared, Some(&home))?.train_to(500, &(), &AtomicBool::new(false), &mut ())?;
    let undisturbed = undisturbed(&config);
    teach(100)?;
    let grown = Prepared::of(&config, |_| ())?;
    require(grown.replay.episodes().count() == 3, "two more runs must have been remembered")?;
    let mut run = Run::resume(&config, &grown, &home, &mut ())?;
    run.finish(&(), &AtomicBool::new(false), &mut ())?;
    require(
        run.trainer().save().unwrap().goes_on_as(&undisturbed),
        "the run learnt from what it did not begin with",
    )
}

fn occupied() -> Result<(), Failed> {
    let config = config(false);
    let folder = tempfile::tempdir()?;
    let prepared = Prepared::of(&config, |_| ())?;
    let run_folder = RunFolder::open(folder.path())?;
    Run::start(&config, &prepared, Some(&run_folder))?.finish(&(), &AtomicBool::new(false), &mut ())?;
    let said = Run::start(&config, &prepared, Some(&run_folder)).err().map(|error| error.to_string());
    require(
        said.is_some_and(|said| said.contains("resume it, or name another folder")),
        "it must be refused",
    )?;
    let other = Config {
        model: gatework_foresight::config::ModelSection { hidden: vec![7], ..config.model.clone() },
        ..config
    };
    let resumed = Run::resume(&other, &prepared, &run_folder, &mut ()).err().map(|error| error.to_string());
    require(
        resumed.is_some_and(|said| said.contains("none that can be used")),
        "another network must be refused",
    )
}
