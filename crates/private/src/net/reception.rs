//! Where clients arrive, each with several connections.

use std::collections::HashMap;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustls::ServerConnection;

use crate::error::{Error, Result};

use super::handshake::{Agreed, Purpose};
use super::identity::{self, Identity};
use super::lane::{End, LANES, LaneKey, MOST_LANES, Token, answer, read_greeting};
use super::{Link, Timeouts, socket_failed, timed_out};

/// Between two looks for a connection.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// A server's identity, and the clients whose lanes it waits for.
pub struct Reception {
    identity: Identity,
    timeouts: Timeouts,
    lanes: usize,
    expected: Mutex<HashMap<Token, Expected>>,
}

/// A client whose lanes are yet to come.
struct Expected {
    key: LaneKey,
    /// Where each lane goes: once.
    places: Vec<Option<Sender<(usize, Agreed)>>>,
}

/// The kind of an incoming connection.
pub enum Arrival<'a> {
    /// A client, whose lanes may still be on their way.
    Client(Box<Arriving<'a>>),
    /// A lane of a client that was there before.
    Lane,
}

/// A client whose lanes are on their way, each a connection for [`Reception::receive`].
pub struct Arriving<'a> {
    expected: Announced<'a>,
    main: Agreed,
    lanes: usize,
    arrived: Receiver<(usize, Agreed)>,
}

/// A client whose lanes are let in for as long as this lives.
struct Announced<'a> {
    reception: &'a Reception,
    token: Token,
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        self.reception.expected().remove(&self.token);
    }
}

impl Reception {
    /// A reception that lets clients open the usual number of lanes.
    pub fn new(identity: Identity, timeouts: Timeouts) -> Self {
        Self { identity, timeouts, lanes: LANES, expected: Mutex::default() }
    }

    /// The same with at most so many lanes.
    pub fn with_lanes(self, lanes: usize) -> Self {
        Self { lanes: lanes.min(MOST_LANES), ..self }
    }

    fn expected(&self) -> MutexGuard<'_, HashMap<Token, Expected>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection: a client's first one, or one more of a client that waits for it.
    pub fn receive(&self, socket: TcpStream) -> Result<Arrival<'_>> {
        let tls = ServerConnection::new(self.identity.server()?).map_err(identity::tls)?;
        let agreed = Agreed::new(tls.into(), socket, self.timeouts.connect)?;
        match agreed.purpose {
            Purpose::Main => self.receive_client(agreed).map(Box::new).map(Arrival::Client),
            Purpose::Lane => self.receive_lane(agreed).map(|()| Arrival::Lane),
        }
    }

    fn receive_client(&self, mut main: Agreed) -> Result<Arriving<'_>> {
        let [wanted] = main.hear()?;
        let lanes = self.lanes.min(wanted.into());
        let (key, mut token) = (LaneKey::new(&main.binding), Token::default());
        getrandom::fill(&mut token).map_err(identity::tls)?;
        let (sender, arrived) = channel();
        let places = (0..lanes).map(|_| Some(sender.clone())).collect();
        // Before the client can know it.
        self.expected().insert(token, Expected { key, places });
        let expected = Announced { reception: self, token };
        let mut arriving = Arriving { expected, main, lanes, arrived };
        arriving.main.say(&answer(lanes, &token))?;
        Ok(arriving)
    }

    fn receive_lane(&self, mut agreed: Agreed) -> Result<()> {
        let refused = |what: &str| Err(Error::Peer { what: what.to_owned() });
        let (token, lane, proof) = read_greeting(&agreed.hear()?);
        let mut expected = self.expected();
        let Some(client) = expected.get_mut(&token) else {
            return refused("it opens a lane of a client that is not there");
        };
        if client.key.proof(End::Client, lane, &agreed.binding) != proof {
            return refused("it opens a lane of another client's link");
        }
        let Some(place) = client.places.get_mut(lane).and_then(Option::take) else {
            return refused("it opens more lanes than it may");
        };
        let own = client.key.proof(End::Server, lane, &agreed.binding);
        drop(expected);
        agreed.say(own.as_bytes())?;
        // The client may have gone meanwhile.
        place.send((lane, agreed)).map_err(|_| Error::Closed)
    }

    /// Takes one client with all its lanes from a listener that nobody else uses. Whoever connects and is no
    /// client is let go, and others are waited for.
    pub fn accept(&self, listener: &TcpListener) -> Result<Link> {
        listener.set_nonblocking(true).map_err(socket_failed)?;
        let mut client: Option<Box<Arriving<'_>>> = None;
        let mut deadline = None;
        loop {
            if let Some(whole) = client.take_if(|client| client.has_all_lanes()) {
                return whole.complete();
            }
            match listener.accept() {
                Ok((socket, _)) => {
                    let received = socket
                        .set_nonblocking(false)
                        .map_err(socket_failed)
                        .and_then(|()| self.receive(socket));
                    match received {
                        // A second one must come again.
                        Ok(Arrival::Client(_)) if client.is_some() => {}
                        Ok(Arrival::Client(arrived)) => {
                            client = Some(arrived);
                            deadline = Some(Instant::now() + self.timeouts.connect);
                        }
                        Ok(Arrival::Lane) => {}
                        Err(error) => tracing::debug!("somebody who is no client connected: {error}"),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(BETWEEN_LOOKS),
                Err(error) => return Err(socket_failed(error)),
            }
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                return Err(timed_out("open its lanes", self.timeouts.connect));
            }
        }
    }
}

impl Arriving<'_> {
    /// Whether no lane can come any more.
    fn has_all_lanes(&self) -> bool {
        let expected = self.expected.reception.expected();
        expected.get(&self.expected.token).is_none_or(|client| client.places.iter().all(Option::is_none))
    }

    /// Waits for the lanes, which must come soon.
    pub fn complete(self) -> Result<Link> {
        let timeouts = self.expected.reception.timeouts;
        let allowed = timeouts.connect;
        let deadline = Instant::now() + allowed;
        let mut lanes: Vec<(usize, Agreed)> = Vec::with_capacity(self.lanes);
        while lanes.len() < self.lanes {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.arrived.recv_timeout(left) {
                Ok(lane) => lanes.push(lane),
                Err(RecvTimeoutError::Timeout) => return Err(timed_out("open its lanes", allowed)),
                Err(RecvTimeoutError::Disconnected) => return Err(Error::Closed),
            }
        }
        lanes.sort_by_key(|(lane, _)| *lane);
        Link::over(self.main, lanes.into_iter().map(|(_, lane)| lane).collect(), timeouts)
    }
}
