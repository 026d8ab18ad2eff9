//! Records on disk: nothing that was written is lost, and nothing unreadable hides the rest.

mod support;

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use gatework_lab::{Record, Store, Unreadable, read_records};
use serde_json::{Value, json};
use support::record;

fn as_json(record: &Record) -> Value {
    serde_json::to_value(record).unwrap()
}

fn names(records: &[Record]) -> Vec<&str> {
    records.iter().map(|record| record.workload.as_str()).collect()
}

fn append_bytes(path: &Path, bytes: &[u8]) {
    OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

#[test]
fn a_record_comes_back_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("new/results")).unwrap();
    let path = store.append(&record("gpu/saxpy")).unwrap();
    assert_eq!(path.file_name().unwrap(), "nvidia-h200.jsonl");
    store.append(&record("gpu/reduce")).unwrap();
    let reading = read_records(path.parent().unwrap()).unwrap();
    assert_eq!(reading.problems, []);
    assert_eq!(as_json(&reading.records[0]), as_json(&record("gpu/saxpy")));
    assert_eq!(names(&reading.records), ["gpu/saxpy", "gpu/reduce"]);
}

#[test]
fn a_truncated_line_is_reported_and_the_next_record_is_not_swallowed() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let path = store.append(&record("gpu/saxpy")).unwrap();
    let whole = fs::read(&path).unwrap();
    append_bytes(&path, &whole[..whole.len() / 2]);
    store.append(&record("gpu/reduce")).unwrap();
    let reading = read_records(folder.path()).unwrap();
    assert_eq!(names(&reading.records), ["gpu/saxpy", "gpu/reduce"]);
    let [problem] = reading.problems.as_slice() else { panic!("{:?}", reading.problems) };
    assert_eq!((problem.line, &problem.what), (2, &Unreadable::Truncated));
    assert!(problem.to_string().contains("nvidia-h200.jsonl:2: the record is cut short"), "{problem}");
    assert!(fs::read(&path).unwrap().starts_with(&whole));
}

#[test]
fn a_record_of_before_reads_without_revision_options_and_occupancy() {
    let folder = tempfile::tempdir().unwrap();
    let mut value = serde_json::to_value(record("gpu/saxpy")).unwrap();
    let text = value.to_string();
    assert!(!text.contains("revision") && !text.contains("options") && !text.contains("occupancy"), "{text}");
    fs::write(folder.path().join("old.jsonl"), format!("{text}\n")).unwrap();
    value["revision"] = serde_json::json!({ "commit": "0123456789abcdef", "dirty": true });
    value["kernels"][0]["binaries"][0]["options"] = serde_json::json!(["-DN=3"]);
    fs::write(folder.path().join("old.jsonl"), format!("{text}\n{value}\n")).unwrap();
    let reading = read_records(folder.path()).unwrap();
    let [old, new] = reading.records.as_slice() else { panic!("{:?}", reading.problems) };
    assert_eq!((old.revision.as_ref(), old.kernels[0].binaries[0].options.len()), (None, 0));
    assert!(new.revision.as_ref().unwrap().dirty);
    assert_eq!(new.kernels[0].binaries[0].options, ["-DN=3"]);
    assert_eq!(old.id(), new.id(), "an id does not follow from what was added");
}

#[test]
fn lines_that_are_no_records_are_named_and_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let path = store.append(&record("gpu/saxpy")).unwrap();
    append_bytes(&path, b"\n\xff\xfe not text\n{\"workload\":\"x\"}\n{\"version\":1}\n");
    store.append(&record("gpu/reduce")).unwrap();
    let reading = read_records(&path).unwrap();
    assert_eq!(names(&reading.records), ["gpu/saxpy", "gpu/reduce"]);
    assert_eq!(reading.problems.iter().map(|problem| problem.line).collect::<Vec<_>>(), [3, 4, 5]);
}

#[test]
fn a_record_of_a_later_version_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("later.jsonl");
    fs::write(&path, b"{\"version\":99,\"gates\":\"another shape\"}\n").unwrap();
    let reading = read_records(folder.path()).unwrap();
    assert_eq!(reading.problems[0].what, Unreadable::Newer { version: 99 });
    assert!(reading.problems[0].to_string().contains("use a newer gatework"));
}

/// A line as version 1 wrote it.
const VERSION_1: &str = r#"{"version":1,"workload":"gpu/saxpy","verdict":{"outcome":"passed"},"time":"2026-01-02T03:04:05Z","gatework":"0.1.0","device":{"id":"cuda:0","name":"NVIDIA H200","architecture":"sm_90a","multiprocessors":132,"memory_bytes":150000000000,"driver":"13.0","clocks":{"sm_mhz":1980,"memory_mhz":3201,"celsius":41}},"gates":[{"gate":"correctness","target":"cuda:0","outcome":"passed"}],"kernels":[{"source":"saxpy","source_hash":"ab","binaries":[{"architecture":"sm_90a","key":"cd","hash":"ef","entries":[{"name":"saxpy","registers":12,"shared_bytes":0,"stack_bytes":0,"spill_stores":0,"spill_loads":0,"sass":null}]}]}],"cases":[{"name":"n31","dimensions":{"n":31},"seeds":[0],"work":{"operations":62,"bytes":372},"budget":{"kind":"exact"},"errors":{},"controls":["zeros"]}]}"#;

#[test]
fn a_record_of_version_1_still_reads() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("nvidia-h200.jsonl"), format!("{VERSION_1}\n")).unwrap();
    let reading = read_records(folder.path()).unwrap();
    assert_eq!(reading.problems, []);
    let [record] = reading.records.as_slice() else { panic!("{} records", reading.records.len()) };
    assert_eq!((record.version, record.workload.as_str()), (1, "gpu/saxpy"));
    assert!(record.verdict.is_passed() && record.performance.is_none());
}

#[test]
fn fields_nobody_here_knows_are_kept() {
    let mut value = as_json(&record("gpu/saxpy"));
    value["timings"] = json!({"median_us": 12.5});
    let record: Record = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(as_json(&record), value);
}

#[test]
fn many_writers_lose_no_line() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for line in 0..8 {
                    store.append(&record(&format!("test/{writer}-{line}"))).unwrap();
                }
            });
        }
    });
    let reading = read_records(folder.path()).unwrap();
    assert_eq!((reading.records.len(), reading.problems.len()), (32, 0));
}

#[test]
fn an_unwritable_folder_is_a_sentence_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("occupied");
    fs::write(&file, "a file, not a folder").unwrap();
    let error = Store::open(&file).unwrap_err().to_string();
    assert!(error.contains("records cannot be written to") && error.contains("occupied"), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", folder.path().join("nvidia-h200.jsonl")).unwrap();
    let error = Store::open(folder.path()).unwrap().append(&record("gpu/saxpy")).unwrap_err().to_string();
    assert!(error.contains("nvidia-h200.jsonl: No space left on device"), "{error}");
}

#[test]
fn a_missing_folder_cannot_be_read() {
    let error = read_records(Path::new("no/such/folder")).unwrap_err().to_string();
    assert!(error.contains("no/such/folder"), "{error}");
}
