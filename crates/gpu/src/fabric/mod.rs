//! Ranks that work together: send, receive, broadcast, gather, all-to-all, reduce, over devices or host
//! threads.
//!
//! # What is the same
//!
//! What an operation gives is defined by its arguments alone. It does not depend on the place (threads,
//! emulated devices, virtual devices, cards), on the way that bytes take, on which rank comes first, or on
//! how the devices schedule their work. Reductions fold rows in the order of ranks ([`Reduction`]), so that a
//! computation which deals the same rows out over 1, 2, 4 or 8 ranks has the same bits on all of them.
//!
//! # How bytes go
//!
//! Every rank offers what others may read, with an event of its stream. When all have met and their calls
//! agree, each queues on its own stream: waits for the events, peer copies into its own memory, an event of
//! its end. They meet once more, and each stream waits for the ends of those that read from it. So calls
//! return when the work is queued, the host never waits for a device but in [`Rank::settle`], and buffers may
//! be used again in the order of the stream.

mod failure;
mod fold;
mod host;
mod hub;
mod nccl;
mod offered;
mod on_devices;
mod place;
mod rank;
mod traffic;

use std::sync::Arc;
use std::time::Duration;

pub use fold::{Element, Operation, Reduction, part_of};
pub use host::Host;
pub use on_devices::Devices;
pub use place::Place;
pub use rank::Rank;
pub use traffic::{Meter, Traffic};

use self::hub::Hub;
use self::nccl::Communicator;
use self::on_devices::Way;
use crate::{Device, Error, Result};

/// A rank on a device.
pub type DeviceRank = Rank<Devices>;
/// A rank that is a thread.
pub type HostRank = Rank<Host>;

/// How long a call waits for the other ranks, unless it is told.
const DEADLINE: Duration = Duration::from_secs(30);

/// What ranks are made from.
///
/// ```
/// use gatework_gpu::fabric::{DeviceRank, Fabric, Operation, Reduction};
/// use gatework_gpu::{Device, Result, View, ViewMut};
///
/// let devices = Device::open_all("emulated:4")?;
/// let ranks = Fabric::new().over(&devices)?;
/// let sums = std::thread::scope(|scope| {
///     let work = |mut rank: DeviceRank| -> Result<Vec<u32>> {
///         let stream = rank.place().device().stream()?;
///         let mine = stream.upload(&[rank.rank() as u32, 1])?;
///         let mut sum = stream.alloc::<u32>(2)?;
///         rank.all_reduce(&stream, Reduction::new(Operation::Sum), mine.view(), sum.view_mut())?;
///         rank.settle(&stream)?;
///         stream.download(&sum)
///     };
///     let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || work(rank))).collect();
///     threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Result<Vec<_>>>()
/// })?;
/// assert_eq!(sums, vec![vec![6, 4]; 4]);
/// # Ok::<(), gatework_gpu::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Fabric {
    deadline: Duration,
}

impl Default for Fabric {
    fn default() -> Self {
        Self::new()
    }
}

impl Fabric {
    /// Calls wait for 30 seconds.
    pub fn new() -> Self {
        Self { deadline: DEADLINE }
    }

    /// Calls wait that long for other ranks. Whoever is not there by then has lost the fabric for all.
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline }
    }

    /// One rank for each device, in that order: emulated devices of one group, virtual devices of a card, or
    /// cards. Bytes go by peer copies.
    pub fn over(&self, devices: &[Device]) -> Result<Vec<DeviceRank>> {
        for device in devices {
            for other in devices {
                device.require_reach(other, "Fabric::over")?;
                open_the_way(device, other)?;
            }
        }
        let place = |device: &Device| Devices::new(device.clone(), Way::Peers);
        self.ranks(devices.iter().map(place).collect())
    }

    /// One rank for each card, in that order. Bytes go by NCCL's sends and receives, reductions are this
    /// runtime's own, so that results are those of [`Fabric::over`].
    ///
    /// A machine without the library gets an error that says so. NCCL takes no two ranks on one card. With
    /// more than one card this is untested.
    pub fn over_nccl(&self, devices: &[Device]) -> Result<Vec<DeviceRank>> {
        let places = devices.iter().zip(Communicator::of(devices)?);
        let place = |(device, end): (&Device, Communicator)| Devices::new(device.clone(), Way::Nccl(end));
        self.ranks(places.map(place).collect())
    }

    /// So many ranks that are threads of this process.
    pub fn on_host(&self, ranks: usize) -> Result<Vec<HostRank>> {
        self.ranks((0..ranks).map(|_| Host::new()).collect())
    }

    fn ranks<P: Place>(&self, places: Vec<P>) -> Result<Vec<Rank<P>>> {
        if places.is_empty() {
            return Err(Error::Length {
                call: "Fabric",
                message: "a fabric of no ranks; one at least is needed".into(),
            });
        }
        let hub = Arc::new(Hub::new(places.len(), self.deadline));
        Ok(places.into_iter().enumerate().map(|(rank, place)| Rank::new(hub.clone(), rank, place)).collect())
    }
}

/// Lets copies between cards go straight where they can: without leave to access, the driver takes them
/// through the host. Copies between emulated devices need none, and kernels there should not get it unasked.
fn open_the_way(device: &Device, other: &Device) -> Result<()> {
    let apart = !device.is_emulated() && !device.same_as(other);
    if apart && device.can_access_peer(other)? { device.enable_peer_access(other) } else { Ok(()) }
}
