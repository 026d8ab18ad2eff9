//! Forecasts without a model of the run: four formulas.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::curve::Curve;

/// A formula.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// The mean of the last tenth.
    LastValue,
    /// The least-squares line through the last half, in ln loss.
    Linear,
    /// `L(t) = a + b t^−c` with `a, b ≥ 0`, over the part after the first tenth.
    PowerLaw,
    /// `L = a + b S^−c − d Σ_k (η_{k−1} − η_k) (1 − (1 + s S_k)^−β)` with `S` the sum of rates so far and
    /// `S_k` that since step `k` (Luo et al. 2025, arXiv 2503.12811, with their γ = 0). Without rates, or
    /// before the rate has fallen, `d` cannot be told and is 0.
    MultiPowerLaw,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::LastValue, Self::Linear, Self::PowerLaw, Self::MultiPowerLaw];
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LastValue => "last value",
            Self::Linear => "linear",
            Self::PowerLaw => "power law",
            Self::MultiPowerLaw => "multi-power law",
        })
    }
}

/// Points that fits are made on.
const POINTS: usize = 120;

/// The loss that a formula expects at step `at`, from a curve up to some step before it. `rates` are the
/// steps and rates from the curve's end to `at`, where they are known.
pub fn predict(method: Method, curve: &Curve, at: f64, rates: &[(f64, f64)]) -> f64 {
    let curve = curve.thinned(POINTS);
    let floor = 1e-12;
    match method {
        Method::LastValue => curve.end(0.1),
        Method::Linear => line(&curve, at),
        Method::PowerLaw => power_law(&curve, at),
        Method::MultiPowerLaw => multi_power_law(&curve, at, rates),
    }
    .max(floor)
}

fn line(curve: &Curve, at: f64) -> f64 {
    let half = curve.steps().len() / 2;
    let (steps, losses) = (&curve.steps()[half..], &curve.losses()[half..]);
    let n = steps.len() as f64;
    let (mean_step, mean) =
        (steps.iter().sum::<f64>() / n, losses.iter().map(|loss| loss.ln()).sum::<f64>() / n);
    let spread: f64 = steps.iter().map(|step| (step - mean_step).powi(2)).sum();
    let tilt: f64 =
        steps.iter().zip(losses).map(|(step, loss)| (step - mean_step) * (loss.ln() - mean)).sum();
    let slope = if spread > 0.0 { tilt / spread } else { 0.0 };
    (mean + slope * (at - mean_step)).exp()
}

/// Least squares of `y ≈ Σ c_j x_j` with `c ≥ 0`, by trying every set of columns that may be zero. For three
/// columns that is exact and cheap.
fn non_negative<const N: usize>(columns: &[[f64; N]], y: &[f64]) -> ([f64; N], f64) {
    let mut best = ([0.0; N], f64::INFINITY);
    for set in 1..1usize << N {
        let used: Vec<usize> = (0..N).filter(|j| set >> j & 1 == 1).collect();
        let Some(found) = normal_equations(columns, y, &used) else { continue };
        if found.iter().any(|c| *c < 0.0) {
            continue;
        }
        let mut coefficients = [0.0; N];
        used.iter().zip(found).for_each(|(&j, c)| coefficients[j] = c);
        let rest: f64 = columns
            .iter()
            .zip(y)
            .map(|(x, y)| (y - x.iter().zip(coefficients).map(|(x, c)| x * c).sum::<f64>()).powi(2))
            .sum();
        if rest < best.1 {
            best = (coefficients, rest);
        }
    }
    best
}

/// Gauss on the normal equations of the used columns; none where they are dependent.
fn normal_equations<const N: usize>(columns: &[[f64; N]], y: &[f64], used: &[usize]) -> Option<Vec<f64>> {
    let n = used.len();
    let mut matrix = vec![vec![0.0; n + 1]; n];
    for (x, y) in columns.iter().zip(y) {
        for (i, &a) in used.iter().enumerate() {
            for (j, &b) in used.iter().enumerate() {
                matrix[i][j] += x[a] * x[b];
            }
            matrix[i][n] += x[a] * y;
        }
    }
    for i in 0..n {
        let pivot = (i..n).max_by(|&a, &b| matrix[a][i].abs().total_cmp(&matrix[b][i].abs()))?;
        matrix.swap(i, pivot);
        let scale = matrix[i][i];
        if scale.abs() < 1e-12 {
            return None;
        }
        for row in 0..n {
            if row != i {
                let factor = matrix[row][i] / scale;
                let pivot = matrix[i].clone();
                matrix[row].iter_mut().zip(pivot).for_each(|(here, pivot)| *here -= factor * pivot);
            }
        }
    }
    Some((0..n).map(|i| matrix[i][n] / matrix[i][i]).collect())
}

/// Exponents that are tried.
fn exponents() -> impl Iterator<Item = f64> {
    (1..=30).map(|i| 0.05 * f64::from(i) * (1.0 + f64::from(i) / 30.0))
}

fn power_law(curve: &Curve, at: f64) -> f64 {
    let skip = curve.steps().len() / 10;
    let (steps, losses) = (&curve.steps()[skip..], &curve.losses()[skip..]);
    let scale = curve.last_step().max(1.0);
    let time = |step: f64| ((step + 1.0) / scale).max(1e-9);
    let mut best = (f64::INFINITY, curve.end(0.1));
    for exponent in exponents() {
        let columns: Vec<[f64; 2]> = steps.iter().map(|step| [1.0, time(*step).powf(-exponent)]).collect();
        let ([a, b], rest) = non_negative(&columns, losses);
        if rest < best.0 {
            best = (rest, a + b * time(at).powf(-exponent));
        }
    }
    best.1
}

/// At most `count` of the points, evenly, the last among them: every point ahead costs as many terms as there
/// are falls of the rate.
fn thinned(points: &[(f64, f64)], count: usize) -> impl Iterator<Item = (f64, f64)> + '_ {
    let kept = points.len().min(count);
    (1..=kept).map(move |i| points[i * points.len() / kept - 1])
}

fn multi_power_law(curve: &Curve, at: f64, ahead: &[(f64, f64)]) -> f64 {
    let Some(rates) = curve.rates() else { return power_law(curve, at) };
    // All points, those ahead included, with the sum of rates so far.
    let mut points: Vec<(f64, f64)> = curve.steps().iter().copied().zip(rates.iter().copied()).collect();
    let seen = points.len();
    let to_come: Vec<(f64, f64)> =
        ahead.iter().copied().filter(|(step, _)| *step > curve.last_step() && *step <= at).collect();
    points.extend(thinned(&to_come, POINTS));
    if points.last().is_none_or(|(step, _)| *step < at) {
        points.push((at, points.last().map_or(0.0, |point| point.1)));
    }
    let mut sums = vec![(points[0].0 + 1.0) * points[0].1];
    for pair in points.windows(2) {
        let before = sums.last().copied().unwrap_or(0.0);
        sums.push(before + (pair[1].0 - pair[0].0) * pair[1].1);
    }
    let scale = sums[seen - 1].max(1e-12);
    let peak = points.iter().map(|point| point.1).fold(1e-12, f64::max);
    let falls: Vec<(usize, f64)> = (1..points.len())
        .map(|k| (k, (points[k - 1].1 - points[k].1) / peak))
        .filter(|(_, fall)| fall.abs() > 1e-9)
        .collect();
    let skip = seen / 10;
    let mut best = (f64::INFINITY, curve.end(0.1));
    for [speed, beta] in [[3.0, 0.5], [10.0, 0.5], [30.0, 0.5], [10.0, 1.0], [100.0, 0.3]] {
        let annealed = |i: usize| -> f64 {
            let gone = |k: usize| 1.0 - (1.0 + speed * (sums[i] - sums[k - 1]) / scale).powf(-beta);
            falls.iter().take_while(|(k, _)| *k <= i).map(|(k, fall)| fall * gone(*k)).sum()
        };
        let terms: Vec<f64> = (0..points.len()).map(annealed).collect();
        for exponent in exponents().step_by(2) {
            let row = |i: usize| [1.0, (sums[i] / scale).max(1e-9).powf(-exponent), -terms[i]];
            let columns: Vec<[f64; 3]> = (skip..seen).map(row).collect();
            let (found, rest) = non_negative(&columns, &curve.losses()[skip..]);
            if rest < best.0 {
                best = (rest, row(points.len() - 1).iter().zip(found).map(|(x, c)| x * c).sum());
            }
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimiser::{Decay, Schedule};

    fn curve(loss: impl Fn(f64) -> f64, steps: usize, rate: Option<&Schedule>) -> Curve {
        Curve::new((0..steps).map(|t| (t as f64, loss(t as f64), rate.map(|rate| rate.rate(t as u64)))))
            .unwrap()
    }

    #[test]
    fn each_formula_continues_what_it_is_the_formula_of() {
        let law = |t: f64| 0.3 + 2.0 * (t + 1.0).powf(-0.4);
        let found = predict(Method::PowerLaw, &curve(law, 200, None), 999.0, &[]);
        assert!((found / law(999.0) - 1.0).abs() < 0.02, "{found} {}", law(999.0));
        let falling = |t: f64| (-0.001 * t).exp();
        let found = predict(Method::Linear, &curve(falling, 200, None), 500.0, &[]);
        assert!((found / falling(500.0) - 1.0).abs() < 0.01, "{found}");
        assert_eq!(predict(Method::LastValue, &curve(|_| 0.7, 50, None), 999.0, &[]), 0.7);
    }

    #[test]
    fn the_multi_power_law_sees_the_rate_fall() {
        let schedule = Schedule { peak: 0.01, warmup: 0, decay: Decay::Linear, decay_share: 0.0, steps: 400 };
        // A run whose loss falls with the rate: the power law in steps cannot know.
        let sum = |t: f64| schedule.area(0, t as u64 + 1);
        let loss =
            |t: f64| 0.5 + 0.05 * sum(t).powf(-0.5) - 20.0 * (0.01 - schedule.rate(t as u64)).powf(1.0) * 0.8;
        let seen = curve(loss, 200, Some(&schedule));
        let ahead: Vec<(f64, f64)> = (200..400).map(|t| (t as f64, schedule.rate(t))).collect();
        let error = |method| (predict(method, &seen, 399.0, &ahead) / loss(399.0) - 1.0).abs();
        assert!(
            error(Method::MultiPowerLaw) < 0.5 * error(Method::PowerLaw),
            "{} {}",
            error(Method::MultiPowerLaw),
            error(Method::PowerLaw)
        );
    }

    #[test]
    fn coefficients_are_not_negative() {
        let columns: Vec<[f64; 2]> = (0..20).map(|i| [1.0, f64::from(i)]).collect();
        let y: Vec<f64> = (0..20).map(|i| 5.0 - 0.1 * f64::from(i)).collect();
        let ([a, b], _) = non_negative(&columns, &y);
        assert!(b == 0.0 && (a - 4.05).abs() < 1e-9, "{a} {b}");
    }
}
