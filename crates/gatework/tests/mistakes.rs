//! What people type by mistake: a sentence with the way out and exit code 2, and never a panic.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Output};

const BAD_INPUT: Option<i32> = Some(2);
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/small-bert");
const HUGE: &str = "18446744073709551615";

fn gatework(folder: &Path, arguments: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatework"));
    command.args(arguments).current_dir(folder);
    for variable in ["GATEWORK_DEVICE", "GATEWORK_LOG", "GATEWORK_EMULATOR_SEED"] {
        command.env_remove(variable);
    }
    command
}

/// A folder with a file of every wrong kind.
fn scene() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("folder")).unwrap();
    fs::write(folder.path().join("empty"), "").unwrap();
    fs::write(folder.path().join("text"), "hello\n").unwrap();
    let junk: Vec<u8> = (0..3000u32).map(|place| (place.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(folder.path().join("junk"), junk).unwrap();
    fs::write(folder.path().join("other.json"), r#"{"schema": "gatework/tour/1", "air": "plonk"}"#).unwrap();
    folder
}

#[track_caller]
fn refused(output: &Output, arguments: &[impl AsRef<OsStr>], words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    let typed: Vec<_> = arguments.iter().map(|argument| argument.as_ref().to_string_lossy()).collect();
    let typed = typed.join(" ");
    assert_eq!(output.status.code(), BAD_INPUT, "{typed}: {output:?}");
    assert!(!said.contains("panicked") && !said.contains("backtrace"), "{typed}: {said}");
    for word in words {
        assert!(said.contains(word), "{typed}: '{word}' in: {said}");
    }
}

#[test]
fn files_of_the_wrong_kind_are_refused_by_name() {
    let folder = scene();
    for file in ["nowhere", "folder", "empty", "text", "junk", "other.json"] {
        let cases: [&[&str]; 15] = [
            &["attention", "run", "--input", file, "--output", "o.safetensors"],
            &["stark", "verify", file],
            &["check", file],
            &["lab", "compare", file, file],
            &["lab", "report", "--results", file],
            &["private", "describe", "--model", file, "--longest", "8", "--out", "m.json"],
            &[
                "private",
                "deal",
                "--public",
                file,
                "--tokens",
                "5",
                "--server-keys",
                "s",
                "--client-keys",
                "c",
            ],
            &["private", "cost", "--public", file],
            &["private", "run", "--local", "--model", file, "--ids", "1"],
            &["private", "run", "--local", "--model", MODEL, "--text", "hi", "--tokenizer", file],
            &["private", "check", "--model", file, "--ids", "1"],
            &["train", "run", "--preset", "mnist", "--data", file],
            &["train", "resume", file],
            &["train", "forecast", file, "--at", "100"],
            &["train", "fetch", "mnist", "--into", "data", "--from", file],
        ];
        for arguments in cases {
            let output = gatework(folder.path(), arguments).output().unwrap();
            let words: &[&str] = if arguments[1] == "compare" { &[] } else { &[file] };
            refused(&output, arguments, words);
        }
    }
    assert!(!folder.path().join("data").exists() && !folder.path().join("o.safetensors").exists());
}

#[test]
fn missing_files_are_told_where_they_come_from() {
    let folder = scene();
    let cases: [(&[&str], &str); 6] = [
        (&["stark", "verify", "nowhere"], "'gatework stark prove --out FILE' writes such a file"),
        (
            &["stark", "verify", "other.json"],
            "its schema is 'gatework/tour/1', and 'gatework/proof/1' is read",
        ),
        (
            &["lab", "records", "--results", "nowhere"],
            "'gatework lab gate' and 'gatework lab bench' write records",
        ),
        (
            &["private", "check", "--model", "folder", "--ids", "1"],
            "folder/config.json is missing: name the folder of a model",
        ),
        (&["schema", "tuor"], "'gatework schema' lists"),
        (&["train", "run", "--preset", "xor", "--out", "text"], "it is a file: name a folder"),
    ];
    for (arguments, words) in cases {
        refused(&gatework(folder.path(), arguments).output().unwrap(), arguments, &[words]);
    }
}

#[test]
fn numbers_out_of_all_bounds_are_refused() {
    let folder = scene();
    let public = ["private", "describe", "--model", MODEL, "--longest", "8", "--out", "m.json"];
    assert!(gatework(folder.path(), &public).output().unwrap().status.success());
    let shape = ["private", "bench", "--shape", "bert-toy", "--device", "cpu", "--repeats", "1"];
    for number in ["0", "-1", HUGE, "99999999999999999999999", "1e9", "many", ""] {
        let lengths = format!("5x{number}");
        let rows = format!("1x1x{number}x64");
        let setting = format!("batch={number}");
        let cases: [&[&str]; 12] = [
            &["lab", "gate", "gpu/saxpy", "--device", "emulated", "--no-record", "--seeds", number],
            &["lab", "bench", "gpu/saxpy", "--device", "emulated", "--no-record", "--samples", number],
            &["attention", "bench", "--device", "cpu", "--shapes", &rows],
            &["stark", "prove", "--out", "p.json", "--device", "cpu", "--log-rows", number],
            &["stark", "prove", "--out", "p.json", "--log-rows", "5", "--device", "cpu", "--columns", number],
            &[
                "private",
                "deal",
                "--public",
                "m.json",
                "--server-keys",
                "s",
                "--client-keys",
                "c",
                "--tokens",
                &lengths,
            ],
            &["private", "cost", "--model", "bert-base", "--seq", number],
            &["private", "cost", "--public", "m.json", "--seq", "5", "--texts", number],
            &[&shape[..], &["--tokens", number]].concat(),
            &[&shape[..], &["--tokens", "3", "--batch", number]].concat(),
            &["train", "run", "--preset", "xor", "--compare", "0", "--set", &setting],
            &["train", "compare", "--preset", "xor", "--seeds", number],
        ];
        for arguments in cases {
            // So many samples are no mistake: sampling stops when the verdict is certain.
            if arguments[1] == "bench" && arguments[0] == "lab" && number == HUGE {
                continue;
            }
            refused(&gatework(folder.path(), arguments).output().unwrap(), arguments, &[]);
        }
    }
    let generate = ["private", "run", "--local", "--model", MODEL, "--ids", "1", "--generate", HUGE];
    refused(&gatework(folder.path(), &generate).output().unwrap(), &generate, &["up to 10000"]);
    // Seeds that are not there would be seeds that are not checked.
    let last = ["lab", "gate", "gpu/saxpy", "--device", "emulated", "--first-seed", HUGE, "--seeds", "1"];
    refused(&gatework(folder.path(), &last).output().unwrap(), &last, &["begin lower"]);
}

#[test]
fn paths_that_json_cannot_hold_are_refused_before_the_work() {
    let folder = scene();
    let path = OsStr::from_bytes(b"b\xff.json");
    let prove = ["stark", "prove", "--log-rows", "5", "--columns", "4", "--device", "cpu", "--out"];
    let mut arguments: Vec<OsString> = prove.iter().map(OsString::from).collect();
    arguments.push(path.to_owned());
    let text = gatework(folder.path(), &arguments).output().unwrap();
    assert_eq!(text.status.code(), Some(0), "{text:?}");
    fs::remove_file(folder.path().join(path)).unwrap();
    arguments.push("--json".into());
    let output = gatework(folder.path(), &arguments).output().unwrap();
    refused(&output, &arguments, &["is not UTF-8, as JSON is: name another path, or leave out --json"]);
    assert!(!folder.path().join(path).exists() && output.stdout.is_empty());
}

#[test]
fn nonsense_in_the_environment_is_named() {
    let folder = scene();
    let gate = ["lab", "gate", "gpu/saxpy", "--device", "emulated", "--no-record", "--seeds", "1"];
    for (variable, given, words) in [
        ("GATEWORK_LOG", &b"a=[b"[..], "write it as gatework_gpu=debug, or unset it"),
        ("GATEWORK_EMULATOR_SEED", b"first", "a whole number is wanted, or unset it"),
        ("GATEWORK_EMULATOR_SEED", b"\xff\xfe", "a whole number is wanted, or unset it"),
        ("GATEWORK_EMULATOR_SECONDS", b"0", "a whole number from 1 on is wanted, or unset it"),
    ] {
        let output = gatework(folder.path(), &gate).env(variable, OsStr::from_bytes(given)).output().unwrap();
        refused(&output, &gate, &[variable, words]);
    }
    for given in ["quantum", "CPU", "cuda:", "cuda:x", "cuda:-1", "emulated:0", "cuda:0*0", ""] {
        let output = gatework(folder.path(), &["doctor"]).env("GATEWORK_DEVICE", given).output().unwrap();
        refused(&output, &["doctor"], &["use auto, cpu, cuda, cuda:N or emulated"]);
        let arguments = ["doctor", "--device", given];
        refused(&gatework(folder.path(), &arguments).output().unwrap(), &arguments, &["unknown device"]);
    }
}

#[test]
fn typing_errors_are_answered_with_what_is_near() {
    let folder = scene();
    let cases: [(&[&str], &str); 6] = [
        (&["docter"], "'doctor'"),
        (&["lab", "gaet"], "'gate'"),
        (&["tour", "--jsno"], "'--json'"),
        (&["completions", "bsh"], "bash, elvish, fish, powershell, zsh"),
        (&["completions", "bash", "--json"], "prints no JSON document: leave out --json"),
        (&["man"], "<DIR>"),
    ];
    for (arguments, words) in cases {
        refused(&gatework(folder.path(), arguments).output().unwrap(), arguments, &[words]);
    }
}
