//! Pool to device and back over two streams, ordered by events alone.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use gatework_gpu::{Device, Kind, Pinned, Stream};

use super::BENCH_SEED;
use crate::{
    Bench, Case, Control, ErrorBudget, Evidence, Inputs, KernelSpec, Outputs, RunError, Side, Timing, Work,
    Workload, poisoned,
};

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
        collected.extend_from_slice(&trip.back.read()?);
    }
    Ok(collected)
}

/// What the pool must report for a round trip whose blocks are all there: two blocks a chunk, nothing locked
/// anew.
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

    fn bench_cases(&self, kind: Kind) -> Vec<Case> {
        let bytes = if kind == Kind::Cuda { 64 << 20 } else { 4097 };
        vec![Case::new(format!("bytes{bytes}")).with("bytes", bytes)]
    }

    fn bench(&self, device: &Device, case: &Case) -> Result<Option<Bench>, RunError> {
        let bytes = input(case, BENCH_SEED);
        // One way up and one down.
        let work = Work { operations: 0, bytes: 2 * bytes.len() as u64 };
        let (candidate, evidence) = pinned_side(device, &bytes)?;
        let baseline = pageable_side(device, bytes)?;
        let bench = Bench::new(work, candidate, baseline).timing(Timing::Wall);
        let bench =
            bench.shown_by(evidence).expect_at_most(0.5, "pageable copies go through a staging buffer");
        let pool = device.pinned().clone();
        Ok(Some(bench.expect_rate("pool hits", 0.80, move || {
            let stats = pool.stats();
            (stats.hits, stats.hits + stats.misses)
        })))
    }
}

/// Up and down through blocks of the pool, which are given back and taken anew before every run.
fn pinned_side(device: &Device, bytes: &[u8]) -> Result<(Side, Evidence), RunError> {
    let stream = device.stream()?;
    let mut buffer = stream.alloc::<u8>(bytes.len())?;
    stream.synchronize()?;
    let ends: Rc<RefCell<Option<[Pinned<u8>; 2]>>> = Rc::default();
    let spoils = Rc::new(Cell::new(false));
    let evidence = evidence(bytes.to_vec(), ends.clone(), spoils.clone());
    let (pool, bytes, taken) = (device.pinned().clone(), bytes.to_vec(), ends.clone());
    let prepare = move || -> gatework_gpu::Result<()> {
        taken.take();
        let mut outward = pool.take(bytes.len())?;
        outward.write()?.copy_from_slice(&bytes);
        let mut back = pool.take(bytes.len())?;
        if spoils.take() {
            back.write()?.copy_from_slice(&bytes.iter().map(|byte| !byte).collect::<Vec<u8>>());
        }
        taken.replace(Some([outward, back]));
        Ok(())
    };
    let copies =
        Side::new("pinned, from the pool", move |stream: &Stream| match ends.borrow_mut().as_mut() {
            Some([outward, back]) => {
                stream.copy_from_pinned(outward, &mut buffer)?;
                stream.copy_to_pinned(&buffer, back)
            }
            None => Ok(()),
        });
    Ok((copies.prepared_by(prepare), evidence))
}

/// What came back is what was sent. Blocks are taken anew before every run, so that the next one is spoiled
/// then.
fn evidence(bytes: Vec<u8>, ends: Rc<RefCell<Option<[Pinned<u8>; 2]>>>, spoils: Rc<Cell<bool>>) -> Evidence {
    Evidence::new(
        ErrorBudget::Exact,
        move |_| {
            spoils.set(true);
            Ok(())
        },
        move |_| match ends.borrow_mut().as_mut() {
            Some([_, back]) => Ok(Outputs::new().with("bytes", back.read()?.to_vec())),
            None => Ok(Outputs::new()),
        },
        move |_| Ok(Outputs::new().with("bytes", bytes.clone())),
    )
}

/// Up and down from ordinary memory.
fn pageable_side(device: &Device, bytes: Vec<u8>) -> Result<Side, RunError> {
    let stream = device.stream()?;
    let mut buffer = stream.alloc::<u8>(bytes.len())?;
    stream.synchronize()?;
    let mut back = vec![0; bytes.len()];
    Ok(Side::new("pageable", move |stream| {
        stream.copy_from_host(&bytes, &mut buffer)?;
        stream.copy_to_host(&buffer, &mut back)
    }))
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
