//! Messages over one connection, or over several.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gatework_fss::Message;
use gatework_fss::executor::Channel;

use crate::error::Result;

use super::connection::{Connection, Role, Shared};
use super::handshake::Agreed;
use super::inbox::{Inbox, Resume, STRIPED, part_of};
use super::lane::LaneKey;
use super::outgoing::Parcel;
use super::parcel::HEAD;
use super::transcript::HASH;
use super::{SPIN, SPINS, Timeouts, timed_out};

/// Bytes of a frame beside its message.
pub const FRAME_OVERHEAD: u64 = (HEAD + HASH) as u64;
/// The longest message before anything is known of the peer.
const LARGEST_GREETING: u64 = 1 << 16;
/// Messages from this many bytes on go on the lanes: below, waking their threads takes longer than it saves.
const LEAST_STRIPED: usize = 1 << 16;
/// Where the time of a link went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkTimes {
    /// Waiting for the other side.
    pub waiting: Duration,
    /// Encrypting and writing on all connections, mostly while the caller went on.
    pub sending: Duration,
}

/// A connection to the other party, or several that are used as one.
pub struct Link {
    main: Connection,
    lanes: Vec<Connection>,
    shared: Arc<Shared>,
    binding: [u8; 32],
    timeouts: Timeouts,
    waiting: Duration,
    bytes: [u64; 2],
    frames: [u64; 2],
    watch: Option<Watch>,
}

/// Called after every frame.
type Watch = Box<dyn FnMut(&Link) + Send>;

impl Link {
    /// A link over a connection, and over lanes that have shown that they belong to it, in their order.
    pub(super) fn over(main: Agreed, lanes: Vec<Agreed>, timeouts: Timeouts) -> Result<Self> {
        let shared = Arc::new(Shared {
            inbox: Inbox::new(LARGEST_GREETING + HASH as u64),
            unsent: AtomicU64::new(0),
            writing: AtomicU64::new(0),
        });
        let (binding, count) = (main.binding, lanes.len());
        let key = LaneKey::new(&binding);
        let main = Connection::start(main, &binding, Role::Main { lanes: count }, &shared)?;
        let start = |(lane, agreed): (usize, Agreed)| {
            let binding = key.binding(lane, &agreed.binding);
            Connection::start(agreed, &binding, Role::Lane { lane, lanes: count }, &shared)
        };
        let lanes = lanes.into_iter().enumerate().map(start).collect::<Result<_>>()?;
        Ok(Self {
            main,
            lanes,
            shared,
            binding,
            timeouts,
            waiting: Duration::ZERO,
            bytes: [0; 2],
            frames: [0; 2],
            watch: None,
        })
    }

    /// Has `watch` called after every frame that is sent or received.
    pub fn watched(mut self, watch: impl FnMut(&Self) + Send + 'static) -> Self {
        self.watch = Some(Box::new(watch));
        self
    }

    fn tell_watch(&mut self) {
        if let Some(mut watch) = self.watch.take() {
            watch(self);
            self.watch = Some(watch);
        }
    }

    /// Connections beside the first.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// What only the two ends of this connection know.
    pub(crate) fn binding(&self) -> &[u8; 32] {
        &self.binding
    }

    /// Lets messages of that many bytes through, too. What is about to be asked for may come at once, so this
    /// is said before.
    pub(crate) fn expect(&self, bytes: u64) {
        self.shared.inbox.expect(bytes + HASH as u64);
    }

    /// Lets only short messages through from here on, and keeps no memory of longer ones: the weights were
    /// sent, and come once.
    pub(crate) fn expect_short(&self) {
        self.shared.inbox.expect_only(LARGEST_GREETING + HASH as u64);
    }

    /// Waits until all that was sent is on its way.
    pub(crate) fn flush(&self) -> Result<()> {
        let deadline = Instant::now() + self.timeouts.message;
        while self.shared.unsent.load(Ordering::Relaxed) > 0 {
            if self.connections().any(Connection::has_ended) {
                return Err(self.shared.inbox.failure());
            }
            if Instant::now() > deadline {
                return Err(timed_out("take a message", self.timeouts.message));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn connections(&self) -> impl Iterator<Item = &Connection> {
        std::iter::once(&self.main).chain(&self.lanes)
    }

    #[cfg(test)]
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.shared.inbox.waiting_bytes()
    }

    #[cfg(test)]
    pub(super) fn post_to_lane(&self, lane: usize, parcel: Parcel) {
        self.shared.unsent.fetch_add(parcel.bytes(), Ordering::Relaxed);
        self.lanes[lane].post(parcel).unwrap();
    }

    /// Announces a message of that head, whether or not it comes.
    #[cfg(test)]
    pub(super) fn announce(&self, head: u64) {
        let parcel = Parcel { head: head | STRIPED, message: Arc::default(), range: 0..0 };
        self.hand_over(&self.main, parcel, Connection::send).unwrap();
    }

    #[cfg(test)]
    pub(super) fn lose_lane(&mut self, lane: usize) {
        drop(self.lanes.remove(lane));
    }

    /// Where the time went so far.
    pub fn times(&self) -> LinkTimes {
        let sending = Duration::from_nanos(self.shared.writing.load(Ordering::Relaxed));
        LinkTimes { waiting: self.waiting, sending }
    }

    /// Bytes sent and received in frames so far. What TLS and lanes add is not counted.
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
    pub fn send(&mut self, message: impl Into<Message>) -> Result<()> {
        let message: Message = message.into();
        self.bytes[0] += message.len() as u64 + FRAME_OVERHEAD;
        self.frames[0] += 1;
        if self.main.has_ended() {
            return Err(self.shared.inbox.failure());
        }
        let (head, bytes) = ((message.len() + HASH) as u64, message.len());
        let message = Arc::new(message);
        if self.lanes.is_empty() || bytes < LEAST_STRIPED {
            self.hand_over(&self.main, Parcel { head, message, range: 0..bytes }, Connection::send)?;
        } else {
            for (lane, connection) in self.lanes.iter().enumerate() {
                let range = part_of(bytes, self.lanes.len(), lane);
                let part = Parcel { head, message: message.clone(), range };
                self.hand_over(connection, part, Connection::post)?;
            }
            let announcement = Parcel { head: head | STRIPED, message, range: 0..0 };
            self.hand_over(&self.main, announcement, Connection::send)?;
        }
        self.tell_watch();
        Ok(())
    }

    fn hand_over(
        &self,
        connection: &Connection,
        parcel: Parcel,
        how: fn(&Connection, Parcel) -> Result<()>,
    ) -> Result<()> {
        if connection.has_ended() {
            return Err(self.shared.inbox.failure());
        }
        self.shared.unsent.fetch_add(parcel.bytes(), Ordering::Relaxed);
        how(connection, parcel)
    }

    /// Waits for the next message.
    pub fn receive(&mut self) -> Result<Vec<u8>> {
        self.receive_within(self.timeouts.message)
    }

    /// Takes back the memory of a message that was read.
    pub fn give_back(&mut self, message: Vec<u8>) {
        self.shared.inbox.give_back(Arc::new(message.into()));
    }

    /// Waits for the first message, which has nothing to wait for: whoever connects knows who it is.
    pub(crate) fn receive_greeting(&mut self) -> Result<Vec<u8>> {
        self.receive_within(self.timeouts.connect)
    }

    fn receive_within(&mut self, timeout: Duration) -> Result<Vec<u8>> {
        let start = Instant::now();
        let came = self.wait(start, timeout);
        self.waiting += start.elapsed();
        let message = came?;
        self.bytes[1] += message.len() as u64 + FRAME_OVERHEAD;
        self.frames[1] += 1;
        self.tell_watch();
        Ok(message)
    }

    fn wait(&self, start: Instant, timeout: Duration) -> Result<Vec<u8>> {
        let inbox = &self.shared.inbox;
        let mut came = inbox.take()?;
        while came.is_none() && *SPINS && start.elapsed() < SPIN {
            // Whoever waits anyway may as well read: threads take a while to wake up.
            if inbox.waits_for_lanes() {
                self.lanes.iter().for_each(Connection::poll);
            } else {
                self.main.poll();
            }
            came = inbox.take()?;
            std::hint::spin_loop();
        }
        if came.is_none() {
            came = inbox.take_before(start + timeout)?;
        }
        let (message, resume) = came.ok_or_else(|| timed_out("send a message", timeout))?;
        if resume == Resume::Everybody {
            self.connections().try_for_each(Connection::wake)?;
        }
        Ok(message)
    }
}

/// All say farewell at once: one after the other would take as many times as long.
impl Drop for Link {
    fn drop(&mut self) {
        self.connections().for_each(Connection::leave);
    }
}

impl Channel for Link {
    fn send(&mut self, message: Message) -> gatework_fss::Result<()> {
        Ok(Link::send(self, message)?)
    }

    fn receive(&mut self) -> gatework_fss::Result<Vec<u8>> {
        Ok(Link::receive(self)?)
    }

    fn give_back(&mut self, message: Vec<u8>) {
        Link::give_back(self, message);
    }
}
