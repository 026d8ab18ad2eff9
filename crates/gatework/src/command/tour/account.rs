//! What a tour tells: of each engine a few lines, and of every stop its own.

use std::time::Duration;

use gatework_lab::Outcome;
use serde::Serialize;

use crate::command::ending::Ending;
use crate::command::noun::Seen;
use crate::command::output::{Reasons, table, word};
use crate::command::schema;

#[derive(Serialize)]
pub(super) struct Tour {
    /// The device of the kernels.
    pub(super) device: Option<String>,
    pub(super) engines: Vec<Account>,
    /// One engine's after the other's.
    pub(super) stops: Vec<Visited>,
}

impl schema::Document for Tour {
    const SCHEMA: schema::Schema = schema::TOUR;
}

/// What was shown of one engine.
#[derive(Serialize)]
pub(super) struct Account {
    pub(super) engine: String,
    /// What it does for a user.
    pub(super) purpose: String,
    /// A sentence each: what was shown, and how it was checked.
    pub(super) shown: Vec<String>,
    pub(super) stops: usize,
    pub(super) passed: usize,
    pub(super) seconds: f64,
    #[serde(flatten)]
    pub(super) outcome: Outcome,
}

/// A stop where the tour has been.
#[derive(Serialize)]
pub(super) struct Visited {
    pub(super) engine: String,
    pub(super) name: String,
    pub(super) summary: String,
    pub(super) case: String,
    #[serde(flatten)]
    pub(super) outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) finding: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) controls_refused: Option<usize>,
    pub(super) seconds: f64,
}

impl Visited {
    pub(super) fn new(engine: &str, name: String, summary: String, seen: Seen, took: Duration) -> Self {
        let Seen { case, outcome, finding, controls_refused } = seen;
        let (engine, seconds) = (engine.to_owned(), took.as_secs_f64());
        Self { engine, name, summary, case, outcome, finding, controls_refused, seconds }
    }
}

impl Account {
    pub(super) fn of(engine: &str, purpose: &str, device: Option<&str>, stops: &[Visited]) -> Self {
        let (kernels, jobs): (Vec<_>, Vec<_>) =
            stops.iter().partition(|stop| stop.controls_refused.is_some());
        let mut shown: Vec<String> = jobs.iter().filter_map(|stop| stop.finding.clone()).collect();
        shown.extend(kernels_shown(&kernels, device));
        Self {
            engine: engine.to_owned(),
            purpose: purpose.to_owned(),
            shown,
            stops: stops.len(),
            passed: stops.iter().filter(|stop| stop.outcome.is_passed()).count(),
            seconds: stops.iter().map(|stop| stop.seconds).sum(),
            outcome: together(stops),
        }
    }

    /// What is printed as soon as the engine is done.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> =
            self.shown.iter().map(|shown| format!("{}: {shown}", self.engine)).collect();
        if !self.outcome.is_passed() || lines.is_empty() {
            lines.push(format!("{}: {}", self.engine, self.outcome));
        }
        lines
    }
}

/// What the kernels of an engine showed, in one sentence; nothing if none passed.
fn kernels_shown(kernels: &[&Visited], device: Option<&str>) -> Option<String> {
    let passed: Vec<_> = kernels.iter().filter(|stop| stop.outcome.is_passed()).collect();
    let refused: usize = passed.iter().filter_map(|stop| stop.controls_refused).sum();
    let device = device.and_then(|device| device.split(' ').next()).unwrap_or("no device");
    (!passed.is_empty()).then(|| {
        format!(
            "{} of {} kernel workloads on {device} equal their CPU references, and {refused} results made wrong on \
             purpose are refused",
            passed.len(),
            kernels.len()
        )
    })
}

/// Failed by the first stop that did, passed if anything ran, else not run.
fn together(stops: &[Visited]) -> Outcome {
    let named = |stop: &Visited, why: &str| format!("{}: {why}", stop.name);
    let failed = stops.iter().find_map(|stop| match &stop.outcome {
        Outcome::Failed { why } => Some(Outcome::Failed { why: named(stop, why) }),
        _ => None,
    });
    let ran = stops.iter().any(|stop| stop.outcome.is_passed());
    failed.unwrap_or_else(|| match stops.first().map(|stop| &stop.outcome) {
        Some(Outcome::NotRun { why }) if !ran => Outcome::NotRun { why: why.clone() },
        _ => Outcome::Passed,
    })
}

impl Tour {
    /// A tour that could go nowhere is not done.
    pub(super) fn ending(&self) -> Ending {
        if self.stops.iter().any(|stop| stop.outcome.is_failed()) {
            Ending::GateFailed
        } else if self.stops.iter().any(|stop| stop.outcome.is_passed()) {
            Ending::Done
        } else {
            Ending::DeviceFailed
        }
    }

    /// `71 of 71 stops passed in 40.1 s, kernels on emulated (…)`.
    pub(super) fn total(&self) -> String {
        let passed = self.stops.iter().filter(|stop| stop.outcome.is_passed()).count();
        let seconds: f64 = self.stops.iter().map(|stop| stop.seconds).sum();
        let on = self.device.as_ref().map_or_else(String::new, |device| format!(", kernels on {device}"));
        format!("{passed} of {} stops passed in {seconds:.1} s{on}", self.stops.len())
    }

    /// What is printed below the lines of the engines.
    pub(super) fn text(&self, verbose: bool, first_commands: &[&str]) -> String {
        let mut text = String::new();
        if verbose {
            text += &format!("\n{}\n", self.every_stop());
        }
        let mut rows = table(["engine", "with it you can", "stops passed", "seconds", "result"]);
        for account in &self.engines {
            let stops = format!("{} of {}", account.passed, account.stops);
            let (seconds, result) = (format!("{:.1}", account.seconds), word(&account.outcome));
            rows.add_row([&account.engine, &account.purpose, &stops, &seconds, result]);
        }
        let mut reasons = Reasons::default();
        for stop in self.stops.iter().filter(|stop| !stop.outcome.is_passed()) {
            reasons.add(stop.outcome.to_string(), &stop.name);
        }
        text += &format!("\n{rows}\n\n{reasons}{}\n", self.total());
        if !verbose {
            text += "every stop: gatework tour --verbose; as a page: gatework tour --report tour.html\n";
        }
        if !first_commands.is_empty() {
            text += &format!("\nGo on with:\n  {}\n", first_commands.join("\n  "));
        }
        text
    }

    fn every_stop(&self) -> String {
        let mut rows = table(["engine", "stop", "what it computes", "case", "result", "seconds"]);
        for of_engine in self.stops.chunk_by(|left, right| left.engine == right.engine) {
            for (place, stop) in of_engine.iter().enumerate() {
                let engine = if place == 0 { stop.engine.as_str() } else { "" };
                let seconds = format!("{:.2}", stop.seconds);
                rows.add_row([engine, &stop.name, &stop.summary, &stop.case, word(&stop.outcome), &seconds]);
            }
        }
        rows.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stop(engine: &str, outcome: Outcome, controls_refused: Option<usize>) -> Visited {
        let finding = outcome.is_passed().then(|| "equal to double precision within 1e-7".to_owned());
        let seen = Seen { case: "a case".into(), outcome, finding, controls_refused };
        Visited::new(engine, format!("{engine}/a"), "a sum".into(), seen, Duration::from_millis(500))
    }

    fn failed() -> Outcome {
        Outcome::Failed { why: "off by one".into() }
    }

    fn not_run() -> Outcome {
        Outcome::NotRun { why: "no device".into() }
    }

    fn tour(stops: Vec<Visited>) -> Tour {
        let of_engine = stops.chunk_by(|left, right| left.engine == right.engine);
        let engines =
            of_engine.map(|stops| Account::of(&stops[0].engine, "do sums", Some("emulated (it)"), stops));
        Tour { device: Some("emulated (it)".into()), engines: engines.collect(), stops }
    }

    #[test]
    fn a_tour_that_could_go_nowhere_is_not_done() {
        let ending = |outcomes: &[Outcome]| {
            let stops = outcomes.iter().cloned().map(|outcome| stop("a", outcome, Some(0)));
            tour(stops.collect()).ending()
        };
        assert_eq!(ending(&[not_run()]), Ending::DeviceFailed);
        assert_eq!(ending(&[not_run(), Outcome::Passed]), Ending::Done);
        assert_eq!(ending(&[not_run(), Outcome::Passed, failed()]), Ending::GateFailed);
    }

    #[test]
    fn an_engine_tells_what_it_showed_and_how_many_kernels_passed() {
        let stops = [
            stop("stark", Outcome::Passed, None),
            stop("stark", Outcome::Passed, Some(3)),
            stop("stark", Outcome::Passed, Some(4)),
        ];
        let told = Account::of("stark", "prove", Some("emulated (it)"), &stops);
        let kernels = "stark: 2 of 2 kernel workloads on emulated equal their CPU references, and 7 results made wrong \
                       on purpose are refused";
        assert_eq!(told.lines(), ["stark: equal to double precision within 1e-7", kernels]);
    }

    #[test]
    fn a_stop_that_fails_is_named_with_its_reason() {
        let tour = tour(vec![stop("lab", Outcome::Passed, Some(1)), stop("stark", failed(), None)]);
        assert_eq!(tour.engines[1].lines(), ["stark: failed: stark/a: off by one"]);
        let text = tour.text(false, &["gatework stark prove"]);
        assert!(text.contains("stark/a: failed: off by one"), "{text}");
        assert!(text.contains("1 of 2 stops passed in 1.0 s, kernels on emulated (it)"), "{text}");
        assert!(
            text.ends_with("Go on with:\n  gatework stark prove\n") && !text.contains("a case"),
            "{text}"
        );
        assert!(tour.text(true, &[]).contains("a case"));
    }

    #[test]
    fn an_engine_without_a_device_for_its_kernels_is_not_called_failed() {
        let tour = tour(vec![
            stop("lab", not_run(), Some(0)),
            stop("stark", Outcome::Passed, None),
            stop("stark", not_run(), Some(0)),
        ]);
        assert_eq!(tour.engines[0].lines(), ["lab: not run: no device"]);
        assert!(tour.engines[1].outcome.is_passed() && tour.engines[1].lines().len() == 1);
        assert!(tour.text(false, &[]).contains("lab/a, stark/a: not run: no device"));
    }
}
