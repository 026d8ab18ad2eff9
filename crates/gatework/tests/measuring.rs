//! The commands that measure and compare, from outside.

#[path = "../../lab/tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::process::{Command, Output};

use gatework_lab::Store;
use serde_json::Value;
use support::benched;

const DONE: Option<i32> = Some(0);
const GATE_FAILED: Option<i32> = Some(1);
const BAD_INPUT: Option<i32> = Some(2);
const DEVICE_FAILED: Option<i32> = Some(3);

fn gatework(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatework"));
    command.args(arguments).current_dir(folder).env_remove("GATEWORK_DEVICE").output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A folder with the records `before`, `same` and `slower`.
fn records() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, candidate, seed) in [("before", 550e3, 1), ("same", 550e3, 2), ("slower", 605e3, 3)] {
        let store = Store::open(folder.path().join(name)).unwrap();
        store.append(&benched("gpu/saxpy", "NVIDIA H200", 500e3, candidate, seed)).unwrap();
    }
    folder
}

#[test]
fn a_comparison_ends_with_1_only_if_something_is_slower() {
    let folder = records();
    let same = gatework(folder.path(), &["lab", "compare", "before", "same", "--json"]);
    assert_eq!((same.status.code(), &json(&same)["cases"][0]["verdict"]), (DONE, &"SAME".into()));
    let slower = gatework(folder.path(), &["lab", "compare", "before/nvidia-h200.jsonl", "slower"]);
    assert_eq!(slower.status.code(), GATE_FAILED);
    assert!(String::from_utf8_lossy(&slower.stdout).contains("SLOWER"), "{slower:?}");
}

#[test]
fn records_without_benchmarks_cannot_be_compared() {
    let folder = records();
    let store = Store::open(folder.path().join("gated")).unwrap();
    store.append(&support::record("gpu/saxpy")).unwrap();
    let output = gatework(folder.path(), &["lab", "compare", "before", "gated"]);
    assert_eq!(output.status.code(), BAD_INPUT);
    assert!(stderr(&output).contains("no benchmark in common"), "{output:?}");
    assert_eq!(gatework(folder.path(), &["lab", "compare", "before", "nowhere"]).status.code(), BAD_INPUT);
}

#[test]
fn nothing_is_timed_on_the_emulated_device() {
    let folder = tempfile::tempdir().unwrap();
    let output = gatework(folder.path(), &["lab", "bench", "gpu/saxpy", "--device", "emulated", "--json"]);
    assert_eq!(output.status.code(), DEVICE_FAILED, "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("time means nothing on the emulated device"));
    assert!(json(&output)["records"][0].get("performance").is_none());
    let arguments = ["lab", "gate", "gpu/saxpy", "--device", "emulated", "--seeds", "1", "--performance"];
    assert_eq!(gatework(folder.path(), &arguments).status.code(), DONE);
}

#[test]
fn too_few_samples_are_bad_usage() {
    let output = gatework(Path::new("."), &["lab", "bench", "--samples", "50"]);
    assert_eq!(output.status.code(), BAD_INPUT);
    assert!(stderr(&output).contains("give 100 or more"), "{output:?}");
}

#[test]
fn tuning_needs_a_device_that_keeps_time_and_something_to_tune() {
    let folder = tempfile::tempdir().unwrap();
    let output = gatework(folder.path(), &["lab", "tune", "gpu/transpose", "--device", "emulated"]);
    assert_eq!(output.status.code(), DEVICE_FAILED);
    assert!(stderr(&output).contains("time means nothing on the device 'emulated'"), "{output:?}");
    let output = gatework(folder.path(), &["lab", "tune", "gpu/saxpy", "--device", "emulated"]);
    assert_eq!(output.status.code(), BAD_INPUT);
    assert!(stderr(&output).contains("nothing to tune: these have: gpu/transpose"), "{output:?}");
}

#[test]
fn there_is_nothing_to_profile_on_the_emulated_device() {
    let folder = tempfile::tempdir().unwrap();
    let output = gatework(folder.path(), &["lab", "profile", "gpu/saxpy", "--device", "emulated", "--json"]);
    assert_eq!(output.status.code(), DEVICE_FAILED, "{output:?}");
    let gates = json(&output)["record"]["gates"].as_array().unwrap().clone();
    let profile = gates.iter().find(|gate| gate["gate"] == "profile").unwrap();
    assert_eq!(
        (&profile["outcome"], &json(&output)["record"]["verdict"]["outcome"]),
        (&"not-run".into(), &"passed".into())
    );
}

#[test]
fn what_the_profiler_runs_prints_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["lab", "profile", "gpu/transpose", "--launch", "--device", "emulated"];
    let output = gatework(folder.path(), &arguments);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (DONE, b"".as_slice()), "{output:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn stale_records_and_figures_without_a_record_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let check = || gatework(folder.path(), &["lab", "records", "--check", "--json"]);
    let gated =
        gatework(folder.path(), &["lab", "gate", "gpu/saxpy", "--device", "emulated", "--seeds", "1"]);
    assert_eq!(gated.status.code(), DONE, "{gated:?}");
    assert_eq!(check().status.code(), DONE, "{:?}", check());

    let table = "| kernel | time |\n|---|---|\n| saxpy | 1.2 ms |\n";
    std::fs::write(folder.path().join("README.md"), table).unwrap();
    let output = check();
    assert_eq!(output.status.code(), GATE_FAILED);
    assert_eq!(json(&output)["documents"][0]["problems"][0]["line"], 3);

    let record = gatework_lab::read_records(&folder.path().join("results")).unwrap().records.remove(0);
    let named = format!("{table}\nRecords: [saxpy](results/emulated.jsonl#{})\n", record.id());
    std::fs::write(folder.path().join("README.md"), named).unwrap();
    assert_eq!(check().status.code(), DONE, "{:?}", check());

    Store::open(folder.path().join("results")).unwrap().append(&support::record("gpu/saxpy")).unwrap();
    let output = check();
    assert_eq!(
        (output.status.code(), &json(&output)["stale"][0]["device"]),
        (GATE_FAILED, &"NVIDIA H200".into())
    );
}

#[test]
fn a_report_is_one_file() {
    let folder = records();
    let output = gatework(folder.path(), &["lab", "report", "--results", "before", "--out", "r.html"]);
    assert_eq!(output.status.code(), DONE, "{output:?}");
    let html = std::fs::read_to_string(folder.path().join("r.html")).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("gpu/saxpy"));
    let empty = gatework(folder.path(), &["lab", "report", "--results", "nowhere"]);
    assert_eq!(empty.status.code(), BAD_INPUT);
}
