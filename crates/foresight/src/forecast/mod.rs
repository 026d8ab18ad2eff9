//! Where a loss curve will end, from its first part.

mod band;
mod baselines;
mod curve;
mod head;
mod score;

pub use band::{Banded, Calibration, forecast};
pub use baselines::{Method, predict};
pub use curve::{Curve, Reading};
pub use head::{DirectHead, Foreseen};
pub use score::{crps_normal, crps_of_band};
