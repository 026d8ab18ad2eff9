//! The direct head: the final loss of a run from its first part, learnt from runs that went to their end.
//!
//! Of a task that it has enough runs of, it asks those runs ([`Within`]); of another task, what runs of many
//! tasks have in common ([`Across`]); and of a known task at rates beyond those that it has seen, both in
//! equal parts, so that their disagreement widens the band. Answers are samples, whose 5th to 95th percentile
//! is the band of 90 %.

use serde::{Deserialize, Serialize};

use super::across::{Across, Known, moments, quantile};
use super::curve::Curve;
use super::look::{Inputs, Question, look};
use super::within::{Example, Settings, Within};
use crate::conformal::signed;
use crate::error::{Error, Result};

/// A run that went to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// The task of the run, so that runs of the same task can be found.
    pub task: String,
    /// Its losses, with rates if those of the run that is asked about are known, too.
    pub curve: Curve,
    /// Passes over its data; 0 where that is not known.
    pub passes: f64,
    /// How large its network is, in any unit that all runs share; 0 where that is not known.
    pub size: f64,
}

/// A head that has learnt to forecast from one part of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectHead {
    tasks: Vec<(String, Within)>,
    across: Option<Across>,
}

/// The head's forecast of the end of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Foreseen {
    /// The median of the final loss.
    pub expected: f64,
    /// The 90 % band.
    pub band: [f64; 2],
    /// Runs, or scores of tasks, that the band is calibrated by.
    pub calibrated_by: usize,
    /// Samples of the logarithm of the final loss, the lowest first.
    #[serde(skip)]
    pub samples: Vec<f64>,
}

/// The part of a curve's end that counts as its final loss.
const END: f64 = 0.05;
/// Samples that each half of a mixture is represented by.
const OF_HALF: usize = 50;

impl DirectHead {
    /// Fewest runs of a task for it to be known.
    pub const LEAST: usize = 30;
    /// Fewest tasks for anything to be said of another.
    pub const LEAST_TASKS: usize = Across::LEAST;

    /// Learns to forecast runs from this part of them. Runs that are too short for it are left out.
    pub fn learn(finished: &[Finished], part: f64) -> Result<Self> {
        let mut names: Vec<&str> = finished.iter().map(|run| run.task.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let mut known = Vec::new();
        let mut settings = Vec::new();
        for run in finished {
            let at = run.curve.last_step();
            let Ok(seen) = run.curve.until(part * at) else { continue };
            let ahead = run.curve.points_with_rates();
            let question = Question { seen: &seen, at, ahead: &ahead, passes: run.passes, size: run.size };
            let (inputs, now) = look(&question);
            let task = names.binary_search(&run.task.as_str()).unwrap_or_default();
            known.push(Known { task, inputs, target: run.curve.end(END).ln() - now });
            settings.push(Settings::of(&question));
        }
        let [_, everywhere] = moments(known.iter().map(|run| &run.inputs));
        let of_task = |task: usize| -> Vec<Example> {
            let own = known.iter().zip(&settings).filter(|(run, _)| run.task == task);
            own.map(|(run, &settings)| Example { inputs: run.inputs, target: run.target, settings }).collect()
        };
        let tasks: Vec<(String, Within)> = names
            .iter()
            .enumerate()
            .map(|(task, name)| ((*name).to_owned(), of_task(task)))
            .filter(|(_, examples)| examples.len() >= Self::LEAST)
            .map(|(name, examples)| (name, Within::learn(&examples, &everywhere)))
            .collect();
        let seen_tasks = (0..names.len()).all(|task| known.iter().any(|run| run.task == task));
        let across = (names.len() >= Across::LEAST && seen_tasks).then(|| Across::learn(&known, names.len()));
        if tasks.is_empty() && across.is_none() {
            return Err(Error::curve(format!(
                "{} runs of {} tasks are too few to learn from: {} runs of one task are needed, or runs of {} tasks",
                known.len(),
                names.len(),
                Self::LEAST,
                Across::LEAST
            )));
        }
        Ok(Self { tasks, across })
    }

    /// The final loss of a run of `task`, or of a task that was not learnt from.
    pub fn foresee(&self, question: &Question<'_>, task: Option<&str>) -> Result<Foreseen> {
        let Question { seen, at, .. } = question;
        if !(at.is_finite() && *at > seen.last_step()) {
            return Err(Error::curve(format!(
                "it goes to step {}: ask for a later one than {at}",
                seen.last_step()
            )));
        }
        let (inputs, now) = look(question);
        let within = task.and_then(|task| Some(&self.tasks.iter().find(|(name, _)| name == task)?.1));
        let samples = self.samples(&inputs, within, &Settings::of(question))?;
        let samples: Vec<f64> = samples.into_iter().map(|sample| now + sample).collect();
        let Some([low, high]) = signed(&samples, 0.9) else {
            return Err(Error::curve("too few runs were left to calibrate the head by: learn from more"));
        };
        Ok(Foreseen {
            expected: quantile(&samples, 0.5).exp(),
            band: [low.exp(), high.exp()],
            calibrated_by: samples.len(),
            samples,
        })
    }

    /// Sorted samples of ln(end / now).
    fn samples(&self, inputs: &Inputs, within: Option<&Within>, settings: &Settings) -> Result<Vec<f64>> {
        let sorted = |mut samples: Vec<f64>| {
            samples.sort_by(f64::total_cmp);
            samples
        };
        match (within, &self.across) {
            (Some(within), Some(across)) if within.is_beyond(settings) => {
                let half = |samples: Vec<f64>| {
                    let samples = sorted(samples);
                    (0..OF_HALF).map(move |i| quantile(&samples, (i as f64 + 0.5) / OF_HALF as f64))
                };
                Ok(sorted(
                    half(within.samples(inputs, settings)).chain(half(across.samples(inputs))).collect(),
                ))
            }
            (Some(within), _) => Ok(sorted(within.samples(inputs, settings))),
            (None, Some(across)) => Ok(sorted(across.samples(inputs))),
            (None, None) => Err(Error::curve(format!(
                "it is of a task that was not learnt from, and runs of {} tasks are needed to say anything of another",
                Across::LEAST
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::{Calibration, Method, crps_samples, predict};
    use crate::random::Random;

    /// Runs that fall by a power law and then, at a time that the curve does not show, a second time: by as
    /// much as the task has it.
    fn run(task: u64, seed: u64) -> Finished {
        let mut random = Random::new(1000 * task + seed, "runs");
        let second = 0.3 + 0.6 * Random::new(task, "task").uniform();
        let (a, b, c) = (0.1 + 0.3 * random.uniform(), 1.0 + random.uniform(), 0.3 + 0.3 * random.uniform());
        let curve = Curve::new((0..250).map(|t| {
            let t = f64::from(t);
            let fallen = second + (1.0 - second) / (1.0 + ((t - 150.0) / 15.0).exp());
            (t, (a + b * (t + 1.0).powf(-c)) * fallen * (0.05 * random.normal()).exp(), None)
        }));
        Finished { task: format!("task {task}"), curve: curve.unwrap(), passes: 0.0, size: 0.0 }
    }

    fn judged(head: &DirectHead, runs: &[Finished], known: bool) -> (f64, usize) {
        let (mut score, mut covered) = (0.0, 0);
        for Finished { task, curve, .. } in runs {
            let seen = curve.until(0.2 * curve.last_step()).unwrap();
            let question =
                Question { seen: &seen, at: curve.last_step(), ahead: &[], passes: 0.0, size: 0.0 };
            let foreseen = head.foresee(&question, known.then_some(task.as_str())).unwrap();
            let end = curve.end(END);
            score += crps_samples(&foreseen.samples, end.ln()) / runs.len() as f64;
            covered += usize::from((foreseen.band[0]..=foreseen.band[1]).contains(&end));
        }
        (score, covered)
    }

    #[test]
    fn it_learns_what_no_formula_can_know_and_its_band_holds() {
        let learnt: Vec<Finished> = (0..90).map(|seed| run(0, seed)).collect();
        let curves: Vec<Curve> = learnt.iter().map(|run| run.curve.clone()).collect();
        let head = DirectHead::learn(&learnt, 0.2).unwrap();
        let calibration = Calibration::by_runs(&curves, 0.2);
        let tests: Vec<Finished> = (1000..1060).map(|seed| run(0, seed)).collect();
        let (ours, covered) = judged(&head, &tests, true);
        let mut theirs = 0.0;
        for Finished { curve, .. } in &tests {
            let seen = curve.until(0.2 * curve.last_step()).unwrap();
            let formula = predict(Method::PowerLaw, &seen, curve.last_step(), &[]);
            theirs +=
                crps_samples(&calibration.samples(Method::PowerLaw, formula), curve.end(END).ln()) / 60.0;
        }
        assert!(ours < 0.8 * theirs, "{ours} {theirs}");
        assert!((48..=60).contains(&covered), "{covered} of 60");
        let bytes = postcard::to_stdvec(&head).unwrap();
        assert_eq!(postcard::from_bytes::<DirectHead>(&bytes).unwrap(), head);
        assert!(DirectHead::learn(&learnt[..10], 0.2).unwrap_err().to_string().contains("30 runs"));
    }

    #[test]
    fn bands_of_tasks_that_were_not_learnt_from_hold() {
        let learnt: Vec<Finished> =
            (1..=20).flat_map(|task| (0..5).map(move |seed| run(task, seed))).collect();
        let head = DirectHead::learn(&learnt, 0.2).unwrap();
        let tests: Vec<Finished> = (21..=60).map(|task| run(task, 7)).collect();
        let (_, covered) = judged(&head, &tests, false);
        assert!((31..=40).contains(&covered), "{covered} of 40");
        let one: Vec<Finished> = (0..40).map(|seed| run(1, seed)).collect();
        let seen = one[0].curve.until(50.0).unwrap();
        let question = Question { seen: &seen, at: 249.0, ahead: &[], passes: 0.0, size: 0.0 };
        let known = DirectHead::learn(&one, 0.2).unwrap();
        assert!(known.foresee(&question, None).unwrap_err().to_string().contains("8 tasks"));
    }
}
