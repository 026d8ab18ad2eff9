//! Pool to device and back over two streams, ordered by events alone.

use std::ops::Range;

use gatework_gpu::{Device, Kind, Pinned, Stream};

use crate::{Case, Control, ErrorBudget, Inputs, KernelSpec, Outputs, RunError, Work, Workload, poisoned};

/// Trips that are in flight at once.
const CHUNKS: usize = 4;

/// `gpu/pinned-copy`.
pub(super) struct PinnedCopy;

/// Bytes from 1 to 254: 0 and 0xff are what a byte is that was never copied.
fn input(case: &Case, seed: u64) -> Vec<u8> {
    Inputs::new(seed).integers(case.dimension("bytes"), 1..255).into_iter().map(|byte| byte as u8).collect()
}

/// Where each chunk lies. The last takes what is left, so that sizes are odd.
fn chunks(len: usize) -> Vec<Range<usize>> {
    let size = (len / CHUNKS).max(1);
    let count = CHUNKS.min(len);
    (0..count).map(|index| index * size..if index + 1 == count { len } else { (index + 1) * size }).collect()
}

/// One chunk on its way: both page-locked ends.
struct Trip {
    outward: Pinned<u8>,
    back: Pinned<u8>,
}

impl Trip {
    /// Queues the way up on one stream and the way down on the other, without waiting for either.
    fn start(up: &Stream, down: &Stream, bytes: &[u8]) -> gatework_gpu::Result<Self> {
        let pool = up.device().pinned();
        let mut trip = Self { outward: pool.take(bytes.len())?, back: pool.take(bytes.len())? };
        trip.outward.write()?.copy_from_slice(bytes);
        trip.back.write()?.fill(0xff);
        let mut buffer = poisoned::<u8>(up, bytes.len())?;
        up.copy_from_pinned(&trip.outward, &mut buffer)?;
        down.wait(&up.record()?)?;
        down.copy_to_pinned(&buffer, &mut trip.back)?;
        Ok(trip)
    }
}

/// Sends all chunks at once, then collects them.
fn round_trip(up: &Stream, down: &Stream, bytes: &[u8]) -> gatework_gpu::Result<Vec<u8>> {
    let trips = chunks(bytes.len())
        .into_iter()
        .map(|chunk| Trip::start(up, down, &bytes[chunk]))
        .collect::<gatework_gpu::Result<Vec<_>>>()?;
    let mut collected = Vec::with_capacity(bytes.len());
    for trip in &trips {
        collected.extend_from_slice(trip.back.read()?);
    }
    Ok(collected)
}

/// What the pool must report for a round trip whose blocks are all there: two blocks a chunk, nothing locked anew.
fn expected_pool_counts(bytes: usize) -> Vec<u64> {
    vec![2 * chunks(bytes).len() as u64, 0]
}

impl Workload for PinnedCopy {
    fn name(&self) -> &str {
        "gpu/pinned-copy"
    }

    fn summary(&self) -> &str {
        "page-locked round trips over two streams ordered by events, and the pool's hits"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        Vec::new()
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let sizes: &[usize] = match kind {
            Kind::Emulated => &[1, 31, 4097, 1_000_003],
            Kind::Cuda => &[1, 31, 4097, 1_000_003, 16 << 20],
        };
        sizes.iter().map(|&bytes| Case::new(format!("bytes{bytes}")).with("bytes", bytes)).collect()
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let bytes = input(case, seed);
        let (up, down) = (device.stream()?, device.stream()?);
        let first = round_trip(&up, &down, &bytes)?;
        let before = device.pinned().stats();
        let second = round_trip(&up, &down, &bytes)?;
        let after = device.pinned().stats();
        let pool = vec![after.hits - before.hits, after.misses - before.misses];
        Ok(Outputs::new().with("first", first).with("second", second).with("pool", pool))
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        let bytes = input(case, seed);
        let pool = expected_pool_counts(bytes.len());
        Outputs::new().with("first", bytes.clone()).with("second", bytes).with("pool", pool)
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let bytes = input(case, seed);
        let with_second = |second: Vec<u8>| {
            let pool = expected_pool_counts(bytes.len());
            Outputs::new().with("first", bytes.clone()).with("second", second).with("pool", pool)
        };
        let mut stale = bytes.clone();
        if let Some(last) = chunks(bytes.len()).pop() {
            stale[last].fill(0xff);
        }
        let missed = Outputs::new().with("first", bytes.clone()).with("second", bytes.clone());
        vec![
            Control::zeros(reference),
            Control::one_off(reference, "first", bytes.len() / 2, 1.0),
            Control::new("a chunk that never came back", with_second(stale)),
            Control::new(
                "a pool that never hits",
                missed.with("pool", vec![0, 2 * chunks(bytes.len()).len() as u64]),
            ),
        ]
    }

    fn work(&self, case: &Case) -> Work {
        Work { operations: 0, bytes: 4 * case.dimension("bytes") as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_everything_once() {
        for len in [1, 2, 3, 4, 5, 31, 4097] {
            let covered: Vec<usize> = chunks(len).into_iter().flatten().collect();
            assert_eq!(covered, (0..len).collect::<Vec<_>>());
        }
    }
}
