//! The tour as a page.

use gatework_lab::report::{Cell, Page, Part};

use super::account::{Account, Tour, Visited};

/// The whole file.
pub(super) fn html(tour: &Tour) -> String {
    let lead = format!(
        "Every engine did one small job on this machine, and every result was checked: {}.",
        tour.total()
    );
    let mut page = Page::new("Gatework tour", &lead).section("Engines", &[engines(&tour.engines)]);
    for account in &tour.engines {
        let of_engine = tour.stops.iter().filter(|stop| stop.engine == account.engine);
        let mut parts: Vec<Part> = account.shown.iter().cloned().map(Part::Text).collect();
        parts.push(stops(&format!("Stops of {}", account.engine), of_engine));
        page = page.section(&account.engine, &parts);
    }
    page.how_to_read(
        "A stop is one small job. An engine's own stop uses it as a program would. A kernel workload runs kernels on random \
         inputs and compares what they give with a plain reference on the CPU; results that were made wrong on purpose must \
         be refused, so that a check that accepts everything is found out. What is not run says why. Seconds on the emulated \
         device say nothing of a GPU.",
    )
    .html()
}

fn engines(accounts: &[Account]) -> Part {
    let row = |account: &Account| {
        vec![
            Cell::Text(account.engine.clone()),
            Cell::Text(account.purpose.clone()),
            Cell::Number(format!("{} of {}", account.passed, account.stops)),
            Cell::Number(format!("{:.1}", account.seconds)),
            Cell::Outcome(account.outcome.clone()),
        ]
    };
    let header = ["engine", "with it you can", "stops passed", "seconds", "result"];
    table("Engines", &header, accounts.iter().map(row).collect())
}

fn stops<'a>(label: &str, stops: impl Iterator<Item = &'a Visited>) -> Part {
    let row = |stop: &Visited| {
        let found = stop.finding.clone().unwrap_or_else(|| stop.outcome.to_string());
        vec![
            Cell::Text(stop.name.clone()),
            Cell::Text(stop.summary.clone()),
            Cell::Text(stop.case.clone()),
            Cell::Text(found),
            Cell::Number(format!("{:.2}", stop.seconds)),
            Cell::Outcome(stop.outcome.clone()),
        ]
    };
    let header = ["stop", "what it computes", "case", "what was found", "seconds", "result"];
    table(label, &header, stops.map(row).collect())
}

fn table(label: &str, header: &[&str], rows: Vec<Vec<Cell>>) -> Part {
    Part::Table(label.to_owned(), header.iter().map(|&name| name.to_owned()).collect(), rows)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gatework_lab::Outcome;

    use super::*;
    use crate::command::noun::Seen;

    #[test]
    fn the_page_has_every_stop_and_nothing_from_outside() {
        let seen =
            |outcome: Outcome| Seen { case: "<n>".into(), outcome, finding: None, controls_refused: Some(0) };
        let stop = |name: &str, outcome| {
            Visited::new("stark", name.into(), "a sum".into(), seen(outcome), Duration::from_secs(1))
        };
        let failed = Outcome::Failed { why: "off by <one>".into() };
        let stops = vec![stop("stark/a", Outcome::Passed), stop("stark/b", failed)];
        let engines = vec![Account::of("stark", "prove", None, &stops)];
        let html = html(&Tour { device: None, engines, stops });
        for part in
            ["stark/a", "stark/b", "off by &lt;one&gt;", "&lt;n&gt;", "prefers-color-scheme: dark", "#stark"]
        {
            assert!(html.contains(part), "{part}");
        }
        for outside in ["http://", "https://", "src=", "<script", "<n>", "<one>"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }
}
