//! The 64 features, before they are normalised.
//!
//! With `L` the training loss of a step, `E_n` its exponential average over about `n` steps, and for each of
//! four bands of layers (a quarter of the groups each, from the input on) the gradient `g`, the weights `w`,
//! the step `u` and the step before it `u'`, the moments `m` and `v`. A band without gradients, because it is
//! frozen, keeps what it last had.

use serde::{Deserialize, Serialize};

use super::series::Series;
use crate::optimiser::{Schedule, Sums};
use crate::trainee::Statistics;

/// How many there are.
pub const FEATURES: usize = 64;
/// One step's features.
pub type Features = [f64; FEATURES];

const BANDS: usize = 4;
/// Features of each band.
const OF_BAND: usize = 8;
const FIRST_OF_BANDS: usize = 20;
const FIRST_OF_WHOLE: usize = FIRST_OF_BANDS + BANDS * OF_BAND;

/// Names of the features in logs.
pub const NAMES: [&str; FEATURES] = [
    "ln L",
    "ln E8",
    "ln E32",
    "ln E128",
    "ln E8 - ln E32",
    "ln E32 - ln E128",
    "slope of ln L over 16",
    "slope of ln L over 64",
    "deviation of ln L over 16",
    "deviation of ln L over 64",
    "autocorrelation of ln L over 64",
    "ln E8 above its lowest",
    "highest ln L of 64 above ln E32",
    "curvature: (ln E8 - ln E32) - (ln E32 - ln E128)",
    "ln(1 + steps since the lowest E8)",
    "skewness of ln L over 64",
    "ln probe loss",
    "ln probe loss - ln E32",
    "change of ln probe loss at the last probe",
    "ln probe loss above its lowest",
    "band 1: ln |g|",
    "band 1: ln |w|",
    "band 1: ln |u|",
    "band 1: ln |w| above its average over 64",
    "band 1: cosine of u and u'",
    "band 1: ln |m| - ln |g|",
    "band 1: ln |m|^2 - ln sum v",
    "band 1: ln of its share of |g|^2",
    "band 2: ln |g|",
    "band 2: ln |w|",
    "band 2: ln |u|",
    "band 2: ln |w| above its average over 64",
    "band 2: cosine of u and u'",
    "band 2: ln |m| - ln |g|",
    "band 2: ln |m|^2 - ln sum v",
    "band 2: ln of its share of |g|^2",
    "band 3: ln |g|",
    "band 3: ln |w|",
    "band 3: ln |u|",
    "band 3: ln |w| above its average over 64",
    "band 3: cosine of u and u'",
    "band 3: ln |m| - ln |g|",
    "band 3: ln |m|^2 - ln sum v",
    "band 3: ln of its share of |g|^2",
    "band 4: ln |g|",
    "band 4: ln |w|",
    "band 4: ln |u|",
    "band 4: ln |w| above its average over 64",
    "band 4: cosine of u and u'",
    "band 4: ln |m| - ln |g|",
    "band 4: ln |m|^2 - ln sum v",
    "band 4: ln of its share of |g|^2",
    "ln |g| of all",
    "ln |g| of all above its average over 32",
    "deviation of ln |g| of all over 32",
    "cosine of u and u' of all",
    "cosine of u and u' of all, average over 16",
    "ln gradient noise scale",
    "ln gradient noise scale, average over 32",
    "ln(rate / peak rate)",
    "part of the steps that is done",
    "part of the schedule's area that is left",
    "rate 16 steps ahead over the rate now, less 1",
    "ln |u| of all - ln rate",
];

/// The observed quantities of a step.
#[derive(Debug, Clone, Copy)]
pub struct Observation<'a> {
    /// Its number.
    pub step: u64,
    /// Its statistics.
    pub statistics: &'a Statistics,
    /// The last probe loss, once there is one.
    pub probe: Option<f64>,
    /// The schedule it was taken by.
    pub schedule: &'a Schedule,
    /// The rate that it was really taken at.
    pub rate: f64,
}

/// An exponential average over about so many steps, from its first value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Smooth(Option<f64>);

impl Smooth {
    fn take(&mut self, value: f64, steps: f64) -> f64 {
        let smooth = self.0.map_or(value, |before| before + (value - before) / steps);
        self.0 = Some(smooth);
        smooth
    }
}

/// The history that features need. Every step gives its loss; features are computed at the steps that are
/// looked at, in one pass over their statistics and at most 64 values of history. Averages over `n` steps
/// fade by the steps since the last look.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateTracker {
    losses: Series,
    gradients: Series,
    smooth: [Smooth; 3],
    looked_at: Option<u64>,
    lowest: f64,
    since_lowest: u64,
    probe: Option<f64>,
    probe_change: f64,
    lowest_probe: f64,
    bands: [[f64; OF_BAND]; BANDS],
    weight_average: [Smooth; BANDS],
    gradient_average: Smooth,
    cosine_average: Smooth,
    noise_average: Smooth,
    area: Option<f64>,
    area_left: f64,
}

impl Default for StateTracker {
    fn default() -> Self {
        Self {
            losses: Series::new(64),
            gradients: Series::new(32),
            smooth: Default::default(),
            looked_at: None,
            lowest: f64::INFINITY,
            since_lowest: 0,
            probe: None,
            probe_change: 0.0,
            lowest_probe: f64::INFINITY,
            bands: [[0.0; OF_BAND]; BANDS],
            weight_average: Default::default(),
            gradient_average: Smooth::default(),
            cosine_average: Smooth::default(),
            noise_average: Smooth::default(),
            area: None,
            area_left: 0.0,
        }
    }
}

/// The logarithm of something that should be above zero, within what single precision can hold.
fn log(x: f64) -> f64 {
    if x.is_nan() { 0.0 } else { x.clamp(1e-30, 1e30).ln() }
}

/// What an average over `count` steps is of, where there is a value every `steps`.
fn over(count: f64, steps: f64) -> f64 {
    (count / steps).max(1.0)
}

fn cosine(sums: &Sums) -> f64 {
    let scale = (sums.update * sums.before).sqrt();
    if scale > 0.0 { (sums.along / scale).clamp(-1.0, 1.0) } else { 0.0 }
}

impl StateTracker {
    /// The smoothed training loss, over about 8 steps; none before the first step.
    pub fn smooth_loss(&self) -> Option<f64> {
        self.smooth[0].0
    }

    /// Takes in the loss of a step.
    pub fn take_loss(&mut self, loss: f64) {
        self.losses.push(log(loss));
        for (smooth, steps) in self.smooth.iter_mut().zip([8.0, 32.0, 128.0]) {
            smooth.take(loss.min(1e30), steps);
        }
        let fast = self.smooth[0].0.unwrap_or(f64::INFINITY);
        if fast < self.lowest {
            (self.lowest, self.since_lowest) = (fast, 0);
        } else {
            self.since_lowest += 1;
        }
    }

    /// Looks at the step whose loss came last.
    pub fn observe(&mut self, seen: &Observation<'_>) -> Features {
        let steps = self.looked_at.map_or(1, |before| seen.step.saturating_sub(before).max(1)) as f64;
        let mut features = [0.0; FEATURES];
        self.loss_features(&mut features);
        self.probe_features(seen.probe, features[2], &mut features);
        self.band_features(seen.statistics, steps, &mut features);
        self.whole_features(seen, steps, &mut features);
        self.looked_at = Some(seen.step);
        features
    }

    fn loss_features(&self, features: &mut Features) {
        let level = self.losses.last();
        let [fast, middle, slow] = self.smooth.map(|smooth| log(smooth.0.unwrap_or(f64::NAN)));
        let lowest = log(self.lowest);
        let (short, long) = (self.losses.line(16), self.losses.line(64));
        features[..16].copy_from_slice(&[
            level,
            fast,
            middle,
            slow,
            fast - middle,
            middle - slow,
            short.slope,
            long.slope,
            short.deviation,
            long.deviation,
            long.correlation,
            fast - lowest,
            self.losses.highest() - middle,
            (fast - middle) - (middle - slow),
            (self.since_lowest as f64).ln_1p(),
            long.skewness,
        ]);
    }

    fn probe_features(&mut self, probe: Option<f64>, middle: f64, features: &mut Features) {
        if let Some(probe) = probe.map(log) {
            if let Some(before) = self.probe.filter(|before| *before != probe) {
                self.probe_change = probe - before;
            }
            self.probe = Some(probe);
            self.lowest_probe = self.lowest_probe.min(probe);
            features[16..20].copy_from_slice(&[
                probe,
                probe - middle,
                self.probe_change,
                probe - self.lowest_probe,
            ]);
        }
    }

    fn band_features(&mut self, statistics: &Statistics, steps: f64, features: &mut Features) {
        let groups = &statistics.groups;
        let all: f64 = groups.iter().map(|sums| sums.gradient).sum();
        for (band, kept) in self.bands.iter_mut().enumerate() {
            // With fewer groups than bands, neighbours share one.
            let from = (band * groups.len() / BANDS).min(groups.len().saturating_sub(1));
            let to = ((band + 1) * groups.len() / BANDS).max(from + 1).min(groups.len());
            let sums = groups[from..to].iter().fold(Sums::default(), |all, sums| all + *sums);
            if sums.parameters > 0.0 {
                let size = log(sums.weight.sqrt());
                let average = self.weight_average[band].take(size, over(64.0, steps));
                *kept = [
                    log(sums.gradient.sqrt()),
                    size,
                    log(sums.update.sqrt()),
                    size - average,
                    cosine(&sums),
                    log(sums.first_moment.sqrt()) - log(sums.gradient.sqrt()),
                    log(sums.first_moment) - log(sums.second_moment),
                    log(sums.gradient / all),
                ];
            }
            features[FIRST_OF_BANDS + band * OF_BAND..][..OF_BAND].copy_from_slice(kept);
        }
    }

    fn whole_features(&mut self, seen: &Observation<'_>, steps: f64, features: &mut Features) {
        let all = seen.statistics.groups.iter().fold(Sums::default(), |all, sums| all + *sums);
        let gradient = log(all.gradient.sqrt());
        self.gradients.push(gradient);
        let average = self.gradient_average.take(gradient, over(32.0, steps));
        let along = cosine(&all);
        let noise = log(seen.statistics.noise_scale);
        let schedule = seen.schedule;
        let total = *self.area.get_or_insert_with(|| {
            self.area_left = schedule.area(seen.step, schedule.steps);
            schedule.area(0, schedule.steps)
        });
        let from = self.looked_at.map_or(seen.step, |before| before + 1);
        self.area_left -= schedule.area(from, seen.step + 1);
        let now = schedule.rate(seen.step);
        features[FIRST_OF_WHOLE..].copy_from_slice(&[
            gradient,
            gradient - average,
            self.gradients.line(32).deviation,
            along,
            self.cosine_average.take(along, over(16.0, steps)),
            noise,
            self.noise_average.take(noise, over(32.0, steps)),
            log(seen.rate / schedule.peak),
            seen.step as f64 / schedule.steps.max(1) as f64,
            if total > 0.0 { (self.area_left / total).max(0.0) } else { 0.0 },
            if now > 0.0 { schedule.rate(seen.step + 16) / now - 1.0 } else { 0.0 },
            log(all.update.sqrt()) - log(seen.rate),
        ]);
    }
}

#[cfg(test)]
#[path = "features_tests.rs"]
mod tests;
