//! `gatework train` as a user types it.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use gatework_foresight::data::Tokens;
use serde_json::Value;

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatework"));
    command.current_dir(folder).env_remove("GATEWORK_DEVICE").arg("train").args(arguments);
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_run_leaves_logs_and_checkpoints_and_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["run", "--preset", "xor", "--set", "steps=150", "--out", "runs/a", "--json"];
    let output = run(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let summary = json(&output);
    assert!(summary["evaluations"][1]["averaged"]["accuracy"].as_f64().unwrap() > 0.9, "{summary}");
    for name in [
        "config.toml",
        "log.jsonl",
        "log.csv",
        "events.out.tfevents.0.gatework",
        "step-0000000150.checkpoint",
    ] {
        assert!(folder.path().join("runs/a").join(name).exists(), "{name}");
    }
    let again = run(folder.path(), &arguments);
    assert_eq!(again.status.code(), Some(2));
    assert!(said(&again).contains("resume it, or name another folder"), "{}", said(&again));
    let forecast = run(folder.path(), &["forecast", "runs/a/log.jsonl", "--at", "600", "--json"]);
    assert_eq!(json(&forecast)["forecasts"].as_array().unwrap().len(), 4, "{forecast:?}");
}

#[test]
fn a_small_gpt_trains_on_text_writes_and_has_a_plan() {
    let folder = tempfile::tempdir().unwrap();
    let settings =
        ["--preset", "text", "--set", "model.width=16", "--set", "model.layers=1", "--set", "batch=4"];
    let steps = ["--set", "steps=30", "--set", "optimiser.warmup=3", "--set", "run.evaluate_every=15"];
    let arguments = [&["run", "--json", "--sample", "5"][..], &settings, &steps].concat();
    let output = run(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let document = json(&output);
    let losses: Vec<f64> = document["evaluations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|evaluated| evaluated["trained"]["loss"].as_f64().unwrap())
        .collect();
    assert!(losses.len() == 2 && losses[1] < losses[0] && losses[1] < 10.0, "{losses:?}");
    assert!(document.get("comparison").is_none());
    // The held-out file begins with this.
    let sample = &document["sample"];
    assert!(sample["prompt"].as_str().unwrap().contains("extern crate"), "{sample}");
    assert!(!sample["written"].as_str().unwrap().is_empty());
    // GPT-2 small: 124,475,904 parameters and as many averages, of four bytes.
    let small = [
        "--preset",
        "gpt2",
        "--set",
        "data.kind=rust",
        "--set",
        "model.context=200",
        "--set",
        "data.probe=4",
    ];
    let plan = json(&run(folder.path(), &[&["run", "--plan", "--json"][..], &small].concat()));
    let parameters = 124_475_904 - (1024 - 200) * 768;
    assert_eq!(plan["weights"].as_u64().unwrap(), 2 * 4 * parameters, "{plan}");
    assert!(plan["passes"].as_u64().unwrap() > 8 * 4 * parameters, "{plan}");
    // Nothing is written, so that no state is copied for that.
    assert_eq!((plan["checkpoint"].as_u64(), plan["device"].as_u64()), (Some(0), Some(0)), "{plan}");
}

#[test]
fn a_tiny_gpt_trains_on_the_emulated_device_and_goes_on_there_alone() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = |count: u16| (0..count).map(|place| (place % 23) * (place % 23) % 23).collect();
    let tokens = Tokens::new(23, tokens(300), tokens(60)).unwrap();
    std::fs::write(folder.path().join("text.tokens"), tokens.bytes()).unwrap();
    let mut arguments = vec!["run", "--preset", "text", "--data", ".", "--device", "emulated", "--json"];
    let settings = [
        "data.kind=text",
        "data.probe=2",
        "model.context=5",
        "model.width=8",
        "model.layers=1",
        "model.heads=2",
        "steps=6",
        "batch=4",
        "optimiser.warmup=1",
        "optimiser.learning_rate=0.02",
        "run.evaluate_every=2",
    ];
    settings.iter().for_each(|setting| arguments.extend(["--set", setting]));
    let plan = json(&run(folder.path(), &[&arguments[..], &["--plan"]].concat()));
    assert!(plan["passes"].as_u64() > Some(0) && plan["device"].as_u64() > plan["passes"].as_u64(), "{plan}");
    // These tokens are nobody's that can be decoded: that is said before anything is trained.
    let undecodable = run(folder.path(), &[&arguments[..], &["--sample", "5", "--out", "never"]].concat());
    assert_eq!(undecodable.status.code(), Some(2), "{undecodable:?}");
    assert!(
        said(&undecodable).contains("only those of GPT-2, 50257, can be decoded"),
        "{}",
        said(&undecodable)
    );
    assert!(!folder.path().join("never").exists());
    let output = run(folder.path(), &[&arguments[..], &["--out", "there"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let place = said(&output);
    assert!(place.contains("learns on the emulated device with kernels by "), "{place}");
    assert!(place.contains("products by own") && place.contains(" of the device"), "{place}");
    let evaluations = json(&output)["evaluations"].as_array().unwrap().clone();
    let loss = |at: usize| evaluations[at]["trained"]["loss"].as_f64().unwrap();
    assert!(
        evaluations.len() == 3 && (loss(0) - 23f64.ln()).abs() < 0.5 && loss(2) < loss(0),
        "{evaluations:?}"
    );
    let resumed = run(folder.path(), &["resume", "there", "--json"]);
    assert_eq!(json(&resumed)["evaluations"].as_array().unwrap(), &evaluations, "{resumed:?}");
    let elsewhere = run(folder.path(), &["resume", "there", "--device", "cpu"]);
    assert_eq!(elsewhere.status.code(), Some(2), "{elsewhere:?}");
    let told = said(&elsewhere);
    assert!(
        told.contains("in bf16 on the emulated device") && told.contains("--device where it began"),
        "{told}"
    );
    assert!(!told.contains("the one before it is used"), "{told}");
}

/// Settings of a tiny GPT on the text that is built in.
const TINY: [&str; 12] = [
    "--preset",
    "text",
    "--set",
    "model.width=16",
    "--set",
    "model.layers=1",
    "--set",
    "batch=4",
    "--set",
    "steps=2",
    "--set",
    "optimiser.warmup=1",
];

#[test]
fn a_run_that_is_over_is_resumed_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let whole =
        run(folder.path(), &[&["run", "--json", "--sample", "5", "--out", "here"][..], &TINY].concat());
    assert_eq!(whole.status.code(), Some(0), "{whole:?}");
    let again = run(folder.path(), &["resume", "here", "--json", "--sample", "5"]);
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    assert_eq!(json(&again)["sample"], json(&whole)["sample"]);
    assert!(json(&run(folder.path(), &["resume", "here", "--json"])).get("sample").is_none());
}

#[test]
#[cfg(unix)]
fn ctrl_c_while_it_writes_shows_the_run_and_ends_with_130() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [&["run", "--json", "--sample", "10000", "--out", "here"][..], &TINY].concat();
    let child =
        command(folder.path(), &arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let started = Instant::now();
    // Its last checkpoint is of a run that has come to its end.
    while !folder.path().join("here/step-0000000002.checkpoint").exists() {
        assert!(started.elapsed() < Duration::from_secs(60), "the run does not get on");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    assert!(said(&ended).contains("of 10000 tokens that the network was to write"), "{}", said(&ended));
    let summary = json(&ended);
    assert!(summary["steps"] == 2 && summary.get("sample").is_none(), "{summary}");
}

#[test]
#[cfg(unix)]
fn ctrl_c_saves_and_ends_with_130_and_the_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        "--preset",
        "digits",
        "--set",
        "steps=1500",
        "--set",
        "batch=256",
        "--set",
        "run.checkpoint_every=100",
    ];
    let whole = run(folder.path(), &[&["run", "--json", "--out", "whole"][..], &settings].concat());
    assert_eq!(whole.status.code(), Some(0), "{whole:?}");
    let arguments = [&["run", "--out", "cut"][..], &settings].concat();
    let child =
        command(folder.path(), &arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let started = Instant::now();
    while !folder.path().join("cut/step-0000000100.checkpoint").exists() {
        assert!(started.elapsed() < Duration::from_secs(60), "the run does not get on");
        std::thread::sleep(Duration::from_millis(1));
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    assert!(said(&ended).contains("the run is saved and can be resumed"), "{}", said(&ended));
    let resumed = run(folder.path(), &["resume", "cut", "--json"]);
    assert_eq!(resumed.status.code(), Some(0), "{resumed:?}");
    let end = |output: &Output| {
        let document = json(output);
        let evaluations = document["evaluations"].as_array().unwrap();
        evaluations.last().unwrap()["trained"].clone()
    };
    assert_eq!(end(&whole), end(&resumed));
}

#[test]
fn mistakes_are_named_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("short.csv"), "loss\n1\n2\n3\n").unwrap();
    std::fs::write(folder.path().join("bad.toml"), "[optimiser]\nlearning_rat = 1\n").unwrap();
    std::fs::write(folder.path().join("other.tgz"), "no package").unwrap();
    std::fs::create_dir(folder.path().join("crates")).unwrap();
    std::fs::write(folder.path().join("crates/candle-core-0.10.2.crate"), "no crate").unwrap();
    let large = ["run", "--preset", "text", "--set", "model.width=16384", "--set", "model.layers=256"];
    let long = ["run", "--preset", "text", "--set", "batch=1048576", "--set", "model.width=8192"];
    let cases: [(&[&str], &str); 24] = [
        (&["run", "--preset", "imagenet"], "there are xor, digits, mnist, text, gpt2"),
        (&["run", "--preset", "gpt2", "--plan"], "gatework train fetch text"),
        (&["run", "--sample", "5"], "only a run on text writes"),
        (&["run", "--set", "model.kind=gpt"], "'model.kind' is 'gpt', which learns from a text"),
        (&["run", "--preset", "text", "--set", "model.context=1024"], "use a smaller 'model.context'"),
        (&["run", "--config", "bad.toml"], "did you mean 'optimiser.learning_rate'?"),
        (&["run", "--config", "none.toml"], "none.toml cannot be read"),
        (&["run", "--set", "batch=5000"], "a batch of 5000 cannot be drawn from 1200 examples"),
        (&["run", "--preset", "mnist", "--data", "nowhere"], "gatework train fetch mnist"),
        (&["resume", "nowhere"], "there is no config.toml in it"),
        (&["forecast", "short.csv", "--at", "10"], "it has 3 points"),
        (&["fetch", "mnist", "--into", "data", "--from", "other.tgz"], "nothing was unpacked"),
        (&["fetch", "text", "--into", "data", "--from", "other.tgz"], "the folder with the crates"),
        (&["fetch", "text", "--into", "data", "--from", "."], "candle-core-0.10.2.crate"),
        (&["fetch", "text", "--into", "data", "--from", "crates"], "is not candle-core 0.10.2"),
        (&["run", "--device", "emulated"], "trains on a device; use --device cpu"),
        (&["compare", "--device", "emulated"], "trains on a device; use --device cpu"),
        (&["sweep", "--vary", "batch=8,16", "--out", "s", "--device", "emulated"], "use --device cpu"),
        (&["run", "--plan", "--set", "run.device=gpu"], "unknown device 'gpu'"),
        (&["run", "--plan", "--set", "run.products=mkl"], "own or cublaslt"),
        (&["run", "--plan", "--device", "cuda:0,1"], "a run is on one"),
        (&["run", "--preset", "text", "--compare", "2"], "the engine is what is compared"),
        (&large, "lower 'model.width' or 'model.layers'"),
        (&long, "of this machine's memory"),
    ];
    for (arguments, wanted) in cases {
        let output = run(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(said(&output).contains(wanted), "{arguments:?}: {}", said(&output));
    }
    assert!(!folder.path().join("data").exists());
}

#[test]
fn a_sweep_names_its_winner() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(
        folder.path(),
        &[
            "sweep",
            "--set",
            "steps=120",
            "--vary",
            "optimiser.learning_rate=1e-7,4e-3",
            "--out",
            "sweep",
            "--json",
        ],
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(json(&output)["winner"], 1);
}
