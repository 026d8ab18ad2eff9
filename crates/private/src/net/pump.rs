//! The thread that moves bytes between a socket and a TLS connection.
//!
//! It reads and writes whenever the socket can, so that neither side waits for the other to read before it may write, and encryption
//! goes on while the next gate is evaluated.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gatework_fss::secret::Secret;
use mio::{Events, Interest, Poll, Token, Waker};
use rustls::Connection;

use crate::error::{Error, Result};

use super::Timeouts;
use super::assembler::Assembler;
use super::identity::PROTOCOL;

const SOCKET: Token = Token(0);
const WAKER: Token = Token(1);
/// Bytes that are encrypted at a time.
const PIECE: usize = 1 << 18;
/// How long a connection that is no longer wanted may take to send what it has.
const FAREWELL: Duration = Duration::from_secs(5);
/// What TLS 1.3 derives for the two ends of this connection and nobody else.
const EXPORT_LABEL: &[u8] = b"EXPORTER-gatework-fss";
/// Messages may wait unread up to this many times the largest one.
const BACKLOG: u64 = 4;
/// Reads in a row, after which something else has its turn.
const READS: usize = 64;

/// What both ends of the thread see.
struct Shared {
    /// The longest message that may come.
    largest: AtomicU64,
    /// Bytes of messages that nobody has taken yet.
    unread: AtomicU64,
    /// Bytes that were given to the thread and that the socket has not taken yet.
    unsent: AtomicU64,
    /// Nanoseconds of encrypting and writing.
    writing: AtomicU64,
}

/// The caller's end.
pub(super) struct Pump {
    outgoing: Option<Sender<Secret<u8>>>,
    incoming: Receiver<Result<Vec<u8>>>,
    waker: Arc<Waker>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Pump {
    /// Starts the thread and waits until both sides have agreed on keys. Also returns what only they know. Messages longer than
    /// `largest` end the connection.
    pub(super) fn start(
        connection: Connection,
        socket: TcpStream,
        largest: u64,
        timeouts: Timeouts,
    ) -> Result<(Self, [u8; 32])> {
        let (outgoing, from_caller) = channel();
        let (to_caller, incoming) = channel();
        let (agreed, agreement) = channel();
        let shared = Arc::new(Shared {
            largest: AtomicU64::new(largest),
            unread: AtomicU64::new(0),
            unsent: AtomicU64::new(0),
            writing: AtomicU64::new(0),
        });
        let poll = Poll::new().map_err(socket_failed)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER).map_err(socket_failed)?);
        let mover = Mover::new(poll, connection, socket, shared.clone(), from_caller, to_caller)?;
        let thread = thread::Builder::new().name("link".into());
        let thread = thread.spawn(move || mover.run(agreed)).map_err(socket_failed)?;
        let pump = Self { outgoing: Some(outgoing), incoming, waker, shared, thread: Some(thread) };
        match agreement.recv_timeout(timeouts.connect) {
            Ok(binding) => Ok((pump, binding)),
            Err(RecvTimeoutError::Timeout) => Err(timed_out("complete the TLS handshake", timeouts.connect)),
            // The thread has ended, and says why.
            Err(RecvTimeoutError::Disconnected) => {
                Err(pump.receive(timeouts.connect).err().unwrap_or(Error::Closed))
            }
        }
    }

    /// Lets messages of that many bytes through, too.
    pub(super) fn expect(&self, bytes: u64) {
        self.shared.largest.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Nanoseconds that went into encrypting and writing.
    pub(super) fn writing(&self) -> Duration {
        Duration::from_nanos(self.shared.writing.load(Ordering::Relaxed))
    }

    #[cfg(test)]
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.shared.unread.load(Ordering::Relaxed)
    }

    fn wake(&self) -> Result<()> {
        self.waker.wake().map_err(socket_failed)
    }

    /// Hands over a frame. Does not wait.
    pub(super) fn send(&self, frame: Secret<u8>) -> Result<()> {
        self.shared.unsent.fetch_add(frame.len() as u64, Ordering::Relaxed);
        if let Some(outgoing) = &self.outgoing
            && outgoing.send(frame).is_ok()
        {
            return self.wake();
        }
        // The thread has ended, and left word why.
        Err(self.incoming.try_iter().find_map(Result::err).unwrap_or(Error::Closed))
    }

    /// Waits for a whole frame.
    pub(super) fn receive(&self, timeout: Duration) -> Result<Vec<u8>> {
        match self.incoming.recv_timeout(timeout) {
            Ok(came) => {
                let frame = came?;
                self.shared.unread.fetch_sub(weight(&frame), Ordering::Relaxed);
                self.wake()?;
                Ok(frame)
            }
            Err(RecvTimeoutError::Timeout) => Err(timed_out("send a message", timeout)),
            Err(RecvTimeoutError::Disconnected) => Err(Error::Closed),
        }
    }

    /// Waits until all that was handed over is on its way.
    pub(super) fn flush(&self, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        while self.shared.unsent.load(Ordering::Relaxed) > 0 {
            if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                return Err(self.incoming.try_iter().find_map(Result::err).unwrap_or(Error::Closed));
            }
            if Instant::now() > deadline {
                return Err(timed_out("take a message", timeout));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.outgoing = None;
        let _ = self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What a frame that waits takes, with all that is around it.
fn weight(frame: &[u8]) -> u64 {
    frame.len() as u64 + 128
}

fn socket_failed(source: io::Error) -> Error {
    Error::Socket { source }
}

fn timed_out(doing: &'static str, after: Duration) -> Error {
    Error::Timeout { doing, after }
}

/// The thread's end.
struct Mover {
    poll: Poll,
    connection: Connection,
    socket: mio::net::TcpStream,
    shared: Arc<Shared>,
    from_caller: Receiver<Secret<u8>>,
    to_caller: Sender<Result<Vec<u8>>>,
    /// Frames that are not encrypted yet, and how far the first of them is.
    pending: VecDeque<Secret<u8>>,
    at: usize,
    /// Bytes that are encrypted and not on the socket yet, before encryption.
    encrypted: u64,
    /// What was decrypted and is not a whole frame yet.
    arrived: Assembler,
    /// Whether there was more to read when reading stopped.
    more: bool,
    /// Since when the caller wants no more, and whether the other side was told.
    leaving: Option<Instant>,
    told: bool,
}

/// Whether the thread goes on.
enum Going {
    On,
    /// The other side has closed.
    Away,
}

impl Mover {
    fn new(
        poll: Poll,
        mut connection: Connection,
        socket: TcpStream,
        shared: Arc<Shared>,
        from_caller: Receiver<Secret<u8>>,
        to_caller: Sender<Result<Vec<u8>>>,
    ) -> Result<Self> {
        socket.set_nodelay(true).map_err(socket_failed)?;
        socket.set_nonblocking(true).map_err(socket_failed)?;
        let mut socket = mio::net::TcpStream::from_std(socket);
        let interests = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut socket, SOCKET, interests).map_err(socket_failed)?;
        connection.set_buffer_limit(None);
        let (pending, arrived) = (VecDeque::new(), Assembler::default());
        Ok(Self {
            poll,
            connection,
            socket,
            shared,
            from_caller,
            to_caller,
            pending,
            at: 0,
            encrypted: 0,
            arrived,
            more: false,
            leaving: None,
            told: false,
        })
    }

    fn run(mut self, agreed: Sender<[u8; 32]>) {
        let outcome = self.work(agreed);
        if let Err(error) = outcome {
            // An alert tells the other side why, if it still listens.
            let _ = self.connection.write_tls(&mut self.socket);
            // The caller may have gone, and then nobody wants to know.
            let _ = self.to_caller.send(Err(error));
        }
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    fn work(&mut self, agreed: Sender<[u8; 32]>) -> Result<()> {
        let mut agreed = Some(agreed);
        let mut events = Events::with_capacity(8);
        loop {
            self.take_from_caller();
            self.write()?;
            let going = self.read()?;
            if self.leaving.is_some() && self.pending.is_empty() && !std::mem::replace(&mut self.told, true) {
                self.connection.send_close_notify();
            }
            // What was read may want an answer: the socket tells of room only once.
            self.write()?;
            if !self.connection.is_handshaking()
                && let Some(agreed) = agreed.take()
            {
                // A side that offers no protocol at all is not refused by TLS itself.
                if self.connection.alpn_protocol() != Some(PROTOCOL) {
                    let what = "the other side does not speak this version of the protocol".into();
                    return Err(Error::Tls { what });
                }
                let binding = self.connection.export_keying_material([0; 32], EXPORT_LABEL, None);
                let _ = agreed.send(binding.map_err(super::identity::tls)?);
            }
            // Only now: whoever agreed, sent and left at once has still said something.
            if let Going::Away = going {
                return Err(Error::Closed);
            }
            if let Some(since) = self.leaving {
                let sent = self.told && !self.connection.wants_write();
                if sent || since.elapsed() >= FAREWELL {
                    return Ok(());
                }
            }
            let farewell = self.leaving.map(|since| FAREWELL.saturating_sub(since.elapsed()));
            let timeout = if self.more { Some(Duration::ZERO) } else { farewell };
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(socket_failed(error)),
                _ => {}
            }
        }
    }

    fn take_from_caller(&mut self) {
        loop {
            match self.from_caller.try_recv() {
                Ok(frame) => self.pending.push_back(frame),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.leaving.get_or_insert_with(Instant::now);
                    return;
                }
            }
        }
    }

    fn write(&mut self) -> Result<()> {
        let start = Instant::now();
        let moved = self.write_all_that_fits();
        self.shared.writing.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        moved
    }

    fn write_all_that_fits(&mut self) -> Result<()> {
        loop {
            if !self.connection.wants_write() {
                self.shared.unsent.fetch_sub(std::mem::take(&mut self.encrypted), Ordering::Relaxed);
                if !self.encrypt_a_piece()? {
                    return Ok(());
                }
            }
            match self.connection.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(gone(error)),
            }
        }
    }

    /// Whether there was any. Nothing of the caller's goes out before both sides have agreed on keys.
    fn encrypt_a_piece(&mut self) -> Result<bool> {
        if self.connection.is_handshaking() {
            return Ok(false);
        }
        let Some(frame) = self.pending.front() else { return Ok(false) };
        let end = frame.len().min(self.at + PIECE);
        self.connection.writer().write_all(&frame[self.at..end]).map_err(socket_failed)?;
        self.encrypted += (end - self.at) as u64;
        self.at = end;
        if end == frame.len() {
            self.pending.pop_front();
            self.at = 0;
        }
        Ok(true)
    }

    fn paused(&self) -> bool {
        let most = BACKLOG * self.shared.largest.load(Ordering::Relaxed).max(PIECE as u64);
        self.shared.unread.load(Ordering::Relaxed) > most
    }

    fn read(&mut self) -> Result<Going> {
        self.more = false;
        for _ in 0..READS {
            if self.paused() {
                return Ok(Going::On);
            }
            match self.connection.read_tls(&mut self.socket) {
                Ok(0) => return Ok(Going::Away),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Going::On),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(gone(error)),
            }
            let state = self.connection.process_new_packets().map_err(super::identity::tls)?;
            let room = self.arrived.room(state.plaintext_bytes_to_read());
            self.connection.reader().read_exact(room).map_err(socket_failed)?;
            self.deliver()?;
            if state.peer_has_closed() {
                return Ok(Going::Away);
            }
        }
        self.more = true;
        Ok(Going::On)
    }

    /// Hands over all whole frames.
    fn deliver(&mut self) -> Result<()> {
        while let Some(frame) = self.arrived.next(self.shared.largest.load(Ordering::Relaxed))? {
            self.shared.unread.fetch_add(weight(&frame), Ordering::Relaxed);
            let _ = self.to_caller.send(Ok(frame));
        }
        Ok(())
    }
}

/// A peer that went without a word.
fn gone(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted => {
            Error::Closed
        }
        _ => socket_failed(error),
    }
}
