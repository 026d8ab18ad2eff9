//! The page around the sections: its head, its style, and how to read it.

use std::collections::BTreeSet;

use super::markup::{cell, number, outcome_chip, section, table};
use super::subject::Subject;
use super::svg::escaped;
use crate::outcome::Outcome;
use crate::record::timestamp;
use crate::stats::{BETWEEN_RUNS, CONFIDENCE, WITHIN_RUN};

const STYLE: &str = include_str!("style.css");

/// A page in the style of the report: one HTML file with nothing from outside, for a telephone, a wide screen
/// and paper, light or dark as its reader is. All texts are escaped.
#[derive(Debug, Clone)]
pub struct Page {
    title: String,
    lead: String,
    /// Id, heading and markup.
    sections: Vec<(String, String, String)>,
    footer: String,
}

/// A part of a section of a [`Page`].
#[derive(Debug, Clone)]
pub enum Part {
    /// A paragraph.
    Text(String),
    /// A table: what it shows, its header and its rows. On a telephone every row becomes a card.
    Table(String, Vec<String>, Vec<Vec<Cell>>),
}

/// A cell of a table of a [`Page`].
#[derive(Debug, Clone)]
pub enum Cell {
    /// Words, which may be broken over lines.
    Text(String),
    /// A figure, which is not broken.
    Number(String),
    /// Passed, failed or not run.
    Outcome(Outcome),
}

impl Page {
    /// A page with a title and a paragraph below it.
    pub fn new(title: &str, lead: &str) -> Self {
        let lead = format!("<p>{}</p>", escaped(lead));
        Self { title: title.to_owned(), lead, sections: Vec::new(), footer: String::new() }
    }

    /// With another section at the end.
    pub fn section(mut self, heading: &str, parts: &[Part]) -> Self {
        let id: String = heading.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let body = parts.iter().map(Part::markup).collect();
        self.sections.push((id.to_lowercase(), heading.to_owned(), body));
        self
    }

    /// With a paragraph on how to read it, below everything.
    pub fn how_to_read(self, text: &str) -> Self {
        Self { footer: format!("<p>{}</p>", escaped(text)), ..self }
    }

    /// The whole file.
    pub fn html(&self) -> String {
        let links: Vec<(&str, &str)> =
            self.sections.iter().map(|(id, heading, _)| (id.as_str(), heading.as_str())).collect();
        let sections: String =
            self.sections.iter().map(|(id, heading, body)| section(id, heading, body)).collect();
        framed(&self.title, &self.lead, &links, &sections, &self.footer)
    }
}

impl Part {
    fn markup(&self) -> String {
        match self {
            Self::Text(text) => format!("<p>{}</p>", escaped(text)),
            Self::Table(label, header, rows) => {
                let header: Vec<&str> = header.iter().map(String::as_str).collect();
                let row = |cells: &Vec<Cell>| -> String {
                    cells.iter().zip(&header).map(|(cell, label)| cell.markup(label)).collect()
                };
                let rows: String = rows.iter().map(|cells| format!("<tr>{}</tr>", row(cells))).collect();
                table(label, &header, &rows)
            }
        }
    }
}

impl Cell {
    fn markup(&self, label: &str) -> String {
        match self {
            Self::Text(text) => cell(label, &escaped(text)),
            Self::Number(text) => number(label, &escaped(text)),
            Self::Outcome(outcome) => cell(label, &outcome_chip(outcome)),
        }
    }
}

/// The sections of the report and their links.
const SECTIONS: [(&str, &str); 8] = [
    ("gates", "Gates"),
    ("performance", "Performance"),
    ("floors", "Floor"),
    ("peers", "Peers"),
    ("requests", "Requests"),
    ("training", "Training"),
    ("tuning", "Tuning"),
    ("profile", "Profile"),
];

pub(super) fn document(subjects: &[Subject<'_>], sections: &str) -> String {
    let devices: BTreeSet<&str> = subjects.iter().map(|subject| subject.device.as_str()).collect();
    let devices = devices.into_iter().map(escaped).collect::<Vec<_>>().join(", ");
    let lead = format!("<p>{} workloads on {devices}. Made {}.</p>", subjects.len(), timestamp());
    let (confidence, within, between) = (100.0 * CONFIDENCE, 100.0 * WITHIN_RUN, 100.0 * BETWEEN_RUNS);
    let footer = format!(
        "<p>Candidate and baseline are timed in pairs, in random order, in one process. The ratio is the median over pairs, with
the interval that holds it at {confidence:.0} % confidence whatever the noise. FASTER and SLOWER: the whole interval is
more than {within:.0} % from 1 ({between:.0} % between two runs). SAME: all of it is within. AMBIGUOUS: it crosses the edge.
A baseline may be a bound, such as a copy of the same bytes; the promise says how near to it a kernel must be.
The floor is the larger of the bytes at the speed of a device-to-device copy in the same run and the operations at the
stated peak. Thin marks in a distribution are p90 and p99. A stale record is of code that has changed since.</p>"
    );
    framed("Gatework lab report", &lead, &SECTIONS, sections, &footer)
}

/// Everything but the sections; `lead`, `sections` and `footer` are markup.
fn framed(title: &str, lead: &str, links: &[(&str, &str)], sections: &str, footer: &str) -> String {
    let title = escaped(title);
    let links: String = links
        .iter()
        .map(|(id, name)| format!("<a href=\"#{}\">{}</a>\n", escaped(id), escaped(name)))
        .collect();
    let footer = if footer.is_empty() {
        String::new()
    } else {
        format!("<footer>\n<h2>How to read it</h2>\n{footer}\n</footer>")
    };
    format!(
        r##"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>{title}</h1>
{lead}
<nav>{links}</nav>
</header>
<main>
{sections}
</main>
{footer}
</body>
</html>
"##
    )
}
