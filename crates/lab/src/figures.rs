//! Figures in documents: every one names the record it comes from.
//!
//! A figure is a number with a unit in a table, or a cell of a table that is nothing but a number. Its row,
//! or a line that begins with `Records:` right below the table, links to the record as
//! `results/<file>.jsonl#<id>`. A table of something else than measurements says so in a line above it: `<!--
//! not measured: … -->`.

use serde::Serialize;

use crate::record::ID_DIGITS;

/// Units that make a number a measurement.
const UNITS: [&str; 21] = [
    "ns", "µs", "us", "ms", "s", "KB/s", "MB/s", "GB/s", "TB/s", "MiB/s", "GiB/s", "TiB/s", "GFLOP/s",
    "TFLOP/s", "TFLOPS", "GOP/s", "TOP/s", "MHz", "%", "×", "x",
];

/// What the line above a table says if its numbers were not measured.
const NOT_MEASURED: &str = "<!-- not measured:";
/// How the line below a table begins that names its records.
const RECORDS: &str = "Records:";

/// Something in a document that no record stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DocumentProblem {
    /// The line, from 1.
    pub line: usize,
    /// The complaint, as a sentence.
    pub what: String,
}

/// Checks a Markdown text. `refusal` says what is wrong with the record of an id, if anything is.
pub fn check_document(text: &str, refusal: &dyn Fn(&str) -> Option<String>) -> Vec<DocumentProblem> {
    let lines = without_code(text);
    let mut problems = Vec::new();
    for table in tables(&lines) {
        if !table.is_excused(&lines) {
            problems.extend(table.unnamed_figures(&lines));
        }
    }
    for (index, line) in lines.iter().enumerate() {
        for id in references(line) {
            problems.extend(refusal(id).map(|why| DocumentProblem {
                line: index + 1,
                what: format!("it names the record {id}, but {why}"),
            }));
        }
    }
    problems.sort_by_key(|problem| problem.line);
    problems
}

/// Lines `from..to` of a document, all of them rows.
struct Table {
    from: usize,
    to: usize,
}

fn tables(lines: &[String]) -> Vec<Table> {
    let is_row = |index: usize| lines[index].trim_start().starts_with('|');
    let mut tables = Vec::new();
    let mut from = 0;
    while from < lines.len() {
        if !is_row(from) {
            from += 1;
            continue;
        }
        let to = (from..lines.len()).find(|&index| !is_row(index)).unwrap_or(lines.len());
        tables.push(Table { from, to });
        from = to;
    }
    tables
}

impl Table {
    fn is_excused(&self, lines: &[String]) -> bool {
        let above = lines[..self.from].iter().rev().find(|line| !line.trim().is_empty());
        let below = lines[self.to..].iter().find(|line| !line.trim().is_empty());
        above.is_some_and(|line| line.trim_start().starts_with(NOT_MEASURED))
            || below.is_some_and(|line| {
                line.trim_start().starts_with(RECORDS) && references(line).next().is_some()
            })
    }

    fn unnamed_figures(&self, lines: &[String]) -> Vec<DocumentProblem> {
        let unnamed = |index: usize| {
            let row = &lines[index];
            let figure =
                figure(row).or_else(|| bare_number(row)).filter(|_| references(row).next().is_none())?;
            Some(DocumentProblem { line: index + 1, what: format!("the figure '{figure}' names no record") })
        };
        (self.from..self.to).filter_map(unnamed).collect()
    }
}

/// The lines with code blanked out: what stands there is to be typed, not to be believed.
fn without_code(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        lines.push(if fenced || fence { String::new() } else { without_code_spans(line) });
    }
    lines
}

fn without_code_spans(line: &str) -> String {
    line.split('`')
        .enumerate()
        .filter(|(index, _)| index % 2 == 0)
        .map(|(_, part)| part)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The first number with a unit.
fn figure(row: &str) -> Option<&str> {
    let mut rest = row;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let before = rest[..start].chars().next_back();
        let length = rest[start..].find(|c: char| !(c.is_ascii_digit() || ".,".contains(c)));
        let end = length.map_or(rest.len(), |length| start + length);
        let is_number = before.is_none_or(|c| !(c.is_alphanumeric() || "_/#".contains(c)));
        if let Some(unit) = unit_at(&rest[end..]).filter(|_| is_number) {
            return Some(&rest[start..end + unit]);
        }
        rest = &rest[end..];
    }
    None
}

/// A cell that is a number and nothing else: what it counts stands in the header, and it is as much of a
/// figure.
fn bare_number(row: &str) -> Option<&str> {
    row.split('|').map(str::trim).find(|cell| {
        cell.contains(|c: char| c.is_ascii_digit())
            && cell.chars().all(|c| c.is_ascii_digit() || ".,".contains(c))
    })
}

/// The length of a space and a unit at the beginning of `text`.
fn unit_at(text: &str) -> Option<usize> {
    let trimmed = text.trim_start_matches([' ', '\u{a0}', '\u{202f}']);
    let space = text.len() - trimmed.len();
    let ends =
        |unit: &str| trimmed[unit.len()..].chars().next().is_none_or(|c| !(c.is_alphanumeric() || c == '/'));
    let unit = UNITS.iter().find(|unit| trimmed.starts_with(**unit) && ends(unit))?;
    // "2 x 3" is a shape; only "2x" and "2×" are ratios.
    (!(matches!(*unit, "x" | "×") && space > 0)).then_some(space + unit.len())
}

/// The ids of the records that a line links to.
fn references(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices(".jsonl#").filter_map(|(at, marker)| {
        let id = line.get(at + marker.len()..at + marker.len() + ID_DIGITS)?;
        id.chars().all(|c| c.is_ascii_hexdigit()).then_some(id)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let refusal = |id: &str| (id == "dead00000000").then(|| "there is no such record".to_owned());
        check_document(text, &refusal)
            .into_iter()
            .map(|found| format!("{}: {}", found.line, found.what))
            .collect()
    }

    const TABLE: &str = "| kernel | time |\n|---|---|\n| saxpy | 1.25 ms |\n";

    #[test]
    fn a_figure_names_its_record_in_its_row_or_below_its_table() {
        assert_eq!(problems(TABLE), ["3: the figure '1.25 ms' names no record"]);
        let in_row = "| saxpy | 1.25 ms [r](results/nvidia-h200.jsonl#0123456789ab) |\n";
        assert_eq!(problems(in_row), [""; 0]);
        let below = format!("{TABLE}\nRecords: [saxpy](results/nvidia-h200.jsonl#0123456789ab)\n");
        assert_eq!(problems(&below), [""; 0]);
        assert_eq!(problems(&format!("{TABLE}\nRecords: none\n")).len(), 1);
    }

    #[test]
    fn a_table_of_something_else_says_so() {
        assert_eq!(problems(&format!("<!-- not measured: limits of the format -->\n{TABLE}")), [""; 0]);
    }

    #[test]
    fn a_record_that_is_gone_or_stale_is_no_source() {
        let text = "It takes a while ([record](results/nvidia-h200.jsonl#dead00000000)).\n";
        assert_eq!(problems(text), ["1: it names the record dead00000000, but there is no such record"]);
    }

    #[test]
    fn what_is_no_measurement_is_left_alone() {
        let rows = [
            "| sm_90a | 128x128 | `--seconds 60 s` | 2 x 3 |",
            "| 64 registers | version 13.0 | 1 GiB |",
            "Prose says 12 ms and is not a table.",
        ];
        assert_eq!(problems(&rows.join("\n")), [""; 0]);
        assert_eq!(problems("```\n| a | 12 ms |\n```\n"), [""; 0]);
    }

    #[test]
    fn a_table_does_not_escape_by_leaving_its_units_out() {
        let rows = "| rows | ours, ms |\n|---|---|\n| 2^14 | 1.19 |\n";
        assert_eq!(problems(rows), ["3: the figure '1.19' names no record"]);
        assert_eq!(problems(&format!("<!-- not measured: exit codes -->\n{rows}")), [""; 0]);
    }

    #[test]
    fn figures_of_every_kind_are_seen() {
        for row in
            ["| 85 % |", "| 2.1× |", "| 1.9x |", "| 4.2 TB/s |", "| 1,024 TFLOP/s |", "| 3 µs |", "| ~7 s |"]
        {
            assert_eq!(problems(row).len(), 1, "{row}");
        }
    }
}
