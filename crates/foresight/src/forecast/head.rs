//! The direct head: the final loss of a run from its first part, learnt from runs that went to their end.
//!
//! It looks at the shape of the curve, its noise, the schedule, and at what the formulas say; it answers with a normal
//! distribution of ln(end / now). Five small networks, each of which has seen another sample of the runs, are mixed; a part of the
//! runs that none of them has seen calibrates the band.

use serde::{Deserialize, Serialize};

use super::baselines::{Method, predict};
use super::curve::Curve;
use crate::conformal::conformal;
use crate::error::{Error, Result};
use crate::random::Random;

/// Points of the curve that it looks at.
const POINTS: usize = 12;
const INPUTS: usize = POINTS + 10;
const HIDDEN: usize = 16;
const PARAMETERS: usize = (INPUTS + 1) * HIDDEN + (HIDDEN + 1) * 2;
const MEMBERS: usize = 5;
/// Parts of a run that it learns to forecast from.
const PARTS: [f64; 5] = [0.1, 0.15, 0.2, 0.3, 0.5];
const ROUNDS: usize = 600;
const RATE: f64 = 0.01;
const DECAY: f64 = 2e-3;

type Inputs = [f64; INPUTS];

/// A head that has learnt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectHead {
    centre: Vec<f64>,
    scale: Vec<f64>,
    members: Vec<Vec<f64>>,
    /// For every part, `|error| / deviation` of the runs that calibrate.
    scores: Vec<Vec<f64>>,
}

/// What it says of the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Foreseen {
    /// The median of the final loss.
    pub expected: f64,
    /// The deviation of its logarithm.
    pub deviation: f64,
    /// The 90 % band.
    pub band: [f64; 2],
}

/// What is seen of a curve whose end at step `at` is asked for, with the rates to come; and ln of the loss now.
fn look(seen: &Curve, at: f64, ahead: &[(f64, f64)]) -> (Inputs, f64) {
    let now = seen.end(0.1).ln();
    let thin = seen.thinned(4 * POINTS);
    let mut inputs = [0.0; INPUTS];
    let count = thin.losses().len();
    for (i, input) in inputs[..POINTS].iter_mut().enumerate() {
        let from = i * count / POINTS;
        let to = ((i + 1) * count / POINTS).max(from + 1).min(count);
        let part = &thin.losses()[from.min(count - 1)..to];
        *input = (part.iter().sum::<f64>() / part.len() as f64).ln() - now;
    }
    let quarter = &seen.losses()[seen.losses().len() * 3 / 4..];
    let mean = quarter.iter().map(|loss| loss.ln()).sum::<f64>() / quarter.len() as f64;
    let noise = quarter.iter().map(|loss| (loss.ln() - mean).powi(2)).sum::<f64>() / quarter.len() as f64;
    let formula = |method| (predict(method, seen, at, ahead).ln() - now).clamp(-6.0, 3.0);
    let rates = seen.rates().unwrap_or(&[]);
    let peak = rates.iter().copied().fold(1e-30, f64::max);
    let rate = rates.last().copied().unwrap_or(peak) / peak;
    let to_come: Vec<f64> =
        ahead.iter().filter(|(step, _)| *step > seen.last_step()).map(|(_, r)| *r).collect();
    let last = to_come.last().copied().unwrap_or(peak * rate) / peak;
    let mean_ahead =
        if to_come.is_empty() { rate } else { to_come.iter().sum::<f64>() / to_come.len() as f64 / peak };
    inputs[POINTS..].copy_from_slice(&[
        noise.sqrt(),
        now,
        (at / seen.last_step().max(1.0)).ln(),
        formula(Method::Linear),
        formula(Method::PowerLaw),
        formula(Method::MultiPowerLaw),
        rate,
        last,
        mean_ahead,
        at.max(1.0).ln(),
    ]);
    (inputs, now)
}

/// One example: inputs, ln(end / now), and which of [`PARTS`] and which run it is of.
struct Example {
    inputs: Inputs,
    target: f64,
    part: usize,
    run: usize,
}

fn examples(runs: &[Curve]) -> Vec<Example> {
    let mut found = Vec::new();
    for (run, curve) in runs.iter().enumerate() {
        let rates = curve.rates().unwrap_or(&[]);
        let ahead: Vec<(f64, f64)> = curve.steps().iter().copied().zip(rates.iter().copied()).collect();
        for (part, share) in PARTS.into_iter().enumerate() {
            let Ok(seen) = curve.until(share * curve.last_step()) else { continue };
            let (inputs, now) = look(&seen, curve.last_step(), &ahead);
            found.push(Example { inputs, target: curve.end(0.05).ln() - now, part, run });
        }
    }
    found
}

impl DirectHead {
    /// Fewest runs to learn from: a third of them only calibrates.
    pub const LEAST: usize = 30;

    /// Learns from runs that went to their end, two thirds of them; the rest calibrates.
    pub fn learn(runs: &[Curve], seed: u64) -> Result<Self> {
        if runs.len() < Self::LEAST {
            return Err(Error::curve(format!(
                "{} runs are too few to learn from: {} are needed",
                runs.len(),
                Self::LEAST
            )));
        }
        let mut all = examples(runs);
        let mut random = Random::new(seed, "direct head");
        let order = random.permutation(runs.len());
        let calibrates = |run: usize| order[run].is_multiple_of(3);
        let taught = || all.iter().filter(|example| !calibrates(example.run));
        let count = taught().count().max(1) as f64;
        let mut centre = vec![0.0; INPUTS];
        let mut scale = vec![0.0; INPUTS];
        for i in 0..INPUTS {
            centre[i] = taught().map(|example| example.inputs[i]).sum::<f64>() / count;
            let variance =
                taught().map(|example| (example.inputs[i] - centre[i]).powi(2)).sum::<f64>() / count;
            scale[i] = variance.sqrt().max(1e-6);
        }
        for example in &mut all {
            normalise(&mut example.inputs, &centre, &scale);
        }
        let members = (0..MEMBERS as u64)
            .map(|index| {
                let mut random = random.fork(index);
                // A bootstrap of runs, not of examples: those of one run are alike.
                let weights: Vec<f64> = (0..runs.len()).map(|_| random.below(3) as f64).collect();
                let seen: Vec<(&Example, f64)> = all
                    .iter()
                    .filter(|example| !calibrates(example.run) && weights[example.run] > 0.0)
                    .map(|example| (example, weights[example.run]))
                    .collect();
                fit(&seen, &mut random)
            })
            .collect();
        let mut head = Self { centre, scale, members, scores: vec![Vec::new(); PARTS.len()] };
        for example in all.iter().filter(|example| calibrates(example.run)) {
            let [mean, deviation] = head.mix(&example.inputs);
            head.scores[example.part].push((example.target - mean).abs() / deviation);
        }
        Ok(head)
    }

    /// Mean and deviation of ln(end / now) of all members together.
    fn mix(&self, inputs: &Inputs) -> [f64; 2] {
        let found: Vec<[f64; 2]> = self.members.iter().map(|member| forward(member, inputs).1).collect();
        let count = found.len() as f64;
        let mean = found.iter().map(|output| output[0]).sum::<f64>() / count;
        let variance =
            found.iter().map(|output| output[1].exp() + (output[0] - mean).powi(2)).sum::<f64>() / count;
        [mean, variance.sqrt()]
    }

    /// The final loss at step `at`, from a curve up to some step before it and the rates to come. The band is calibrated for
    /// the nearest part of a run that the head has learnt for.
    pub fn foresee(&self, seen: &Curve, at: f64, ahead: &[(f64, f64)]) -> Result<Foreseen> {
        if !(at.is_finite() && at > seen.last_step()) {
            return Err(Error::curve(format!(
                "it goes to step {}: ask for a later one than {at}",
                seen.last_step()
            )));
        }
        let (mut inputs, now) = look(seen, at, ahead);
        normalise(&mut inputs, &self.centre, &self.scale);
        let [mean, deviation] = self.mix(&inputs);
        let share = seen.last_step() / at;
        let near = |part: &usize| (PARTS[*part] - share).abs();
        let part = (0..PARTS.len()).min_by(|a, b| near(a).total_cmp(&near(b))).unwrap_or(0);
        let width = conformal(&self.scores[part], 0.9).ok_or_else(|| {
            Error::curve("too few runs were left to calibrate the head by: learn from more")
        })?;
        // The deviation that makes the band a 90 % band, so that both say the same.
        let deviation = deviation * width / 1.644_853_626_951_472_7;
        let middle = now + mean;
        let reach = 1.644_853_626_951_472_7 * deviation;
        Ok(Foreseen {
            expected: middle.exp(),
            deviation,
            band: [(middle - reach).exp(), (middle + reach).exp()],
        })
    }
}

fn normalise(inputs: &mut Inputs, centre: &[f64], scale: &[f64]) {
    for ((input, centre), scale) in inputs.iter_mut().zip(centre).zip(scale) {
        *input = ((*input - centre) / scale).clamp(-4.0, 4.0);
    }
}

/// Hidden values, and mean and log variance.
fn forward(parameters: &[f64], inputs: &Inputs) -> ([f64; HIDDEN], [f64; 2]) {
    let (first, second) = parameters.split_at((INPUTS + 1) * HIDDEN);
    let hidden: [f64; HIDDEN] = std::array::from_fn(|j| {
        let row = &first[j * (INPUTS + 1)..][..INPUTS + 1];
        (row[..INPUTS].iter().zip(inputs).map(|(w, x)| w * x).sum::<f64>() + row[INPUTS]).tanh()
    });
    let output = std::array::from_fn(|k| {
        let row = &second[k * (HIDDEN + 1)..][..HIDDEN + 1];
        row[..HIDDEN].iter().zip(&hidden).map(|(w, h)| w * h).sum::<f64>() + row[HIDDEN]
    });
    (hidden, output)
}

/// Adds the gradient of `weight · −ln N(target)` to `gradient` and returns its value, up to a constant.
fn learn_one(parameters: &[f64], example: &Example, weight: f64, gradient: &mut [f64]) -> f64 {
    let (hidden, [mean, log_variance]) = forward(parameters, &example.inputs);
    let rest = mean - example.target;
    let precision = (-log_variance).exp();
    let outputs = [weight * rest * precision, weight * 0.5 * (1.0 - rest * rest * precision)];
    let split = (INPUTS + 1) * HIDDEN;
    let (of_first, of_second) = gradient.split_at_mut(split);
    let second = &parameters[split..];
    for (j, h) in hidden.iter().enumerate() {
        let back: f64 =
            (0..2).map(|k| outputs[k] * second[k * (HIDDEN + 1) + j]).sum::<f64>() * (1.0 - h * h);
        let row = &mut of_first[j * (INPUTS + 1)..][..INPUTS + 1];
        row[..INPUTS].iter_mut().zip(&example.inputs).for_each(|(g, x)| *g += back * x);
        row[INPUTS] += back;
        (0..2).for_each(|k| of_second[k * (HIDDEN + 1) + j] += outputs[k] * h);
    }
    (0..2).for_each(|k| of_second[k * (HIDDEN + 1) + HIDDEN] += outputs[k]);
    weight * 0.5 * (log_variance + rest * rest * precision)
}

/// Adam on all examples at once, with weight decay and a rate that falls.
fn fit(seen: &[(&Example, f64)], random: &mut Random) -> Vec<f64> {
    let mut parameters: Vec<f64> =
        (0..PARAMETERS).map(|_| random.normal() / (INPUTS as f64).sqrt()).collect();
    let total: f64 = seen.iter().map(|(_, weight)| weight).sum::<f64>().max(1.0);
    let (mut first, mut second) = (vec![0.0; PARAMETERS], vec![0.0; PARAMETERS]);
    for round in 1..=ROUNDS {
        let mut gradient = vec![0.0; PARAMETERS];
        for (example, weight) in seen {
            learn_one(&parameters, example, weight / total, &mut gradient);
        }
        let rate = RATE * (1.0 - round as f64 / (ROUNDS + 1) as f64);
        let (one, two) = (1.0 - 0.9f64.powi(round as i32), 1.0 - 0.99f64.powi(round as i32));
        for (((w, g), m), v) in parameters.iter_mut().zip(gradient).zip(&mut first).zip(&mut second) {
            let g = g.clamp(-10.0, 10.0);
            *m += 0.1 * (g - *m);
            *v += 0.01 * (g * g - *v);
            *w -= rate * (*m / one / ((*v / two).sqrt() + 1e-8) + DECAY * *w);
        }
    }
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::{Calibration, crps_normal};

    #[test]
    fn its_gradient_matches_finite_differences() {
        let mut random = Random::new(1, "head");
        let mut parameters: Vec<f64> = (0..PARAMETERS).map(|_| 0.3 * random.normal()).collect();
        let inputs = std::array::from_fn(|_| random.normal());
        let example = Example { inputs, target: 0.4, part: 0, run: 0 };
        let mut gradient = vec![0.0; PARAMETERS];
        learn_one(&parameters, &example, 0.7, &mut gradient);
        for at in 0..PARAMETERS {
            let mut value = |by: f64| {
                parameters[at] += by;
                let value = learn_one(&parameters, &example, 0.7, &mut vec![0.0; PARAMETERS]);
                parameters[at] -= by;
                value
            };
            let difference = (value(1e-5) - value(-1e-5)) / 2e-5;
            assert!((difference - gradient[at]).abs() < 1e-6, "{at}: {difference} {}", gradient[at]);
        }
    }

    /// Runs that fall by a power law and then, at a time that the curve does not show, a second time.
    fn run(seed: u64) -> Curve {
        let mut random = Random::new(seed, "runs");
        let (a, b, c) = (0.1 + 0.3 * random.uniform(), 1.0 + random.uniform(), 0.3 + 0.3 * random.uniform());
        Curve::new((0..250).map(|t| {
            let t = f64::from(t);
            let second = 1.0 / (1.0 + ((t - 150.0) / 15.0).exp());
            (t, (a + b * (t + 1.0).powf(-c)) * (0.5 + 0.5 * second) * (0.05 * random.normal()).exp(), None)
        }))
        .unwrap()
    }

    #[test]
    fn it_learns_what_no_formula_can_know_and_its_band_holds() {
        let runs: Vec<Curve> = (0..90).map(run).collect();
        let head = DirectHead::learn(&runs, 1).unwrap();
        let calibration = Calibration::by_runs(&runs, 0.2);
        let (mut ours, mut theirs, mut covered) = (0.0, 0.0, 0);
        for seed in 1000..1060 {
            let whole = run(seed);
            let seen = whole.until(0.2 * whole.last_step()).unwrap();
            let foreseen = head.foresee(&seen, whole.last_step(), &[]).unwrap();
            let end = whole.end(0.05);
            ours += crps_normal(foreseen.expected.ln(), foreseen.deviation, end.ln());
            covered += u32::from((foreseen.band[0]..=foreseen.band[1]).contains(&end));
            let formula = predict(Method::PowerLaw, &seen, whole.last_step(), &[]);
            let [low, high] = calibration.band(Method::PowerLaw, formula).band.unwrap();
            theirs += crps_normal(formula.ln(), (high / low).ln() / 3.29, end.ln());
        }
        assert!(ours < 0.5 * theirs, "{ours} {theirs}");
        assert!((48..=60).contains(&covered), "{covered} of 60");
        let bytes = postcard::to_stdvec(&head).unwrap();
        assert_eq!(postcard::from_bytes::<DirectHead>(&bytes).unwrap(), head);
        assert!(DirectHead::learn(&runs[..10], 1).unwrap_err().to_string().contains("30 are needed"));
    }
}
