//! What two parties talk through.

use std::sync::mpsc::{Receiver, Sender, channel};

use crate::error::{Error, Result};
use crate::message::Message;

/// Ordered, reliable messages to one peer. Sending does not wait for the peer.
pub trait Channel: Send {
    /// Sends a message.
    fn send(&mut self, message: Message) -> Result<()>;

    /// Waits for the next message.
    fn receive(&mut self) -> Result<Vec<u8>>;

    /// Takes back the memory of a message that was received and read, for those that come.
    fn give_back(&mut self, _: Vec<u8>) {}
}

/// A channel between two threads.
pub struct MemoryChannel {
    to: Sender<Message>,
    from: Receiver<Message>,
}

impl MemoryChannel {
    /// Both ends.
    pub fn pair() -> [Self; 2] {
        let (to_one, from_zero) = channel();
        let (to_zero, from_one) = channel();
        [Self { to: to_one, from: from_one }, Self { to: to_zero, from: from_zero }]
    }
}

impl Channel for MemoryChannel {
    fn send(&mut self, message: Message) -> Result<()> {
        self.to.send(message).map_err(|_| Error::Closed)
    }

    fn receive(&mut self) -> Result<Vec<u8>> {
        self.from.recv().map(Message::into_vec).map_err(|_| Error::Closed)
    }
}
