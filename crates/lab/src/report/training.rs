//! Loss curves of many training runs: where the middle of them goes, and how far they spread.

use std::f64::consts::LOG10_E;

use super::svg::{Anchor, Drawing, Scale, WIDTH};

const LEFT: f64 = 46.0;
const RIGHT: f64 = WIDTH - 14.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 170.0;
/// The columns of a file of runs that are read; `losses` are thousandths of ln of the loss, evenly spaced
/// over the run.
const GROUP: &str = "group";
const LOSSES: &str = "losses";

/// Runs of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainingRuns {
    /// The name of the group.
    pub name: String,
    /// ln of the training loss of each, at evenly spaced shares of the run.
    pub runs: Vec<Vec<f64>>,
}

impl TrainingRuns {
    /// Reads a file of runs as the example `forecast_runs` of gatework-foresight writes it; by group, in the
    /// order of the file. An error names the line.
    pub fn read(csv: &str) -> Result<Vec<Self>, String> {
        let mut lines = csv.lines();
        let header: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
        let column = |name: &str| {
            let found = header.iter().position(|found| *found == name);
            found.ok_or_else(|| format!("its first line names no column '{name}'"))
        };
        let (group, losses) = (column(GROUP)?, column(LOSSES)?);
        let mut found: Vec<Self> = Vec::new();
        for (number, line) in (2..).zip(lines) {
            let cells: Vec<&str> = line.split(',').collect();
            let (Some(name), Some(losses)) = (cells.get(group), cells.get(losses)) else {
                return Err(format!(
                    "line {number} has {} columns, its first line {}",
                    cells.len(),
                    header.len()
                ));
            };
            let loss = |loss: &str| match loss.parse::<f64>() {
                Ok(loss) if loss.is_finite() => Ok(loss / 1000.0),
                _ => Err(format!("line {number}: a loss is no number: '{loss}'")),
            };
            let run = losses.split(' ').map(loss).collect::<Result<Vec<f64>, String>>()?;
            match found.iter_mut().find(|known| known.name == *name) {
                Some(known) => known.runs.push(run),
                None => found.push(Self { name: (*name).to_owned(), runs: vec![run] }),
            }
        }
        Ok(found)
    }

    /// The middle of the runs and where four fifths of them lie, over the share of the run that is done.
    pub(super) fn draw(&self) -> Option<String> {
        let quantiles = self.quantiles();
        let (&[least, ..], points) = (quantiles.first()?, quantiles.len());
        let range =
            quantiles.iter().flatten().fold((least, least), |(low, high), &x| (low.min(x), high.max(x)));
        let x = Scale::new((0.0, points.saturating_sub(1) as f64), (LEFT, RIGHT));
        let y = Scale::new(range, (BOTTOM, TOP));
        let mut drawing = Drawing::new(BOTTOM + 34.0);
        for tick in y.ticks(4) {
            drawing.line("grid", (LEFT, y.at(tick)), (RIGHT, y.at(tick)));
            drawing.text("tick", Anchor::End, (LEFT - 4.0, y.at(tick) + 4.0), &loss_at(tick));
        }
        let line = |which: usize| -> Vec<(f64, f64)> {
            quantiles
                .iter()
                .enumerate()
                .map(|(place, found)| (x.at(place as f64), y.at(found[which])))
                .collect()
        };
        let mut spread = line(0);
        spread.extend(line(2).into_iter().rev());
        drawing.path("spread", &spread);
        drawing.path("best", &line(1));
        let caption = "training loss over the share of the run, log scale";
        drawing.text("tick", Anchor::Start, (LEFT, BOTTOM + 14.0), "0 %");
        drawing.text("tick", Anchor::End, (RIGHT, BOTTOM + 14.0), "100 %");
        drawing.text("tick", Anchor::Start, (10.0, BOTTOM + 29.0), caption);
        Some(drawing.finish(&format!("Training loss of {}", self.name)))
    }

    /// At each point that all runs have: the logarithms to the base of ten of the losses that a tenth, half
    /// and nine tenths of the runs are below.
    fn quantiles(&self) -> Vec<[f64; 3]> {
        let points = self.runs.iter().map(Vec::len).min().unwrap_or(0);
        let at = |place: usize| {
            let mut losses: Vec<f64> = self.runs.iter().map(|run| run[place] * LOG10_E).collect();
            losses.sort_by(f64::total_cmp);
            [0.1, 0.5, 0.9].map(|share| losses[(share * (losses.len() - 1) as f64).round() as usize])
        };
        (0..points).map(at).collect()
    }
}

/// `1.0`, `0.32`, `0.010`: the loss at a place of the axis.
fn loss_at(exponent: f64) -> String {
    let digits = (1.0 - exponent.floor()).max(0.0) as usize;
    format!("{:.digits$}", 10_f64.powf(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_read_by_group_and_bad_lines_are_named() {
        let csv = "group,task,losses\na,x,1000 0 -1000\nb,x,500 0\na,y,2000 0 0\n";
        let found = TrainingRuns::read(csv).unwrap();
        assert_eq!(
            found[0],
            TrainingRuns { name: "a".into(), runs: vec![vec![1.0, 0.0, -1.0], vec![2.0, 0.0, 0.0]] }
        );
        assert_eq!(found[1].runs, [[0.5, 0.0]]);
        assert!(TrainingRuns::read("task,loss\n").unwrap_err().contains("no column 'group'"));
        assert!(TrainingRuns::read("group,losses\na\n").unwrap_err().contains("line 2 has 1 columns"));
        assert!(
            TrainingRuns::read("group,losses\na,1 x\n").unwrap_err().contains("line 2: a loss is no number")
        );
    }

    #[test]
    fn the_middle_and_the_spread_are_those_of_the_runs() {
        let decade = std::f64::consts::LN_10;
        let runs = (0..=10).map(|run| vec![decade * f64::from(run), 0.0]).collect();
        let group = TrainingRuns { name: "<a>".into(), runs };
        let [first, last] = group.quantiles().try_into().unwrap();
        assert!(first.iter().zip([1.0, 5.0, 9.0]).all(|(found, wanted)| (found - wanted).abs() < 1e-9));
        assert_eq!(last, [0.0; 3]);
        assert_eq!([1.0, 0.0, -0.5, -2.0].map(loss_at), ["10", "1.0", "0.32", "0.010"]);
        let drawn = group.draw().unwrap();
        assert!(drawn.contains("spread") && !drawn.contains("<a>") && !drawn.contains("NaN"), "{drawn}");
        assert_eq!(TrainingRuns { name: "none".into(), runs: vec![vec![]] }.draw(), None);
    }
}
