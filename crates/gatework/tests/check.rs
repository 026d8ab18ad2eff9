//! `gatework check` and `gatework zoo` from outside: what is found, what is refused, exit codes, JSON.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const DONE: Option<i32> = Some(0);
const FOUND: Option<i32> = Some(1);
const BAD_INPUT: Option<i32> = Some(2);

/// Plain CUDA with host code. `BARRIER` stands where one is needed.
const TRANSPOSE: &str = "\
#include <cuda_runtime.h>
#include <cstdio>

__global__ void transpose(const float* in, float* out) {
    __shared__ float tile[16][17];
    tile[threadIdx.y][threadIdx.x] = in[16 * threadIdx.y + threadIdx.x];
    BARRIER
    out[16 * threadIdx.y + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

int main() {
    float *in, *out;
    cudaMalloc(&in, 1024);
    cudaMalloc(&out, 1024);
    transpose<<<1, dim3(16, 16)>>>(in, out);
    std::printf(\"%d\\n\", (int)cudaDeviceSynchronize());
}
";
const PLAN: &str =
    "blocks = 1\nthreads = [16, 16]\n[args]\nin = { elements = 256 }\nout = { elements = 256 }\n";

fn gatework(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatework"));
    command.args(arguments).current_dir(folder);
    for variable in ["GATEWORK_DEVICE", "GATEWORK_LOG", "GATEWORK_EMULATOR_SEED", "GATEWORK_EMULATOR_SECONDS"]
    {
        command.env_remove(variable);
    }
    command.output().unwrap()
}

/// Checks `text` as the file `kernel.cu`, launched as `plan` says.
fn check(text: &str, plan: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("kernel.cu"), text).unwrap();
    fs::write(folder.path().join("launch.toml"), plan).unwrap();
    let all = [&["check", "kernel.cu", "--plan", "launch.toml"], arguments].concat();
    gatework(folder.path(), &all)
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Bad input, said in a sentence that has all of these words.
#[track_caller]
fn assert_refused(output: &Output, words: &[&str]) {
    assert_eq!(output.status.code(), BAD_INPUT, "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    for word in words {
        assert!(stderr(output).contains(word), "{word}: {output:?}");
    }
}

#[test]
fn a_forgotten_barrier_of_a_plain_file_is_found_at_its_line() {
    let output = check(&TRANSPOSE.replace("BARRIER", ""), PLAN, &[]);
    assert_eq!(output.status.code(), FOUND, "{output:?}");
    let text = stdout(&output);
    assert!(
        text.contains("kernel.cu:8: race: reads 4 bytes")
            || text.contains("kernel.cu:6: race: writes 4 bytes")
    );
    assert!(text.contains("in transpose, block [0, 0, 0], thread ["), "{text}");
}

#[test]
fn json_has_every_finding_with_its_line_and_how_often_it_came() {
    let output = check(&TRANSPOSE.replace("BARRIER", ""), PLAN, &["--json", "--seeds", "7"]);
    assert_eq!(output.status.code(), FOUND, "{output:?}");
    let document = json(&output);
    assert_eq!(document["file"], "kernel.cu");
    let kernel = &document["kernels"][0];
    assert_eq!((kernel["kernel"].as_str(), kernel["seeds"].as_u64()), (Some("transpose"), Some(7)));
    let findings = kernel["findings"].as_array().unwrap();
    assert_eq!(
        findings.iter().map(|finding| finding["seeds"].as_u64().unwrap()).sum::<u64>(),
        7,
        "{document}"
    );
    for finding in findings {
        let fault = &finding["fault"];
        assert_eq!(
            (fault["kind"].as_str(), fault["site"]["file"].as_str()),
            (Some("race"), Some("kernel.cu"))
        );
        assert!([Some(6), Some(8)].contains(&fault["site"]["line"].as_u64()), "{fault}");
    }
}

#[test]
fn a_clean_file_passes() {
    let clean = TRANSPOSE.replace("BARRIER", "__syncthreads();");
    let output = check(&clean, PLAN, &[]);
    assert_eq!(output.status.code(), DONE, "{output:?}");
    assert_eq!(
        stdout(&output),
        "transpose: nothing found under 20 schedules of 1 block of 16 x 16 threads\n"
    );
    let document = json(&check(&clean, PLAN, &["--json", "--seeds", "2"]));
    assert_eq!(document["kernels"][0]["findings"].as_array().map(Vec::len), Some(0), "{document}");
}

#[test]
fn what_is_not_known_is_refused_by_name_and_line() {
    let refuse = |text: &str, words: &[&str]| assert_refused(&check(text, "", &[]), words);
    refuse(
        "// a file\n#include <cute/tensor.hpp>\n__global__ void k() {}\n",
        &["kernel.cu", "line 2", "cute/tensor.hpp", "gatework check --known"],
    );
    refuse(
        "__global__ void k(int* x) {\n\n  asm volatile(\"vmad.u32 %0, %1, %2, %3;\" : \"=r\"(x[0]) : \"r\"(x[1]), \
         \"r\"(x[2]), \"r\"(x[3]));\n}\n",
        &["kernel.cu", "line 3", "vmad.u32", "gatework check --known"],
    );
    refuse("template <class T>\n__global__ void k(T* x) {}\n", &["line 2", "template"]);
    refuse("int main() {}\n", &["no __global__ function"]);
    refuse("", &["no __global__ function"]);
    refuse("__global__ void k(int* x) {\n  x[0] = undeclared;\n}\n", &["kernel.cu:2", "undeclared"]);
}

#[test]
fn files_and_plans_that_do_not_fit_are_sentences() {
    let folder = tempfile::tempdir().unwrap();
    assert_refused(&gatework(folder.path(), &["check", "missing.cu"]), &["missing.cu", "No such file"]);
    fs::write(folder.path().join("bytes.cu"), [0xFF, 0xFE, 0x00]).unwrap();
    assert_refused(&gatework(folder.path(), &["check", "bytes.cu"]), &["bytes.cu", "UTF-8"]);
    assert_refused(&gatework(folder.path(), &["check", "."]), &["."]);
    assert_refused(&gatework(folder.path(), &["check"]), &["FILE"]);
    let clean = TRANSPOSE.replace("BARRIER", "__syncthreads();");
    let refuse = |plan: &str, arguments: &[&str], words: &[&str]| {
        assert_refused(&check(&clean, plan, arguments), words);
    };
    refuse("thread = 3", &[], &["launch.toml", "thread", "threads"]);
    refuse("kernel = \"transpos\"", &[], &["'transpos'", "the file has: transpose"]);
    refuse("[args]\nimn = 3", &[], &["'imn'", "no kernel takes it"]);
    refuse("threads = 2048", &[], &["2048"]);
    refuse("seeds = 0", &[], &["at least one seed"]);
    refuse("shared = 4294967295", &[], &["shared memory"]);
    refuse("[args]\nin = { elements = 18446744073709551615 }", &[], &["elements"]);
    refuse("[args]\nin = { elements = 9000000000000000000 }", &[], &["'in'", "elements"]);
    refuse(PLAN, &["--seeds", "0"], &["at least one seed"]);
    refuse(PLAN, &["--sees", "3"], &["--seeds"]);
    refuse(PLAN, &["--device", "cuda"], &["runs on the emulated device only"]);
    assert_refused(&gatework(folder.path(), &["chekc", "a.cu"]), &["check"]);
}

#[test]
fn what_is_known_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    let output = gatework(folder.path(), &["check", "--known", "--json"]);
    assert_eq!(output.status.code(), DONE, "{output:?}");
    let known = json(&output);
    let has = |list: &str, name: &str| known[list].as_array().unwrap().iter().any(|one| one == name);
    assert!(has("ptx", "wgmma.mma_async") && has("includes", "cuda_runtime.h"), "{known}");
}

#[test]
fn the_zoo_shows_an_exhibit_and_its_twin() {
    let folder = tempfile::tempdir().unwrap();
    let output = gatework(folder.path(), &["zoo", "store-wait", "--seeds", "5", "--source"]);
    assert_eq!(output.status.code(), DONE, "{output:?}");
    let text = stdout(&output);
    for part in
        ["https://github.com/deepseek-ai/DeepEP/issues/657", "found under 5 of 5: line", "MENDED", "1 of 1"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let document = json(&gatework(folder.path(), &["zoo", "barrier", "--seeds", "2", "--json"]));
    let visits = document["exhibits"].as_array().unwrap();
    assert!(visits.len() > 1, "{document}");
    for visit in visits {
        assert_eq!((visit["found"].as_u64(), &visit["alarm"]), (Some(2), &Value::Null), "{visit}");
    }
}

#[test]
fn the_zoo_refuses_what_it_has_not() {
    let folder = tempfile::tempdir().unwrap();
    let refuse =
        |arguments: &[&str], words: &[&str]| assert_refused(&gatework(folder.path(), arguments), words);
    refuse(&["zoo", "store-wiat"], &["'store-wiat'", "store-wait"]);
    refuse(&["zoo", "--seeds", "0"], &["at least one seed"]);
    refuse(&["zoo", "--sorce"], &["--source"]);
    refuse(&["zoo", "--device", "cuda:1"], &["runs on the emulated device only"]);
}
