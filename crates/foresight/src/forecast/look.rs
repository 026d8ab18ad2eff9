//! What is seen of the first part of a run: numbers that do not change when all losses, all steps or all
//! rates are scaled.

use super::baselines::{Method, predict};
use super::curve::Curve;

/// How many numbers.
pub(super) const INPUTS: usize = 18;
/// Those numbers.
pub(super) type Inputs = [f64; INPUTS];

/// Places of single inputs.
pub(super) const NOISE: usize = 7;
pub(super) const SLOPE: usize = 8;
pub(super) const POWER_LAW: usize = 10;
pub(super) const MULTI_POWER_LAW: usize = 11;
pub(super) const LAST_RATE: usize = 13;
pub(super) const MEAN_RATE: usize = 14;
pub(super) const PASSES: usize = 16;

/// Points that a whole run is seen as, so that noise is comparable.
const POINTS: f64 = 100.0;
/// Ends of the stretches whose mean loss is an input, as parts of what is seen; the rest is what `now` is of.
const STRETCHES: [f64; 8] = [0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8];

/// A run up to some step, and what is known of the rest.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The run so far.
    pub seen: &'a Curve,
    /// The step whose loss is asked for.
    pub at: f64,
    /// Steps and rates, those to come among them; empty where they are not known.
    pub ahead: &'a [(f64, f64)],
    /// Passes over the data that the run will have made by then; 0 where that is not known.
    pub passes: f64,
    /// How large the network is, in the unit of the runs that are learnt from; 0 where that is not known.
    pub size: f64,
}

/// What is seen of a run, and ln of its loss now.
pub(super) fn look(question: &Question<'_>) -> (Inputs, f64) {
    let Question { seen, at, ahead, passes, .. } = *question;
    let share = (seen.last_step() / at).clamp(1e-3, 1.0);
    let thin = seen.thinned((POINTS * share).round().max(8.0) as usize);
    let now = thin.end(0.1).ln();
    let losses = thin.losses();
    let count = losses.len();
    let mut inputs = [0.0; INPUTS];
    for (input, ends) in inputs.iter_mut().zip(STRETCHES.windows(2)) {
        let from = (ends[0] * count as f64) as usize;
        let to = ((ends[1] * count as f64).round() as usize).clamp(from + 1, count);
        *input = (losses[from..to].iter().sum::<f64>() / (to - from) as f64).ln() - now;
    }
    let late: Vec<f64> = losses[count / 2..].iter().map(|loss| loss.ln()).collect();
    let differences = late.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum::<f64>();
    inputs[NOISE] = (0.5 * differences / (late.len() - 1).max(1) as f64).sqrt();
    inputs[SLOPE] = slope_in_log_time(&late, count / 2);
    let law = |method, highest| (predict(method, seen, at, ahead).ln() - now).clamp(-6.0, highest);
    inputs[9] = law(Method::Linear, 1.0).max(-3.0);
    inputs[POWER_LAW] = law(Method::PowerLaw, 3.0);
    inputs[MULTI_POWER_LAW] = law(Method::MultiPowerLaw, 3.0);
    let rates = Rates::of(question);
    inputs[12] = rates.now;
    inputs[LAST_RATE] = rates.last;
    inputs[MEAN_RATE] = rates.mean;
    inputs[15] =
        (rates.mean * (at - seen.last_step()) / (rates.mean_seen * seen.last_step().max(1.0))).max(1e-3).ln();
    inputs[PASSES] = passes.ln_1p();
    inputs[17] = (share * passes).ln_1p();
    (inputs, now)
}

/// The least-squares slope of values over the logarithm of their places, which begin at `first`.
fn slope_in_log_time(values: &[f64], first: usize) -> f64 {
    let n = values.len() as f64;
    let times: Vec<f64> = (0..values.len()).map(|i| ((first + i + 1) as f64).ln()).collect();
    let (time, mean) = (times.iter().sum::<f64>() / n, values.iter().sum::<f64>() / n);
    let spread: f64 = times.iter().map(|t| (t - time).powi(2)).sum();
    let tilt: f64 = times.iter().zip(values).map(|(t, value)| (t - time) * (value - mean)).sum();
    if spread > 0.0 { tilt / spread } else { 0.0 }
}

/// Rates over their peak; 1 where none are known.
struct Rates {
    now: f64,
    last: f64,
    mean: f64,
    mean_seen: f64,
}

impl Rates {
    fn of(question: &Question<'_>) -> Self {
        let Some(seen) = question.seen.rates().filter(|_| !question.ahead.is_empty()) else {
            return Self { now: 1.0, last: 1.0, mean: 1.0, mean_seen: 1.0 };
        };
        let from = question.seen.last_step();
        let to_come: Vec<f64> =
            question.ahead.iter().filter(|(step, _)| *step > from).map(|(_, rate)| *rate).collect();
        let peak = seen.iter().chain(&to_come).copied().fold(1e-30, f64::max);
        let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len().max(1) as f64 / peak;
        let now = seen.last().map_or(1.0, |rate| rate / peak);
        let last = to_come.last().map_or(now, |rate| rate / peak);
        let mean_ahead = if to_come.is_empty() { now } else { mean(&to_come) };
        Self { now, last, mean: mean_ahead, mean_seen: mean(seen).max(1e-3) }
    }
}
