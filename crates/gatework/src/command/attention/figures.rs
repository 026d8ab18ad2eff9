//! What attention takes at one shape: ours and the peers', from a record or from a run on the CPU.

use std::path::Path;

use comfy_table::ColumnConstraint;
use gatework_attention::bench::of_case as shape_of;
use gatework_attention::{Mask, Shape};
use gatework_lab::measure::{BenchRecord, HostRecord, PeerRecord};
use gatework_lab::quantity::{rate, time};
use gatework_lab::report::{LineChart, Panel, Series};
use gatework_lab::stats::Summary;
use gatework_lab::{Case, Record};
use serde::Serialize;

use super::shapes::{mask_name, text};
use crate::command::output::{Reasons, table};

/// One shape under one mask.
#[derive(Serialize)]
pub(super) struct Measured {
    #[serde(skip)]
    of: (Shape, Mask),
    shape: String,
    mask: String,
    /// Multiplications and additions, of keys that are seen.
    operations: u64,
    /// Ours first.
    timed: Vec<Timed>,
    not_measured: Vec<NotMeasured>,
    /// The record it comes from.
    record: Option<String>,
}

#[derive(Serialize)]
struct Timed {
    name: String,
    ours: bool,
    median_ns: f64,
    p90_ns: f64,
    operations_per_second: f64,
}

#[derive(Serialize)]
struct NotMeasured {
    peer: String,
    why: String,
}

impl Measured {
    /// Of the cases of a record; those that are no attention are left out.
    pub(super) fn of_record(record: &Record) -> Vec<Self> {
        let benches = record.performance.iter().flat_map(|performance| &performance.cases);
        benches.filter_map(|bench| Self::of_bench(bench, record.id())).collect()
    }

    fn of_bench(bench: &BenchRecord, record: String) -> Option<Self> {
        let case = Case { name: bench.case.clone(), dimensions: bench.dimensions.clone() };
        let sides = [&bench.candidate, &bench.baseline].map(|side| (side.name.as_str(), &side.summary));
        let measured = Self::new(&case, bench.work.operations, &sides, &bench.peers)?;
        Some(Self { record: Some(record), ..measured })
    }

    pub(super) fn of_host(record: &HostRecord) -> Option<Self> {
        let case = Case { name: record.case.clone(), dimensions: record.dimensions.clone() };
        Self::new(&case, record.work.operations, &[(&record.name, &record.summary)], &record.peers)
    }

    fn new(case: &Case, operations: u64, sides: &[(&str, &Summary)], peers: &[PeerRecord]) -> Option<Self> {
        let of = shape_of(case)?;
        let timed = |name: String, ours: bool, summary: &Summary| Timed {
            name,
            ours,
            median_ns: summary.median_ns,
            p90_ns: summary.p90_ns,
            operations_per_second: 1e9 * operations as f64 / summary.median_ns,
        };
        let mut measured = Self {
            of,
            shape: text(&of.0),
            mask: mask_name(of.1),
            operations,
            timed: sides
                .iter()
                .map(|(name, summary)| timed(format!("Gatework {name}"), true, summary))
                .collect(),
            not_measured: Vec::new(),
            record: None,
        };
        for peer in peers {
            match peer {
                PeerRecord::Measured { peer, operation, summary, .. } => {
                    let format = operation.trim_start_matches("attention-").trim_end_matches("-cpu");
                    measured.timed.push(timed(format!("{peer} {format}"), false, summary));
                }
                PeerRecord::NotMeasured { peer, why } => {
                    measured.not_measured.push(NotMeasured { peer: peer.clone(), why: why.clone() });
                }
            }
        }
        Some(measured)
    }

    /// Whether it is of the same shape and mask.
    pub(super) fn replaces(&self, other: &Self) -> bool {
        self.of == other.of
    }

    /// The order of tables: by kind of head, then by size.
    pub(super) fn order(&self) -> impl Ord + use<> {
        let (Shape { batch, heads, key_heads, rows, keys, dim, value_dim }, mask) = self.of;
        (dim, value_dim, heads / key_heads, rows, keys, batch, heads, mask == Mask::Causal)
    }

    /// Whether it has no place on a chart over rows.
    fn is_left_out(&self) -> bool {
        self.has_other_keys() || self.has_window()
    }

    pub(super) fn has_other_keys(&self) -> bool {
        self.of.0.rows != self.of.0.keys
    }

    pub(super) fn has_window(&self) -> bool {
        matches!(self.of.1, Mask::Window { .. })
    }

    pub(super) fn mask(&self) -> Mask {
        self.of.1
    }

    pub(super) fn record(&self) -> Option<&str> {
        self.record.as_deref()
    }

    /// The fastest peer's time over ours: above 1 we are faster.
    fn lead(&self) -> Option<(f64, &str)> {
        let ours = self.timed.first().filter(|first| first.ours)?;
        let peers = self.timed.iter().filter(|timed| !timed.ours);
        let best = peers.min_by(|left, right| left.median_ns.total_cmp(&right.median_ns))?;
        Some((best.median_ns / ours.median_ns, &best.name))
    }

    fn named(&self, name: &str) -> Option<&Timed> {
        self.timed.iter().find(|timed| timed.name == name)
    }
}

/// Everybody who was timed, ours first, in the order they came.
fn names(measured: &[Measured]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for timed in measured.iter().flat_map(|measured| &measured.timed) {
        if !names.contains(&timed.name.as_str()) {
            names.push(&timed.name);
        }
    }
    names
}

/// A line for each shape and mask, a column for everybody who was timed.
pub(super) fn as_table(measured: &[Measured]) -> String {
    let names = names(measured);
    let with_records = measured.iter().any(|measured| measured.record.is_some());
    let mut header = [&["shape", "mask"], &names[..], &["best peer over ours"]].concat();
    header.extend(with_records.then_some("record"));
    let mut rows = table(header);
    // A shape that is broken into two lines cannot be copied back into a command.
    if let Some(shapes) = rows.column_mut(0) {
        shapes.set_constraint(ColumnConstraint::ContentWidth);
    }
    for one in measured {
        let mut row = vec![one.shape.clone(), one.mask.clone()];
        row.extend(names.iter().map(|name| match one.named(name) {
            Some(timed) => {
                format!("{}\n{}", time(timed.median_ns), rate(timed.operations_per_second, "FLOP"))
            }
            None => "not measured".to_owned(),
        }));
        row.push(
            one.lead().map_or_else(|| "no peer".to_owned(), |(lead, name)| format!("{lead:.2}\n{name}")),
        );
        row.extend(with_records.then(|| one.record.clone().unwrap_or_default()));
        rows.add_row(row);
    }
    let mut reasons = Reasons::default();
    for one in measured {
        for NotMeasured { peer, why } in &one.not_measured {
            reasons.add(format!("not measured: {why}"), peer);
        }
    }
    format!("{rows}\n\n{reasons}")
}

/// TFLOP/s over rows: a panel for each head dimension, grouping of heads and mask.
pub(super) fn as_chart(measured: &[Measured], device: &str, notes: Vec<String>) -> LineChart {
    let names = names(measured);
    let mut drawn: Vec<&Measured> = measured.iter().filter(|one| !one.is_left_out()).collect();
    // Within a panel by rows; of several with the same rows, the line goes through the one with the most
    // work.
    let kind = |one: &Measured| {
        let (shape, mask) = one.of;
        (shape.dim, shape.value_dim, shape.heads / shape.key_heads, mask == Mask::Causal)
    };
    drawn.sort_by_key(|one| (kind(one), one.of.0.rows, one.operations));
    let is_ours = |name: &str| drawn.iter().any(|one| one.named(name).is_some_and(|timed| timed.ours));
    let fastest = drawn.iter().flat_map(|one| &one.timed).map(|timed| timed.operations_per_second);
    let (unit, unit_name) =
        if fastest.fold(0.0, f64::max) < 1e12 { (1e9, "GFLOP/s") } else { (1e12, "TFLOP/s") };
    let panels = drawn.chunk_by(|left, right| kind(left) == kind(right)).map(|panel| {
        let (dim, value_dim, group, causal) = kind(panel[0]);
        let dim = if value_dim == dim { dim.to_string() } else { format!("{dim} over {value_dim}") };
        let group = if group > 1 { format!(", heads grouped by {group}") } else { String::new() };
        let points = names.iter().map(|name| {
            let point =
                |one: &&Measured| Some((one.of.0.rows as f64, one.named(name)?.operations_per_second / unit));
            panel.iter().filter_map(point).collect()
        });
        let mask = mask_name(if causal { Mask::Causal } else { Mask::Full });
        Panel { title: format!("dimension {dim}{group}, {mask}"), points: points.collect() }
    });
    LineChart {
        title: format!("Attention on {device}: {unit_name} over rows"),
        axis: "rows".into(),
        panels: panels.collect(),
        series: names.iter().map(|name| Series { name: (*name).to_owned(), ours: is_ours(name) }).collect(),
        notes,
    }
}

/// What stands below a plot that was made from records, so that every point of it can be looked up.
pub(super) fn sources(measured: &[Measured], file: &Path) -> String {
    let mut ids: Vec<&str> = measured.iter().filter_map(Measured::record).collect();
    ids.sort_unstable();
    ids.dedup();
    format!("Records of {}: {}.", file.display(), ids.join(", "))
}
