//! Where a loss curve will end, from its first part.

mod across;
mod band;
mod baselines;
mod curve;
mod head;
mod look;
mod score;
mod symmetric;
mod within;

pub use band::{Banded, Calibration, forecast};
pub use baselines::{Method, predict};
pub use curve::{Curve, Reading};
pub use head::{DirectHead, Finished, Foreseen};
pub use look::Question;
pub use score::crps_samples;
