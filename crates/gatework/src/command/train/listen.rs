//! What a run says while it runs, and at its end.

use gatework_foresight::config::Config;
use gatework_foresight::engine::{Counts, Event};
use gatework_foresight::run::{Evaluated, Listener, Summary};
use gatework_foresight::{Entry, Error, Phase};

use crate::command::output::table;
use crate::command::progress::Progress;

/// Says lines on standard error, above the bar where there is one.
pub(super) struct Lines<'a>(pub(super) &'a Progress);

impl Listener for Lines<'_> {
    fn evaluated(&mut self, evaluated: &Evaluated) {
        self.0.say(&format!(
            "step {}: validation loss {:.4}, averaged {:.4} ({:.2} % right), {:.1} s, {:.0} full-backward equivalents",
            evaluated.step,
            evaluated.trained.loss,
            evaluated.averaged.loss,
            100.0 * evaluated.averaged.accuracy,
            evaluated.seconds,
            evaluated.equivalents
        ));
    }

    fn happened(&mut self, step: u64, event: &Event) {
        if let Some(line) = line_of(step, event) {
            self.0.say(&line);
        }
    }

    fn refused(&mut self, error: &Error) {
        self.0.say(&format!("warning: {error}"));
    }
}

/// What is said of an event, if anything.
pub(super) fn line_of(step: u64, event: &Event) -> Option<String> {
    let line = match event {
        Event::Chosen { .. } => return None,
        Event::Accepted { action, probes: [before, after] } => {
            format!("accepted: {action}; probe loss {before:.4}, then {after:.4}")
        }
        Event::Rejected { action, probes: [before, after] } => {
            format!("rejected and undone: {action}; probe loss {before:.4}, then {after:.4}")
        }
        Event::RolledBack { to, alarm } => {
            format!("rolled back to step {to} at a lower learning rate: {alarm}")
        }
        Event::Warned { alarm } => format!("warning: {alarm}"),
        Event::Stopped => "stopped: nothing is left to gain".to_owned(),
    };
    Some(format!("step {step}: {line}"))
}

/// The ledger and the last evaluation.
pub(super) fn text(summary: &Summary, config: &Config) -> String {
    let mut rows = table(["phase", "steps", "seconds", "full-backward equivalents", "predictor seconds"]);
    let mut row = |name: &str, entry: &Entry| {
        rows.add_row([
            name.to_owned(),
            entry.steps.to_string(),
            format!("{:.2}", entry.seconds),
            format!("{:.1}", entry.equivalents),
            format!("{:.3}", entry.predictor_seconds),
        ]);
    };
    for phase in Phase::ALL {
        row(phase.name(), summary.ledger.of(phase));
    }
    row("all", &summary.ledger.total());
    let end = summary.last().map_or_else(String::new, |last| {
        format!(
            "validation loss {:.4} ({:.2} % right); of averaged weights {:.4} ({:.2} % right)\n",
            last.trained.loss,
            100.0 * last.trained.accuracy,
            last.averaged.loss,
            100.0 * last.averaged.accuracy
        ) + &bits(config, last)
    });
    let early = if summary.ended_early { ", ended early" } else { "" };
    format!("{rows}\n\n{end}{} steps{early}; {}", summary.steps, actions(&summary.counts))
}

/// What a text's losses, in nats a token, are in bits.
fn bits(config: &Config, last: &Evaluated) -> String {
    if !config.data.kind.is_text() {
        return String::new();
    }
    let [trained, averaged] = [last.trained, last.averaged].map(|found| found.loss / std::f64::consts::LN_2);
    format!("held-out text: {trained:.3} bits per token; of averaged weights {averaged:.3}\n")
}

pub(super) fn actions(counts: &Counts) -> String {
    let Counts { freezes, jumps, rollbacks } = counts;
    format!(
        "freezes {} accepted and {} rejected, jumps {} accepted and {} rejected, {rollbacks} rollbacks",
        freezes[0], freezes[1], jumps[0], jumps[1]
    )
}
