//! The command line from outside: exit codes, sentences, JSON.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

const DONE: Option<i32> = Some(0);
const BAD_INPUT: Option<i32> = Some(2);
const DEVICE_FAILED: Option<i32> = Some(3);

/// The binary in a folder of its own, without the caller's settings.
fn gatework(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatework"));
    command.args(arguments).current_dir(folder);
    for variable in ["GATEWORK_DEVICE", "GATEWORK_LOG", "GATEWORK_EMULATOR_SEED"] {
        command.env_remove(variable);
    }
    command
}

fn run(arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    gatework(folder.path(), arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn a_typing_error_in_a_flag_is_bad_usage() {
    let mistyped: [(&[&str], &str); 4] = [
        (&["lab", "gate", "--al"], "--all"),
        (&["attention", "bench", "--mak", "full"], "--mask"),
        (&["private", "cost", "--modle", "gpt2"], "--model"),
        (&["stark", "prove", "--log-row", "5"], "--log-rows"),
    ];
    for (arguments, meant) in mistyped {
        let output = run(arguments);
        assert_eq!(output.status.code(), BAD_INPUT);
        assert!(stderr(&output).contains(meant), "{output:?}");
    }
    let output = run(&["strak", "prove"]);
    assert_eq!(output.status.code(), BAD_INPUT);
    assert!(stderr(&output).contains("stark"), "{output:?}");
}

#[test]
fn gate_wants_names_or_all() {
    assert_eq!(run(&["lab", "gate"]).status.code(), BAD_INPUT);
    assert_eq!(run(&["lab", "gate", "gpu/saxpy", "--all"]).status.code(), BAD_INPUT);
    assert_eq!(run(&["lab", "gate", "gpu/saxpy", "--seeds", "0"]).status.code(), BAD_INPUT);
}

#[test]
fn an_unknown_device_is_bad_usage() {
    let output = run(&["doctor", "--device", "quantum"]);
    assert_eq!(output.status.code(), BAD_INPUT);
    assert!(stderr(&output).contains("unknown device 'quantum': use auto, cpu, cuda, cuda:N or emulated"));
}

#[test]
fn several_devices_are_refused_by_what_runs_on_one() {
    for device in ["emulated:4", "cuda:0*2", "cuda:all"] {
        let output = run(&["lab", "gate", "gpu/saxpy", "--device", device]);
        assert_eq!(output.status.code(), BAD_INPUT);
        let said = format!("'{device}' names several devices, and this runs on one");
        assert!(stderr(&output).contains(&said), "{output:?}");
    }
}

#[test]
fn the_device_comes_from_the_environment_too() {
    let folder = tempfile::tempdir().unwrap();
    let output = gatework(folder.path(), &["doctor"]).env("GATEWORK_DEVICE", "quantum").output().unwrap();
    assert_eq!(output.status.code(), BAD_INPUT);
}

#[test]
fn an_unknown_workload_is_answered_with_a_close_one() {
    let output = run(&["lab", "gate", "gpu/saxpi", "--device", "emulated"]);
    assert_eq!(output.status.code(), BAD_INPUT);
    assert!(
        stderr(&output).contains("error: unknown workload 'gpu/saxpi': did you mean gpu/saxpy"),
        "{output:?}"
    );
}

#[test]
fn an_unwritable_results_folder_is_found_before_the_gates_run() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("results"), "a file").unwrap();
    let output = gatework(folder.path(), &["lab", "gate", "--all", "--device", "emulated"]).output().unwrap();
    assert_eq!(output.status.code(), BAD_INPUT);
    assert!(stderr(&output).starts_with("error: records cannot be written to results"), "{output:?}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_missing_compiler_is_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["lab", "gate", "gpu/saxpy", "--device", "emulated"];
    let output = gatework(folder.path(), &arguments).env("CXX", "/nonexistent/c++").output().unwrap();
    assert_eq!(output.status.code(), DEVICE_FAILED);
    assert!(stderr(&output).contains("needs a C++17 compiler and '/nonexistent/c++'"), "{output:?}");
}

/// Gates one workload with a kernel cache of its own.
fn gate_with_cache(cache: &Path) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["lab", "gate", "gpu/saxpy", "--device", "emulated", "--seeds", "1"];
    gatework(folder.path(), &arguments).env("GATEWORK_CACHE", cache).output().unwrap()
}

#[test]
fn a_corrupted_cache_is_compiled_anew() {
    let cache = tempfile::tempdir().unwrap();
    assert_eq!(gate_with_cache(cache.path()).status.code(), DONE);
    for entry in fs::read_dir(cache.path().join("kernels")).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        if path.extension().is_some_and(|extension| extension == "json") {
            continue;
        }
        // Cut off, as by a full disk, and with one bit changed, as by a bad one.
        let mut changed = bytes[..bytes.len() - 100].to_vec();
        changed[50] ^= 1;
        fs::write(&path, changed).unwrap();
    }
    let output = gate_with_cache(cache.path());
    assert_eq!(output.status.code(), DONE, "{output:?}");
    assert!(stderr(&output).contains("is corrupted and is compiled anew"), "{output:?}");
    assert!(!stderr(&gate_with_cache(cache.path())).contains("corrupted"), "and then it is sound again");
}

#[test]
fn a_cache_that_cannot_be_written_is_done_without() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let output = gate_with_cache(file.path());
    assert_eq!(output.status.code(), DONE, "{output:?}");
    assert!(stderr(&output).contains("the kernel cache cannot be written"), "{output:?}");
}

#[test]
fn without_cuda_the_gates_point_to_the_emulated_device() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = gatework(folder.path(), &["lab", "gate", "gpu/saxpy"]);
    let output = command.env("CUDA_VISIBLE_DEVICES", "-1").output().unwrap();
    assert_eq!(output.status.code(), DEVICE_FAILED);
    assert!(stderr(&output).contains("no CUDA device") && stderr(&output).contains("--device emulated"));
}

#[test]
fn doctor_prints_one_json_document() {
    let output = run(&["doctor", "--json"]);
    assert_eq!(output.status.code(), DONE);
    let examination = json(&output);
    let names: Vec<_> =
        examination["parts"].as_array().unwrap().iter().map(|part| part["name"].as_str()).collect();
    assert!(names.contains(&Some("NVRTC")) && names.contains(&Some("C++ compiler")), "{names:?}");
    assert!(names.contains(&Some("NCCL")), "{names:?}");
    let [cards, links, copies] =
        ["cards", "links", "copies"].map(|part| examination["topology"][part].as_array().unwrap().len());
    assert_eq!(cards, examination["devices"].as_array().unwrap().len());
    assert_eq!((links, copies), (cards * cards.saturating_sub(1), links));
    assert!(examination["cache"]["folder"].is_string());
}

/// The jobs of `doctor` for a device, as (noun, name, whether it runs, what is said of it), on a machine
/// without a card.
fn jobs(device: &str) -> Vec<(String, String, bool, String)> {
    let folder = tempfile::tempdir().unwrap();
    let mut command = gatework(folder.path(), &["doctor", "--json", "--device", device]);
    let output = command.env("CUDA_VISIBLE_DEVICES", "-1").output().unwrap();
    assert_eq!(output.status.code(), DONE, "{output:?}");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let job = |job: &Value| {
        let runs = job["state"] == "found";
        let said = text(&job[if runs { "what" } else { "reason" }]);
        (text(&job["noun"]), text(&job["name"]), runs, said)
    };
    json(&output)["jobs"].as_array().unwrap().iter().map(job).collect()
}

#[test]
fn doctor_says_for_every_job_where_it_would_run() {
    let said = |device: &str, noun: &str| {
        let job = jobs(device).into_iter().find(|(of, name, ..)| of == noun && name == noun);
        let (_, _, runs, said) = job.unwrap_or_else(|| panic!("no line for {noun}"));
        (runs, said)
    };
    assert_eq!(said("auto", "attention"), (true, "on the CPU, in f32".into()));
    assert_eq!(said("cpu", "stark"), (true, "on the CPU, by stwo's SimdBackend".into()));
    assert_eq!(said("emulated", "attention"), (true, "on the emulated device, in FP8".into()));
    let (runs, what) = said("emulated", "lab");
    assert!(runs && what.starts_with("on the emulated device"), "{what}");
    let (runs, why) = said("auto", "lab");
    assert!(!runs && why.contains("--device emulated"), "{why}");
    let (runs, what) = said("auto", "private");
    assert!(runs && what.starts_with("on the CPU"), "{what}");
    assert_eq!(said("emulated", "private"), (true, "on the emulated device, by kernels".into()));
    assert!(!said("cuda", "private").0, "there is no card");
    assert!(!said("cuda", "stark").0, "there is no card");
    assert!(jobs("auto").iter().any(|(noun, name, ..)| noun == "lab" && name == "resource gate"));
}

#[test]
fn a_device_that_a_command_would_ignore_is_refused() {
    let refused = |arguments: &[&str]| {
        let output = run(arguments);
        assert_eq!(output.status.code(), BAD_INPUT, "{arguments:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        stderr(&output)
    };
    for device in ["cuda", "cuda:1", "emulated"] {
        let check = ["private", "check", "--model", "m", "--ids", "5"];
        let said = refused(&[&check[..], &["--device", device]].concat());
        let asks = if device == "cuda" { "cuda:0" } else { device };
        let wanted = format!(
            "'gatework private check' runs on the CPU only, and --device asks for {asks}: use cpu or auto"
        );
        assert!(said.contains(&wanted), "{said}");
    }
    assert!(refused(&["lab", "list", "--device", "emulated"]).contains("'gatework lab list' uses no device"));
    assert!(refused(&["stark", "verify", "p.json", "--device", "cuda"]).contains("'gatework stark verify'"));
    // What is said for all commands does not keep those that use no device from working.
    let folder = tempfile::tempdir().unwrap();
    let from_environment = |arguments: &[&str]| {
        gatework(folder.path(), arguments).env("GATEWORK_DEVICE", "cuda").output().unwrap()
    };
    assert_eq!(from_environment(&["lab", "list"]).status.code(), DONE);
    let check = ["private", "check", "--model", "m", "--ids", "5"];
    let output = from_environment(&check);
    assert_eq!(output.status.code(), BAD_INPUT, "{output:?}");
    assert!(
        stderr(&output).contains("the environment variable GATEWORK_DEVICE asks for cuda:0"),
        "{output:?}"
    );
    assert_eq!(run(&["lab", "list", "--device", "cpu"]).status.code(), DONE);
}

#[test]
fn a_file_that_cannot_be_written_is_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let prove = ["stark", "prove", "--log-rows", "5", "--device", "cpu", "--out", "nowhere/proof.json"];
    let output = gatework(folder.path(), &prove).output().unwrap();
    assert_eq!(output.status.code(), BAD_INPUT);
    let said = stderr(&output);
    assert!(said.contains("--out nowhere/proof.json: no file can be written to nowhere"), "{said}");
    assert!(!said.contains("record"), "{said}");
}

#[test]
fn list_prints_every_workload() {
    let output = run(&["lab", "list", "--json"]);
    let listed = json(&output);
    let names: Vec<_> =
        listed["workloads"].as_array().unwrap().iter().map(|entry| entry["name"].clone()).collect();
    assert!(names.contains(&"gpu/graph-chain".into()), "{names:?}");
    assert!(String::from_utf8_lossy(&run(&["lab", "list"]).stdout).contains("gpu/pinned-copy"));
}

#[test]
fn bash_reads_the_script_that_completes_commands() {
    let script = run(&["completions", "bash"]).stdout;
    assert!(String::from_utf8_lossy(&script).contains("gatework"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gatework.bash");
    fs::write(&file, script).unwrap();
    let read = Command::new("bash").arg("-n").arg(&file).output().unwrap();
    assert!(read.status.success(), "{read:?}");
}

#[test]
fn a_manual_page_is_written_for_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let output = gatework(folder.path(), &["man", "pages", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), DONE, "{output:?}");
    let written = json(&output);
    let pages: Vec<&str> =
        written["pages"].as_array().unwrap().iter().map(|page| page.as_str().unwrap()).collect();
    for page in
        ["gatework.1", "gatework-tour.1", "gatework-lab.1", "gatework-lab-gate.1", "gatework-train-fetch.1"]
    {
        assert!(pages.contains(&page), "{page} in {pages:?}");
    }
    let page = fs::read_to_string(folder.path().join("pages/gatework-lab-gate.1")).unwrap();
    for section in [".SH NAME", ".SH SYNOPSIS", ".SH \"EXAMPLES\"", "gatework lab gate \\-\\-all"] {
        assert!(page.contains(section), "{section} in {page}");
    }
}

#[test]
fn a_gating_passes_and_leaves_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["lab", "gate", "gpu/saxpy", "--device", "emulated", "--seeds", "1", "--json"];
    let output = gatework(folder.path(), &arguments).output().unwrap();
    assert_eq!(output.status.code(), DONE, "{output:?}");
    let gated = json(&output);
    assert_eq!(gated["summary"]["passed"], 1);
    assert_eq!(gated["records"][0]["workload"], "gpu/saxpy");
    assert_eq!(gated["recorded_in"], "results/emulated.jsonl");

    let listed = gatework(folder.path(), &["lab", "records", "--json"]).output().unwrap();
    assert_eq!(listed.status.code(), DONE);
    assert_eq!(json(&listed)["records"], gated["records"]);
}

#[test]
fn a_truncated_record_is_a_warning_and_the_others_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("results")).unwrap();
    fs::write(folder.path().join("results/emulated.jsonl"), "{\"version\":1,\"workl").unwrap();
    let output = gatework(folder.path(), &["lab", "records"]).output().unwrap();
    assert_eq!(output.status.code(), DONE);
    assert!(stderr(&output).contains("emulated.jsonl:1: the record is cut short"), "{output:?}");
}

#[test]
fn records_of_a_missing_folder_are_bad_input() {
    let output = run(&["lab", "records", "--results", "nowhere"]);
    assert_eq!(output.status.code(), BAD_INPUT);
    assert!(stderr(&output).contains("nowhere"), "{output:?}");
}

#[test]
fn nothing_counts_as_passed_on_the_compilers_alone() {
    let output = run(&["lab", "gate", "gpu/saxpy", "--device", "cpu", "--no-record", "--json"]);
    assert_eq!(output.status.code(), DEVICE_FAILED);
    assert_eq!(json(&output)["summary"]["not_run"], 1);
}

#[test]
fn the_tour_passes_on_the_emulated_device() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["tour", "--device", "emulated", "--json", "--report", "tour.html"];
    let output = gatework(folder.path(), &arguments).output().unwrap();
    assert_eq!(output.status.code(), DONE, "{output:?}");
    let tour = json(&output);
    let stops = tour["stops"].as_array().unwrap();
    assert!(!stops.is_empty() && stops.iter().all(|stop| stop["outcome"] == "passed"), "{tour}");
    let mut engines: Vec<_> = stops.iter().map(|stop| stop["engine"].as_str().unwrap()).collect();
    engines.dedup();
    assert_eq!(
        engines,
        ["lab", "attention", "private", "stark", "train"],
        "each engine's stops are together"
    );
    let page = fs::read_to_string(folder.path().join("tour.html")).unwrap();
    for stop in stops {
        assert!(page.contains(stop["name"].as_str().unwrap()), "{stop}");
    }
    for engine in tour["engines"].as_array().unwrap() {
        let shown = engine["shown"].as_array().unwrap();
        let kernels = shown.last().unwrap().as_str().unwrap();
        assert!(kernels.contains("kernel workloads on emulated equal their CPU references"), "{engine}");
        assert_eq!(engine["passed"], engine["stops"], "{engine}");
    }
}

#[test]
fn the_tour_tells_a_newcomer_what_was_shown_and_what_to_do_next() {
    let folder = tempfile::tempdir().unwrap();
    let output = gatework(folder.path(), &["tour", "--device", "cpu"]).output().unwrap();
    assert_eq!(output.status.code(), DONE, "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let told = [
        "attention: 100 queries in each of 4 heads over 157 keys",
        "private: a BERT of 2 layers read 5 tokens that its server never saw",
        "stark: 32 Fibonacci sequences of 10 terms proved",
        "train: a network learnt digits",
        "lab: not run: kernels do not run on the CPU; use --device emulated",
        "with it you can",
        "gatework stark prove",
    ];
    for part in told {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(
        text.lines().count() < 60 && !text.contains("what it computes"),
        "the stops are for --verbose: {text}"
    );
}

#[test]
fn a_tour_whose_page_cannot_be_written_does_not_begin() {
    let output = run(&["tour", "--report", "nowhere/tour.html"]);
    assert_eq!(output.status.code(), BAD_INPUT);
    assert!(stderr(&output).contains("--report nowhere/tour.html: no file can be written"), "{output:?}");
    assert!(output.stdout.is_empty());
    assert!(stderr(&run(&["tour", "--reprot", "tour.html"])).contains("--report"));
}

#[test]
fn a_tour_without_a_device_visits_the_engines_on_the_cpu() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["tour", "--json"][..], &["tour", "--device", "cpu", "--json"]] {
        let mut command = gatework(folder.path(), arguments);
        command.env("CUDA_VISIBLE_DEVICES", "-1").env("CXX", "/nonexistent/c++");
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), DONE, "{output:?}");
        let tour = json(&output);
        for stop in tour["stops"].as_array().unwrap() {
            let wanted =
                if ["attention", "private", "private/model", "stark", "train/resume", "train/forecast"]
                    .iter()
                    .any(|engine| stop["name"] == *engine)
                {
                    "passed"
                } else {
                    "not-run"
                };
            assert_eq!(stop["outcome"], wanted, "{stop}");
        }
        let passed =
            tour["stops"].as_array().unwrap().iter().filter(|stop| stop["outcome"] == "passed").count();
        assert_eq!(passed, 6, "{tour}");
    }
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = gatework(folder.path(), &["lab", "list", "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut complaint = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    assert_eq!((child.wait().unwrap().code(), complaint.as_str()), (DONE, ""));
}

#[cfg(unix)]
#[test]
fn an_interrupt_leaves_whole_records() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("results");
    let arguments = ["lab", "gate", "gpu/saxpy", "gpu/graph-chain", "--device", "emulated", "--seeds", "20"];
    let mut command = gatework(folder.path(), &arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while fs::read_dir(&results).map_or(0, Iterator::count) == 0 {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before its first record");
        std::thread::sleep(Duration::from_millis(2));
    }
    let interrupted = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let reading = gatework_lab::read_records(&results).unwrap();
    assert_eq!((reading.records.len(), reading.problems.len()), (1, 0));
}
