//! Timing on a device: interleaved pairs, a warm device, clocks watched, and what the machine could do at best.

mod bandwidth;
mod clocks;
mod host;
mod record;
mod roofline;
mod rounds;
mod shield;
mod station;
mod timer;
mod turns;

pub use host::{HostBench, HostRecord};
pub use record::{BenchRecord, CopyBandwidth, PeerRecord, PerformanceRecord, RateRecord, SideRecord};
pub use roofline::{Arithmetic, Bound, Roofline};
pub use station::{PerformanceOptions, Station};
