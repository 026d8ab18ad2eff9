//! Messages with a transcript.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use gatework_fss::executor::Channel;
use gatework_fss::secret::Secret;
use rustls::Connection;

use crate::error::{Error, Result};

use super::Timeouts;
use super::assembler::{LEAST, LENGTH};
use super::pump::Pump;

/// Bytes of the transcript's hash in a frame.
const TRANSCRIPT: usize = LEAST;
/// Bytes of a frame beside its message.
pub const FRAME_OVERHEAD: u64 = (LENGTH + TRANSCRIPT) as u64;
/// The longest message before anything is known of the peer.
const LARGEST_GREETING: u64 = 1 << 16;

/// One direction's messages so far.
struct Transcript([u8; 32]);

impl Transcript {
    fn new(binding: &[u8; 32], direction: &str) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("gatework-fss transcript");
        hasher.update(binding).update(direction.as_bytes());
        Self(*hasher.finalize().as_bytes())
    }

    /// The hash behind the next message.
    fn next(&mut self, message: &[u8]) -> [u8; TRANSCRIPT] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        self.0 = *hasher.update(message).finalize().as_bytes();
        let mut half = [0; TRANSCRIPT];
        half.copy_from_slice(&self.0[..TRANSCRIPT]);
        half
    }
}

/// Where the time of a link went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkTimes {
    /// Waiting for the other side.
    pub waiting: Duration,
    /// Encrypting and writing, while the caller went on.
    pub sending: Duration,
}

/// A connection to the other party.
pub struct Link {
    pump: Pump,
    binding: [u8; 32],
    sent: Transcript,
    received: Transcript,
    timeouts: Timeouts,
    waiting: Duration,
    bytes: [u64; 2],
    frames: [u64; 2],
    watch: Option<Watch>,
}

/// Called after every frame.
type Watch = Box<dyn FnMut(&Link) + Send>;

impl Link {
    pub(super) fn over(connection: Connection, socket: TcpStream, timeouts: Timeouts) -> Result<Self> {
        let mut directions = ["to the server", "to the client"];
        if let Connection::Server(_) = connection {
            directions.reverse();
        }
        let largest = LARGEST_GREETING + TRANSCRIPT as u64;
        let (pump, binding) = Pump::start(connection, socket, largest, timeouts)?;
        let [sent, received] = directions.map(|direction| Transcript::new(&binding, direction));
        Ok(Self {
            pump,
            binding,
            sent,
            received,
            timeouts,
            waiting: Duration::ZERO,
            bytes: [0; 2],
            frames: [0; 2],
            watch: None,
        })
    }

    /// Has `watch` called after every frame that is sent or received.
    pub fn watched(self, watch: impl FnMut(&Self) + Send + 'static) -> Self {
        Self { watch: Some(Box::new(watch)), ..self }
    }

    fn tell_watch(&mut self) {
        if let Some(mut watch) = self.watch.take() {
            watch(self);
            self.watch = Some(watch);
        }
    }

    /// What only the two ends of this connection know.
    pub(crate) fn binding(&self) -> &[u8; 32] {
        &self.binding
    }

    /// Lets messages of that many bytes through, too. What is about to be asked for may come at once, so this is said before.
    pub(crate) fn expect(&self, bytes: u64) {
        self.pump.expect(bytes + TRANSCRIPT as u64);
    }

    /// Waits until all that was sent is on its way.
    pub(crate) fn flush(&self) -> Result<()> {
        self.pump.flush(self.timeouts.message)
    }

    #[cfg(test)]
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.pump.waiting_bytes()
    }

    /// Where the time went so far.
    pub fn times(&self) -> LinkTimes {
        LinkTimes { waiting: self.waiting, sending: self.pump.writing() }
    }

    /// Bytes sent and received in frames so far. What TLS adds is not counted.
    pub fn bytes(&self) -> [u64; 2] {
        self.bytes
    }

    /// Frames sent and received so far.
    pub fn frames(&self) -> [u64; 2] {
        self.frames
    }
}

impl Link {
    /// Sends a message, without waiting for the peer.
    pub fn send(&mut self, message: Vec<u8>) -> Result<()> {
        let length = (message.len() + TRANSCRIPT) as u64;
        let mut frame = Secret::with_capacity(LENGTH + message.len() + TRANSCRIPT);
        frame.extend_from_slice(&length.to_le_bytes());
        frame.extend_from_slice(&message);
        frame.extend_from_slice(&self.sent.next(&message));
        self.bytes[0] += frame.len() as u64;
        self.frames[0] += 1;
        self.pump.send(frame)?;
        self.tell_watch();
        Ok(())
    }

    /// Waits for the next message.
    pub fn receive(&mut self) -> Result<Vec<u8>> {
        self.receive_within(self.timeouts.message)
    }

    /// Waits for the first message, which has nothing to wait for: whoever connects knows who it is.
    pub(crate) fn receive_greeting(&mut self) -> Result<Vec<u8>> {
        self.receive_within(self.timeouts.connect)
    }

    fn receive_within(&mut self, timeout: Duration) -> Result<Vec<u8>> {
        let start = Instant::now();
        let came = self.pump.receive(timeout);
        self.waiting += start.elapsed();
        let mut message = came?;
        self.bytes[1] += (LENGTH + message.len()) as u64;
        self.frames[1] += 1;
        let Some(length) = message.len().checked_sub(TRANSCRIPT) else {
            return Err(Error::OutOfStep { what: "a frame is too short for its transcript".into() });
        };
        let hash = message.split_off(length);
        if self.received.next(&message) != hash[..] {
            let what = "the transcript differs: a message was lost, repeated or altered".into();
            return Err(Error::OutOfStep { what });
        }
        self.tell_watch();
        Ok(message)
    }
}

impl Channel for Link {
    fn send(&mut self, message: gatework_fss::Message) -> gatework_fss::Result<()> {
        Ok(Link::send(self, message.into_vec())?)
    }

    fn receive(&mut self) -> gatework_fss::Result<Vec<u8>> {
        Ok(Link::receive(self)?)
    }
}
