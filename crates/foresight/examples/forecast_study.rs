//! How good forecasts from the first fifth of a run are, on runs that were not learnt from: `cargo run
//! --release -p gatework-foresight --example forecast_study -- results/foresight/forecast-runs.csv`.
//!
//! The runs are those of the example `forecast_runs`. The score is the CRPS of the logarithm of the final
//! training loss. The head and the formulas are calibrated by the same runs: for digits by those of digits,
//! for another data set by those of all tasks.

use std::time::Instant;

use gatework_foresight::forecast::{
    Calibration, Curve, DirectHead, Finished, Method, Question, crps_samples, predict,
};
use gatework_foresight::optimiser::{Decay, Schedule};

const PART: f64 = 0.2;
const BATCH: f64 = 64.0;
const WARMUP: u64 = 50;

/// A stored run and the group that it is of.
struct Stored {
    group: String,
    run: Finished,
}

fn read(line: &str) -> Option<Stored> {
    let cells: Vec<&str> = line.split(',').collect();
    let [group, task, examples, width, rate, decay, steps, _, losses] = cells[..] else { return None };
    let (examples, steps): (f64, u64) = (examples.parse().ok()?, steps.parse().ok()?);
    let decay = match decay {
        "linear" => Decay::Linear,
        "constant" => Decay::Constant,
        "wsd" => Decay::Wsd,
        _ => return None,
    };
    let schedule = Schedule { peak: rate.parse().ok()?, warmup: WARMUP, decay, decay_share: 0.2, steps };
    let losses: Vec<f64> = losses.split(' ').filter_map(|loss| loss.parse().ok()).collect();
    let stretch = steps as f64 / losses.len() as f64;
    let curve = Curve::new(losses.iter().enumerate().map(|(i, thousandths)| {
        let step = stretch * (i as f64 + 0.5) - 0.5;
        (step, (thousandths / 1000.0).exp(), Some(schedule.rate(step as u64)))
    }));
    let passes = steps as f64 * BATCH / examples;
    Some(Stored {
        group: group.to_owned(),
        run: Finished { task: task.to_owned(), curve: curve.ok()?, passes, size: width.parse().ok()? },
    })
}

/// Scores and hits of the head and of each formula.
#[derive(Clone, Copy, Default)]
struct Tally {
    runs: f64,
    scores: [f64; 5],
    hits: [f64; 5],
}

impl Tally {
    fn add(&mut self, which: usize, samples: &[f64], band: Option<[f64; 2]>, found: f64) {
        self.scores[which] += crps_samples(samples, found.ln());
        self.hits[which] +=
            f64::from(u8::from(band.is_some_and(|[low, high]| (low..=high).contains(&found))));
    }

    fn line(&self, name: &str) -> String {
        let mean = |values: &[f64], digits: usize| -> String {
            let texts: Vec<String> =
                values.iter().map(|value| format!("{:.digits$}", value / self.runs)).collect();
            texts.join(" / ")
        };
        let best = self.scores[1..].iter().copied().fold(f64::INFINITY, f64::min);
        let [low, high] = wilson(self.hits[0], self.runs);
        format!(
            "{name}, {}, {:.3}, {}, {:.2}, {:.2}, {low:.2} to {high:.2}, {}",
            self.runs,
            self.scores[0] / self.runs,
            mean(&self.scores[1..], 3),
            self.scores[0] / best,
            self.hits[0] / self.runs,
            mean(&self.hits[1..], 2)
        )
    }
}

/// Wilson's 95 % interval of a part.
fn wilson(hits: f64, runs: f64) -> [f64; 2] {
    let (part, z) = (hits / runs, 1.96);
    let middle = part + z * z / (2.0 * runs);
    let reach = z * (part * (1.0 - part) / runs + z * z / (4.0 * runs * runs)).sqrt();
    [middle - reach, middle + reach].map(|end| end / (1.0 + z * z / runs))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("name the file of runs")?;
    let text = std::fs::read_to_string(&path)?;
    let stored: Vec<Stored> = text.lines().skip(1).filter_map(read).collect();
    let (learnt, tests): (Vec<Stored>, Vec<Stored>) =
        stored.into_iter().partition(|stored| stored.group == "learnt");
    let learnt: Vec<Finished> = learnt.into_iter().map(|stored| stored.run).collect();
    let started = Instant::now();
    let head = DirectHead::learn(&learnt, PART)?;
    eprintln!("learnt from {} runs in {:.0} ms", learnt.len(), started.elapsed().as_secs_f64() * 1e3);
    let own: Vec<Curve> =
        learnt.iter().filter(|run| run.task == "digits").map(|run| run.curve.clone()).collect();
    let all: Vec<Curve> = learnt.iter().map(|run| run.curve.clone()).collect();
    let calibrations = [Calibration::by_runs(&own, PART), Calibration::by_runs(&all, PART)];
    let mut tallies: Vec<(String, Tally)> = vec![("all".to_owned(), Tally::default())];
    let mut times = Vec::new();
    for Stored { group, run } in &tests {
        let known = run.task == "digits";
        let of_one_task = group == "another data set";
        let name = if of_one_task { format!("{group}: {}", run.task) } else { group.clone() };
        let (whole, at) = (&run.curve, run.curve.last_step());
        let seen = whole.until(PART * at)?;
        let ahead = whole.points_with_rates();
        let found = whole.end(0.05);
        let question = Question { seen: &seen, at, ahead: &ahead, passes: run.passes, size: run.size };
        let started = Instant::now();
        let foreseen = head.foresee(&question, known.then_some(run.task.as_str()))?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
        let mut tally = Tally { runs: 1.0, ..Tally::default() };
        tally.add(0, &foreseen.samples, Some(foreseen.band), found);
        let calibration = &calibrations[usize::from(!known)];
        for (place, method) in Method::ALL.into_iter().enumerate() {
            let expected = predict(method, &seen, at, &ahead);
            let band = calibration.band(method, expected).band;
            tally.add(place + 1, &calibration.samples(method, expected), band, found);
        }
        if tallies.last().is_none_or(|(last, _)| *last != name) {
            tallies.push((name, Tally::default()));
        }
        let last = tallies.len() - 1;
        for place in [0, last] {
            let sum = &mut tallies[place].1;
            sum.runs += 1.0;
            (0..5).for_each(|i| {
                sum.scores[i] += tally.scores[i];
                sum.hits[i] += tally.hits[i];
            });
        }
    }
    times.sort_by(f64::total_cmp);
    eprintln!("a forecast by the head takes {:.3} ms, in the median", times[times.len() / 2]);
    println!(
        "shift, runs, CRPS of the head, of each formula, head over the best formula, head's coverage, its 95 % interval, \
         formulas' coverage"
    );
    tallies.iter().for_each(|(name, tally)| println!("{}", tally.line(name)));
    Ok(())
}
