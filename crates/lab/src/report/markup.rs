//! The parts that pages are made of. What is called `content`, `rows` or `body` here is markup already; all
//! else is escaped.

use super::svg::escaped;
use crate::outcome::Outcome;

pub(super) fn outcome_chip(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Passed => chip("good", "passed"),
        Outcome::Failed { .. } => chip("bad", "failed"),
        Outcome::NotRun { .. } => chip("mute", "not run"),
    }
}

pub(super) fn chip(class: &str, text: &str) -> String {
    format!(r#"<span class="chip {class}">{}</span>"#, escaped(text))
}

pub(super) fn cell(label: &str, content: &str) -> String {
    cell_of("text", label, content)
}

pub(super) fn number(label: &str, content: &str) -> String {
    cell_of("number", label, content)
}

/// A cell that carries the name of its column, which a narrow screen shows beside it.
fn cell_of(class: &str, label: &str, content: &str) -> String {
    let class = if content.is_empty() { "none" } else { class };
    format!(r#"<td class="{class}" data-label="{}"><div>{content}</div></td>"#, escaped(label))
}

/// A table in a box of its own, which scrolls where the table is wider than the page: the page itself never
/// does. The box takes the focus, so that the keyboard scrolls it too.
pub(super) fn table(label: &str, header: &[&str], rows: &str) -> String {
    let header: String = header.iter().map(|name| format!("<th>{}</th>", escaped(name))).collect();
    format!(
        r#"<div class="wide" tabindex="0" role="region" aria-label="{}"><table><thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table></div>"#,
        escaped(label)
    )
}

pub(super) fn list(items: &[String]) -> String {
    items.iter().map(|item| format!(r#"<p class="note">{item}</p>"#)).collect()
}

pub(super) fn figure(heading: &str, notes: &[String], drawing: &str) -> String {
    let heading = escaped(heading);
    format!("<figure><figcaption><h3>{heading}</h3>{}</figcaption>{drawing}</figure>", list(notes))
}

/// Figures beside each other, as many as fit.
pub(super) fn cards(figures: &str) -> String {
    format!(r#"<div class="cards">{figures}</div>"#)
}

pub(super) fn section(id: &str, heading: &str, body: &str) -> String {
    format!("<section id=\"{}\"><h2>{}</h2>{body}</section>\n", escaped(id), escaped(heading))
}
