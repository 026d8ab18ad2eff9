//! How often the engine looks, decides and learns, so that all of it stays a small part of the training
//! itself.

use super::options::EngineOptions;
use crate::world::Ensemble;

/// Time of a multiply-add of the world model's products of one row, over one of a batch's.
const SMALL_PRODUCTS: f64 = 5.0;
/// Multiply-adds that the sums of a step's statistics take for each parameter, and the features for all of
/// them.
const STATISTICS: f64 = 10.0;
const FEATURES: f64 = 20_000.0;
/// The same for a state to roll back to: weights, average, moments and the last step are copied.
const SNAPSHOT: f64 = 30.0;
/// Parts of the share that looks, decisions and updates may take.
const LOOKS: f64 = 0.35;
const DECISIONS: f64 = 0.15;
const UPDATES: f64 = 0.5;
/// The part that states to roll back to may take on top of it.
const SNAPSHOTS: f64 = 0.2;
/// A world model that would learn less often than this in a run is left out.
const LEAST_UPDATES: u64 = 8;

/// Steps between two looks, decisions, updates and states to roll back to. All follow from counted
/// multiply-adds, so that runs repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cadence {
    /// Between two looks at the statistics, which are ticks of the world model.
    pub(super) look: u64,
    /// Between two decisions: a multiple of `look`.
    pub(super) decide: u64,
    /// Between two updates of the world model; none where it does not fit beside so small a network.
    pub(super) learn: Option<u64>,
    /// Between two states to roll back to.
    pub(super) safe: u64,
}

impl Cadence {
    /// For a network of `parameters` whose step is `step` multiply-adds, in a run of `steps`.
    pub(super) fn of(
        options: &EngineOptions,
        ensemble: &Ensemble,
        parameters: usize,
        step: f64,
        steps: u64,
    ) -> Self {
        let period = |work: f64, part: f64| {
            let least = work / (part * options.predictor_share * step);
            if least.is_finite() { least.ceil() as u64 } else { u64::MAX }
        };
        let features = STATISTICS * parameters as f64 + FEATURES;
        let learn = period(SMALL_PRODUCTS * ensemble.update_work(), UPDATES).max(options.learn_every);
        let with_model = period(features + SMALL_PRODUCTS * ensemble.look_work(), LOOKS);
        let fits = options.learn_every > 0
            && with_model <= options.horizon
            && learn.saturating_mul(LEAST_UPDATES) <= steps;
        let look = if fits { with_model } else { period(features, LOOKS) };
        let look = look.div_ceil(options.tick).saturating_mul(options.tick).max(options.tick);
        let rollout = options.horizon.div_ceil(look) as f64 * ensemble.look_work();
        let deciding = if fits { SMALL_PRODUCTS * rollout } else { FEATURES };
        let decide = period(deciding, DECISIONS).max(options.decide_every);
        let safe = period(SNAPSHOT * parameters as f64, SNAPSHOTS).max(options.safe_every);
        Self { look, decide: decide.div_ceil(look).saturating_mul(look), learn: fits.then_some(learn), safe }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::WorldOptions;

    #[test]
    fn the_counted_share_is_kept_and_a_model_that_does_not_fit_is_left_out() {
        let options = EngineOptions::default();
        let ensemble = Ensemble::new(WorldOptions::default(), 1).unwrap();
        for (step, parameters) in [(2e5, 1_200), (6.5e5, 4_800), (1e8, 20_000), (1e12, 100_000_000)] {
            let Cadence { look, decide, learn, safe } =
                Cadence::of(&options, &ensemble, parameters, step, 10_000);
            assert!(decide.is_multiple_of(look) && look.is_multiple_of(options.tick));
            let model = SMALL_PRODUCTS * if learn.is_some() { ensemble.look_work() } else { 0.0 };
            let rollout = model * options.horizon.div_ceil(look) as f64;
            let looks = (STATISTICS * parameters as f64 + FEATURES + model) / look as f64;
            let updates = learn.map_or(0.0, |learn| SMALL_PRODUCTS * ensemble.update_work() / learn as f64);
            let share = (looks + updates + rollout / decide as f64) / step;
            assert!(share <= options.predictor_share + 1e-12, "{share} at {step}");
            assert_eq!(learn.is_some(), step > 1e6, "{step}");
            let copies = SNAPSHOT * parameters as f64 / safe as f64 / step;
            assert!(safe >= options.safe_every && copies <= SNAPSHOTS * options.predictor_share + 1e-12);
        }
    }
}
