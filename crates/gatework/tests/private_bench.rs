//! `gatework private bench`, from outside.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatework"));
    command.args(["private", "bench"]).args(arguments).env_remove("GATEWORK_DEVICE");
    command.output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = bench(&[arguments, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn two_processes_are_measured_and_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    let results = folder.path().join("results");
    std::fs::create_dir(&keys).unwrap();
    let [folder, results] = [&keys, &results].map(|path| path.display().to_string());
    let shape =
        ["--shape", "bert-toy", "--tokens", "5", "--repeats", "3", "--per-deal", "2", "--device", "cpu"];
    let held = json(&[&shape[..], &["--folder", &folder, "--results", &results]].concat());
    assert_eq!((&held["equal_in_clear"], &held["keys"]), (&true.into(), &"memory".into()));
    assert_eq!(held["online_ms"].as_array().unwrap().len(), 3);
    assert_eq!(held["warm_up_ms"].as_array().unwrap().len(), 1);
    let parts: Vec<&str> =
        held["parts"].as_array().unwrap().iter().map(|part| part["part"].as_str().unwrap()).collect();
    assert_eq!(parts, ["embedding", "layer 1", "layer 2", "head"]);
    for part in held["parts"].as_array().unwrap() {
        let stages = ["gates_ms", "messages_ms", "hand_over_ms", "wait_ms", "opening_ms", "ahead_ms"];
        let stages = stages.map(|stage| part[stage].as_f64().unwrap());
        assert!(stages[0] > 0.0 && stages.iter().all(|&ms| ms >= 0.0), "{part}");
    }
    for figure in ["median_ms", "worst_ms", "rounds", "server_sent_bytes", "client_sent_bytes", "set_up_ms"] {
        assert!(held[figure].as_f64().unwrap() > 0.0, "{figure}: {held}");
    }
    for (party, share) in [("client", "evaluate_ms"), ("server", "evaluate_ms"), ("server", "wait_ms")] {
        assert!(held[party][share].as_f64().unwrap() > 0.0, "{party}: {held}");
    }
    assert_eq!(std::fs::read_dir(&keys).unwrap().count(), 0, "no key is left");
    let files = std::fs::read_dir(&results).unwrap().map(|entry| entry.unwrap().path());
    let records: String = files.map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let record: Value = serde_json::from_str(records.lines().next().unwrap()).unwrap();
    assert_eq!(record["workload"], "private/bench");
    let rows = record["measured"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1 + parts.len());
    for (row, part) in rows[1..].iter().zip(held["parts"].as_array().unwrap()) {
        assert_eq!((&row["kind"], &row["part"]), (&"part".into(), &part["part"]));
        assert_eq!((&row["gates_ms"], &row["wait_ms"]), (&part["gates_ms"], &part["wait_ms"]));
    }
    // What is read from files is as much, and takes as many rounds.
    let from_files = json(&[&shape[..], &["--keys", "files"]].concat());
    for figure in ["rounds", "server_key_bytes", "client_key_bytes", "server_sent_bytes", "client_sent_bytes"]
    {
        assert_eq!(from_files[figure], held[figure], "{figure}");
    }
}

/// The server is a process of its own, and must not outlive the one that started it, however that ends.
#[test]
fn the_server_goes_with_the_bench() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatework"));
    command.args(["private", "bench", "--shape", "bert-toy", "--tokens", "3", "--repeats", "10000"]);
    command.args(["--device", "cpu"]).stderr(Stdio::piped()).stdout(Stdio::null());
    let mut bench = command.spawn().unwrap();
    let lines = BufReader::new(bench.stderr.take().unwrap()).lines();
    let server = lines.map_while(Result::ok).find_map(|line| {
        let (_, rest) = line.split_once("the server is process ")?;
        rest.split(',').next()?.parse::<u32>().ok()
    });
    let server = format!("/proc/{}", server.expect("it says which process the server is"));
    assert!(Path::new(&server).exists());
    // As the system does when memory is short: nothing is cleaned up.
    bench.kill().unwrap();
    bench.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    // One that nobody has waited for yet is still there, as a zombie.
    let runs = || std::fs::read_to_string(format!("{server}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    while runs() {
        assert!(Instant::now() < deadline, "{server} is left");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_link_is_measured_on_its_own() {
    let link = json(&["--link"]);
    for figure in ["round_trip_1kib_us", "exchange_512kib_us", "both_ways_gb_s"] {
        assert!(link[figure].as_f64().unwrap() > 0.0, "{figure}: {link}");
    }
}

#[test]
fn a_pair_may_be_mixed() {
    let shape = ["--shape", "gpt2-toy", "--tokens", "3", "--repeats", "1", "--warm-up", "0", "--batch", "2"];
    let mixed = json(&[&shape[..], &["--device", "cpu", "--server-device", "emulated"]].concat());
    assert_eq!(
        (&mixed["equal_in_clear"], &mixed["client_device"], &mixed["server_device"]),
        (&true.into(), &"cpu".into(), &"emulated".into())
    );
    assert!(mixed["server_device_peak_bytes"].as_u64().unwrap() > 0);
    assert!(mixed.get("client_device_peak_bytes").is_none());
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let cases: [(&[&str], &str); 4] = [
        (&["--shape", "llama2-7b"], "there is no shape 'llama2-7b'"),
        (&["--shape", "bert-toy", "--tokens", "65"], "bert-toy takes 1 to 64"),
        (&["--shape", "bert-toy", "--tokens", "4", "--folder", "nowhere/at/all"], "choose one by --folder"),
        (&["--tokens", "4"], "--model"),
    ];
    for (arguments, words) in cases {
        let output = bench(&[arguments, &["--device", "cpu"]].concat());
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {complaint}");
        assert!(complaint.contains(words) && output.stdout.is_empty(), "{arguments:?}: {complaint}");
    }
}

#[test]
fn the_dealer_is_measured_alone() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().display().to_string();
    let shape = ["--deal", "--shape", "gpt2-toy", "--tokens", "5", "--batch", "2", "--repeats", "1"];
    for device in ["cpu", "emulated"] {
        let dealt =
            json(&[&shape[..], &["--warm-up", "0", "--device", device, "--results", &results]].concat());
        assert_eq!((&dealt["equal_in_clear"], &dealt["repeats"]), (&true.into(), &1.into()), "{dealt}");
        assert!(dealt["server_key_bytes"].as_u64().unwrap() > 0);
        assert!(dealt["median_ms"].as_f64().unwrap() <= dealt["worst_ms"].as_f64().unwrap());
    }
    let refused = bench(&["--deal", "--link"]);
    assert_eq!(refused.status.code(), Some(2));
}
