//! Bands that hold as often as they say.

use serde::Serialize;

use super::baselines::{Method, predict};
use super::curve::Curve;
use crate::conformal::{conformal, signed};
use crate::error::{Error, Result};

/// A forecast of the loss at a step, with a band of 90 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Banded {
    /// The formula.
    pub method: Method,
    /// The loss that it expects, with the median of its past errors taken off, where there are enough of them
    /// for that.
    pub expected: f64,
    /// The band, where there is enough to calibrate it by.
    pub band: Option<[f64; 2]>,
    /// Scores that it was calibrated by.
    pub scores: usize,
}

/// How far off forecasts of each formula were: `ln found − ln expected`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Calibration {
    scores: [Vec<f64>; 4],
    of: ErrorsOf,
}

/// Where errors come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ErrorsOf {
    /// Runs: what they are off by in the mean, another run will be, too.
    #[default]
    Runs,
    /// Parts of one curve, which resemble each other: only how large they are says anything of its end.
    Parts,
}

const LEVEL: f64 = 0.9;
/// The part of a curve's end that counts as its final loss.
const END: f64 = 0.05;

impl Calibration {
    /// From whole runs, each forecast from the same part of its steps. With runs like the one that is
    /// forecast, the bands hold in nine of ten cases (split conformal prediction). Curves that are too short
    /// are left out.
    pub fn by_runs(runs: &[Curve], part: f64) -> Self {
        let mut calibration = Self::default();
        for run in runs {
            let Ok(seen) = run.until(part * run.last_step()) else { continue };
            calibration.take(&seen, run.last_step(), run, run.end(END));
        }
        calibration
    }

    /// From the curve itself: parts of it are forecast from parts of those, as far ahead in proportion as is
    /// asked for. Scores of one curve resemble each other, so that bands are right only as far as its past is
    /// like its future.
    pub fn by_itself(curve: &Curve, at: f64) -> Self {
        let mut calibration = Self { of: ErrorsOf::Parts, ..Self::default() };
        let ratio = (at / curve.last_step().max(1e-9)).max(1.05);
        for place in 1..=24 {
            let end = curve.last_step() * (0.4 + 0.6 * f64::from(place) / 24.0);
            let (Ok(whole), Ok(seen)) = (curve.until(end), curve.until(end / ratio)) else { continue };
            calibration.take(&seen, end, &whole, whole.end(END));
        }
        calibration
    }

    fn take(&mut self, seen: &Curve, at: f64, whole: &Curve, found: f64) {
        let ahead = rates_ahead(whole, seen.last_step());
        for (method, scores) in Method::ALL.into_iter().zip(&mut self.scores) {
            scores.push(found.ln() - predict(method, seen, at, &ahead).ln());
        }
    }

    /// A method's forecast with its band: between quantiles of signed errors, so that a formula's bias is no
    /// part of its width. With fewer than 19 of them, and with those of the curve itself, by the quantile of
    /// their sizes, for which nine are enough.
    pub fn band(&self, method: Method, expected: f64) -> Banded {
        let scores = &self.scores[method as usize];
        let sizes: Vec<f64> = scores.iter().map(|score| score.abs()).collect();
        let of_runs = Some(scores).filter(|_| self.of == ErrorsOf::Runs);
        let biased =
            of_runs.and_then(|scores| signed(scores, LEVEL)).map(|[low, high]| [low, median(scores), high]);
        let bounds = biased.or_else(|| conformal(&sizes, LEVEL).map(|width| [-width, 0.0, width]));
        let [low, middle, high] = bounds.unwrap_or_default().map(|bound| expected * bound.exp());
        Banded { method, expected: middle, band: bounds.map(|_| [low, high]), scores: scores.len() }
    }

    /// Samples of ln loss that a method's forecast stands for: what it expects, off by as much as it was off.
    pub fn samples(&self, method: Method, expected: f64) -> Vec<f64> {
        self.scores[method as usize].iter().map(|score| expected.ln() + score).collect()
    }

    /// The mean size of a method's errors.
    pub fn error(&self, method: Method) -> Option<f64> {
        let scores = &self.scores[method as usize];
        (!scores.is_empty())
            .then(|| scores.iter().map(|score| score.abs()).sum::<f64>() / scores.len() as f64)
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    0.5 * (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2])
}

fn rates_ahead(whole: &Curve, from: f64) -> Vec<(f64, f64)> {
    whole.points_with_rates().into_iter().filter(|(step, _)| *step > from).collect()
}

/// All four forecasts of the loss at step `at`, with bands by `runs` that went to their end, or by the curve
/// itself where there are none. `ahead` are the rates to come; where they are not known, those of the past
/// and of the runs are not looked at, since a forecast must be calibrated as it is made.
pub fn forecast(curve: &Curve, at: f64, ahead: &[(f64, f64)], runs: &[Curve]) -> Result<Vec<Banded>> {
    if !(at.is_finite() && at > curve.last_step()) {
        return Err(Error::curve(format!(
            "it goes to step {} and step {at} is asked for: ask for a later one",
            curve.last_step()
        )));
    }
    let unrated = |curve: &Curve| curve.clone().without_rates();
    let own = if ahead.is_empty() { unrated(curve) } else { curve.clone() };
    let calibration = if runs.is_empty() {
        Calibration::by_itself(&own, at)
    } else if ahead.is_empty() {
        Calibration::by_runs(&runs.iter().map(unrated).collect::<Vec<_>>(), curve.last_step() / at)
    } else {
        Calibration::by_runs(runs, curve.last_step() / at)
    };
    let curve = &own;
    Ok(Method::ALL.map(|method| calibration.band(method, predict(method, curve, at, ahead))).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn run(seed: u64, steps: u32) -> Curve {
        let mut random = Random::new(seed, "runs");
        let (a, b, c) = (0.1 + random.uniform(), 1.0 + random.uniform(), 0.2 + 0.4 * random.uniform());
        Curve::new((0..steps).map(|t| {
            let t = f64::from(t);
            (t, (a + b * (t + 1.0).powf(-c)) * (0.1 * random.normal()).exp(), None)
        }))
        .unwrap()
    }

    #[test]
    fn bands_by_runs_cover_nine_of_ten() {
        let runs: Vec<Curve> = (0..60).map(|seed| run(seed, 300)).collect();
        let mut covered = [0; 4];
        for seed in 100..200 {
            let whole = run(seed, 300);
            let seen = whole.until(60.0).unwrap();
            for (count, banded) in covered.iter_mut().zip(forecast(&seen, 299.0, &[], &runs).unwrap()) {
                let [low, high] = banded.band.unwrap();
                *count += u32::from((low..=high).contains(&whole.end(END)));
            }
        }
        assert!(covered.iter().all(|count| (80..=99).contains(count)), "{covered:?}");
    }

    #[test]
    fn the_power_law_beats_the_last_value_where_it_holds() {
        let runs: Vec<Curve> = (0..40).map(|seed| run(seed, 300)).collect();
        let calibration = Calibration::by_runs(&runs, 0.2);
        let error = |method| calibration.error(method).unwrap();
        assert!(error(Method::PowerLaw) < 0.7 * error(Method::LastValue));
    }

    #[test]
    fn a_curve_calibrates_itself_and_the_past_is_not_forecast() {
        let curve = run(3, 200);
        let found = forecast(&curve, 400.0, &[], &[]).unwrap();
        assert!(found.iter().all(|banded| banded.scores >= 9 && banded.band.is_some()), "{found:?}");
        assert!(forecast(&curve, 100.0, &[], &[]).unwrap_err().to_string().contains("later"));
    }
}
