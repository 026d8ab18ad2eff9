//! One TLS connection of a link, and the thread that waits for its socket.
//!
//! Whoever holds the lock of a connection moves its bytes: the thread, whenever the socket has some or takes
//! some, or the caller, who need not wait for a thread to wake up before a short message leaves, or is here.
//! Neither side waits for the other to read before it may write.

use std::io::{self, BufRead as _};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token, Waker};
use rustls::Connection as Tls;

use crate::error::{Error, Result};

use super::handshake::Agreed;
use super::inbox::{FromLane, FromMain, Inbox};
use super::outgoing::{Outgoing, Parcel};
use super::parcel::Incoming;
use super::transcript::Transcript;
use super::{gone, socket_failed};

const SOCKET: Token = Token(0);
const WAKER: Token = Token(1);
/// How long a connection that is no longer wanted may take to send what it has.
const FAREWELL: Duration = Duration::from_secs(5);
/// Reads in a row, after which something else has its turn.
const READS: usize = 64;

/// Which connection of a link this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The first: short messages, and announcements of long ones. So many lanes are beside it.
    Main { lanes: usize },
    /// One of the others: parts of long messages.
    Lane { lane: usize, lanes: usize },
}

/// What all connections of a link share.
pub(super) struct Shared {
    pub(super) inbox: Inbox,
    /// Bytes that were sent and that no socket has taken yet.
    pub(super) unsent: AtomicU64,
    /// Nanoseconds of encrypting and writing.
    pub(super) writing: AtomicU64,
}

/// The caller's end.
pub(super) struct Connection {
    common: Arc<Common>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

/// What caller and thread see.
struct Common {
    shared: Arc<Shared>,
    /// Parcels that whoever moves bytes next takes over.
    posted: Mutex<Vec<Parcel>>,
    mover: Mutex<Mover>,
    /// Whether the caller wants no more.
    leaving: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    /// Starts the thread of a connection on which both sides have agreed.
    pub(super) fn start(
        agreed: Agreed,
        binding: &[u8; 32],
        role: Role,
        shared: &Arc<Shared>,
    ) -> Result<Self> {
        let Agreed { tls, socket, .. } = agreed;
        let mut directions = ["to the server", "to the client"];
        if let Tls::Server(_) = tls {
            directions.reverse();
        }
        let [sent, received] = directions.map(|direction| Transcript::new(binding, direction));
        socket.set_nonblocking(true).map_err(socket_failed)?;
        let mut socket = mio::net::TcpStream::from_std(socket);
        let poll = Poll::new().map_err(socket_failed)?;
        let interests = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut socket, SOCKET, interests).map_err(socket_failed)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER).map_err(socket_failed)?);
        let mover = Mover {
            tls,
            socket,
            role,
            parts: 0,
            outgoing: Outgoing::new(sent),
            incoming: Incoming::new(received),
            encrypted: 0,
            told: false,
            ended: false,
        };
        let common = Arc::new(Common {
            shared: shared.clone(),
            posted: Mutex::default(),
            mover: Mutex::new(mover),
            leaving: AtomicBool::new(false),
        });
        let own = common.clone();
        let thread = thread::Builder::new().name("link".into());
        let thread = thread.spawn(move || own.wait_and_move(poll)).map_err(socket_failed)?;
        Ok(Self { common, waker, thread: Some(thread) })
    }

    pub(super) fn wake(&self) -> Result<()> {
        self.waker.wake().map_err(socket_failed)
    }

    /// Hands over a parcel for the thread to send.
    pub(super) fn post(&self, parcel: Parcel) -> Result<()> {
        locked(&self.common.posted).push(parcel);
        self.wake()
    }

    /// Sends a parcel from here, as far as the socket takes it; the thread sends the rest.
    pub(super) fn send(&self, parcel: Parcel) -> Result<()> {
        locked(&self.common.posted).push(parcel);
        match self.common.mover.try_lock() {
            Ok(mut mover) => {
                self.common.step(&mut mover, Mover::write);
                Ok(())
            }
            Err(_) => self.wake(),
        }
    }

    /// Reads what the socket has, unless the thread is about to.
    pub(super) fn poll(&self) {
        match self.common.mover.try_lock() {
            Ok(mut mover) => self.common.step(&mut mover, |mover, common| mover.read(common).map(drop)),
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => {}
        }
    }

    /// Whether nothing more can be sent.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Says that the caller wants no more. What was sent still leaves.
    pub(super) fn leave(&self) {
        self.common.leaving.store(true, Ordering::Release);
        // A thread that cannot be woken has ended.
        let _ = self.wake();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.leave();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Common {
    /// Moves some bytes. A failure ends the connection: the inbox says why, and the other side is alerted.
    fn step(&self, mover: &mut Mover, step: impl FnOnce(&mut Mover, &Self) -> Result<()>) {
        if mover.ended {
            return;
        }
        if let Err(error) = step(mover, self) {
            mover.end();
            match mover.role {
                Role::Main { .. } => self.shared.inbox.end(error),
                Role::Lane { .. } => self.shared.inbox.end_lane(mover.parts, error),
            }
        }
    }

    /// The thread: moves bytes whenever the socket can, until the connection ends.
    fn wait_and_move(&self, mut poll: Poll) {
        let mut events = Events::with_capacity(8);
        let mut leaving_since = None;
        loop {
            let mut next = Next::Wait;
            let mut mover = locked(&self.mover);
            self.step(&mut mover, |mover, common| {
                next = mover.turn(common, &mut leaving_since)?;
                Ok(())
            });
            let ended = mover.ended;
            drop(mover);
            let timeout = match next {
                _ if ended => return,
                Next::Again => Some(Duration::ZERO),
                Next::Wait => leaving_since.map(|since: Instant| FAREWELL.saturating_sub(since.elapsed())),
            };
            match poll.poll(&mut events, timeout) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    self.step(&mut locked(&self.mover), |_, _| Err(socket_failed(error)));
                    return;
                }
                _ => {}
            }
        }
    }
}

/// What the thread does next.
enum Next {
    Wait,
    /// There is more to read.
    Again,
}

/// Whether a socket has more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    Dry,
    More,
    /// The other side has closed.
    Away,
}

/// A connection with what is under way on it.
struct Mover {
    tls: Tls,
    socket: mio::net::TcpStream,
    role: Role,
    /// Parts that a lane has brought.
    parts: u64,
    outgoing: Outgoing,
    incoming: Incoming,
    /// Bytes that are encrypted and not on the socket yet, before encryption.
    encrypted: u64,
    /// Whether the other side was told that this is all.
    told: bool,
    ended: bool,
}

impl Mover {
    fn turn(&mut self, common: &Common, leaving_since: &mut Option<Instant>) -> Result<Next> {
        // Before what was posted is taken over: nothing is posted after it.
        let leaving = common.leaving.load(Ordering::Acquire);
        self.write(common)?;
        let reading = self.read(common)?;
        if leaving {
            leaving_since.get_or_insert_with(Instant::now);
        }
        // What was posted may still wait for the socket to take what was encrypted before it.
        let all_written = self.outgoing.is_empty() && locked(&common.posted).is_empty();
        if leaving && all_written && !std::mem::replace(&mut self.told, true) {
            self.tls.send_close_notify();
        }
        // What was read may want an answer: the socket tells of room only once.
        self.write(common)?;
        if reading == Reading::Away {
            return Err(Error::Closed);
        }
        if let Some(since) = leaving_since {
            let sent = self.told && !self.tls.wants_write();
            if sent || since.elapsed() >= FAREWELL {
                self.end();
            }
        }
        Ok(if reading == Reading::More { Next::Again } else { Next::Wait })
    }

    /// An alert tells the other side why, if it still listens.
    fn end(&mut self) {
        let _ = self.tls.write_tls(&mut self.socket);
        let _ = self.socket.shutdown(Shutdown::Both);
        self.ended = true;
    }

    fn write(&mut self, common: &Common) -> Result<()> {
        let start = Instant::now();
        let moved = self.write_all_that_fits(common);
        common.shared.writing.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        moved
    }

    fn write_all_that_fits(&mut self, common: &Common) -> Result<()> {
        loop {
            if !self.tls.wants_write() {
                let sent = std::mem::take(&mut self.encrypted);
                common.shared.unsent.fetch_sub(sent, Ordering::Relaxed);
                if self.outgoing.is_empty() {
                    locked(&common.posted).drain(..).for_each(|parcel| self.outgoing.push(parcel));
                }
                let piece = self.outgoing.write_piece(&mut self.tls.writer()).map_err(socket_failed)?;
                self.encrypted = piece.0;
                if let Some(message) = piece.1 {
                    common.shared.inbox.give_back(message);
                }
                if self.encrypted == 0 {
                    return Ok(());
                }
            }
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(gone(error)),
            }
        }
    }

    fn read(&mut self, common: &Common) -> Result<Reading> {
        // What was decrypted before there was room for it comes first.
        if !self.take(&common.shared.inbox)? {
            return Ok(Reading::Dry);
        }
        for _ in 0..READS {
            match self.tls.read_tls(&mut self.socket) {
                Ok(0) => return Ok(Reading::Away),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Reading::Dry),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(gone(error)),
            }
            let state = self.tls.process_new_packets().map_err(super::identity::tls)?;
            if !self.take(&common.shared.inbox)? {
                return Ok(Reading::Dry);
            }
            if state.peer_has_closed() {
                return Ok(Reading::Away);
            }
        }
        Ok(Reading::More)
    }

    /// Takes what is decrypted. Whether all of it was taken: if not, somebody must take a message first, and
    /// then wakes the thread.
    fn take(&mut self, inbox: &Inbox) -> Result<bool> {
        loop {
            let mut reader = self.tls.reader();
            let bytes = match reader.fill_buf() {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => &[],
                // It closed without a word of TLS, which whoever reads the socket finds too.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => &[],
                Err(error) => return Err(socket_failed(error)),
            };
            let taken = match self.role {
                Role::Main { lanes } => self.incoming.take(bytes, &mut FromMain { inbox, lanes })?,
                Role::Lane { lane, lanes } => self
                    .incoming
                    .take(bytes, &mut FromLane { inbox, lanes, lane, before: &mut self.parts })?,
            };
            let (all, none) = (taken == bytes.len(), bytes.is_empty());
            reader.consume(taken);
            if none || !all {
                return Ok(all);
            }
        }
    }
}
