//! `gatework attention run` as a user types it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};

/// Numbers in (-2, 2) with no pattern that a sum over keys would cancel.
fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 22) as f32 - 2.0
    };
    (0..count).map(|_| next()).collect()
}

fn write_tensors(path: &Path, tensors: &[(&str, [usize; 4], Vec<f32>)]) {
    let bytes: Vec<Vec<u8>> =
        tensors.iter().map(|(_, _, x)| x.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
    let views = tensors.iter().zip(&bytes).map(|((name, shape, _), bytes)| {
        (*name, TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap())
    });
    fs::write(path, serialize(views, None).unwrap()).unwrap();
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatework"));
    command.current_dir(folder).args([
        "attention",
        "run",
        "--input",
        "qkv.safetensors",
        "--output",
        "o.safetensors",
    ]);
    command.env_remove("GATEWORK_DEVICE").args(arguments).output().unwrap()
}

fn read_output(folder: &Path) -> Vec<f32> {
    read_tensor(&folder.join("o.safetensors"), "o")
}

fn read_tensor(path: &Path, name: &str) -> Vec<f32> {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    file.tensor(name).unwrap().data().chunks(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect()
}

fn qkv(folder: &Path) {
    let (queries, keys) = ([1, 4, 40, 64], [1, 2, 70, 64]);
    let count = |shape: [usize; 4]| shape.iter().product();
    write_tensors(
        &folder.join("qkv.safetensors"),
        &[
            ("q", queries, noise(count(queries), 3)),
            ("k", keys, noise(count(keys), 5)),
            ("v", keys, noise(count(keys), 7)),
        ],
    );
}

#[test]
fn the_cpu_and_the_emulated_device_agree() {
    let folder = tempfile::tempdir().unwrap();
    qkv(folder.path());
    let output = run(folder.path(), &["--device", "cpu", "--causal", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["device"], "cpu");
    let exact = read_output(folder.path());
    let output = run(folder.path(), &["--device", "emulated", "--causal"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let (mut error, mut norm) = (0.0f64, 0.0f64);
    for (got, wanted) in read_output(folder.path()).iter().zip(&exact) {
        error += f64::from(got - wanted).powi(2);
        norm += f64::from(*wanted).powi(2);
    }
    assert!((error / norm).sqrt() < 0.08, "{}", (error / norm).sqrt());
}

fn demo(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatework"));
    command
        .env_remove("GATEWORK_DEVICE")
        .args(["attention", "run", "--demo"])
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn the_demo_needs_no_file_and_checks_itself() {
    let told = |arguments: &[&str]| -> serde_json::Value {
        let output = demo(&[arguments, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let plain = told(&["--device", "cpu"]);
    assert!(plain["holds"] == true && plain["relative_error"].as_f64().unwrap() < 1e-6, "{plain}");
    assert_ne!(told(&["--device", "cpu", "--seed", "2"])["relative_error"], plain["relative_error"]);
    // Options that change the result change what it is held against, too.
    for options in [&["--causal"][..], &["--window", "7"], &["--scale", "0.5", "--soft-cap", "3"]] {
        assert!(told(&[&["--device", "cpu"], options].concat())["relative_error"].as_f64().unwrap() < 1e-6);
    }
    let emulated = told(&["--device", "emulated", "--causal"]);
    assert!((1e-3..0.075).contains(&emulated["relative_error"].as_f64().unwrap()), "{emulated}");
    let text = String::from_utf8(demo(&["--device", "cpu"]).stdout).unwrap();
    assert!(text.contains("of its size from double precision, within the 1.0e-5 that is allowed"), "{text}");
}

#[test]
fn the_demo_refuses_what_it_would_ignore() {
    let refused = |output: Output, part: &str| {
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(part) && output.stdout.is_empty(), "{said}");
    };
    refused(demo(&["--input", "qkv.safetensors"]), "cannot be used with");
    refused(demo(&["--rows-first"]), "cannot be used with");
    refused(demo(&["--sede", "3"]), "--seed");
    refused(demo(&["--seed", "three"]), "--seed");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatework"));
    refused(command.args(["attention", "run"]).output().unwrap(), "--input");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatework"));
    refused(command.args(["attention", "run", "--seed", "3"]).output().unwrap(), "--demo");
}

/// Runs what must be refused, and returns what was said.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty() && !folder.join("o.safetensors").exists(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn bad_files_are_sentences() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("qkv.safetensors");
    let told = |part: &str| {
        let said = refused(folder.path(), &["--device", "cpu"]);
        assert!(said.contains("error: qkv.safetensors: ") && said.contains(part), "{said}");
    };
    told("No such file");
    told("with the tensors q, k and v");
    fs::write(&file, b"not one").unwrap();
    told("it is no safetensors file");
    let tensor = |name| (name, [1, 1, 8, 96], noise(768, 3));
    write_tensors(&file, &[tensor("q"), tensor("k")]);
    told("it has no tensor 'v' but k, q; call the tensors q, k and v");
    write_tensors(&file, &[tensor("q"), ("k", [1, 1, 4, 96], noise(384, 1)), tensor("v")]);
    told("k [1, 1, 4, 96] and v [1, 1, 8, 96]; k and v must be alike");
    told("use --rows-first");
    let bytes = [0; 1024];
    let view = |dtype, shape: &[usize]| {
        let length = shape.iter().product::<usize>() * if dtype == Dtype::F64 { 8 } else { 4 };
        TensorView::new(dtype, shape.to_vec(), &bytes[..length]).unwrap()
    };
    let write = |views: [TensorView<'_>; 3]| {
        fs::write(&file, serialize(["q", "k", "v"].into_iter().zip(views), None).unwrap()).unwrap();
    };
    let (long, short) = ([1, 1, 2, 64], [1, 1, 1, 64]);
    write([view(Dtype::F64, &long), view(Dtype::F64, &short), view(Dtype::F64, &short)]);
    told("the tensors are F64; F16, BF16 and F32 are supported");
    write([view(Dtype::F32, &long), view(Dtype::F64, &short), view(Dtype::F32, &short)]);
    told("q, k and v are [F32, F64, F32]: convert them to one number format");
    write([view(Dtype::F32, &[2, 64]), view(Dtype::F32, &short), view(Dtype::F32, &short)]);
    told("'q' is [2, 64], and four dimensions are needed: [batch, heads, rows, dim]");
}

#[test]
fn what_the_engine_does_not_do_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let shape = [1, 1, 8, 300];
    let tensor = |name| (name, shape, noise(2400, 3));
    write_tensors(&folder.path().join("qkv.safetensors"), &[tensor("q"), tensor("k"), tensor("v")]);
    assert!(refused(folder.path(), &["--device", "cpu"]).contains("head dimension 300; 1 to 256"));
    qkv(folder.path());
    assert!(refused(folder.path(), &["--device", "gpu"]).contains("use auto, cpu, cuda, cuda:N or emulated"));
    assert!(refused(folder.path(), &["--casual"]).contains("--causal"));
}

#[test]
fn an_output_that_cannot_be_written_is_said_before_the_work() {
    let folder = tempfile::tempdir().unwrap();
    qkv(folder.path());
    let told = |output: &str, part: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatework"));
        let arguments =
            ["attention", "run", "--device", "cpu", "--input", "qkv.safetensors", "--output", output];
        let output = command.current_dir(folder.path()).args(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(part), "{said}");
    };
    told("nowhere/o.safetensors", "no file can be written to nowhere");
    told(".", "it is a folder");
    told("qkv.safetensors", "it is the input, which would be lost");
    assert_eq!(read_tensor(&folder.path().join("qkv.safetensors"), "q"), noise(4 * 40 * 64, 3));
}
