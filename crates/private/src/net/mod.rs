//! A channel to one peer: mutual TLS 1.3 over TCP, in frames.
//!
//! ```text
//! bytes
//!     8   n, the length of the message
//!     n   the message
//!    16   the first half of the transcript's hash
//! ```
//!
//! Each direction has a transcript: a chain of BLAKE3 hashes over all messages so far, which begins with a value that only the two ends of
//! this TLS connection know. Messages that were lost, repeated or exchanged are noticed at the first frame behind them.

pub(crate) mod assembler;
mod frame;
mod identity;
mod measure;
mod pump;
#[cfg(test)]
pub(crate) mod tests;

pub use frame::{FRAME_OVERHEAD, Link, LinkTimes};
pub use identity::{CertificateFiles, Identity, make_test_certificates};
pub use measure::{LinkEnd, LinkFigures, measure_link};

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use rustls::{ClientConnection, ServerConnection};

use crate::error::{Error, Result};

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
    /// Connects to a server that shows a certificate for `name`.
    pub fn connect(address: &str, name: &str, identity: &Identity, timeouts: Timeouts) -> Result<Self> {
        let socket = dial(address, timeouts.connect)?;
        let name = name.to_owned().try_into().map_err(|_| Error::Tls {
            what: format!("'{name}' is not a name that a certificate can have"),
        })?;
        let connection = ClientConnection::new(identity.client()?, name).map_err(identity::tls)?;
        Self::over(connection.into(), socket, timeouts)
    }

    /// Takes a client's connection.
    pub fn accept(socket: TcpStream, identity: &Identity, timeouts: Timeouts) -> Result<Self> {
        let connection = ServerConnection::new(identity.server()?).map_err(identity::tls)?;
        Self::over(connection.into(), socket, timeouts)
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
