//! The bandwidth of a device-to-device copy and of the link to the host: what floors are made of.

use std::time::Instant;

use gatework_gpu::{Device, Stream};

use super::shield::Shield;
use super::timer::{Lead, Timer};
use crate::bench::{Side, Timing};
use crate::case::RunError;
use crate::inputs::{Inputs, repeated};
use crate::record::CopyBandwidth;
use crate::stats::median;

/// Bytes copied, as long as a quarter of the memory has room for both ends.
const BYTES: u64 = 1 << 30;
const EMULATED_BYTES: u64 = 4096;
const LINK_BYTES: usize = 64 << 20;
const LINK_SAMPLES: usize = 11;
const WARM_UP: usize = 10;
const SAMPLES: usize = 50;
/// Values that are repeated over the buffer: random, because constant data is easier on the wires.
const PATTERN: usize = 1 << 22;

/// Bytes a second from page-locked memory to the device: the median of uploads of 64 MiB.
pub(super) fn measure_link(device: &Device, stream: &Stream) -> Result<f64, RunError> {
    let len = if device.is_emulated() { EMULATED_BYTES as usize / 4 } else { LINK_BYTES / 4 };
    let host = device.pinned().take::<u32>(len)?;
    let mut to = stream.alloc::<u32>(len)?;
    let mut samples = Vec::new();
    for _ in 0..LINK_SAMPLES {
        stream.synchronize()?;
        let start = Instant::now();
        stream.copy_from_pinned(&host, &mut to)?;
        stream.synchronize()?;
        samples.push(start.elapsed().as_nanos() as f64);
    }
    Ok(1e9 * 4.0 * len as f64 / median(&samples).unwrap_or(f64::NAN))
}

pub(super) fn measure(
    device: &Device,
    stream: &Stream,
    shield: &mut Shield,
) -> Result<CopyBandwidth, RunError> {
    let bytes =
        if device.is_emulated() { EMULATED_BYTES } else { BYTES.min(device.properties().memory_bytes / 8) };
    let len = (bytes / 4) as usize;
    let from = repeated(stream, &Inputs::new(0).words(PATTERN.min(len)), len)?;
    let mut to = stream.alloc::<u32>(len)?;
    let copy = Side::new("copy", move |stream| stream.copy(&from, &mut to));
    let mut timer = Timer::new(copy, Timing::Launches { count: 1 }, Lead::ShieldAndRun, stream)?;
    for _ in 0..WARM_UP {
        timer.sample(stream, shield)?;
    }
    let samples = (0..SAMPLES).map(|_| timer.sample(stream, shield)).collect::<Result<Vec<_>, _>>()?;
    let median_ns = median(&samples).unwrap_or(f64::NAN);
    let moved = 2 * 4 * len as u64;
    Ok(CopyBandwidth { bytes: moved, median_ns, bytes_per_second: 1e9 * moved as f64 / median_ns })
}
