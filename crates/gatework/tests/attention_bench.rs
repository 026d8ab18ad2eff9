//! `gatework attention bench` as a user types it.

#[path = "../../lab/tests/support/mod.rs"]
mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use gatework_attention::{Mask, Shape, bench};
use gatework_lab::{Record, Store};
use serde_json::Value;
use support::benched;

fn gatework(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatework"));
    command.args(["attention", "bench"]).args(arguments).current_dir(folder);
    // An interpreter that is not there: what the machine has must not decide a test.
    command.env_remove("GATEWORK_DEVICE").env("GATEWORK_PYTHON", "/nonexistent/python");
    command.env("GATEWORK_PEERS", concat!(env!("CARGO_MANIFEST_DIR"), "/../../peers")).output().unwrap()
}

fn told(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_cpu_leaves_a_record_where_one_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--device", "cpu", "--shapes", "1x2x64x64", "--results", "records"];
    assert_eq!(told(&gatework(folder.path(), &arguments), 0), "");
    let reading = gatework_lab::read_records(&folder.path().join("records")).unwrap();
    let [record] = reading.records.as_slice() else { panic!("{:?}", reading.problems) };
    assert_eq!((record.workload.as_str(), record.slug()), ("attention/bench-cpu", record.slug()));
    let rows = &record.measured.as_ref().unwrap().rows;
    assert!(rows.len() == 2 && rows.iter().all(|row| row["median_ms"].as_f64().unwrap() > 0.0), "{rows:?}");
}

#[test]
fn the_cpu_is_timed_at_the_shapes_that_were_given() {
    let folder = tempfile::tempdir().unwrap();
    let shapes = "1x2x64x64,1x4/2x40x128,1x2x1/70x64,1x2x64x64";
    let arguments = ["--device", "cpu", "--shapes", shapes, "--plot", "plot.svg", "--json"];
    let output = gatework(folder.path(), &arguments);
    assert_eq!(told(&output, 0), "");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let measured = document["measured"].as_array().unwrap();
    let cases: Vec<(&str, &str)> =
        measured.iter().map(|one| (one["shape"].as_str().unwrap(), one["mask"].as_str().unwrap())).collect();
    let twice = |shape| [(shape, "full"), (shape, "causal")];
    let wanted = [twice("1x2x64x64"), twice("1x4/2x40x128"), twice("1x2x1/70x64")].concat();
    assert_eq!(cases, wanted, "each once, however often it was given");
    for one in measured {
        let timed = &one["timed"][0];
        let (nanoseconds, rate) = (timed["median_ns"].as_f64().unwrap(), &timed["operations_per_second"]);
        let operations = one["operations"].as_f64().unwrap();
        assert!(
            nanoseconds > 0.0 && (rate.as_f64().unwrap() * nanoseconds / 1e9 / operations - 1.0).abs() < 1e-9
        );
        assert_eq!(timed["name"], "Gatework f32");
        assert_eq!(one["not_measured"][0]["peer"], "PyTorch");
        assert!(one["not_measured"][0]["why"].as_str().unwrap().contains("/nonexistent/python"));
    }
    // 2 * 64 * 64 * (64 + 1) / 2 rows and keys under a causal mask, four operations each.
    assert_eq!(measured[1]["operations"], 4 * 2 * 64 * 64 * 65 / 2);
    let plot = fs::read_to_string(folder.path().join("plot.svg")).unwrap();
    assert_eq!(document["plot"], "plot.svg");
    assert!(plot.starts_with("<svg ") && plot.contains("Attention on the CPU: GFLOP/s over rows"));
    assert!(plot.contains("dimension 128, heads grouped by 2, causal") && plot.contains("are not drawn"));
    assert_eq!(plot.matches(r#"class="mark s0""#).count(), 1 + 4, "a legend and four squares");
}

#[test]
fn a_peer_is_timed_in_turns_with_ours() {
    let folder = tempfile::tempdir().unwrap();
    // The shell stands for Python, and says what a script would.
    let script = r#"
echo '{"protocol":1,"peer":"PyTorch","versions":{"torch":"9"},"device":"CPU","operations":["attention-f32-cpu"]}'
while read request; do
    samples=${request##*\"samples\":}; samples=${samples%\}}
    list=1e9; while [ "$samples" -gt 1 ]; do list="$list,1e9"; samples=$((samples - 1)); done
    echo "{\"samples_ns\":[$list]}"
done"#;
    fs::write(folder.path().join("torch_cpu.py"), script).unwrap();
    fs::write(folder.path().join("torch_ops.py"), "exit 1").unwrap();
    let run = |peers: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatework"));
        command.args([
            "attention",
            "bench",
            "--device",
            "cpu",
            "--mask",
            "full",
            "--shapes",
            "1x1x64x64",
            "--peers",
            peers,
        ]);
        command.env("GATEWORK_PYTHON", "sh").env("GATEWORK_PEERS", folder.path());
        let output = command.output().unwrap();
        assert_eq!(told(&output, 0), "");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = run("torch,cudnn");
    assert!(
        text.contains("PyTorch f32") && text.contains("1.00 s") && !text.contains("not measured"),
        "{text}"
    );
    let text = run("none");
    assert!(!text.contains("PyTorch") && text.contains("no peer"), "{text}");
}

#[test]
fn what_cannot_be_timed_or_read_is_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let said = |arguments: &[&str], code: i32| told(&gatework(folder.path(), arguments), code);
    assert!(said(&["--shapes", "4x16x4096"], 2).contains("write BATCHxHEADSxROWSxDIM, as 4x16x4096x64"));
    assert!(said(&["--shapes", "1x8x64x300"], 2).contains("1 to 256 are supported"));
    assert!(said(&["--peers", "jax"], 2).contains("possible values: torch, cudnn, none"));
    assert!(
        said(&["--device", "emulated"], 3)
            .contains("time means nothing on the emulated device: use --device")
    );
    assert!(said(&["--device", "cpu", "--plot", "no/plot.svg"], 2).contains("no file can be written to no"));
    assert!(said(&["--from-records", "none.jsonl"], 2).contains("none.jsonl"));
    assert!(said(&["--from-records", "x", "--shapes", "1x8x64x64"], 2).contains("cannot be used with"));
    fs::write(folder.path().join("empty.jsonl"), "").unwrap();
    let empty = said(&["--from-records", "empty.jsonl"], 2);
    assert!(
        empty.contains("no record of how fast attention is: make one with 'gatework lab bench"),
        "{empty}"
    );
}

/// A record of one square shape under one mask that took so long, on a device.
fn record(rows: usize, mask: Mask, device: &str, nanoseconds: f64) -> Record {
    let mut record = benched("attention/long-64", device, 2.0 * nanoseconds, nanoseconds, 1);
    record.time = format!("2026-01-02T03:04:{:02}Z", (nanoseconds / 1e6) as u32 % 60);
    let case = bench::case(&Shape::square(1, 16, rows, 64), mask);
    let bench = &mut record.performance.as_mut().unwrap().cases[0];
    (bench.case, bench.dimensions) = (case.name, case.dimensions);
    record
}

#[test]
fn the_newest_record_of_every_shape_is_shown_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("results")).unwrap();
    let old = record(4096, Mask::Full, "NVIDIA H200", 9e6);
    let new = record(4096, Mask::Full, "NVIDIA H200", 4e6);
    let other = record(1024, Mask::Causal, "NVIDIA H200", 1e6);
    for record in [&old, &new, &other] {
        store.append(record).unwrap();
    }
    store.append(&benched("gpu/saxpy", "NVIDIA H200", 5e5, 5e5, 1)).unwrap();
    let arguments = ["--from-records", "results/nvidia-h200.jsonl", "--plot", "plot.svg"];
    let output = gatework(folder.path(), &arguments);
    assert_eq!(told(&output, 0), "");
    let text = String::from_utf8(output.stdout).unwrap();
    let plot = fs::read_to_string(folder.path().join("plot.svg")).unwrap();
    for shown in [&text, &plot] {
        assert!(
            shown.contains(&new.id()) && shown.contains(&other.id()) && !shown.contains(&old.id()),
            "{shown}"
        );
        assert!(shown.contains("stale"), "these records are of other sources: {shown}");
    }
    assert!(plot.contains("Records of results/nvidia-h200.jsonl: "));
    assert!(text.find("1x16x1024x64") < text.find("1x16x4096x64"), "{text}");

    let output = gatework(folder.path(), &["--from-records", "results", "--mask", "causal"]);
    assert!(!String::from_utf8_lossy(&output.stdout).contains("4096"), "{output:?}");
    store.append(&record(4096, Mask::Full, "Other", 9e6)).unwrap();
    let several = told(&gatework(folder.path(), &["--from-records", "results"]), 2);
    assert!(
        several.contains("records of several devices (NVIDIA H200, Other): name the file of one"),
        "{several}"
    );
}
