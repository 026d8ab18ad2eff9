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
    let bytes = fs::read(folder.join("o.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    file.tensor("o").unwrap().data().chunks(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect()
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

#[test]
fn bad_files_are_sentences() {
    let folder = tempfile::tempdir().unwrap();
    let told = |arguments: &[&str]| {
        let output = run(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(told(&["--device", "cpu"]).contains("qkv.safetensors: No such file"));
    fs::write(folder.path().join("qkv.safetensors"), b"not one").unwrap();
    assert!(told(&["--device", "cpu"]).contains("error: qkv.safetensors: "));
    let shape = [1, 1, 8, 96];
    let tensor = |name| (name, shape, noise(768, 3));
    write_tensors(&folder.path().join("qkv.safetensors"), &[tensor("q"), tensor("k"), tensor("v")]);
    assert!(told(&["--device", "cpu"]).contains("head dimension 96"));
    write_tensors(&folder.path().join("qkv.safetensors"), &[tensor("q"), tensor("k")]);
    assert!(told(&["--device", "cpu"]).contains('v'));
    write_tensors(
        &folder.path().join("qkv.safetensors"),
        &[tensor("q"), ("k", [1, 1, 4, 96], noise(384, 1)), tensor("v")],
    );
    assert!(told(&["--device", "cpu"]).contains("do not belong together"));
    assert!(!folder.path().join("o.safetensors").exists());
}
