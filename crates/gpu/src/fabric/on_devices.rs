//! Ranks that are devices.

use std::time::{Duration, Instant};

use bytemuck::Pod;

use super::fold::{Element, Operation, Reduction};
use super::nccl::Communicator;
use super::offered::Offered;
use super::place::{Journey, Place, Sealed};
use crate::buffer::{View, ViewMut};
use crate::order::Access;
use crate::types::Grid;
use crate::{Buffer, Device, Error, Result, Slice, SliceMut, Stream, args};

/// How long a wait for a card sleeps between two looks.
const LOOK: Duration = Duration::from_micros(50);

/// Ranks that are devices, emulated, virtual or cards: a call queues work on a stream of the rank's device
/// and returns when every rank has queued its part. What it writes is there in the order of that stream.
pub struct Devices {
    device: Device,
    way: Way,
}

/// How bytes go from device to device.
pub(super) enum Way {
    /// The receiver fetches them, by peer copies between events.
    Peers,
    /// NCCL's sends and receives.
    Nccl(Communicator),
}

impl Devices {
    pub(super) fn new(device: Device, way: Way) -> Self {
        Self { device, way }
    }

    /// The device of this rank.
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn require(&self, stream: &Stream) -> Result<()> {
        self.device.require_same(stream.device(), "Fabric")?;
        stream.forbid_in_capture("Fabric", "ranks meet on the host, which a graph cannot repeat")
    }
}

impl std::fmt::Debug for Devices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Devices({:?})", self.device)
    }
}

impl Sealed for Devices {}

impl Place for Devices {
    type Order = Stream;
    type Read<'a, T: Pod> = Slice<'a, T>;
    type Write<'a, T: Pod> = SliceMut<'a, T>;
    type Own<T: Pod> = Buffer<T>;
    type Offer = Offered;

    fn len<T: Pod>(from: &Slice<'_, T>) -> usize {
        from.len()
    }

    fn len_mut<T: Pod>(to: &SliceMut<'_, T>) -> usize {
        to.len()
    }

    fn as_read<'a, T: Pod>(to: &'a SliceMut<'_, T>) -> Slice<'a, T> {
        to.view()
    }

    fn own<T: Pod>(&self, stream: &Stream, len: usize) -> Result<Buffer<T>> {
        self.require(stream)?;
        stream.alloc(len)
    }

    fn read_own<T: Pod>(own: &Buffer<T>) -> Slice<'_, T> {
        own.view()
    }

    fn write_own<T: Pod>(own: &mut Buffer<T>) -> SliceMut<'_, T> {
        own.view_mut()
    }

    fn offer<T: Pod>(&self, stream: &Stream, from: Option<Slice<'_, T>>) -> Result<Offered> {
        self.require(stream)?;
        if let Some(from) = &from {
            self.device.require_same(from.device(), "Fabric")?;
            // The event below comes after whatever stream wrote it.
            stream.queue([from.used(Access::Read)].into_iter(), Vec::new(), || Ok(()))?;
        }
        Offered::on(stream, from.map(|from| from.as_bytes().hold()))
    }

    fn carry<T: Pod>(
        &self,
        stream: &Stream,
        journey: &Journey<'_, Offered>,
        to: Option<SliceMut<'_, T>>,
    ) -> Result<Offered> {
        let mut to = to;
        let mut to = to.as_mut().map(SliceMut::as_bytes_mut);
        match &self.way {
            Way::Peers => fetch(stream, journey, to.as_mut()),
            Way::Nccl(communicator) => {
                communicator.carry(stream, journey, to.as_mut())?;
                Offered::on(stream, None)
            }
        }
    }

    fn follow(&self, stream: &Stream, points: &[&Offered], mine: &Offered) -> Result<()> {
        points.iter().try_for_each(|point| stream.wait(point.event()))?;
        // Whoever writes it next, on whatever stream, comes after this point, and so after those who read it.
        let read = mine.memory().map(|memory| memory.view().used(Access::Read));
        stream.queue(read.into_iter(), Vec::new(), || Ok(()))
    }

    fn fold<T: Element>(
        &self,
        stream: &Stream,
        operation: Operation,
        from: Slice<'_, T>,
        mut to: SliceMut<'_, T>,
    ) -> Result<()> {
        let len = to.len();
        if len == 0 {
            return Ok(());
        }
        let rows = (from.len() / len) as u64;
        let kernel = self.device.kernel_of(&Reduction::new(operation).module::<T>(), "fold")?;
        kernel.launch(stream, &Grid::covering(len, 256), &args![from, to.view_mut(), rows, len as u64])
    }

    fn settle(&self, stream: &Stream, deadline: Duration) -> Result<bool> {
        self.require(stream)?;
        // The emulated device runs when somebody waits, and never stalls: a launch that spins is a fault.
        if self.device.is_emulated() {
            return stream.synchronize().map(|()| true);
        }
        let (end, start) = (stream.record()?, Instant::now());
        while !end.is_complete()? {
            if let Way::Nccl(communicator) = &self.way {
                communicator.check()?;
            }
            if start.elapsed() > deadline {
                return Ok(false);
            }
            std::thread::sleep(LOOK);
        }
        stream.synchronize().map(|()| true)
    }

    fn abandon(&self) {
        if let Way::Nccl(communicator) = &self.way {
            communicator.abort();
        }
    }
}

/// Fetches what a rank takes, after what the others wrote. Gives the point after which it has.
fn fetch(
    stream: &Stream,
    journey: &Journey<'_, Offered>,
    to: Option<&mut SliceMut<'_, u8>>,
) -> Result<Offered> {
    let mut sources: Vec<usize> = Vec::new();
    let fetched = queue(stream, journey, to, &mut sources);
    let end = Offered::on(stream, None);
    // Whatever failed: what was queued still reads.
    for offered in sources.into_iter().filter_map(|from| journey.offer(from)) {
        let memory = offered.memory().into_iter();
        memory.for_each(|memory| memory.read_until(stream, end.as_ref().ok().map(Offered::event)));
    }
    fetched.and(end)
}

/// Queues the copies, and says from which ranks.
fn queue(
    stream: &Stream,
    journey: &Journey<'_, Offered>,
    to: Option<&mut SliceMut<'_, u8>>,
    sources: &mut Vec<usize>,
) -> Result<()> {
    let pulls: Vec<_> = (journey.plan)(journey.me).into_iter().filter(|pull| pull.bytes > 0).collect();
    let Some(to) = to.filter(|_| !pulls.is_empty()) else { return Ok(()) };
    for pull in pulls {
        let offered = journey.offer(pull.from);
        let Some((memory, event)) = offered.and_then(|offered| Some((offered.memory()?, offered.event())))
        else {
            let message = format!("rank {} offers nothing to read", pull.from);
            return Err(Error::Length { call: "Fabric", message });
        };
        if !sources.contains(&pull.from) {
            stream.wait(event)?;
            sources.push(pull.from);
        }
        let source = memory.view().slice(pull.source..pull.source + pull.bytes);
        stream.queue_copy_from_peer(&source, &mut to.slice_mut(pull.target..pull.target + pull.bytes))?;
    }
    Ok(())
}
