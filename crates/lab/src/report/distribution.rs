//! The samples of one benchmark: every one a dot, with median, p90 and p99.

use super::svg::{Anchor, Drawing, Scale, WIDTH};
use crate::quantity::time;
use crate::record::{BenchRecord, PeerRecord};
use crate::stats::{Samples, Summary, quantile};

const ROW: f64 = 56.0;
const TOP: f64 = 8.0;
const LEFT: f64 = 10.0;
const RIGHT: f64 = WIDTH - 14.0;
/// Height of the band over which dots are spread, so that equal samples do not hide each other.
const BAND: f64 = 18.0;

struct Series<'a> {
    class: &'static str,
    name: String,
    samples: &'a Samples,
    summary: Summary,
}

pub(super) fn draw(bench: &BenchRecord) -> String {
    let series = series(bench);
    let scale = scale(&series);
    let bottom = TOP + ROW * series.len() as f64;
    let mut drawing = Drawing::new(bottom + 24.0);
    for tick in scale.ticks(4) {
        let x = scale.at(tick);
        drawing.line("grid", (x, TOP), (x, bottom));
        drawing.text("tick", anchor_at(x), (x, bottom + 14.0), &time(tick));
    }
    for (index, one) in series.iter().enumerate() {
        draw_row(&mut drawing, &scale, TOP + ROW * index as f64, one);
    }
    drawing.finish(&format!("Samples of {}", bench.case))
}

fn series(bench: &BenchRecord) -> Vec<Series<'_>> {
    let (candidate, baseline) = (&bench.candidate, &bench.baseline);
    let mut series = vec![
        Series {
            class: "candidate",
            name: candidate.name.clone(),
            samples: &candidate.samples_ns,
            summary: candidate.summary,
        },
        Series {
            class: "baseline",
            name: baseline.name.clone(),
            samples: &baseline.samples_ns,
            summary: baseline.summary,
        },
    ];
    series.extend(bench.peers.iter().filter_map(|peer| match peer {
        PeerRecord::Measured { peer, operation, samples_ns, summary, .. } => Some(Series {
            class: "peer",
            name: format!("{peer} {operation}"),
            samples: samples_ns,
            summary: *summary,
        }),
        PeerRecord::NotMeasured { .. } => None,
    }));
    series
}

/// From the least sample to a little above the largest p99: one straggler must not squeeze the rest into a
/// line.
fn scale(series: &[Series<'_>]) -> Scale {
    let low = series.iter().map(|one| one.summary.minimum_ns).fold(f64::INFINITY, f64::min);
    let high = series.iter().map(|one| one.summary.p99_ns).fold(0.0, f64::max);
    let margin = 0.03 * (high - low);
    Scale::new((low - margin, high + margin), (LEFT, RIGHT))
}

/// Numbers at the edges would be cut in half if they stood around their lines.
fn anchor_at(x: f64) -> Anchor {
    const HALF: f64 = 24.0;
    if x < LEFT + HALF {
        Anchor::Start
    } else if x > RIGHT - HALF {
        Anchor::End
    } else {
        Anchor::Middle
    }
}

/// As much of a name as stands beside a text of so many characters.
fn shortened(name: &str, beside: usize) -> String {
    /// Average width of a character of either text.
    const CHARACTER: f64 = 6.0;
    let room = ((RIGHT - LEFT) / CHARACTER) as usize;
    let room = room.saturating_sub(beside + 2);
    if name.chars().count() <= room {
        return name.to_owned();
    }
    let kept: String = name.chars().take(room.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

fn draw_row(drawing: &mut Drawing, scale: &Scale, top: f64, series: &Series<'_>) {
    let Series { class, name, samples, summary } = series;
    let middle = top + 32.0;
    let spread = format!("{}, spread {:.1} %", time(summary.median_ns), 100.0 * summary.relative_spread);
    drawing.text("label", Anchor::Start, (LEFT, top + 12.0), &shortened(name, spread.chars().count()));
    drawing.text("value", Anchor::End, (RIGHT, top + 12.0), &spread);
    for (index, &sample) in samples.values().iter().enumerate() {
        // The golden ratio scatters successive samples evenly and the same way every time.
        let offset = ((index as f64 * 0.618_034).fract() - 0.5) * BAND;
        drawing.dot(&format!("{class} sample"), (scale.at(sample), middle + offset), 1.8);
    }
    let mark = |drawing: &mut Drawing, kind: &str, value: f64, half: f64| {
        let x = scale.at(value);
        drawing.line(&format!("{class} {kind}"), (x, middle - half), (x, middle + half));
    };
    mark(drawing, "median", summary.median_ns, 14.0);
    mark(drawing, "quantile", summary.p90_ns, 9.0);
    mark(drawing, "quantile", summary.p99_ns, 9.0);
}

/// Samples that lie beyond the drawing's right edge, which shows them there.
pub(super) fn beyond(bench: &BenchRecord) -> usize {
    let series = series(bench);
    let edge = series.iter().filter_map(|one| quantile(one.samples.values(), 0.99)).fold(0.0, f64::max);
    series.iter().flat_map(|one| one.samples.values()).filter(|&&sample| sample > edge).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_leave_room_for_what_stands_beside_them() {
        assert_eq!(shortened("kernel", 24), "kernel");
        let long = shortened("a kernel that keys the cipher anew for each point", 24);
        assert!(long.ends_with('…') && long.chars().count() + 24 < 56, "{long}");
        assert_eq!(shortened("anything", 1000), "…");
    }

    #[test]
    fn numbers_at_the_edges_stay_inside() {
        assert!(matches!(anchor_at(LEFT), Anchor::Start));
        assert!(matches!(anchor_at(RIGHT), Anchor::End));
        assert!(matches!(anchor_at(0.5 * (LEFT + RIGHT)), Anchor::Middle));
    }
}
