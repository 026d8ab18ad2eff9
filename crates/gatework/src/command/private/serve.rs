//! `gatework private serve`.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use gatework_fss::backend_on;
use gatework_gpu::Target;
use gatework_private::model::{Owner, Salt};
use gatework_private::net::{Arrival, CertificateFiles, MOST_LANES, Reception, listen};
use gatework_private::roles::{KeyStore, Server, Summary};
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::interrupt::end_with_input;
use crate::command::progress::Progress;
use crate::command::schema;
use crate::command::shell::Shell;

use super::options::ServeOptions;
use super::public_model;
use super::summary::Told;

/// Clients at a time: each has the weights in memory under masks of its own.
const MOST_AT_ONCE: usize = 8;
/// Connections at a time that have not shown a certificate yet.
const MOST_UNKNOWN: usize = 256;
/// How long waking the own listener may take.
const KNOCK: Duration = Duration::from_secs(1);
/// Between attempts to accept when there is no descriptor left, or the like.
const AFTER_AN_ERROR: Duration = Duration::from_millis(100);

#[derive(Serialize)]
struct Served {
    /// Where it computed.
    device: String,
    clients: Vec<Outcome>,
}

impl schema::Document for Served {
    const SCHEMA: schema::Schema = schema::PRIVATE_SERVE;
}

#[derive(Serialize)]
#[serde(untagged)]
enum Outcome {
    Served(Box<Told>),
    Failed { error: String },
}

pub(super) fn run(options: &ServeOptions, shell: &Shell) -> Result<Ending, Failure> {
    if options.until_closed {
        end_with_input();
    }
    let progress = &shell.progress;
    let model = public_model(&options.public)?;
    let identity = options.identity.load(CertificateFiles::server)?;
    let keys = KeyStore::open(&options.keys)?;
    let target = options.memory.limited(shell.target()?)?;
    let backend = backend_on(&target)?;
    let jobs = progress.start(2);
    jobs.doing(format!("reading {}", options.weights.name()));
    let weights = options.weights.read()?.quantised(&model)?;
    let salt = Salt::read(&Salt::path_beside(&options.public))?;
    let weights = weights.salted(salt.unwrap_or_default());
    jobs.done();
    jobs.doing("checking that the weights fit what is public".into());
    let owner = Owner::new(&model, weights)?;
    drop(jobs);
    let (listener, address) = listen(&options.listen)?;
    let deals = keys.sessions()?.len();
    progress.say(&format!("listening on {address}, with keys of {deals} deals"));
    let host = Host {
        server: Server::new(&owner, &keys).on(backend),
        reception: Reception::new(identity, options.identity.timeouts()).with_lanes(MOST_LANES),
        progress,
        target: &target,
        unknown: AtomicUsize::new(0),
        served: AtomicUsize::new(0),
    };
    let served = Served { device: target.id().to_owned(), clients: host.serve(&listener, options.clients) };
    shell.output.show(&served, || format!("{} clients", served.clients.len()))?;
    let failed = served.clients.iter().any(|outcome| matches!(outcome, Outcome::Failed { .. }));
    Ok(if failed { Ending::GateFailed } else { Ending::Done })
}

struct Host<'a> {
    server: Server<'a>,
    reception: Reception,
    progress: &'a Progress,
    target: &'a Target,
    unknown: AtomicUsize,
    served: AtomicUsize,
}

/// One of a limited number, until it is dropped.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(places: &'a AtomicUsize, most: usize) -> Option<Self> {
        let place = Self(places);
        (places.fetch_add(1, Ordering::Relaxed) < most).then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Clients that came.
struct Clients {
    /// After which no more are taken.
    most: Option<usize>,
    come: AtomicUsize,
    /// What came of each, by its number; nothing is kept where there is no end of them.
    outcomes: Mutex<BTreeMap<usize, Outcome>>,
}

impl Clients {
    fn are_all_here(&self) -> bool {
        self.most.is_some_and(|most| self.come.load(Ordering::SeqCst) >= most)
    }
}

/// Has a listener accept something, so that whoever waits at it looks around.
fn wake(listener: &TcpListener) {
    let knock = listener.local_addr().and_then(|address| TcpStream::connect_timeout(&address, KNOCK));
    if let Err(error) = knock {
        tracing::debug!("the listener was not woken: {error}");
    }
}

impl Host<'_> {
    /// Serves `most` clients, or all that come. Whoever has shown a certificate and opened its lanes is one;
    /// a scan of ports is not.
    fn serve(&self, listener: &TcpListener, most: Option<usize>) -> Vec<Outcome> {
        let clients = Clients { most, come: AtomicUsize::new(0), outcomes: Mutex::default() };
        thread::scope(|scope| {
            loop {
                let accepted = listener.accept();
                if clients.are_all_here() {
                    break;
                }
                let (socket, address) = match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        self.progress.say(&format!("a client could not be accepted: {error}"));
                        thread::sleep(AFTER_AN_ERROR);
                        continue;
                    }
                };
                let Some(unknown) = Place::take(&self.unknown, MOST_UNKNOWN) else {
                    self.progress.say(&format!("{address}: too many connections without a certificate"));
                    continue;
                };
                let clients = &clients;
                scope.spawn(move || self.serve_one(socket, &address.to_string(), unknown, listener, clients));
            }
        });
        clients.outcomes.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
    }

    fn serve_one(
        &self,
        socket: TcpStream,
        address: &str,
        unknown: Place<'_>,
        listener: &TcpListener,
        clients: &Clients,
    ) {
        let link = match self.reception.receive(socket) {
            Ok(Arrival::Lane) => return,
            Ok(Arrival::Client(arriving)) => arriving.complete(),
            Err(error) => Err(error),
        };
        let link = match link {
            Ok(link) => link,
            Err(error) => return self.progress.say(&format!("{address}: {error}")),
        };
        let number = clients.come.fetch_add(1, Ordering::SeqCst);
        if clients.are_all_here() {
            wake(listener);
        }
        let served = self.server.greet(link).and_then(|client| {
            drop(unknown);
            match Place::take(&self.served, MOST_AT_ONCE) {
                Some(_place) => client.serve(),
                None => Err(client.turn_away()),
            }
        });
        let outcome = self.told(address, served);
        if clients.most.is_some() {
            clients.outcomes.lock().unwrap_or_else(PoisonError::into_inner).insert(number, outcome);
        }
    }

    fn told(&self, address: &str, served: gatework_private::Result<Summary>) -> Outcome {
        match served {
            Ok(summary) => {
                let told = Told::new(summary).with_device_of(self.target);
                self.progress.say(&format!("{address}: served\n{}", told.lines()));
                Outcome::Served(Box::new(told))
            }
            Err(error) => {
                self.progress.say(&format!("{address}: {error}"));
                Outcome::Failed { error: error.to_string() }
            }
        }
    }
}
