//! Timing on a device: interleaved pairs, a warm device, clocks watched, and what the machine could do at
//! best.

mod bandwidth;
mod clocks;
mod host;
mod recorded;
mod rounds;
mod shield;
mod station;
mod timer;
mod turns;

pub use crate::record::{
    BenchRecord, CopyBandwidth, PeerRecord, PerformanceRecord, RateRecord, RecordedPromise, SideRecord,
};
pub use crate::roofline::{Arithmetic, Bound, Roofline};
pub use host::{HostBench, HostRecord};
pub use recorded::RecordedTimes;
pub use station::{PerformanceOptions, Station};
