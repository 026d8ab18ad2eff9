//! What runs hold in memory, against their plans.
//!
//! The test program is also the run that is measured, as a process of its own: with `--child HOW FOLDER` it
//! trains there, or goes on, and prints what was planned and the most that it held.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use gatework_foresight::checkpoint::RunFolder;
use gatework_foresight::config::{Config, Prepared};
use gatework_foresight::data::Tokens;
use gatework_foresight::run::{Run, configuration_of};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [child, how, folder] = &arguments[..]
        && child == "--child"
    {
        let [planned, held] = train(how, Path::new(folder)).expect("the run ends well");
        println!("{planned} {held}");
        return;
    }
    let wide = "steps = 3\nbatch = 2\n[model]\ncontext = 32\nwidth = 96\n[run]\ncheckpoint_every = 2";
    let deep = "steps = 3\nbatch = 1\n[data]\nkind = \"text\"\nprobe = 3\n[model]\ncontext = 512\nlayers = 12\nwidth = 64";
    let bold = "steps = 40\nbatch = 2\n[model]\ncontext = 16\nwidth = 64\nlayers = 1\n[engine]\nenabled = true\n\
                [engine.options]\nsampled = 0\nwarmup_steps = 10\ndecide_every = 4\nexplore_every = 1\nrisk = 100\n\
                predictor_share = 100\nmax_predict_steps = 4\nconfidence_threshold = 0\nsnapshot_every = 1\nsafe_every = 2\n\
                tick = 2\nlearn_every = 4\n[world]\nmembers = 2\nhidden = 12\n[run]\ncheckpoint_every = 1";
    let tests = vec![
        Trial::test("a_wide_transformer_with_checkpoints_holds_what_was_planned", || holds(wide, 0.75)),
        Trial::test("a_deep_transformer_holds_no_more_while_it_is_judged", || holds(deep, 0.5)),
        Trial::test("the_engine_holds_what_was_planned", || holds(bold, 0.5)),
    ];
    // One after another: each has its own process, and the machine's memory is one.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, tests).exit();
}

/// Runs it, and runs it again from its checkpoints: neither may hold much more than was planned, and the first
/// not much less.
fn holds(settings: &str, least: f64) -> Result<(), Failed> {
    /// Bytes beside the plan: code, stacks, buffers of files, gaps of the allocator.
    const BESIDE: f64 = 24e6;
    let folder = tempfile::tempdir()?;
    let tokens = |count: u16| (0..count).map(|place| (place % 59) * (place % 61) % 61).collect();
    std::fs::write(folder.path().join("text.tokens"), Tokens::new(61, tokens(4000), tokens(1500))?.bytes())?;
    let mut config = Config::preset("text")?.with_text("test", settings)?;
    config.data.folder = folder.path().to_owned();
    std::fs::write(folder.path().join("config.toml"), config.text()?)?;
    for how in ["start", "resume"] {
        let child =
            Command::new(std::env::current_exe()?).args(["--child", how]).arg(folder.path()).output()?;
        let said = String::from_utf8_lossy(&child.stdout).into_owned();
        let numbers: Vec<f64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [planned, held] = numbers[..] else { return Err(format!("{child:?}").into()) };
        let (most, least) = (1.1 * planned + BESIDE, if how == "start" { least * planned } else { 0.0 });
        if !(least..=most).contains(&held) {
            return Err(format!("{how}: planned {planned:e}, held {held:e}").into());
        }
    }
    Ok(())
}

/// What was planned, and the most that was held beside the program.
fn train(how: &str, folder: &Path) -> Result<[u64; 2], gatework_foresight::Error> {
    let before = memory("VmRSS:");
    let config = configuration_of(folder)?;
    let prepared = Prepared::of(&config, |_| ())?;
    let planned = prepared.memory(&config)?.host as u64;
    let folder = RunFolder::open(folder)?;
    let mut run = match how {
        "start" => Run::start(&config, &prepared, Some(&folder))?,
        _ => Run::resume(&config, &prepared, &folder, &mut ())?,
    };
    run.finish(&(), &AtomicBool::new(false), &mut ())?;
    Ok([planned, memory("VmHWM:") - before])
}

/// Bytes of this process by what the system says.
fn memory(of: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux says what a process holds");
    let line = status.lines().find_map(|line| line.strip_prefix(of)).expect("it is among it");
    1024 * line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number of kB")
}
