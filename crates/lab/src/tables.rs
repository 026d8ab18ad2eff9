//! Tables of documents, written from records.
//!
//! A table stands between `<!-- lab table: QUERY -->` and `<!-- end -->`; [`write_tables`] writes it anew. A
//! query is
//!
//! * `benches NAME…`: benchmarks against their baselines and the floor,
//! * `peers NAME…`: benchmarks beside other programs of the same run,
//! * `rows NAME KEY=VALUE… show COLUMN…`: figures of whole jobs.
//!
//! A name may end in `*`. Every row links to its record, and says so where that is stale.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::figures::DocumentProblem;
use crate::quantity::{rate, time};
use crate::record::{BenchRecord, PeerRecord, Record};
use crate::roofline::Bound;

/// How the line above a table begins.
pub(crate) const BEGIN: &str = "<!-- lab table:";
/// The line below it.
pub(crate) const END: &str = "<!-- end -->";

/// Where records come from, and how a document links to them.
struct Sources<'a> {
    records: &'a [Record],
    is_stale: &'a dyn Fn(&Record) -> bool,
    /// From the document to the folder of records, as `../../results`.
    folder: &'a str,
}

/// The document with every table between markers written from `records`. `folder` is how it links to them;
/// `is_stale` says which no longer speak of this code.
pub fn write_tables(
    text: &str,
    records: &[Record],
    folder: &str,
    is_stale: &dyn Fn(&Record) -> bool,
) -> Result<String, DocumentProblem> {
    let sources = Sources { records, is_stale, folder };
    let mut written = String::new();
    let mut lines = text.lines().enumerate();
    let mut in_code = false;
    while let Some((index, line)) = lines.next() {
        in_code ^= line.trim_start().starts_with("```");
        written += line;
        written.push('\n');
        // A marker in code shows how one looks.
        let Some(query) = line.trim().strip_prefix(BEGIN).filter(|_| !in_code) else { continue };
        let problem = |what: String| DocumentProblem { line: index + 1, what };
        let query = query.trim_end().trim_end_matches("-->").trim();
        let table = sources.table(query).map_err(problem)?;
        if !lines.by_ref().any(|(_, line)| line.trim() == END) {
            return Err(problem(format!("the table has no '{END}' below it")));
        }
        written += &format!("\n{table}\n{END}\n");
    }
    if !text.ends_with('\n') {
        written.pop();
    }
    Ok(written)
}

impl<'a> Sources<'a> {
    fn table(&self, query: &str) -> Result<String, String> {
        let (kind, rest) = query.split_once(' ').unwrap_or((query, ""));
        let names: Vec<&str> = rest.split_whitespace().collect();
        let rows = match kind {
            "benches" => self.benches(&names)?,
            "peers" => self.peers(&names)?,
            "rows" => self.rows(&names)?,
            _ => return Err(format!("'{kind}' is no kind of table: use benches, peers or rows")),
        };
        let line = |row: &Vec<String>| format!("| {} |\n", row.join(" | "));
        let [header, body @ ..] = rows.as_slice() else { return Err("the table is empty".to_owned()) };
        let rule = format!("|{}\n", "---|".repeat(header.len()));
        Ok(line(header) + &rule + &body.iter().map(line).collect::<String>())
    }

    /// The newest record of each workload and device that one of the names matches, by name and then by
    /// workload.
    fn newest(&self, name: &str, has: impl Fn(&'a Record) -> bool) -> Result<Vec<&'a Record>, String> {
        let matches = |record: &&Record| match name.split_once('*') {
            Some((before, after)) => record.workload.starts_with(before) && record.workload.ends_with(after),
            None => record.workload == name,
        };
        let mut found: BTreeMap<(&str, String), &Record> = BTreeMap::new();
        for record in self.records.iter().filter(matches).filter(|&record| has(record)) {
            found.insert((&record.workload, record.slug()), record);
        }
        if found.is_empty() {
            Err(format!("no record called '{name}' has what the table asks for"))
        } else {
            Ok(found.into_values().collect())
        }
    }

    fn link(&self, record: &Record) -> String {
        let (folder, slug, id) = (self.folder, record.slug(), record.id());
        let stale = if (self.is_stale)(record) { ", stale" } else { "" };
        let failed = if record.verdict.is_failed() { ", a gate failed" } else { "" };
        format!("[record]({folder}/{slug}.jsonl#{id}){stale}{failed}")
    }

    fn timed(&self, names: &[&str]) -> Result<Vec<(&'a Record, &'a BenchRecord)>, String> {
        let mut found = Vec::new();
        for name in names {
            for record in self.newest(name, |record| record.performance.is_some())? {
                let benches = record.performance.iter().flat_map(|performance| &performance.cases);
                found.extend(benches.map(|bench| (record, bench)));
            }
        }
        Ok(found)
    }

    fn benches(&self, names: &[&str]) -> Result<Vec<Vec<String>>, String> {
        let header = [
            "workload",
            "case",
            "ours",
            "baseline, same run",
            "ours over baseline",
            "ours over floor",
            "record",
        ];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        for (record, bench) in self.timed(names)? {
            let two_digits =
                |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.2}"));
            rows.push(vec![
                format!("`{}`", record.workload),
                bench.case.clone(),
                time(bench.candidate.summary.median_ns),
                format!("{} ({})", time(bench.baseline.summary.median_ns), bench.baseline.name),
                two_digits(bench.ratio.map(|ratio| ratio.estimate)),
                two_digits(bench.roofline.map(|roofline| roofline.ratio_to_floor)),
                self.link(record),
            ]);
        }
        Ok(rows)
    }

    fn peers(&self, names: &[&str]) -> Result<Vec<Vec<String>>, String> {
        let benches = self.timed(names)?;
        let peers: BTreeSet<&str> =
            benches.iter().flat_map(|(_, bench)| &bench.peers).filter_map(operation).collect();
        let mut header = vec!["case".to_owned(), "ours".to_owned(), "reached".to_owned()];
        header.extend(benches.first().map(|(_, bench)| bench.baseline.name.clone()));
        header.extend(peers.iter().map(|&peer| peer.to_owned()));
        header.extend(["best peer over ours", "best peer over baseline", "record"].map(str::to_owned));
        let mut rows = vec![header];
        for (record, bench) in benches {
            let [ours, baseline] = [&bench.candidate, &bench.baseline].map(|side| side.summary.median_ns);
            let times: Vec<Option<f64>> = peers.iter().map(|peer| median_of(bench, peer)).collect();
            let best = times.iter().flatten().copied().reduce(f64::min);
            let over = |ns: f64| best.map_or_else(String::new, |best| format!("{:.2}", best / ns));
            let reached = match bench.roofline.map(|roofline| roofline.bound) {
                Some(Bound::Compute) => rate(bench.operations_per_second, "FLOP"),
                _ => rate(bench.bytes_per_second, "B"),
            };
            let mut row = vec![bench.case.clone(), time(ours), reached, time(baseline)];
            row.extend(times.iter().map(|found| found.map_or_else(|| "not measured".to_owned(), time)));
            row.extend([over(ours), over(baseline), self.link(record)]);
            rows.push(row);
        }
        Ok(rows)
    }

    /// `NAME KEY=VALUE… show COLUMN…`.
    fn rows(&self, words: &[&str]) -> Result<Vec<Vec<String>>, String> {
        let at = words.iter().position(|&word| word == "show").ok_or("a table of rows says what to show")?;
        let ([name, conditions @ ..], columns) = (&words[..at], &words[at + 1..]) else {
            return Err("a table of rows names its record".to_owned());
        };
        let titles = columns.iter().map(|column| column.replace('_', " ")).chain(["record".to_owned()]);
        let mut rows = vec![titles.collect::<Vec<String>>()];
        let wanted = conditions.iter().map(|condition| condition.split_once('=').ok_or(*condition));
        let wanted =
            wanted.collect::<Result<Vec<_>, _>>().map_err(|word| format!("'{word}' is no KEY=VALUE"))?;
        let said = |row: &Map<String, Value>, key: &str| row.get(key).map(shown).unwrap_or_default();
        let is_wanted =
            |row: &&Map<String, Value>| wanted.iter().all(|(key, value)| said(row, key) == *value);
        let of = |record: &'a Record| record.measured.iter().flat_map(|measured| &measured.rows);
        // A job is run with other options too: the newest record that has such rows, not the newest of the
        // name.
        for record in self.newest(name, |record| of(record).any(|row| is_wanted(&row)))? {
            for row in of(record).filter(is_wanted) {
                rows.push(
                    columns.iter().map(|column| said(row, column)).chain([self.link(record)]).collect(),
                );
            }
        }
        Ok(rows)
    }
}

/// What a peer was asked for, if it answered.
fn operation(peer: &PeerRecord) -> Option<&str> {
    match peer {
        PeerRecord::Measured { operation, .. } => Some(operation),
        PeerRecord::NotMeasured { .. } => None,
    }
}

fn median_of(bench: &BenchRecord, wanted: &str) -> Option<f64> {
    bench.peers.iter().find_map(|peer| match peer {
        PeerRecord::Measured { operation, summary, .. } if operation == wanted => Some(summary.median_ns),
        _ => None,
    })
}

/// A figure with three digits; anything else as it is.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64() {
            Some(figure) if !number.is_i64() && !number.is_u64() => three_digits(figure),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

fn three_digits(figure: f64) -> String {
    let decimals = match figure.abs() {
        size if size < 1.0 => 3,
        size if size < 10.0 => 2,
        size if size < 100.0 => 1,
        _ => 0,
    };
    format!("{figure:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MeasuredRecord, Outcome};

    fn records() -> Vec<Record> {
        let row = |log_rows: u64, median_ms: f64| {
            let value = serde_json::json!({ "kind": "proof", "log_rows": log_rows, "median_ms": median_ms });
            value.as_object().cloned().unwrap_or_default()
        };
        let rows = vec![row(14, 1.188), row(20, 81.92)];
        vec![Record::of_figures("stark/bench", None, MeasuredRecord { origin: "a run".into(), rows })]
    }

    const DOCUMENT: &str = "Above.\n<!-- lab table: rows stark/bench kind=proof show log_rows median_ms -->\n\
                            | old | row |\n<!-- end -->\nBelow.\n";

    #[test]
    fn a_table_is_written_from_its_records_and_only_once() {
        let records = records();
        let written = write_tables(DOCUMENT, &records, "../results", &|_| false).unwrap();
        let link = format!("[record](../results/no-device.jsonl#{})", records[0].id());
        assert!(
            written.contains(&format!(
                "| log rows | median ms | record |\n|---|---|---|\n| 14 | 1.19 | {link} |"
            ))
        );
        assert!(written.starts_with("Above.\n") && written.ends_with("<!-- end -->\nBelow.\n"), "{written}");
        assert!(!written.contains("old"));
        assert_eq!(write_tables(&written, &records, "../results", &|_| false).unwrap(), written);
    }

    #[test]
    fn a_marker_in_code_is_left_alone() {
        let shown = format!("```text\n{DOCUMENT}```\n");
        assert_eq!(write_tables(&shown, &[], "results", &|_| false).unwrap(), shown);
    }

    #[test]
    fn a_stale_record_is_marked_in_every_row_that_it_feeds() {
        let written = write_tables(DOCUMENT, &records(), "results", &|_| true).unwrap();
        assert_eq!(written.matches("), stale |").count(), 2, "{written}");
    }

    #[test]
    fn a_record_of_a_failed_gate_is_marked() {
        let mut records = records();
        records[0].verdict = Outcome::Failed { why: "slower than promised".into() };
        let written = write_tables(DOCUMENT, &records, "results", &|_| false).unwrap();
        assert_eq!(written.matches("), a gate failed |").count(), 2, "{written}");
    }

    #[test]
    fn a_query_that_finds_nothing_is_a_problem_of_its_line() {
        for (from, to) in
            [("stark/bench", "stark/gone"), ("kind=proof", "kind=none"), ("rows", "cows"), ("-->\nB", "\nB")]
        {
            let problem =
                write_tables(&DOCUMENT.replace(from, to), &records(), "results", &|_| false).unwrap_err();
            assert_eq!(problem.line, 2, "{}", problem.what);
        }
    }
}
