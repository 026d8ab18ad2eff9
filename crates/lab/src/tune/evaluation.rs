//! What happens to one configuration.

use crate::record::tuning::{HeldOut, Rejection, Score, Trial, TrialOutcome};
use crate::space::Configuration;

/// Takes configurations through the gates. The tuner calls it in this order and no other.
pub trait Evaluator {
    /// Compiles it, and returns what tells its program from others: equal identities are the same program.
    fn identify(&mut self, configuration: &Configuration) -> Result<String, Rejection>;

    /// Whether it is right.
    fn check(&mut self, configuration: &Configuration) -> Result<(), Rejection>;

    /// How fast it is. Never called for a configuration that was not found right.
    fn time(&mut self, configuration: &Configuration) -> Result<Score, Rejection>;

    /// The winner against the default, on shapes and seeds that no call above has used.
    fn judge(&mut self, winner: &Configuration, default: &Configuration) -> Result<Vec<HeldOut>, Rejection>;
}

/// Takes a configuration through the gates, as far as it gets.
pub(super) fn try_out(
    configuration: Configuration,
    evaluator: &mut dyn Evaluator,
    earlier: &[Trial],
) -> Trial {
    let identity = match evaluator.identify(&configuration) {
        Ok(identity) => identity,
        Err(rejection) => {
            return Trial { configuration, identity: None, outcome: TrialOutcome::Rejected { rejection } };
        }
    };
    let same = earlier.iter().position(|trial| trial.identity.as_ref() == Some(&identity));
    let outcome = match same {
        Some(trial) => TrialOutcome::SameAs { trial },
        None => match evaluator.check(&configuration).and_then(|()| evaluator.time(&configuration)) {
            Ok(score) => TrialOutcome::Timed { score },
            Err(rejection) => TrialOutcome::Rejected { rejection },
        },
    };
    Trial { configuration, identity: Some(identity), outcome }
}
