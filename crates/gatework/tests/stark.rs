//! `gatework stark` as a user types it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatework"));
    command.current_dir(folder).env_remove("GATEWORK_DEVICE").arg("stark").args(arguments);
    command.output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn prove(folder: &Path, air: &str, device: &str, out: &str) {
    let mut arguments = vec!["prove", "--air", air, "--log-rows", "5", "--device", device, "--out", out];
    if air == "wide-fibonacci" {
        arguments.extend(["--columns", "8"]);
    }
    let output = run(folder, &arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn proofs_of_the_cpu_and_of_the_emulated_device_are_one_file() {
    let folder = tempfile::tempdir().unwrap();
    for air in ["wide-fibonacci", "plonk", "state-machine"] {
        prove(folder.path(), air, "cpu", "cpu.json");
        prove(folder.path(), air, "emulated", "device.json");
        let [cpu, device] =
            ["cpu.json", "device.json"].map(|name| fs::read(folder.path().join(name)).unwrap());
        assert!(cpu == device, "{air}");
        let verified = run(folder.path(), &["verify", "device.json", "--json"]);
        assert_eq!((verified.status.code(), &json(&verified)["holds"]), (Some(0), &Value::Bool(true)));
    }
}

#[test]
fn so_are_those_of_several_devices() {
    let folder = tempfile::tempdir().unwrap();
    prove(folder.path(), "plonk", "cpu", "cpu.json");
    for devices in ["emulated:4", "emulated*2"] {
        prove(folder.path(), "plonk", devices, "devices.json");
        let [cpu, devices] =
            ["cpu.json", "devices.json"].map(|name| fs::read(folder.path().join(name)).unwrap());
        assert!(cpu == devices);
    }
    let arguments = ["prove", "--log-rows", "5", "--out", "three.json", "--device", "emulated:3"];
    let refused = run(folder.path(), &arguments);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("use 1, 2, 4, 8 and so on"), "{refused:?}");
    assert!(!folder.path().join("three.json").exists());
}

#[test]
fn a_proof_says_what_it_is_hashed_by() {
    let folder = tempfile::tempdir().unwrap();
    for channel in ["blake2s-m31", "poseidon252"] {
        let file = |device: &str| {
            let out = format!("{device}.json");
            let statement = ["--log-rows", "4", "--columns", "4", "--channel", channel];
            let arguments = [&["prove", "--device", device, "--out", &out], &statement[..]].concat();
            let output = run(folder.path(), &arguments);
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            fs::read(folder.path().join(out)).unwrap()
        };
        let proof = file("emulated");
        assert!(proof == file("cpu"), "{channel}");
        let verified = run(folder.path(), &["verify", "emulated.json", "--json"]);
        assert_eq!((verified.status.code(), &json(&verified)["channel"]), (Some(0), &channel.into()));
        // As one of another channel it is not even read, or does not hold.
        let mut other: Value = serde_json::from_slice(&proof).unwrap();
        other["channel"] = "blake2s".into();
        fs::write(folder.path().join("other.json"), other.to_string()).unwrap();
        let verified = run(folder.path(), &["verify", "other.json"]);
        assert_eq!(
            verified.status.code(),
            Some(if channel == "poseidon252" { 2 } else { 1 }),
            "{verified:?}"
        );
    }
}

#[test]
fn a_changed_proof_does_not_hold() {
    let folder = tempfile::tempdir().unwrap();
    prove(folder.path(), "wide-fibonacci", "cpu", "proof.json");
    let path = folder.path().join("proof.json");
    let mut proof: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    proof["log_rows"] = 6.into();
    fs::write(&path, proof.to_string()).unwrap();
    let verified = run(folder.path(), &["verify", "proof.json"]);
    assert_eq!(verified.status.code(), Some(1), "{verified:?}");
    assert!(String::from_utf8_lossy(&verified.stdout).contains("does not hold"), "{verified:?}");
}

#[test]
fn a_proof_that_stwos_verifier_stops_at_is_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    prove(folder.path(), "wide-fibonacci", "cpu", "proof.json");
    let path = folder.path().join("proof.json");
    let mut proof: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    proof["proof"]["queried_values"][1][0] = Value::Array(vec![]);
    fs::write(&path, proof.to_string()).unwrap();
    let verified = run(folder.path(), &["verify", "proof.json"]);
    assert_eq!(verified.status.code(), Some(1), "{verified:?}");
    assert!(
        String::from_utf8_lossy(&verified.stdout).contains("stwo's verifier stopped at it"),
        "{verified:?}"
    );
    assert!(verified.stderr.is_empty(), "{verified:?}");
}

#[test]
fn without_options_something_small_is_proved_and_no_file_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["prove"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("written to proof.json\nverify it: gatework stark verify proof.json"), "{text}");
    assert_eq!(run(folder.path(), &["verify", "proof.json"]).status.code(), Some(0));
    let before = fs::read(folder.path().join("proof.json")).unwrap();
    let again = run(folder.path(), &["prove", "--log-rows", "5"]);
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(said.contains("proof.json is there already and would be lost: name a file with --out"), "{said}");
    assert!(fs::read(folder.path().join("proof.json")).unwrap() == before);
}

#[test]
fn a_bench_compares_bytes_and_shows_stages() {
    let folder = tempfile::tempdir().unwrap();
    let arguments =
        ["bench", "--log-rows", "4,5", "--columns", "6", "--repeats", "1", "--device", "emulated"];
    let output = run(folder.path(), &[&arguments[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let sizes = &json(&output)["sizes"];
    for size in sizes.as_array().unwrap() {
        assert_eq!(size["same_bytes"], true, "{size}");
        assert!(size["stages"].as_array().unwrap().len() >= 8, "{size}");
    }
}

#[test]
fn a_bench_over_several_devices_counts_what_goes_from_one_to_another() {
    let folder = tempfile::tempdir().unwrap();
    let arguments =
        ["bench", "--log-rows", "5", "--columns", "6", "--repeats", "1", "--device", "emulated:2", "--json"];
    let output = run(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let document = json(&output);
    assert!(document["device"].as_str().unwrap().starts_with("emulated:2 ("), "{document}");
    let size = &document["sizes"][0];
    assert_eq!(size["same_bytes"], true, "{size}");
    let bytes = size["links"].as_array().unwrap().iter().map(|link| link["bytes"].as_u64().unwrap());
    // Three columns each way, for 32 leaves and 32 rows of constraints; and what the first device fetches.
    assert_eq!(bytes.collect::<Vec<_>>(), [768, 768 + 32 * 63 + 16 * 32 + 16 * 32], "{size}");
    let refused = run(folder.path(), &[&arguments[..], &["--at-once", "2"]].concat());
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

#[test]
fn a_bench_in_less_memory_than_its_trace_streams_it_to_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = "bench --log-rows 9 --columns 400 --repeats 1 --simd-repeats 1 --device emulated \
                     --device-memory 700KiB --json";
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let output = run(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let size = &json(&output)["sizes"][0];
    assert!(size["same_bytes"] == true && size["peak_bytes"].as_u64().unwrap() <= 700 << 10, "{size}");
    // What would bring all of the trace is not measured.
    assert!(size["pageable_upload_ms"].is_null() && size["interpolated_upload_ms"].is_null(), "{size}");
    let refused = run(folder.path(), &[&arguments[..], &["--at-once", "2"]].concat());
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("leave --at-once out"), "{refused:?}");
}

#[test]
fn a_limit_of_the_environment_does_not_keep_the_cpu_from_proving() {
    let folder = tempfile::tempdir().unwrap();
    let prove = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatework"));
        command
            .current_dir(folder.path())
            .env("GATEWORK_DEVICE_MEMORY", "1GiB")
            .env_remove("GATEWORK_DEVICE");
        let arguments = ["stark", "prove", "--log-rows", "5", "--device", "cpu", "--out", "proof.json"];
        command.args(arguments).args(more).output().unwrap()
    };
    let proved = prove(&[]);
    assert_eq!(proved.status.code(), Some(0), "{proved:?}");
    let refused = prove(&["--device-memory", "2GiB"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("name a device with --device"), "{refused:?}");
}

#[test]
fn a_proof_of_fewer_rows_than_devices_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = "prove --log-rows 4 --columns 4 --device emulated:64 --out proof.json";
    let output = run(folder.path(), &arguments.split_whitespace().collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(run(folder.path(), &["verify", "proof.json"]).status.code(), Some(0));
}

#[test]
fn bad_input_is_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("no.json"), "{}").unwrap();
    let refused = |arguments: &[&str]| {
        let output = run(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&["verify", "no.json"]).contains("no proof that 'gatework stark prove' wrote"));
    assert!(refused(&["verify", "nowhere.json"]).contains("nowhere.json"));
    assert!(refused(&["prove", "--log-rows", "40", "--out", "p.json"]).contains("40"));
    let two_columns = ["prove", "--log-rows", "5", "--columns", "2", "--out", "p.json"];
    assert!(refused(&two_columns).contains("3 to 65535"));
    let not_its_columns =
        ["prove", "--air", "plonk", "--log-rows", "5", "--columns", "100", "--out", "p.json"];
    assert!(refused(&not_its_columns).contains("--columns is for wide-fibonacci: plonk has a fixed number"));
    assert!(refused(&["bench", "--air", "poseidon2", "--columns", "100"]).contains("--columns is for"));
    // Some terabytes, on a machine that says what it has.
    if cfg!(target_os = "linux") {
        let huge = ["--log-rows", "26", "--columns", "65535", "--device", "cpu"];
        assert!(refused(&[&["prove", "--out", "p.json"], &huge[..]].concat()).contains("GiB are available"));
        assert!(refused(&[&["bench"], &huge[..]].concat()).contains("GiB are available"));
    }
}
