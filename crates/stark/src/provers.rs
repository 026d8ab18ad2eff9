//! Many proofs at once, on one device or on several.

use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar};
use std::thread;

use gatework_gpu::{Device, Locked};
use stwo::core::channel::MerkleChannel;
use stwo::core::pcs::PcsConfig;

use crate::airs::{self, Air, Input, Proved, ProvesWith};
use crate::{Context, CudaBackend, Error, Plan, Result};

/// Proves many statements at once, for throughput: one small proof leaves most of a device idle.
///
/// Each device has several contexts, each with a stream and a thread of its own, and each takes the next
/// statement that nobody has begun. A proof starts when its [`Plan`] fits beside those that run on its
/// device; proofs are let in in the order in which they ask, so that small ones do not keep a large one
/// waiting for ever.
///
/// ```
/// use std::num::NonZeroUsize;
///
/// use gatework_gpu::Device;
/// use gatework_stark::{Provers, airs};
/// use stwo::core::pcs::PcsConfig;
/// use stwo::core::vcs_lifted::blake2_merkle::Blake2sMerkleChannel;
///
/// let provers = Provers::new(&[Device::open("emulated")?], NonZeroUsize::MIN)?;
/// let statements = [4, 5].map(|log_rows| airs::WideFibonacci { log_rows, columns: 3 });
/// let proofs = provers.prove_all::<Blake2sMerkleChannel, _>(&statements, PcsConfig::default());
/// for (statement, proved) in statements.iter().zip(proofs) {
///     assert!(airs::verify(statement, PcsConfig::default(), proved?).is_ok());
/// }
/// # Ok::<(), gatework_stark::Error>(())
/// ```
pub struct Provers {
    lanes: Vec<Lane>,
}

/// A context, and the memory that it shares with the others of its device.
struct Lane {
    context: Context,
    room: Arc<Room>,
}

impl Provers {
    /// Contexts on `devices`, `at_once` for each of them.
    pub fn new(devices: &[Device], at_once: NonZeroUsize) -> Result<Self> {
        let mut lanes = Vec::new();
        for device in devices {
            let room = Arc::new(Room::new(device.budget().free()));
            for _ in 0..at_once.get() {
                let context = Context::of_one_thread(device.stream()?)?;
                lanes.push(Lane { context, room: room.clone() });
            }
        }
        Ok(Self { lanes })
    }

    /// The contexts, those of one device after those of another.
    pub fn contexts(&self) -> impl ExactSizeIterator<Item = &Context> {
        self.lanes.iter().map(|lane| &lane.context)
    }

    /// Makes the traces of `airs` and proves them, each with the bytes that
    /// [`Prover::prove_with`](crate::Prover::prove_with) gives. One that fails does not end the others.
    pub fn prove_all<MC: MerkleChannel, A: Air>(
        &self,
        airs: &[A],
        config: PcsConfig,
    ) -> Vec<Result<Proved<MC::H>>>
    where
        CudaBackend: ProvesWith<MC>,
        Proved<MC::H>: Send,
    {
        let next = AtomicUsize::new(0);
        let work = |lane: &Lane| {
            let mut done = Vec::new();
            while let Some((index, air)) = {
                let index = next.fetch_add(1, Ordering::Relaxed);
                airs.get(index).map(|air| (index, air))
            } {
                done.push((index, lane.prove::<MC, A>(air, config)));
            }
            done
        };
        let mut results = thread::scope(|scope| {
            let workers: Vec<_> = self.lanes.iter().map(|lane| scope.spawn(|| work(lane))).collect();
            let joined =
                workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
            joined.flatten().collect::<Vec<_>>()
        });
        results.sort_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

impl Lane {
    fn prove<MC: MerkleChannel, A: Air>(&self, air: &A, config: PcsConfig) -> Result<Proved<MC::H>>
    where
        CudaBackend: ProvesWith<MC>,
        Proved<MC::H>: Send,
    {
        airs::require_provable(air, config)?;
        let plan = <CudaBackend as ProvesWith<MC>>::plan(airs::plan(air, config));
        let _admitted = self.room.admit(&plan, self.context.device())?;
        self.context.scope(|| {
            let input = Input::<CudaBackend>::new(air, config);
            airs::prove_with::<MC, _, _>(air, config, input)
        })?
    }
}

/// Bytes that a context keeps between proofs, beside the plan of the next: programs of other AIRs.
const KEPT: u64 = 64 << 10;

/// The memory of a device, which proofs are let into in the order in which they ask.
struct Room {
    capacity: u64,
    state: Locked<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    held: u64,
    /// Who asks next is given this number,
    next: u64,
    /// and who has this one is let in next.
    admitted: u64,
}

/// A proof's part of the memory, until it is dropped.
struct Admitted<'a> {
    room: &'a Room,
    bytes: u64,
}

impl Room {
    fn new(capacity: u64) -> Self {
        Self { capacity, state: Locked::default(), changed: Condvar::new() }
    }

    /// Waits until the proof's turn has come and there is room for it; refuses one that never fits.
    fn admit(&self, plan: &Plan, device: &Device) -> Result<Admitted<'_>> {
        let bytes = plan.peak_bytes() + KEPT;
        if bytes > self.capacity {
            let way_out = "prove it with Prover, which streams its columns or has several devices, or prove fewer \
                           rows or columns";
            return Err(Error::too_large(device, bytes, self.capacity, way_out));
        }
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        while state.admitted != number || state.held + bytes > self.capacity {
            state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        state.held += bytes;
        state.admitted += 1;
        drop(state);
        self.changed.notify_all();
        Ok(Admitted { room: self, bytes })
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.room.state.lock().held -= self.bytes;
        self.room.changed.notify_all();
    }
}
