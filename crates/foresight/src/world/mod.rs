//! The world model: an ensemble of recurrent state-space models of a training run.
//!
//! It sees a run in *ticks* of a few steps. Between two ticks an action is in effect; what the model learns
//! is how the logarithm of the loss changes over a tick under each of them.

mod ensemble;
mod episode;
mod gru;
mod linear;
mod member;
mod rollout;

pub use ensemble::{Ensemble, Imagined, RecurrentState, WorldOptions};
pub use episode::{ACTION, Episode, Replay, Source, Tick};
pub use gru::Reset;
pub use member::Losses;
pub use rollout::{Path, RolloutMetrics, States};

/// What the kernels' host code and the lab's workloads look into.
#[cfg(feature = "cuda")]
pub(crate) mod inside {
    pub(crate) use super::ensemble::{BETAS, CLIP, corrections};
    pub(crate) use super::gru::Gru;
    #[cfg(feature = "lab")]
    pub(crate) use super::gru::Scratch;
    pub(crate) use super::linear::Linear;
    #[cfg(test)]
    pub(crate) use super::member::Member;
    pub(crate) use super::member::{Slice, Weights};
    #[cfg(test)]
    pub(crate) use super::rollout::gumbel;
}
