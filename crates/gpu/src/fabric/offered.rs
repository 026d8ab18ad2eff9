//! What a rank on a device lets others read.

use crate::buffer::Held;
use crate::stream::Event;
use crate::{Result, Stream};

/// Memory of a rank, if it offers any, and the event after which it may be read.
#[derive(Clone)]
pub struct Offered {
    memory: Option<Held>,
    event: Event,
}

impl Offered {
    /// As it is at this point of the stream.
    pub(super) fn on(stream: &Stream, memory: Option<Held>) -> Result<Self> {
        Ok(Self { memory, event: stream.record()? })
    }

    pub(super) fn memory(&self) -> Option<&Held> {
        self.memory.as_ref()
    }

    pub(super) fn event(&self) -> &Event {
        &self.event
    }
}
