//! Points in streams.

use std::sync::Arc;
use std::time::Duration;

use super::Stream;
use super::host::forbid_inside;
use crate::driver::EventId;
use crate::graph::Capture;
use crate::order::Clock;
use crate::{Device, Error, Result};

/// A point in a stream: to wait for, to order other streams by, to time between.
#[derive(Clone)]
pub struct Event {
    shared: Arc<EventShared>,
}

struct EventShared {
    device: Device,
    id: EventId,
    /// The capture it was recorded in.
    capture: Option<Arc<Capture>>,
    /// What is before it.
    clock: Clock,
}

impl Event {
    pub(super) fn record(stream: &Stream) -> Result<Self> {
        forbid_inside("Stream::record")?;
        let (device, capture) = (stream.device().clone(), stream.capture_state());
        let id = device.driver().event_create()?;
        let clock = stream.current_line().mark();
        let event = Self { shared: Arc::new(EventShared { device, id, capture, clock }) };
        event.device().driver().event_record(id, stream.id())?;
        Ok(event)
    }

    /// Whether the stream has passed it.
    pub fn is_complete(&self) -> Result<bool> {
        self.require_real("Event::is_complete")?;
        let complete = self.device().driver().event_is_complete(self.id())?;
        if complete {
            self.clock().complete();
        }
        Ok(complete)
    }

    /// Waits until the stream has passed it.
    pub fn synchronize(&self) -> Result<()> {
        forbid_inside("Event::synchronize")?;
        self.require_real("Event::synchronize")?;
        self.device().driver().event_synchronize(self.id())?;
        self.clock().complete();
        Ok(())
    }

    /// Device time from `start` to this event; both must have happened.
    pub fn since(&self, start: &Event) -> Result<Duration> {
        self.device().require_same(start.device(), "Event::since")?;
        self.require_real("Event::since")?;
        start.require_real("Event::since")?;
        self.device().driver().event_elapsed(start.id(), self.id())
    }

    pub(super) fn device(&self) -> &Device {
        &self.shared.device
    }

    pub(super) fn id(&self) -> EventId {
        self.shared.id
    }

    pub(super) fn capture(&self) -> Option<&Arc<Capture>> {
        self.shared.capture.as_ref()
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    pub(super) fn require_real(&self, call: &str) -> Result<()> {
        if self.capture().is_some() { Err(never_happens(call)) } else { Ok(()) }
    }
}

pub(super) fn never_happens(call: &str) -> Error {
    let reason = "the event was recorded inside a capture and never happens by itself";
    Error::Capture { call: call.to_owned(), reason: reason.into() }
}

impl Drop for EventShared {
    fn drop(&mut self) {
        self.device.driver().event_destroy(self.id);
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Event({:?}, {})", self.device(), self.id().0)
    }
}
