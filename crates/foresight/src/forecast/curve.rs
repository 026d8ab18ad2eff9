//! Loss curves, ours or not.

use std::path::Path;

use serde_json::Value;

use crate::error::{Error, Result};

/// A loss curve: steps that grow, a loss at each, and perhaps the learning rate.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    steps: Vec<f64>,
    losses: Vec<f64>,
    rates: Option<Vec<f64>>,
}

/// A curve with what had to be left out of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The curve.
    pub curve: Curve,
    /// The column that the losses are of.
    pub column: String,
    /// Lines without a loss that is a number above zero.
    pub skipped: usize,
}

/// Points below which nothing can be said.
const LEAST: usize = 8;
const STEP_NAMES: [&str; 8] = ["step", "steps", "iteration", "iter", "global_step", "_step", "epoch", "t"];
const RATE_NAMES: [&str; 4] = ["rate", "lr", "learning_rate", "learning-rate"];
const LOSS_NAMES: [&str; 7] =
    ["loss", "train_loss", "training_loss", "train/loss", "validation", "val_loss", "valid_loss"];

impl Curve {
    /// A curve of points in any order; of two with the same step the later counts.
    pub fn new(points: impl IntoIterator<Item = (f64, f64, Option<f64>)>) -> Result<Self> {
        let mut points: Vec<(f64, f64, Option<f64>)> = points.into_iter().collect();
        if let Some(bad) =
            points.iter().find(|(step, loss, _)| !(step.is_finite() && loss.is_finite() && *loss > 0.0))
        {
            return Err(Error::curve(format!(
                "the loss at step {} is {}: losses are numbers above 0",
                bad.0, bad.1
            )));
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points.reverse();
        points.dedup_by(|later, earlier| later.0 == earlier.0);
        points.reverse();
        if points.len() < LEAST {
            return Err(Error::curve(format!(
                "it has {} points, and at least {LEAST} are needed to tell a trend from noise",
                points.len()
            )));
        }
        let rates =
            points.iter().map(|point| point.2.filter(|rate| rate.is_finite() && *rate >= 0.0)).collect();
        Ok(Self {
            steps: points.iter().map(|point| point.0).collect(),
            losses: points.iter().map(|point| point.1).collect(),
            rates,
        })
    }

    /// Its steps.
    pub fn steps(&self) -> &[f64] {
        &self.steps
    }

    /// Its losses.
    pub fn losses(&self) -> &[f64] {
        &self.losses
    }

    /// Its learning rates, where all points have one.
    pub fn rates(&self) -> Option<&[f64]> {
        self.rates.as_deref()
    }

    /// Its steps with their rates; nothing where it has none.
    pub fn points_with_rates(&self) -> Vec<(f64, f64)> {
        self.steps.iter().copied().zip(self.rates.iter().flatten().copied()).collect()
    }

    /// The same curve with its rates forgotten: where those to come are not known, those that were mislead.
    pub fn without_rates(self) -> Self {
        Self { rates: None, ..self }
    }

    /// The last step.
    pub fn last_step(&self) -> f64 {
        self.steps.last().copied().unwrap_or(0.0)
    }

    /// The mean loss of the last `share` of its points, of two at least: what a curve's noise leaves of its
    /// end.
    pub fn end(&self, share: f64) -> f64 {
        let count = ((self.losses.len() as f64 * share) as usize).clamp(2, self.losses.len());
        self.losses[self.losses.len() - count..].iter().sum::<f64>() / count as f64
    }

    /// The part of the curve up to a step.
    pub fn until(&self, step: f64) -> Result<Self> {
        let count = self.steps.partition_point(|here| *here <= step);
        let rates = self.rates.as_ref().map(|rates| rates[..count].to_vec());
        let points = self.steps[..count].iter().zip(&self.losses[..count]).enumerate();
        Self::new(points.map(|(i, (&step, &loss))| (step, loss, rates.as_ref().map(|rates| rates[i]))))
    }

    /// At most `count` points, each the mean of its stretch. Fits of long curves cost no more than those of
    /// short ones.
    pub fn thinned(&self, count: usize) -> Self {
        let n = self.steps.len();
        if n <= count {
            return self.clone();
        }
        let mean = |values: &[f64]| -> Vec<f64> {
            (0..count)
                .map(|i| {
                    let part = &values[i * n / count..(i + 1) * n / count];
                    part.iter().sum::<f64>() / part.len() as f64
                })
                .collect()
        };
        Self { steps: mean(&self.steps), losses: mean(&self.losses), rates: self.rates.as_deref().map(mean) }
    }

    /// Reads a file: JSON lines if its first line is an object, else CSV with a header, else one loss a line.
    /// `column` is the name of the losses, where they have none of the usual names.
    pub fn read(path: &Path, column: Option<&str>) -> Result<Reading> {
        let text = std::fs::read_to_string(path).map_err(Error::reading(path))?;
        Self::parse(&text, column)
    }

    /// As [`Curve::read`], from text.
    pub fn parse(text: &str, column: Option<&str>) -> Result<Reading> {
        // Spreadsheets put a mark before the first name, which is then another name.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let Some(first) = lines.first() else { return Err(Error::curve("the file is empty")) };
        if first.starts_with('{') {
            return json_lines(&lines, column);
        }
        let header = cells(first);
        if header.iter().all(|cell| cell.parse::<f64>().is_ok()) {
            return numbers(&lines, header.len());
        }
        let at = |names: &[&str]| {
            names.iter().find_map(|name| header.iter().position(|cell| cell.eq_ignore_ascii_case(name)))
        };
        let loss = match column {
            Some(column) => header.iter().position(|cell| cell == column),
            None => at(&LOSS_NAMES),
        };
        let Some(loss) = loss else { return Err(no_losses(column, &header.join(", "))) };
        let (step, rate) = (at(&STEP_NAMES), at(&RATE_NAMES));
        let rows = lines[1..].iter().enumerate().map(|(line, text)| {
            let cells = cells(text);
            let number = |at: usize| cells.get(at).and_then(|cell| cell.parse::<f64>().ok());
            let here = step.map_or(Some(line as f64), number);
            (here, number(loss), rate.and_then(number))
        });
        collect(rows, &header[loss])
    }
}

/// The cells of a line of CSV. What stands in quotes may hold commas, and quotes if they are doubled.
fn cells(line: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut quoted = false;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let cell = found.last_mut();
        match (character, quoted, cell) {
            ('"', true, Some(cell)) if characters.next_if_eq(&'"').is_some() => cell.push('"'),
            ('"', _, _) => quoted = !quoted,
            (',', false, _) => found.push(String::new()),
            (character, _, Some(cell)) => cell.push(character),
            (_, _, None) => {}
        }
    }
    found.iter().map(|cell| cell.trim().to_owned()).collect()
}

fn no_losses(column: Option<&str>, found: &str) -> Error {
    Error::curve(match column {
        Some(column) => format!("there is no column '{column}' but {found}"),
        None => format!("no column is called {}: name one of {found} with --column", LOSS_NAMES.join(", ")),
    })
}

fn json_lines(lines: &[&str], column: Option<&str>) -> Result<Reading> {
    let objects: Vec<Value> = lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let keys: Vec<String> = objects
        .iter()
        .filter_map(Value::as_object)
        .flat_map(|object| object.keys().cloned())
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect();
    let name = match column {
        Some(column) => keys.iter().find(|key| *key == column),
        None => LOSS_NAMES.iter().find_map(|name| keys.iter().find(|key| key.eq_ignore_ascii_case(name))),
    };
    let Some(name) = name else { return Err(no_losses(column, &keys.join(", "))) };
    let number = |object: &Value, names: &[&str]| names.iter().find_map(|name| object.get(name)?.as_f64());
    // Lines without a loss are events of other kinds, and are not counted as skipped.
    let with_loss = objects.iter().enumerate().filter(|(_, object)| object.get(name).is_some());
    let rows = with_loss.map(|(line, object)| {
        let step = number(object, &STEP_NAMES).or(Some(line as f64));
        (step, object.get(name).and_then(Value::as_f64), number(object, &RATE_NAMES))
    });
    collect(rows, name)
}

/// Lines of numbers without a header: the last is the loss, and the first of two or more the step.
fn numbers(lines: &[&str], columns: usize) -> Result<Reading> {
    let rows = lines.iter().enumerate().map(|(line, text)| {
        let cells: Vec<Option<f64>> = cells(text).iter().map(|cell| cell.parse().ok()).collect();
        let step = if columns > 1 { cells.first().copied().flatten() } else { Some(line as f64) };
        (step, cells.last().copied().flatten(), None)
    });
    collect(rows, "the last")
}

fn collect(
    rows: impl Iterator<Item = (Option<f64>, Option<f64>, Option<f64>)>,
    column: &str,
) -> Result<Reading> {
    let mut skipped = 0;
    let mut points = Vec::new();
    for (step, loss, rate) in rows {
        match (step, loss) {
            (Some(step), Some(loss)) if step.is_finite() && loss.is_finite() && loss > 0.0 => {
                points.push((step, loss, rate));
            }
            _ => skipped += 1,
        }
    }
    if points.len() < LEAST && skipped > 0 {
        return Err(Error::curve(format!(
            "it has {} points, and at least {LEAST} are needed; {skipped} lines were left out because '{column}' is no number \
             above 0 there",
            points.len()
        )));
    }
    Ok(Reading { curve: Curve::new(points)?, column: column.to_owned(), skipped })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_of_several_kinds_are_read() {
        let json: String =
            (0..10).map(|i| format!("{{\"step\":{i},\"loss\":{},\"lr\":0.1}}\n", 10 - i)).collect();
        let reading = Curve::parse(&(json + "{\"event\":\"x\"}\n"), None).unwrap();
        assert_eq!((reading.curve.losses()[3], reading.skipped), (7.0, 0));
        assert_eq!(reading.curve.rates().unwrap()[0], 0.1);
        let csv: String = (0..10)
            .map(|i| format!("{},{}\n", i * 5, if i == 4 { "nan".into() } else { "2.5".to_owned() }))
            .collect();
        let reading = Curve::parse(&("iter,val_loss\n".to_owned() + &csv), None).unwrap();
        assert_eq!(
            (reading.curve.last_step(), reading.skipped, reading.column.as_str()),
            (45.0, 1, "val_loss")
        );
        assert!(reading.curve.rates().is_none());
        let quoted: String = (0..9).map(|i| format!("\"run \"\"a, b\"\"\",\"{i}\",\"0.5\"\n")).collect();
        let reading = Curve::parse(&("\"name\",\"Step\",\"loss\"\n".to_owned() + &quoted), None).unwrap();
        assert_eq!((reading.curve.last_step(), reading.curve.losses()[8], reading.skipped), (8.0, 0.5, 0));
        let reading =
            Curve::parse(&(0..9).map(|i| format!("{}\n", 1.0 / f64::from(i + 1))).collect::<String>(), None)
                .unwrap();
        assert_eq!(reading.curve.steps().len(), 9);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_name() {
        let rows: String = (1..10).map(|i| format!("{},0.5\r\n", 100 * i)).collect();
        let reading = Curve::parse(&format!("\u{feff}step,loss\r\n{rows}"), None).unwrap();
        assert_eq!(reading.curve.last_step(), 900.0);
    }

    #[test]
    fn what_cannot_be_forecast_is_said() {
        let said = |text: &str, column| Curve::parse(text, column).unwrap_err().to_string();
        assert!(said("", None).contains("empty"));
        assert!(said("1\n2\n3\n", None).contains("3 points"));
        assert!(said(&"-1\n".repeat(20), None).contains("20 lines were left out"));
        assert!(said("a,b\n1,2\n", None).contains("name one of a, b with --column"));
        assert!(said("a,b\n1,2\n", Some("c")).contains("no column 'c' but a, b"));
        assert!(Curve::new((0..9).map(|i| (f64::from(i), f64::NAN, None))).is_err());
    }

    #[test]
    fn of_two_points_at_one_step_the_later_counts() {
        let mut points: Vec<(f64, f64, Option<f64>)> = (0..10).map(|i| (f64::from(i), 1.0, None)).collect();
        points.push((4.0, 2.0, None));
        let curve = Curve::new(points).unwrap();
        assert_eq!((curve.losses().len(), curve.losses()[4]), (10, 2.0));
        assert_eq!(curve.until(7.0).unwrap().steps().len(), 8);
        assert_eq!(curve.thinned(5).steps().len(), 5);
    }
}
