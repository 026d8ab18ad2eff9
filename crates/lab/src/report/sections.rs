//! The sections of the page.

use std::fmt::Write as _;

use super::markup::{cards, cell, chip, figure, list, number, outcome_chip, section, table};
use super::subject::{GATES, Subject, device_of};
use super::svg::escaped;
use super::timeline::{LANES, Timeline, milliseconds};
use super::training::TrainingRuns;
use super::{charts, distribution, roofline, timeline};
use crate::freshness::Freshness;
use crate::quantity::{rate, ratio, time};
use crate::record::tuning::{Conclusion, HeldOut};
use crate::record::{BenchRecord, PeerRecord, PerformanceRecord, Record, TuningRecord};
use crate::stats::{Fulfilment, Verdict};

/// Which gates each workload passed.
pub(super) fn gates(subjects: &[Subject<'_>], freshness: &dyn Fn(&Record) -> Freshness) -> String {
    let mut rows = String::new();
    for subject in subjects {
        let name = subject.latest().map_or_else(String::new, |record| named(record, freshness));
        let mut row = cell("workload", &name) + &cell("device", &escaped(&subject.device));
        for gate in GATES {
            let chips: Vec<String> =
                subject.said_by(gate).iter().map(|found| outcome_chip(&found.outcome)).collect();
            row += &cell(&gate.to_string(), &chips.join(" "));
        }
        row += &cell("verdict", &subject.verdict().as_ref().map_or_else(String::new, outcome_chip));
        let _ = write!(rows, "<tr>{row}</tr>");
    }
    let header =
        ["workload", "device", "compile", "resources", "correctness", "performance", "profile", "verdict"];
    section(
        "gates",
        "Gates",
        &format!("{}{}", table("Gates of each workload", &header, &rows), list(&reasons(subjects))),
    )
}

/// Why things did not pass, each said once with all it holds for.
fn reasons(subjects: &[Subject<'_>]) -> Vec<String> {
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    for subject in subjects {
        let said = GATES.iter().flat_map(|&gate| subject.said_by(gate));
        for gate in said.filter(|gate| !gate.outcome.is_passed()) {
            let said = format!("{} ({}) {}", gate.gate, gate.target, gate.outcome);
            match reasons.iter_mut().find(|(known, _)| *known == said) {
                Some((_, workloads)) => workloads.push(subject.workload),
                None => reasons.push((said, vec![subject.workload])),
            }
        }
    }
    reasons.iter().map(|(said, workloads)| escaped(&format!("{}: {said}", workloads.join(", ")))).collect()
}

/// Every benchmark: a table of numbers, then the samples themselves.
pub(super) fn performance(subjects: &[Subject<'_>], freshness: &dyn Fn(&Record) -> Freshness) -> String {
    let (mut rows, mut figures) = (String::new(), String::new());
    for subject in subjects {
        let Some((record, performance)) = subject.performance else { continue };
        for bench in &performance.cases {
            let row = bench_row(&named(record, freshness), bench);
            let _ = write!(rows, "<tr>{row}</tr>");
            figures += &bench_figure(subject, record, performance, bench);
        }
    }
    if rows.is_empty() {
        return section("performance", "Performance", &absent("no benchmark"));
    }
    let header =
        ["workload", "case", "candidate", "p90", "p99", "baseline", "ratio", "verdict", "promise", "reached"];
    let body = table("Benchmarks", &header, &rows) + &cards(&figures);
    section("performance", "Performance", &body)
}

fn bench_row(workload: &str, bench: &BenchRecord) -> String {
    let summary = &bench.candidate.summary;
    let promise = match (&bench.expectation, bench.fulfilment) {
        (Some(promise), Some(kept)) => {
            let (class, word) = match kept {
                Fulfilment::Met => ("good", "met"),
                Fulfilment::Missed => ("bad", "missed"),
                Fulfilment::Undecided => ("mute", "undecided"),
            };
            format!("{} at most {:.3}", chip(class, word), promise.at_most)
        }
        _ => "none".to_owned(),
    };
    [
        cell("workload", workload),
        cell("case", &escaped(&bench.case)),
        number("candidate", &time(summary.median_ns)),
        number("p90", &time(summary.p90_ns)),
        number("p99", &time(summary.p99_ns)),
        cell(
            "baseline",
            &format!("{}, {}", time(bench.baseline.summary.median_ns), escaped(&bench.baseline.name)),
        ),
        cell("ratio", &ratio(bench.ratio)),
        cell("verdict", &bench_verdict(bench)),
        cell("promise", &promise),
        number("reached", &reached(bench)),
    ]
    .concat()
}

fn reached(bench: &BenchRecord) -> String {
    let bytes = rate(bench.bytes_per_second, "B");
    if bench.operations_per_second > 0.0 {
        format!("{bytes}, {}", rate(bench.operations_per_second, "OP"))
    } else {
        bytes
    }
}

fn bench_figure(
    subject: &Subject<'_>,
    record: &Record,
    performance: &PerformanceRecord,
    bench: &BenchRecord,
) -> String {
    let mut notes =
        vec![format!("{} pairs, record <code>{}</code>", bench.candidate.summary.samples, record.id())];
    let clocks = performance.clocks_before.zip(performance.clocks_after);
    notes.extend(clocks.map(|(before, after)| {
        format!("{} to {} MHz, {} to {} °C", before.sm_mhz, after.sm_mhz, before.celsius, after.celsius)
    }));
    notes.extend(
        performance.throttled.as_ref().map(|why| format!("{} {}", chip("bad", "throttled"), escaped(why))),
    );
    let beyond = distribution::beyond(bench);
    if beyond > 0 {
        let samples = if beyond == 1 { "sample" } else { "samples" };
        notes.push(format!("{beyond} {samples} beyond the right edge"));
    }
    for rate in &bench.rates {
        let share =
            rate.share.map_or_else(|| "none counted".to_owned(), |share| format!("{:.1} %", 100.0 * share));
        notes.push(format!("{}: {share}", escaped(&rate.name)));
    }
    let heading = format!("{} {}", subject.workload, bench.case);
    figure(&heading, &[notes.join("; ")], &distribution::draw(bench))
}

/// How near each benchmark came to what the machine allows.
pub(super) fn floors(subjects: &[Subject<'_>]) -> String {
    let (mut roofs, mut shares) = (String::new(), String::new());
    let mut devices: Vec<&str> = subjects.iter().map(|subject| subject.device.as_str()).collect();
    devices.sort_unstable();
    devices.dedup();
    for device in devices {
        let of_device = subjects.iter().filter(|subject| subject.device == device);
        let benches: Vec<(&str, &BenchRecord)> =
            of_device.flat_map(|subject| subject.benches().map(|bench| (subject.workload, bench))).collect();
        // An engine at a time: all of them together are too many for one chart.
        for of_area in benches.chunk_by(|left, right| area(left.0) == area(right.0)) {
            let area = area(of_area[0].0);
            if let Some(drawing) = roofline::draw(of_area) {
                let note = "The roof is the copy's bandwidth and the highest stated peak.".to_owned();
                roofs += &figure(&format!("Roofline of {device}: {area}"), &[note], &drawing);
            }
            if let Some(drawing) = charts::floors(of_area) {
                shares += &figure(&format!("Share of the floor on {device}: {area}"), &[], &drawing);
            }
        }
    }
    let figures = roofs + &shares;
    let body = if figures.is_empty() { absent("no floor") } else { cards(&figures) };
    section("floors", "Distance to the floor", &body)
}

/// What a workload's name begins with, up to the slash.
fn area(workload: &str) -> &str {
    workload.split('/').next().unwrap_or(workload)
}

/// Other programs that did the same in the same run.
pub(super) fn peers(subjects: &[Subject<'_>]) -> String {
    let mut rows = String::new();
    let benches = subjects.iter().flat_map(|subject| subject.benches().map(move |bench| (subject, bench)));
    for (subject, bench) in benches {
        for peer in &bench.peers {
            let subject =
                [cell("workload", &escaped(subject.workload)), cell("case", &escaped(&bench.case))].concat();
            let _ = write!(rows, "<tr>{subject}{}</tr>", peer_cells(peer));
        }
    }
    let header = ["workload", "case", "peer", "its time", "candidate over peer", "verdict"];
    let body = if rows.is_empty() { absent("no peer") } else { table("Peers", &header, &rows) };
    section("peers", "Peers", &body)
}

fn peer_cells(peer: &PeerRecord) -> String {
    match peer {
        PeerRecord::NotMeasured { peer, why } => [
            cell("peer", &escaped(peer)),
            cell("its time", &format!("{} {}", chip("mute", "not measured"), escaped(why))),
            cell("candidate over peer", ""),
            cell("verdict", ""),
        ]
        .concat(),
        PeerRecord::Measured { peer, versions, operation, summary, ratio: found, verdict, .. } => {
            let versions: Vec<String> =
                versions.iter().map(|(what, version)| format!("{what} {version}")).collect();
            let name = format!("{peer} {operation} ({})", versions.join(", "));
            [
                cell("peer", &escaped(&name)),
                number("its time", &time(summary.median_ns)),
                cell("candidate over peer", &ratio(*found)),
                cell("verdict", &verdict_chip(*verdict)),
            ]
            .concat()
        }
    }
}

/// Timelines of private requests.
pub(super) fn requests(records: &[Record]) -> String {
    let (mut figures, mut tables) = (String::new(), String::new());
    for timeline in timeline::timelines(records) {
        figures += &figure(&timeline.heading, &request_notes(&timeline), &timeline.draw());
        let _ = write!(
            tables,
            "<details><summary>Figures of {}</summary>{}</details>",
            escaped(&timeline.heading),
            request_table(&timeline)
        );
    }
    let body = if figures.is_empty() {
        absent("no timeline of a private request")
    } else {
        let how = "Where a client's time goes, with the parts of the model one after the other. Evaluation is computing \
                   or queueing gates and opening messages. Keys ahead is making keys ready for the next round. Device is \
                   the time until a message is computed and on the host, network is handing it over, and waiting is for \
                   the other party. A bar begins where its part begins and is as long as all that it stands for in that \
                   part: the order inside a part is not shown. A narrow layer has its number alone; the tables beneath \
                   name every part. Each figure is a median over requests, so that figures need not add up."
            .to_owned();
        format!("{}{}{tables}", list(&[how]), cards(&figures))
    };
    section("requests", "Private requests", &body)
}

fn request_notes(timeline: &Timeline<'_>) -> [String; 2] {
    let whole = format!("{}; record <code>{}</code>.", escaped(&timeline.note), timeline.record.id());
    let lanes: Vec<String> = LANES
        .iter()
        .enumerate()
        .map(|(index, lane)| format!("{} {}", lane.name, milliseconds(timeline.in_lane(index))))
        .collect();
    let parts = format!(
        "The parts took {}: {}. Before and after them: {}.",
        milliseconds(timeline.in_parts()),
        lanes.join(", "),
        milliseconds(timeline.outside_parts())
    );
    [whole, parts]
}

/// What a timeline draws, in numbers.
fn request_table(timeline: &Timeline<'_>) -> String {
    let row = |name: &str, ms: f64, lanes: [f64; LANES.len()]| {
        let lanes = LANES.iter().zip(lanes).map(|(lane, ms)| number(lane.name, &milliseconds(ms)));
        let cells: String = [cell("part", &escaped(name)), number("time", &milliseconds(ms))]
            .into_iter()
            .chain(lanes)
            .collect();
        format!("<tr>{cells}</tr>")
    };
    let mut rows: String = timeline.parts.iter().map(|part| row(part.name, part.ms, part.lanes)).collect();
    rows += &row("together", timeline.in_parts(), std::array::from_fn(|lane| timeline.in_lane(lane)));
    let header: Vec<&str> = ["part", "time"].into_iter().chain(LANES.iter().map(|lane| lane.name)).collect();
    table(&timeline.heading, &header, &rows)
}

/// Losses of training runs.
pub(super) fn training(groups: &[TrainingRuns]) -> String {
    let mut figures = String::new();
    for group in groups {
        let heading = format!("Training loss: {}", group.name);
        let note =
            format!("{} runs: the median, and the band that holds four fifths of them", group.runs.len());
        figures += &group.draw().map_or_else(String::new, |drawing| figure(&heading, &[note], &drawing));
    }
    let body = if figures.is_empty() {
        r#"<p class="note">No training runs lie beside these records.</p>"#.to_owned()
    } else {
        cards(&figures)
    };
    section("training", "Training", &body)
}

/// Searches for faster configurations.
pub(super) fn tuning(subjects: &[Subject<'_>]) -> String {
    let mut figures = String::new();
    for (record, tuning) in subjects.iter().filter_map(|subject| subject.tuning) {
        let mut notes = vec![escaped(&conclusion(tuning))];
        notes.extend(tuning.elite.iter().enumerate().map(|(place, member)| {
            let digits: String = member.identity.as_deref().unwrap_or("").chars().take(8).collect();
            let configuration = escaped(&member.configuration.to_string());
            format!("{}. {configuration}: {:.4} <code>{}</code>", place + 1, member.ratio, escaped(&digits))
        }));
        let heading = format!("{} on {}, {} trials", record.workload, device_of(record), tuning.trials.len());
        figures += &figure(&heading, &notes, &charts::search(tuning).unwrap_or_default());
    }
    let body = if figures.is_empty() { absent("no search") } else { cards(&figures) };
    section("tuning", "Tuning", &body)
}

fn conclusion(tuning: &TuningRecord) -> String {
    let cases = |held_out: &[HeldOut]| -> String {
        held_out
            .iter()
            .map(|case| format!("; {} never seen: {} {}", case.case, ratio(case.ratio), case.verdict))
            .collect()
    };
    match &tuning.conclusion {
        Conclusion::WinnerBeatsDefault { held_out } => {
            format!("{} beats the default {}{}", tuning.best(), tuning.default, cases(held_out))
        }
        Conclusion::DefaultStays { why, held_out } => {
            format!("the default {} stays: {why}{}", tuning.default, cases(held_out))
        }
    }
}

/// What the profiler saw.
pub(super) fn profiles(subjects: &[Subject<'_>]) -> String {
    let mut figures = String::new();
    for (record, profile) in subjects.iter().filter_map(|subject| subject.profile) {
        for launch in &profile.launches {
            let heading =
                format!("{} {}: {} is {}", record.workload, profile.case, launch.kernel, launch.bound_by);
            let notes = [escaped(&launch.advice), escaped(&profile.tool)];
            figures += &figure(&heading, &notes, &charts::utilisation(launch));
        }
    }
    let body = if figures.is_empty() { absent("no profile") } else { cards(&figures) };
    section("profile", "Profile", &body)
}

fn named(record: &Record, freshness: &dyn Fn(&Record) -> Freshness) -> String {
    let name = escaped(&record.workload);
    match freshness(record) {
        Freshness::Current => name,
        Freshness::Stale { .. } => format!("{name} {}", chip("mute", "stale")),
        Freshness::Unknown => format!("{name} {}", chip("mute", "unknown here")),
    }
}

/// A kernel that is slower than a copy of its bytes, and was promised to be, is no bad news.
fn bench_verdict(bench: &BenchRecord) -> String {
    match (bench.verdict, bench.fulfilment) {
        (Verdict::Slower, Some(Fulfilment::Met)) => chip("mute", &bench.verdict.to_string()),
        (verdict, _) => verdict_chip(verdict),
    }
}

fn verdict_chip(verdict: Verdict) -> String {
    let class = match verdict {
        Verdict::Faster => "good",
        Verdict::Same => "",
        Verdict::Slower => "bad",
        Verdict::Ambiguous => "mute",
    };
    chip(class, &verdict.to_string())
}

fn absent(what: &str) -> String {
    format!(r#"<p class="note">These records hold {what}.</p>"#)
}
