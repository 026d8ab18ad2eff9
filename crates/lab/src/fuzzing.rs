//! Entries for fuzzers: each reads bytes as a file or another program hands them over, and returns whether
//! they were accepted.

use std::path::Path;

use crate::check::{KernelText, Plan};
use crate::freshness::Freshness;
use crate::peers::{Handshake, Reply};
use crate::profile;
use crate::report;
use crate::store::Reading;
use crate::tune::TuningState;
use crate::{check_document, compare, standing, write_tables};

/// A file of records, up to all that is made of records: a comparison with themselves, tables and the report.
pub fn records(bytes: &[u8]) -> bool {
    let mut reading = Reading::default();
    reading.take_lines(Path::new("records.jsonl"), bytes);
    let records = &reading.records;
    if records.is_empty() {
        return false;
    }
    for record in records {
        let line = serde_json::to_vec(record).expect("a record that was read is written");
        let mut again = Reading::default();
        again.take_lines(Path::new("again.jsonl"), &line);
        let written: Vec<Vec<u8>> =
            again.records.iter().filter_map(|one| serde_json::to_vec(one).ok()).collect();
        assert_eq!(written, [line], "a record is written as it was read: {:?}", again.problems);
    }
    let _ = (standing(records), compare(records, records));
    let names =
        records.iter().map(|record| record.workload.replace(char::is_whitespace, "")).collect::<Vec<_>>();
    for kind in ["benches", "peers", "rows"] {
        let document = format!("<!-- lab table: {kind} {} -->\n<!-- end -->\n", names.join(" "));
        let _ = write_tables(&document, records, "results", &|_| false);
    }
    assert!(report::html(records, &[], &|_| Freshness::Current).ends_with("</html>\n"), "a report is whole");
    true
}

/// A document with tables of records, of which there are none here.
pub fn document(text: &str) -> bool {
    let problems = check_document(text, &|_| None);
    write_tables(text, &[], "results", &|_| false).is_ok() && problems.is_empty()
}

/// How the kernels of a file are launched, which was read as TOML.
pub fn launch_plan(plan: &Plan) -> bool {
    plan.check().is_ok() && plan.grid(&KernelText::default(), 48 << 10, true).is_ok()
}

/// Reads the output of a peer: its first line, and its answers.
pub fn peer(text: &str) -> bool {
    let mut lines = text.lines();
    let first = lines.next().and_then(|line| serde_json::from_str::<Handshake>(line).ok());
    let Some(Ok(_)) = first.map(Handshake::accepted) else { return false };
    lines.all(|line| serde_json::from_str::<Reply>(line).is_ok_and(|reply| reply.samples(3).is_ok()))
}

/// Reads the table that the profiler prints.
pub fn profile(text: &str) -> bool {
    profile::reads_launches(text)
}

/// A search on disk.
pub fn tuning_state(bytes: &[u8]) -> bool {
    let Ok(state) = TuningState::parse(bytes) else { return false };
    let text = serde_json::to_vec(&state).expect("a search that was read is written");
    let again = TuningState::parse(&text).map(|again| serde_json::to_vec(&again).ok());
    assert_eq!(again, Ok(Some(text)), "a search is written as it was read");
    true
}
