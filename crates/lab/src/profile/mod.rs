//! The profile gate: one launch under Nsight Compute, and what bounds it.

mod csv;
mod metrics;
mod ncu;
mod rules;

pub use ncu::{ProfileError, ProfiledProgram, profile};
pub use rules::{BoundBy, Utilisation};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The metrics of one profiled launch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfileRecord {
    /// The profiler and its version.
    pub tool: String,
    /// The case that was launched.
    pub case: String,
    /// One for each launch that was profiled.
    pub launches: Vec<LaunchProfile>,
    /// Metrics that the profiler does not have on this device.
    pub missing: Vec<String>,
}

/// One launch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaunchProfile {
    /// The kernel's name.
    pub kernel: String,
    /// How busy its units were, in percent of what they can do.
    pub utilisation: Utilisation,
    /// The resource that bounds the kernel.
    pub bound_by: BoundBy,
    /// A suggestion of what to try next.
    pub advice: String,
    /// Every number as the profiler named it.
    pub metrics: BTreeMap<String, f64>,
}

/// Whether a text of the profiler has launches.
#[cfg(feature = "fuzzing")]
pub(crate) fn reads_launches(text: &str) -> bool {
    !csv::launches(text).is_empty()
}
