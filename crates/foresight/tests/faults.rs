//! A run that faults hit all the time ends with the weights of the same run without them.
//!
//! Some training examples are so far off that batches with them spike, or come to no number: both runs have
//! those. On top of them one run is killed, interrupted, and kept from writing. As a test this takes seconds;
//! `cargo test --release -p gatework-foresight --test faults -- --minutes 60 [FOLDER]` goes on for an hour.
//! FOLDER is a small file system of its own (`mount -t tmpfs -o size=32m none FOLDER`) that is really filled
//! up. The program is also the child that trains: `--child FOLDER`.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gatework_foresight::checkpoint::RunFolder;
use gatework_foresight::config::{Config, Prepared};
use gatework_foresight::data::{Examples, Splits};
use gatework_foresight::engine::Event;
use gatework_foresight::random::Random;
use gatework_foresight::run::{Listener, Run, configuration_of};
use gatework_foresight::world::Replay;
use gatework_foresight::{Error, NativeSnapshot, Saved};
use libtest_mimic::{Arguments, Failed, Trial};

type State = Saved<NativeSnapshot, Vec<f32>>;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--child", folder] => child(Path::new(folder)),
        ["--minutes", minutes, ref rest @ ..] if rest.len() <= 1 => match minutes.parse() {
            Ok(minutes) => {
                long(minutes, rest.first().map_or(Disk::Shared, |folder| Disk::Own(Path::new(folder))))
            }
            Err(_) => {
                eprintln!("--minutes takes a number");
                ExitCode::FAILURE
            }
        },
        _ => {
            let test = Trial::test("killed_interrupted_and_out_of_room_the_weights_are_the_same", || {
                short().map(drop)
            });
            libtest_mimic::run(&Arguments::from_args(), vec![test]).exit_code()
        }
    }
}

/// How large a round is.
#[derive(Clone, Copy)]
struct Size {
    steps: u64,
    width: usize,
    checkpoint_every: u64,
}

fn config(seed: u64, size: Size) -> Config {
    let Size { steps, width, checkpoint_every } = size;
    let text = format!(
        "seed = {seed}\nsteps = {steps}\n[model]\nhidden = [{width}, {width}]\n[optimiser]\nlearning_rate = 2e-3\n\
         [engine.options]\nexplore_every = 4\nrisk = 1\nmost_rollbacks = 100\npredictor_share = 0.1\n\
         [world]\nmembers = 2\nhidden = 12\ncategories = 3\nclasses = 3\n\
         [run]\ncheckpoint_every = {checkpoint_every}\nevaluate_every = {steps}\nlog_every = 50"
    );
    Config::default().with_text("faults", &text).expect("a configuration")
}

const SIZE: usize = 16;
const CLASSES: usize = 10;
const EXAMPLES: usize = 30_000;

/// Clusters, and among them one example that makes a batch no number and one that makes it a spike.
fn prepared() -> Prepared {
    let mut random = Random::new(1, "faults");
    let centres: Vec<f64> = (0..CLASSES * SIZE).map(|_| random.normal()).collect();
    let mut examples = |count: usize, poisoned: bool| {
        let (mut inputs, mut labels) = (Vec::new(), Vec::new());
        for example in 0..count {
            let class = random.below(CLASSES);
            let scale = match example {
                // Finite, and with any weights more than single precision holds.
                100 if poisoned => 3e38,
                7000 if poisoned => 3e3,
                _ => 1.0,
            };
            let centre = &centres[class * SIZE..][..SIZE];
            inputs.extend(centre.iter().map(|centre| {
                let x = centre + random.normal();
                if scale > 1.0 { (scale * x.signum()) as f32 } else { x as f32 }
            }));
            labels.push(class as u16);
        }
        Examples::new([1, 1, SIZE], CLASSES, inputs, labels).expect("examples")
    };
    let splits = Splits {
        train: examples(EXAMPLES, true),
        probe: examples(300, false),
        validation: examples(300, false),
    };
    Prepared { data: Arc::new(splits).into(), replay: Replay::default() }
}

/// Counts rollbacks.
#[derive(Default)]
struct Rollbacks(u64);

impl Listener for Rollbacks {
    fn happened(&mut self, _: u64, event: &Event) {
        self.0 += u64::from(matches!(event, Event::RolledBack { .. }));
    }
}

/// Trains in a folder to the end, from wherever it is.
fn train(folder: &Path) -> Result<State, Error> {
    let config = configuration_of(folder)?;
    let prepared = prepared();
    let folder = RunFolder::open(folder)?;
    let mut run = if folder.steps()?.is_empty() {
        Run::start(&config, &prepared, Some(&folder))?
    } else {
        Run::resume(&config, &prepared, &folder, &mut ())?
    };
    run.finish(&(), &INTERRUPTED, &mut ())?;
    run.trainer().save()
}

fn child(folder: &Path) -> ExitCode {
    let handled = ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed));
    match handled.map_err(|error| error.to_string()).and_then(|()| train(folder).map_err(|e| e.to_string())) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// What happens to a child.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Kill,
    Interrupt,
    /// The disk is full, or files cannot grow beyond a limit: writes fail half-way either way.
    NoRoom,
}

/// Where runs are kept.
#[derive(Clone, Copy)]
enum Disk<'a> {
    /// With everything else: it cannot be filled up, so the size of files is limited in its place.
    Shared,
    /// On a small file system of its own, which is filled up.
    Own(&'a Path),
}

/// The most that a file system of its own may hold, so that nobody fills up one that others use.
const SMALL: u64 = 256 << 20;

/// Takes all room of a file system but so many kilobytes, until it is dropped.
struct Ballast(tempfile::NamedTempFile);

impl Ballast {
    fn fill(disk: &Path, leave: u64) -> Result<Self, Failed> {
        let mut file = tempfile::NamedTempFile::new_in(disk)?;
        let block = [0u8; 1024];
        let mut written = 0;
        loop {
            match file.write_all(&block) {
                Ok(()) if written > SMALL => {
                    return Err("the file system is too large to be filled up".into());
                }
                Ok(()) => written += block.len() as u64,
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => break,
                Err(error) => return Err(error.into()),
            }
        }
        file.as_file().set_len(written.saturating_sub(leave << 10))?;
        Ok(Self(file))
    }

    fn drop(self) -> Result<(), Failed> {
        Ok(self.0.close()?)
    }
}

/// Starts a child; one without room cannot write files of more than so many kilobytes.
fn start(folder: &Path, room: Option<u64>) -> Result<Child, Failed> {
    let program = std::env::current_exe()?;
    let mut command = match room {
        Some(kilobytes) => {
            let mut shell = Command::new("bash");
            // The signal that a refused write raises is ignored, so that the write itself fails.
            let script = format!("trap '' XFSZ; ulimit -f {kilobytes}; exec \"$0\" \"$@\"");
            shell.args(["-c", &script]).arg(program);
            shell
        }
        None => Command::new(program),
    };
    Ok(command.arg("--child").arg(folder).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
}

/// The step of the newest checkpoint, or 0.
fn newest(folder: &Path) -> u64 {
    let steps = std::fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_prefix("step-")?.strip_suffix(".checkpoint")?.parse::<u64>().ok()
    });
    steps.max().unwrap_or(0)
}

/// When faults come: after so many checkpoints, or after so many seconds.
#[derive(Clone, Copy)]
enum Pace {
    Steps(usize),
    Seconds(usize),
}

/// What a round came to.
#[derive(Debug, Default)]
struct Hits {
    kills: u32,
    interrupts: u32,
    full: u32,
    rollbacks: u64,
    seconds: f64,
}

/// Trains once undisturbed and once with faults, and compares.
fn round(seed: u64, size: Size, pace: Pace, at_most: usize, disk: Disk<'_>) -> Result<Hits, Failed> {
    let config = config(seed, size);
    let folder = match disk {
        Disk::Shared => tempfile::tempdir()?,
        Disk::Own(disk) => tempfile::tempdir_in(disk)?,
    };
    std::fs::write(folder.path().join("config.toml"), config.text()?)?;
    let undisturbed = std::thread::spawn(move || -> Result<(State, u64), Error> {
        let mut rollbacks = Rollbacks::default();
        let mut run = Run::start(&config, &prepared(), None)?;
        run.finish(&(), &AtomicBool::new(false), &mut rollbacks)?;
        Ok((run.trainer().save()?, rollbacks.0))
    });
    let mut random = Random::new(seed, "faults");
    let mut hits = Hits::default();
    let started = Instant::now();
    for turn in 0..at_most {
        let fault = [Fault::Kill, Fault::NoRoom, Fault::Interrupt][turn % 3];
        let before = newest(folder.path());
        // A checkpoint of this size does not fit.
        let room = (fault == Fault::NoRoom && before > 0).then(|| 8 + random.below(16) as u64);
        let (limit, ballast) = match (disk, room) {
            (Disk::Own(disk), Some(room)) => (None, Some(Ballast::fill(disk, room)?)),
            (Disk::Own(_), None) | (Disk::Shared, _) => (room, None),
        };
        let mut child = start(folder.path(), limit)?;
        let begun = Instant::now();
        let waited = match pace {
            Pace::Steps(steps) => {
                let target = before + 1 + random.below(steps) as u64;
                Box::new(move |path: &Path| newest(path) >= target) as Box<dyn Fn(&Path) -> bool>
            }
            Pace::Seconds(seconds) => {
                let wait = Duration::from_millis(1000 + random.below(1000 * seconds) as u64);
                Box::new(move |_: &Path| begun.elapsed() >= wait)
            }
        };
        while child.try_wait()?.is_none() && !waited(folder.path()) {
            if begun.elapsed() > Duration::from_secs(120) {
                child.kill()?;
                return Err("a child does not get on".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(random.below(4000) as u64));
        let alive = child.try_wait()?.is_none();
        match fault {
            Fault::Interrupt if alive => {
                let pid = child.id().to_string();
                Command::new("kill").args(["-INT", &pid]).status()?;
                hits.interrupts += 1;
            }
            Fault::NoRoom if room.is_some() && !alive => hits.full += 1,
            _ => {
                child.kill()?;
                hits.kills += u32::from(alive);
            }
        }
        let ended = child.wait()?;
        if let Some(ballast) = ballast {
            ballast.drop()?;
        }
        if ended.success() {
            break;
        }
    }
    let end = train(folder.path())?;
    hits.seconds = started.elapsed().as_secs_f64();
    let (whole, rollbacks) = undisturbed.join().map_err(|_| "the undisturbed run panicked")??;
    hits.rollbacks = rollbacks;
    if rollbacks == 0 {
        return Err("no batch was bad enough to roll back: the test tests nothing".into());
    }
    if !end.goes_on_as(&whole) {
        return Err(format!("seed {seed}: the disturbed run ended with other bits after {hits:?}").into());
    }
    Ok(hits)
}

fn short() -> Result<Hits, Failed> {
    let size = Size { steps: 4000, width: 32, checkpoint_every: 40 };
    let hits = round(1, size, Pace::Steps(400), 15, Disk::Shared)?;
    if hits.kills == 0 || hits.interrupts == 0 || hits.full == 0 {
        return Err(format!("every kind of fault must have hit a run that was under way: {hits:?}").into());
    }
    Ok(hits)
}

/// Rounds of other seeds until disturbed runs have taken that long.
fn long(minutes: f64, disk: Disk<'_>) -> ExitCode {
    let size = Size { steps: 40_000, width: 128, checkpoint_every: 500 };
    let mut seconds = 0.0;
    for seed in 1.. {
        match round(seed, size, Pace::Seconds(16), 60, disk) {
            Ok(hits) => {
                seconds += hits.seconds;
                println!(
                    "seed {seed}: the same bits after {hits:?}; {:.1} minutes of disturbed training so far",
                    seconds / 60.0
                );
            }
            Err(failed) => {
                println!("failed: {}", failed.message().unwrap_or("no reason"));
                return ExitCode::FAILURE;
            }
        }
        if seconds >= 60.0 * minutes {
            break;
        }
    }
    ExitCode::SUCCESS
}
