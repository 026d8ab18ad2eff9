//! A full disk, folders that cannot be written, a damaged cache, interrupts at any moment: a sentence, the
//! right exit code, and nothing that is lost or left behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

const DONE: Option<i32> = Some(0);
const BAD_INPUT: Option<i32> = Some(2);
const INTERRUPTED: Option<i32> = Some(130);
const BINARY: &str = env!("CARGO_BIN_EXE_gatework");
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/small-bert");

/// A folder to work in, a temporary folder and a cache, all new.
struct Scene {
    folder: TempDir,
}

impl Scene {
    fn new() -> Self {
        let scene = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(scene.path("work")).unwrap();
        fs::create_dir(scene.path("temporary")).unwrap();
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.path("work"));
        command.env("TMPDIR", self.path("temporary")).env("GATEWORK_CACHE", self.path("cache"));
        for variable in ["GATEWORK_DEVICE", "GATEWORK_LOG", "GATEWORK_EMULATOR_SEED"] {
            command.env_remove(variable);
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(BINARY, arguments).output().unwrap()
    }

    /// The same where no file may grow beyond so many blocks of 512 or 1024 bytes, as the shell counts.
    fn run_with_quota(&self, blocks: u32, arguments: &[&str]) -> Output {
        let script = format!("ulimit -f {blocks}; exec \"$0\" \"$@\"");
        let shell = [&["-c", &script, BINARY][..], arguments].concat();
        self.command("sh", &shell).output().unwrap()
    }

    /// Files and folders anywhere below that folder.
    fn files(&self, name: &str) -> Vec<String> {
        let mut found = Vec::new();
        collect(&self.path(name), &mut found);
        found
    }
}

fn collect(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        found.push(entry.file_name().to_string_lossy().into_owned());
        collect(&entry.path(), found);
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn refused(output: &Output, words: &[&str]) {
    assert_eq!(output.status.code(), BAD_INPUT, "{output:?}");
    for word in words {
        assert!(said(output).contains(word), "'{word}' in: {}", said(output));
    }
    assert!(!said(output).contains("panicked"), "{}", said(output));
}

#[test]
fn a_full_disk_behind_standard_output_is_said() {
    let scene = Scene::new();
    for arguments in [&["doctor"][..], &["lab", "list", "--json"], &["completions", "bash"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = scene.command(BINARY, arguments).stdout(full).output().unwrap();
        refused(&output, &["could not be written to standard output", "No space left"]);
    }
}

#[test]
fn a_file_that_does_not_fit_is_named_and_leaves_nothing() {
    let scene = Scene::new();
    let prove = ["stark", "prove", "--log-rows", "6", "--columns", "4", "--device", "cpu", "--out", "p.json"];
    refused(&scene.run_with_quota(1, &prove), &["p.json cannot be written: File too large", "name another"]);
    let described =
        scene.run(&["private", "describe", "--model", MODEL, "--longest", "8", "--out", "m.json"]);
    assert_eq!(described.status.code(), DONE, "{described:?}");
    let files = ["--server-keys", "s.keys", "--client-keys", "c.keys"];
    let deal = [&["private", "deal", "--public", "m.json", "--tokens", "5"][..], &files].concat();
    refused(&scene.run_with_quota(8, &deal), &["s.keys", "File too large"]);
    let run = ["private", "run", "--local", "--model", MODEL, "--ids", "1,2"];
    refused(&scene.run_with_quota(8, &run), &["server.keys", "File too large"]);
    refused(&scene.run_with_quota(1, &["man", "pages"]), &["gatework.1 cannot be written: File too large"]);
    assert_eq!(scene.files("temporary"), Vec::<String>::new());
    let mut left = scene.files("work");
    left.sort();
    assert_eq!(left, ["m.json", "m.json.salt", "pages"]);
}

#[test]
fn a_record_that_does_not_fit_leaves_those_before_it() {
    let scene = Scene::new();
    let gate = ["lab", "gate", "gpu/saxpy", "--device", "emulated", "--seeds", "1"];
    assert_eq!(scene.run(&gate).status.code(), DONE);
    let file = scene.path("work/results/emulated.jsonl");
    let before = fs::read(&file).unwrap();
    refused(&scene.run_with_quota(1, &gate), &["results/emulated.jsonl", "File too large", "another folder"]);
    assert!(fs::read(&file).unwrap() == before);
}

#[test]
fn folders_that_cannot_be_written_are_found_before_the_work() {
    let scene = Scene::new();
    fs::write(scene.path("work/file"), "no folder").unwrap();
    let shape = ["--shape", "bert-toy", "--tokens", "3", "--repeats", "100000", "--device", "cpu"];
    let cases: [&[&str]; 7] = [
        &["stark", "bench", "--log-rows", "16", "--device", "cpu", "--results", "file/x"],
        &[&["private", "bench", "--results", "file/x"][..], &shape].concat(),
        &[&["private", "bench", "--deal", "--results", "file/x"][..], &shape].concat(),
        &["private", "describe", "--model", MODEL, "--longest", "8", "--out", "file/x"],
        &["lab", "gate", "--all", "--device", "emulated", "--results", "file/x"],
        &["train", "run", "--preset", "digits", "--out", "file"],
        &["stark", "prove", "--log-rows", "16", "--device", "cpu", "--out", "file/x"],
    ];
    for arguments in cases {
        let output = scene.run(arguments);
        refused(&output, &["file"]);
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn nobodys_home_is_needed() {
    let scene = Scene::new();
    let mut command = scene.command(BINARY, &["doctor", "--json"]);
    for variable in ["HOME", "XDG_CACHE_HOME", "GATEWORK_CACHE"] {
        command.env_remove(variable);
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), DONE, "{output:?}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let cache = Path::new(document["cache"]["folder"].as_str().unwrap()).to_owned();
    assert!(cache.starts_with(scene.path("temporary")), "{}", cache.display());
}

const GATE: [&str; 7] = ["lab", "gate", "gpu/saxpy", "--device", "emulated", "--seeds", "1"];

#[test]
fn processes_share_a_cache() {
    let scene = Scene::new();
    let start = |place: usize| {
        let mut command = scene.command(BINARY, &GATE);
        let results = format!("results-{place}");
        command.args(["--results", &results]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let together: Vec<Child> = (0..4).map(start).collect();
    for process in together {
        let output = process.wait_with_output().unwrap();
        assert_eq!((output.status.code(), said(&output).as_str()), (DONE, ""));
    }
    assert!(!scene.files("cache").iter().any(|name| name.starts_with(".tmp")), "{:?}", scene.files("cache"));
    assert!(said(&scene.run(&GATE)).is_empty());
}

/// What may have happened to a file, and how it is done.
type Damage = (&'static str, fn(&Path));

#[test]
fn a_cache_of_any_state_does_no_harm() {
    let damage: [Damage; 5] = [
        ("cut short", |path| fs::write(path, &fs::read(path).unwrap()[..7]).unwrap()),
        ("empty", |path| fs::write(path, "").unwrap()),
        ("of another version", |path| fs::write(path, r#"{"version": 9, "digest": "abc"}"#).unwrap()),
        ("gone", |path| fs::remove_file(path).unwrap()),
        ("a folder", |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        }),
    ];
    for (state, damage) in damage {
        let scene = Scene::new();
        assert_eq!(scene.run(&GATE).status.code(), DONE);
        for entry in fs::read_dir(scene.path("cache/kernels")).unwrap() {
            damage(&entry.unwrap().path());
        }
        let output = scene.run(&GATE);
        assert_eq!(output.status.code(), DONE, "{state}: {output:?}");
        assert!(!said(&output).contains("panicked"), "{state}: {}", said(&output));
        assert_eq!(scene.files("temporary"), Vec::<String>::new(), "{state}");
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Starts a command, sends it a signal after a while, and says how it ended; `None` if it was done before.
fn interrupt(scene: &Scene, arguments: &[&str], after: Duration, name: &str) -> Option<Output> {
    let mut command = scene.command(BINARY, arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(after);
    if child.try_wait().unwrap().is_some() {
        return None;
    }
    signal(&child, name);
    Some(child.wait_with_output().unwrap())
}

/// What a command was given, and nothing that it had begun.
fn left_nothing(scene: &Scene, arguments: &[&str]) {
    assert_eq!(scene.files("temporary"), Vec::<String>::new(), "{arguments:?}");
    let work = scene.files("work");
    let begun = |name: &&String| name.starts_with(".tmp") || name.ends_with(".partial");
    assert_eq!(work.iter().find(begun), None, "{arguments:?}");
}

#[test]
fn an_interrupt_at_any_moment_ends_with_130_and_leaves_nothing() {
    let commands: [&[&str]; 6] = [
        &["attention", "bench", "--device", "cpu", "--shapes", "4x16x4096x64", "--plot", "x.svg"],
        &["stark", "prove", "--log-rows", "18", "--device", "cpu", "--out", "p.json"],
        &[
            "private",
            "deal",
            "--public",
            "m.json",
            "--tokens",
            "8x400",
            "--server-keys",
            "s",
            "--client-keys",
            "c",
        ],
        &["private", "bench", "--shape", "bert-toy", "--tokens", "8", "--repeats", "9999", "--device", "cpu"],
        &["lab", "gate", "--all", "--device", "emulated", "--seeds", "100"],
        &["tour", "--device", "emulated"],
    ];
    for arguments in commands {
        let mut interrupted = 0;
        for (milliseconds, name) in [(20, "-INT"), (150, "-TERM"), (700, "-INT")] {
            let scene = Scene::new();
            let describe = ["private", "describe", "--model", MODEL, "--longest", "8", "--out", "m.json"];
            assert_eq!(scene.run(&describe).status.code(), DONE);
            let ended = interrupt(&scene, arguments, Duration::from_millis(milliseconds), name);
            if let Some(output) = ended {
                // Before anything is begun, the system itself may end it.
                let early = milliseconds == 20 && output.status.code().is_none();
                assert!(early || output.status.code() == INTERRUPTED, "{arguments:?}: {output:?}");
                interrupted += 1;
            }
            left_nothing(&scene, arguments);
            assert!(!scene.path("work/p.json").exists() && !scene.path("work/x.svg").exists());
        }
        assert!(interrupted >= 2, "{arguments:?} is too short for this test");
    }
}

#[test]
fn an_interrupted_run_is_resumed() {
    let scene = Scene::new();
    let run = ["train", "run", "--preset", "digits", "--set", "steps=100000", "--out", "run"];
    let output = interrupt(&scene, &run, Duration::from_millis(1500), "-TERM").unwrap();
    assert_eq!(output.status.code(), INTERRUPTED, "{output:?}");
    assert!(said(&output).contains("can be resumed"), "{}", said(&output));
    left_nothing(&scene, &run);
}

/// NVRTC has a handler of its own for interrupts while it compiles, and destructors that crash if they run
/// meanwhile.
#[test]
#[ignore = "needs NVRTC"]
fn an_interrupt_while_nvrtc_compiles_ends_with_130() {
    let arguments = ["lab", "gate", "--all", "--device", "cpu", "--no-record"];
    for place in 0..20 {
        let scene = Scene::new();
        let mut command = scene.command(BINARY, &arguments);
        // Then NVRTC is all that compiles.
        command.env("CXX", "/nonexistent/c++").stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(300 + 70 * place));
        assert_eq!(child.try_wait().unwrap(), None, "it ended before it was interrupted");
        signal(&child, "-INT");
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), INTERRUPTED, "{output:?}");
        left_nothing(&scene, &arguments);
    }
}
