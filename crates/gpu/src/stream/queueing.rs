//! How work gets onto a stream: after the uses of memory that it conflicts with, on whatever stream those
//! are.

use std::sync::Arc;

use super::Stream;
use super::host::forbid_inside;
use crate::Result;
use crate::buffer::Use;
use crate::driver::EventId;
use crate::order::{self, Clock, Line, Ordered};
use crate::pinned::{self, PinnedUse};

/// A point of a stream that others were told to wait for, for memory that they share. The event is used
/// again.
pub(super) struct Mark {
    pub(super) event: EventId,
    clock: Clock,
}

impl Stream {
    /// Queues `work`, which does to memory what `uses` and `pinned` say and no more.
    ///
    /// Outside of a capture it runs after the work on other streams that it conflicts with. Inside of one it
    /// is ordered with what was captured: the graph is ordered with everything else, as a whole, where it is
    /// launched.
    pub(crate) fn queue<'a, R>(
        &self,
        uses: impl Iterator<Item = Use<'a>> + Clone,
        pinned: Vec<PinnedUse>,
        work: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        forbid_inside("queueing work")?;
        if let Some(capture) = self.capture_state() {
            return capture.queue(self, uses, pinned, work);
        }
        uses.clone().for_each(|used| used.allocation.visit(self));
        let uses = uses.map(|used| (&used.allocation.tracking, used.access));
        if pinned.is_empty() {
            return order::queued(self, uses, work);
        }
        pinned::queued(self, pinned, || order::queued(self, uses, work))
    }

    /// Marks this point, for others to wait for. The stream is not being captured, and whoever calls this
    /// holds the lock that keeps it so.
    pub(super) fn mark(&self) -> Result<()> {
        let driver = self.device().driver();
        let mut mark = self.shared.mark.lock();
        let event = match mark.take() {
            Some(mark) => mark.event,
            None => driver.event_create()?,
        };
        let clock = self.line().mark();
        match driver.event_record(event, self.id()) {
            Ok(()) => {
                *mark = Some(Mark { event, clock });
                Ok(())
            }
            Err(error) => {
                driver.event_destroy(event);
                Err(error)
            }
        }
    }
}

impl Ordered for Stream {
    fn line(&self) -> &Arc<Line> {
        &self.shared.line
    }

    fn run_after(&self, other: &Self) -> Result<()> {
        // No capture of the other stream begins, or ends, meanwhile.
        let capture = other.lock();
        if capture.is_none() {
            other.mark()?;
        }
        // Of a stream that is being captured nothing runs since the mark that was made when that began.
        if let Some(mark) = &*other.shared.mark.lock() {
            self.device().driver().stream_wait(self.id(), mark.event)?;
            self.line().learn(&mark.clock);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::Instant;

    use super::*;
    use crate::buffer::View as _;
    use crate::order::Access;
    use crate::{Buffer, Device};

    /// Prints what a launch with four buffers pays for the order of streams, with everything that comes
    /// before the driver.
    #[test]
    #[ignore = "measures; run it in release"]
    fn cost_of_four_buffers() {
        const ROUNDS: u32 = 1_000_000;
        let device = Device::emulated(0).unwrap();
        let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
        let buffers: Vec<Buffer<u32>> = (0..4).map(|_| stream.alloc(16).unwrap()).collect();
        let read = [Access::Read, Access::Read, Access::Read, Access::Write];
        let measure = |name: &str, stream: &Stream, accesses: [Access; 4]| {
            let uses = || buffers.iter().zip(accesses).map(|(buffer, access)| buffer.view().used(access));
            let start = Instant::now();
            for _ in 0..ROUNDS {
                black_box(stream).queue(uses(), Vec::new(), || Ok(())).unwrap();
            }
            println!("{name}: {:.1} ns a launch", start.elapsed().as_nanos() as f64 / f64::from(ROUNDS));
        };
        measure("promised to be ordered", &stream, [Access::Unordered; 4]);
        measure("on the stream of the buffers", &stream, read);
        measure("on another stream", &other, read);
        measure("read on one of two streams", &stream, [Access::Read; 4]);
        buffers.iter().for_each(|buffer| buffer.view().allocation.tracking.share());
        measure("shared with a graph", &other, read);
    }
}
