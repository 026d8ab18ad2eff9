//! Agreeing on a connection, before it has a thread.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustls::Connection as Tls;

use crate::error::{Error, Result};

use super::identity::{LANE_PROTOCOL, PROTOCOL, tls};
use super::{gone, socket_failed, timed_out};

/// What TLS 1.3 derives for the two ends of a connection and nobody else.
const EXPORT_LABEL: &[u8] = b"EXPORTER-gatework-fss";
const DOING: &str = "complete the TLS handshake";

/// What a connection is for, as its protocol says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Main,
    Lane,
}

/// A connection on whose keys both sides have agreed, with a socket that blocks.
pub(super) struct Agreed {
    pub(super) tls: Tls,
    pub(super) socket: TcpStream,
    /// What only the two ends know.
    pub(super) binding: [u8; 32],
    pub(super) purpose: Purpose,
    deadline: Instant,
    allowed: Duration,
}

impl Agreed {
    /// Agrees on keys within `allowed`, which also bounds what is said and heard here.
    pub(super) fn new(mut tls: Tls, mut socket: TcpStream, allowed: Duration) -> Result<Self> {
        let deadline = Instant::now() + allowed;
        socket.set_nodelay(true).map_err(socket_failed)?;
        tls.set_buffer_limit(None);
        while tls.is_handshaking() || tls.wants_write() {
            limit(&socket, deadline, allowed, DOING)?;
            let moved =
                if tls.wants_write() { tls.write_tls(&mut socket) } else { tls.read_tls(&mut socket) };
            match moved {
                Ok(0) if !tls.wants_write() => return Err(Error::Closed),
                Ok(_) => {}
                Err(error) => {
                    interpret(error, allowed, DOING)?;
                    continue;
                }
            }
            if let Err(error) = tls.process_new_packets() {
                // An alert tells the other side why, if it still listens.
                let _ = tls.write_tls(&mut socket);
                return Err(super::identity::tls(error));
            }
        }
        // A side that offers no protocol at all is not refused by TLS itself.
        let purpose = match tls.alpn_protocol() {
            Some(PROTOCOL) => Purpose::Main,
            Some(LANE_PROTOCOL) => Purpose::Lane,
            _ => {
                let what = "the other side does not speak this version of the protocol".into();
                return Err(Error::Tls { what });
            }
        };
        let binding = tls.export_keying_material([0; 32], EXPORT_LABEL, None).map_err(self::tls)?;
        Ok(Self { tls, socket, binding, purpose, deadline, allowed })
    }

    /// Says a few bytes.
    pub(super) fn say(&mut self, bytes: &[u8]) -> Result<()> {
        self.tls.writer().write_all(bytes).map_err(socket_failed)?;
        while self.tls.wants_write() {
            limit(&self.socket, self.deadline, self.allowed, "take a greeting")?;
            if let Err(error) = self.tls.write_tls(&mut self.socket) {
                interpret(error, self.allowed, "take a greeting")?;
            }
        }
        Ok(())
    }

    /// Hears exactly so many bytes. What else has come stays where it is.
    pub(super) fn hear<const N: usize>(&mut self) -> Result<[u8; N]> {
        const DOING: &str = "say who it is";
        let (mut bytes, mut filled) = ([0; N], 0);
        while filled < N {
            match self.tls.reader().read(&mut bytes[filled..]) {
                Ok(0) => return Err(Error::Closed),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    limit(&self.socket, self.deadline, self.allowed, DOING)?;
                    match self.tls.read_tls(&mut self.socket) {
                        Ok(0) => return Err(Error::Closed),
                        Ok(_) => {}
                        Err(error) => interpret(error, self.allowed, DOING)?,
                    }
                    if let Err(error) = self.tls.process_new_packets() {
                        let _ = self.tls.write_tls(&mut self.socket);
                        return Err(tls(error));
                    }
                }
                Err(error) => return Err(gone(error)),
            }
        }
        Ok(bytes)
    }
}

/// Lets the socket block until the deadline.
fn limit(socket: &TcpStream, deadline: Instant, allowed: Duration, doing: &'static str) -> Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(timed_out(doing, allowed));
    }
    let limited = socket.set_read_timeout(Some(left)).and_then(|()| socket.set_write_timeout(Some(left)));
    limited.map_err(socket_failed)
}

/// An error that is one.
fn interpret(error: io::Error, allowed: Duration, doing: &'static str) -> Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Err(timed_out(doing, allowed)),
        _ => Err(gone(error)),
    }
}
