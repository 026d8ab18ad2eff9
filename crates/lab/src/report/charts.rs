//! The roofline, the distances to the floor, the course of a search, and a profile.

use super::svg::{Anchor, Drawing, Scale, WIDTH};
use crate::profile::LaunchProfile;
use crate::quantity::rate;
use crate::record::tuning::TrialOutcome;
use crate::record::{BenchRecord, TuningRecord};
use crate::roofline::Bound;

const LEFT: f64 = 10.0;
const RIGHT: f64 = WIDTH - 14.0;

/// How much of what the machine allows each benchmark reached. None if no floor is known.
pub(super) fn floors(benches: &[(&str, &BenchRecord)]) -> Option<String> {
    let known: Vec<_> =
        benches.iter().filter_map(|(name, bench)| Some((*name, *bench, bench.roofline?))).collect();
    if known.is_empty() {
        return None;
    }
    let mut drawing = Drawing::new(40.0 * known.len() as f64 + 8.0);
    let scale = Scale::new((0.0, 1.0), (LEFT, RIGHT));
    for (index, (name, bench, floor)) in known.into_iter().enumerate() {
        let top = 40.0 * index as f64 + 4.0;
        let share = 1.0 / floor.ratio_to_floor;
        let unit = match floor.bound {
            Bound::Memory => rate(bench.bytes_per_second, "B"),
            Bound::Compute => rate(bench.operations_per_second, "FLOP"),
            Bound::Link => format!("link {}", rate(floor.link_bytes_per_second.unwrap_or(0.0), "B")),
        };
        let value = format!("{:.0} %, {unit}", 100.0 * share);
        let name = name.split_once('/').map_or(name, |(_, name)| name);
        let label = fitted(&format!("{name} {}", bench.case), &value);
        drawing.text("label", Anchor::Start, (LEFT, top + 11.0), &label);
        drawing.text("value", Anchor::End, (RIGHT, top + 11.0), &value);
        bar(&mut drawing, &scale, top + 17.0, share);
    }
    Some(drawing.finish("Share of the machine's floor that was reached"))
}

/// Room of a letter, more than most take.
const LETTER: f64 = 6.3;

/// What a label and the value at the other end of its line have room for: the end of a longer label is left
/// out.
fn fitted(label: &str, value: &str) -> String {
    let room = (((RIGHT - LEFT) / LETTER) as usize).saturating_sub(value.chars().count());
    if label.chars().count() <= room {
        return label.to_owned();
    }
    label.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

fn bar(drawing: &mut Drawing, scale: &Scale, top: f64, share: f64) {
    let (from, to) = (scale.at(0.0), scale.at(1.0));
    drawing.rectangle("track", (from, top), (to - from, 10.0));
    drawing.rectangle("candidate bar", (from, top), (scale.at(share) - from, 10.0));
}

/// Trials in order: what each took, the best so far, and what was refused.
pub(super) fn search(tuning: &TuningRecord) -> Option<String> {
    let scores: Vec<(usize, f64)> = tuning
        .trials
        .iter()
        .enumerate()
        .filter_map(|(index, trial)| Some((index, trial.score()?.ratio)))
        .collect();
    let (&(_, first), bottom) = (scores.first()?, 170.0);
    let range =
        scores.iter().fold((first, first), |(low, high), &(_, ratio)| (low.min(ratio), high.max(ratio)));
    let margin = 0.08 * (range.1 - range.0);
    let (left, top) = (46.0, 10.0);
    let x = Scale::new((-0.5, tuning.trials.len() as f64 - 0.5), (left, RIGHT));
    let y = Scale::new((range.0 - margin, range.1 + margin), (bottom, top));
    let mut drawing = Drawing::new(bottom + 48.0);
    for tick in y.ticks(4) {
        drawing.line("grid", (left, y.at(tick)), (RIGHT, y.at(tick)));
        drawing.text("tick", Anchor::End, (left - 4.0, y.at(tick) + 4.0), &format!("{tick:.2}"));
    }
    for (index, trial) in tuning.trials.iter().enumerate() {
        let place = x.at(index as f64);
        match &trial.outcome {
            TrialOutcome::Timed { score } => drawing.dot("candidate mark", (place, y.at(score.ratio)), 3.5),
            TrialOutcome::SameAs { .. } => drawing.dot("baseline mark", (place, bottom + 12.0), 2.5),
            TrialOutcome::Rejected { .. } => drawing.cross("refused", (place, bottom + 12.0)),
        }
    }
    drawing.path("best", &best_so_far(&scores, tuning.trials.len(), &x, &y));
    let caption = "time over the baseline's, by trial; below: × refused, • the same program as another";
    for (line, text) in caption.split("; ").enumerate() {
        drawing.text("tick", Anchor::Start, (LEFT, bottom + 30.0 + 13.0 * line as f64), text);
    }
    Some(drawing.finish("Course of the search"))
}

fn best_so_far(scores: &[(usize, f64)], trials: usize, x: &Scale, y: &Scale) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut best = f64::INFINITY;
    for &(index, ratio) in scores.iter().filter(|(_, ratio)| ratio.is_finite()) {
        if ratio < best {
            if best.is_finite() {
                points.push((x.at(index as f64), y.at(best)));
            }
            best = ratio;
            points.push((x.at(index as f64), y.at(best)));
        }
    }
    points.push((x.at(trials as f64 - 1.0), y.at(best)));
    points
}

/// How busy the units were in one launch.
pub(super) fn utilisation(launch: &LaunchProfile) -> String {
    let used = launch.utilisation;
    let units = [("tensor pipe", used.tensor), ("SM", used.multiprocessors), ("DRAM", used.memory)];
    let mut drawing = Drawing::new(40.0 * units.len() as f64 + 8.0);
    let scale = Scale::new((0.0, 1.0), (LEFT, RIGHT));
    for (index, (name, percent)) in units.into_iter().enumerate() {
        let top = 40.0 * index as f64 + 4.0;
        drawing.text("label", Anchor::Start, (LEFT, top + 11.0), name);
        let value = percent.map_or_else(|| "not known".to_owned(), |percent| format!("{percent:.1} %"));
        drawing.text("value", Anchor::End, (RIGHT, top + 11.0), &value);
        bar(&mut drawing, &scale, top + 17.0, percent.unwrap_or(0.0) / 100.0);
    }
    drawing.finish(&format!("Utilisation in {}", launch.kernel))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_leaves_room_for_the_value() {
        assert_eq!(fitted("saxpy n134217728", "102 %, 4.33 TB/s"), "saxpy n134217728");
        let cut = fitted(&"x".repeat(80), "36 %, 11.9 TFLOP/s");
        assert!(cut.ends_with("x…") && cut.chars().count() == 35, "{cut}");
    }
}
