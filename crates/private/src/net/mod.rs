//! A channel to one peer: mutual TLS 1.3 over TCP, in frames.
//!
//! ```text
//! bytes
//!     8   n + 16
//!     n   the message
//!    16   the first half of the transcript's hash
//! ```
//!
//! Each direction of a connection has a transcript: a chain of BLAKE3 hashes over all that was sent on it so
//! far, which begins with a value that only the two ends of this TLS connection know. Messages that were
//! lost, repeated or exchanged are noticed, and nothing is handed over before its hash is right.
//!
//! One connection is as fast as one core encrypts, decrypts and hashes. So a link has more of them, its
//! lanes, if both ends want it: a long message is cut into one part for each lane, and the main connection
//! only announces it.

mod connection;
mod frame;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod handshake;
mod identity;
mod inbox;
mod lane;
mod measure;
mod outgoing;
pub(crate) mod parcel;
mod reception;
mod spare;
#[cfg(test)]
pub(crate) mod tests;
mod transcript;

pub use frame::{FRAME_OVERHEAD, Link, LinkTimes};
pub use identity::{CertificateFiles, Identity, make_test_certificates};
pub use lane::{LANES, MOST_LANES};
pub use measure::{LinkEnd, LinkFigures, measure_link};
pub use reception::{Arrival, Arriving, Reception};

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::LazyLock;
use std::thread::{self, available_parallelism};
use std::time::Duration;

use rustls::{ClientConnection, ServerConnection};

use crate::error::{Error, Result};

use self::handshake::{Agreed, Purpose};
use self::identity::{LANE_PROTOCOL, PROTOCOL};
use self::lane::{End, LaneKey, answer, greeting, read_answer};

/// How long somebody looks for a message before it sleeps: waking up takes longer than most messages need.
const SPIN: Duration = Duration::from_millis(1);
/// Cores from which on one of them may look for messages and do nothing else.
const SPINNING_CORES: usize = 8;

/// Whether there are as many; in tests always.
static SPINS: LazyLock<bool> =
    LazyLock::new(|| cfg!(test) || available_parallelism().is_ok_and(|cores| cores.get() >= SPINNING_CORES));

/// How long the other side may take.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// To accept a connection, to agree on its keys, and then to say who it is.
    pub connect: Duration,
    /// For a message, from when it is waited for to its last byte.
    pub message: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(10), message: Duration::from_secs(120) }
    }
}

fn unreachable(address: &str) -> impl FnOnce(io::Error) -> Error {
    let address = address.to_owned();
    move |source| Error::Unreachable { address, source }
}

impl Link {
    /// Connects to a server that shows a certificate for `name`, with the usual number of lanes if it takes
    /// any.
    pub fn connect(address: &str, name: &str, identity: &Identity, timeouts: Timeouts) -> Result<Self> {
        Self::connect_with_lanes(address, name, identity, timeouts, LANES)
    }

    /// The same with at most so many lanes.
    pub fn connect_with_lanes(
        address: &str,
        name: &str,
        identity: &Identity,
        timeouts: Timeouts,
        lanes: usize,
    ) -> Result<Self> {
        let open = |protocol: &[u8], socket: TcpStream| -> Result<Agreed> {
            let name = name.to_owned().try_into().map_err(|_| Error::Tls {
                what: format!("'{name}' is not a name that a certificate can have"),
            })?;
            let connection =
                ClientConnection::new(identity.client(protocol)?, name).map_err(identity::tls)?;
            Agreed::new(connection.into(), socket, timeouts.connect)
        };
        let socket = dial(address, timeouts.connect)?;
        // A name may have several addresses, and lanes must end where the first connection does.
        let place = socket.peer_addr().map_err(unreachable(address))?;
        let mut main = open(PROTOCOL, socket)?;
        let wanted = lanes.min(MOST_LANES);
        main.say(&[wanted as u8])?;
        let (granted, token) = read_answer(&main.hear()?);
        if granted > wanted {
            return Err(Error::Peer { what: format!("it wants {granted} lanes, {wanted} were offered") });
        }
        let key = LaneKey::new(&main.binding);
        let open_lane = |lane: usize| -> Result<Agreed> {
            let socket =
                TcpStream::connect_timeout(&place, timeouts.connect).map_err(unreachable(address))?;
            let mut agreed = open(LANE_PROTOCOL, socket)?;
            let proof = key.proof(End::Client, lane, &agreed.binding);
            agreed.say(&greeting(&token, lane, &proof))?;
            // In constant time, as `blake3::Hash` compares.
            if key.proof(End::Server, lane, &agreed.binding) != agreed.hear()? {
                return Err(Error::Peer { what: "a lane ends at another server than the link".into() });
            }
            Ok(agreed)
        };
        // All at once: each takes a few round trips.
        let lanes = thread::scope(|scope| {
            let open_lane = &open_lane;
            let opening: Vec<_> = (0..granted).map(|lane| scope.spawn(move || open_lane(lane))).collect();
            let opened = opening.into_iter().map(|lane| lane.join().unwrap_or(Err(Error::Closed)));
            opened.collect::<Result<_>>()
        })?;
        Self::over(main, lanes, timeouts)
    }

    /// Takes a client's connection, and lets it open no lanes: a [`Reception`] does.
    pub fn accept(socket: TcpStream, identity: &Identity, timeouts: Timeouts) -> Result<Self> {
        let connection = ServerConnection::new(identity.server()?).map_err(identity::tls)?;
        let mut main = Agreed::new(connection.into(), socket, timeouts.connect)?;
        if main.purpose != Purpose::Main {
            return Err(Error::Peer { what: "it opens a lane of a client that is not there".into() });
        }
        let [_wanted] = main.hear()?;
        main.say(&answer(0, &Default::default()))?;
        Self::over(main, Vec::new(), timeouts)
    }
}

fn socket_failed(source: io::Error) -> Error {
    Error::Socket { source }
}

fn timed_out(doing: &'static str, after: Duration) -> Error {
    Error::Timeout { doing, after }
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

fn dial(address: &str, timeout: Duration) -> Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for candidate in address.to_socket_addrs().map_err(unreachable(address))? {
        match TcpStream::connect_timeout(&candidate, timeout) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(unreachable(address)(last))
}

/// A socket that listens, and its address.
pub fn listen(address: &str) -> Result<(TcpListener, SocketAddr)> {
    let failed = |source| Error::Listen { address: address.to_owned(), source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}
