//! `gatework lab picture`: the engines beside their peers, from records, for the front page.

use std::path::PathBuf;

use clap::Args;
use gatework_lab::measure::PeerRecord;
use gatework_lab::quantity::time;
use gatework_lab::report::{Bar, BarChart};
use gatework_lab::{Freshness, Record, freshness, read_records};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::command::ending::{Ending, Failure};
use crate::command::files::write_file;
use crate::command::schema;
use crate::command::shell::Shell;

pub(super) const EXAMPLES: &str = "\
Examples:
  gatework lab picture
  gatework lab picture --results my/results --out mine.svg

Each bar is of the newest record that has it, with a peer that ran in the same run. What
has no record is left out.";

/// What to draw, and where.
#[derive(Debug, Args)]
pub(crate) struct PictureOptions {
    /// The folder to read, or one file of it
    #[arg(long, default_value = "results", value_name = "DIR")]
    results: PathBuf,
    /// The file to write
    #[arg(long, default_value = "overview.svg", value_name = "FILE")]
    out: PathBuf,
}

#[derive(Serialize)]
struct Written {
    file: PathBuf,
    bars: usize,
}

impl schema::Document for Written {
    const SCHEMA: schema::Schema = schema::LAB_PICTURE;
}

/// Where the two times of a bar are found.
enum Found {
    /// A benchmark of a workload: its case, and the operation of the peer.
    Peer { workload: &'static str, case: &'static str, operation: &'static str },
    /// A benchmark and its baseline.
    Baseline { workload: &'static str, case: &'static str },
    /// A row of whole jobs: what it must say, and its two columns in milliseconds.
    Row {
        workload: &'static str,
        says: &'static [(&'static str, &'static str)],
        ours: &'static str,
        theirs: &'static str,
    },
}

/// A bar of the front page.
struct Wanted {
    group: &'static str,
    label: &'static str,
    peer: &'static str,
    found: Found,
}

const ATTENTION: &str = "FP8 attention, 16 heads × 16384 rows";
const STARK: &str = "STARK proofs, wide Fibonacci, 100 columns";
const PRIVATE: &str = "Function secret sharing";

const WANTED: [Wanted; 8] = [
    attention(
        "dimension 128, causal",
        "cuDNN FP8",
        "attention/long-128",
        "1x16x16x16384x16384x128-causal",
        "attention-fp8",
    ),
    attention(
        "dimension 128, causal",
        "PyTorch f16",
        "attention/long-128",
        "1x16x16x16384x16384x128-causal",
        "attention-f16",
    ),
    attention(
        "dimension 64, causal",
        "cuDNN FP8",
        "attention/long-64",
        "1x16x16x16384x16384x64-causal",
        "attention-fp8",
    ),
    attention(
        "dimension 64, causal",
        "PyTorch f16",
        "attention/long-64",
        "1x16x16x16384x16384x64-causal",
        "attention-f16",
    ),
    stark(
        "2^20 rows, Blake2s",
        &[("kind", "proof"), ("air", "wide-fibonacci"), ("security", "default"), ("log_rows", "20")],
    ),
    stark(
        "2^20 rows, Poseidon252",
        &[("kind", "poseidon252-proof"), ("air", "wide-fibonacci"), ("log_rows", "20")],
    ),
    Wanted {
        group: PRIVATE,
        label: "393216 comparisons of 50 bits",
        peer: "the published way",
        found: Found::Baseline { workload: "fss/compare", case: "393216x50-1" },
    },
    Wanted {
        group: PRIVATE,
        label: "keys of 98304 comparisons",
        peer: "one core",
        found: Found::Baseline { workload: "fss/deal", case: "98304x50" },
    },
];

const fn attention(
    label: &'static str,
    peer: &'static str,
    workload: &'static str,
    case: &'static str,
    operation: &'static str,
) -> Wanted {
    Wanted { group: ATTENTION, label, peer, found: Found::Peer { workload, case, operation } }
}

const fn stark(label: &'static str, says: &'static [(&'static str, &'static str)]) -> Wanted {
    let found = Found::Row { workload: "stark/bench", says, ours: "median_ms", theirs: "simd_ms" };
    Wanted { group: STARK, label, peer: "SimdBackend, 16 cores", found }
}

/// Two times in nanoseconds, and the record that they are from.
struct Times<'a> {
    ours: f64,
    theirs: f64,
    record: &'a Record,
}

pub(super) fn run(options: &PictureOptions, shell: &Shell) -> Result<Ending, Failure> {
    let reading = read_records(&options.results)?;
    shell.warn_of(&reading.problems);
    let is_stale = |record: &Record| matches!(freshness(record, &shell.registry), Freshness::Stale { .. });
    let chart = chart(&reading.records, &is_stale);
    let svg = chart.svg().ok_or_else(|| {
        let folder = options.results.display();
        Failure::input(format!(
            "no record in {folder} has a peer that the picture shows: run 'gatework lab bench' on a card"
        ))
    })?;
    write_file(&options.out, svg.as_bytes())?;
    let written = Written { file: options.out.clone(), bars: chart.bars.len() };
    shell.output.show(&written, || format!("{} bars drawn in {}", written.bars, written.file.display()))?;
    Ok(Ending::Done)
}

fn chart(records: &[Record], is_stale: &dyn Fn(&Record) -> bool) -> BarChart {
    let mut bars = Vec::new();
    let mut sources: Vec<String> = Vec::new();
    for wanted in &WANTED {
        // Newer ones stand further down in a file.
        let Some(times) = records.iter().rev().find_map(|record| wanted.found.times(record)) else {
            continue;
        };
        let stale = if is_stale(times.record) { " (stale)" } else { "" };
        let source = format!("{}{stale}", times.record.id());
        if !sources.contains(&source) {
            sources.push(source);
        }
        bars.push(Bar {
            group: wanted.group.to_owned(),
            label: wanted.label.to_owned(),
            peer: wanted.peer.to_owned(),
            ratio: times.theirs / times.ours,
            times: format!("{} against {}", time(times.ours), time(times.theirs)),
        });
    }
    let mut notes = vec![
        "Medians on one NVIDIA H200, ours and the peer in the same run. The axis is logarithmic.".to_owned(),
    ];
    for line in sources.chunks(5) {
        notes.push(format!("Records: {}", line.join(", ")));
    }
    BarChart { title: "How many times as fast".to_owned(), bars, notes }
}

impl Found {
    fn times<'a>(&self, record: &'a Record) -> Option<Times<'a>> {
        let bench = |workload: &str, case: &str| {
            let cases = record.performance.iter().flat_map(|performance| &performance.cases);
            cases.filter(|_| record.workload == workload).find(|bench| bench.case == case)
        };
        let (ours, theirs) = match self {
            Self::Peer { workload, case, operation } => {
                let bench = bench(workload, case)?;
                let asked = bench.peers.iter().find_map(|peer| match peer {
                    PeerRecord::Measured { operation: of, summary, .. } if of == operation => {
                        Some(summary.median_ns)
                    }
                    _ => None,
                });
                (bench.candidate.summary.median_ns, asked?)
            }
            Self::Baseline { workload, case } => {
                let bench = bench(workload, case)?;
                (bench.candidate.summary.median_ns, bench.baseline.summary.median_ns)
            }
            Self::Row { workload, says, ours, theirs } => {
                let mut rows = record.measured.iter().flat_map(|measured| &measured.rows);
                let matches = |row: &&Map<String, Value>| {
                    record.workload == *workload && says.iter().all(|(key, value)| said(row, key) == *value)
                };
                let row = rows.rfind(matches)?;
                let milliseconds = |key: &str| Some(row.get(key)?.as_f64()? * 1e6);
                (milliseconds(ours)?, milliseconds(theirs)?)
            }
        };
        Some(Times { ours, theirs, record })
    }
}

fn said(row: &Map<String, Value>, key: &str) -> String {
    match row.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}
