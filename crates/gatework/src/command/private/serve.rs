//! `gatework private serve`.

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use gatework_fss::model::{Checkpoint, Owner};
use gatework_fss::net::{CertificateFiles, Identity, Link, Timeouts, listen};
use gatework_fss::session::{KeyStore, Server, Summary};
use serde::Serialize;

use super::options::ServeOptions;
use super::summary::Told;
use super::{input, public_model};
use crate::command::ending::{Ending, Failure};
use crate::command::output::Output;
use crate::command::progress::Progress;

/// Clients at a time. More are turned away, so that nobody can fill the memory.
const MOST_AT_ONCE: usize = 8;

#[derive(Serialize)]
struct Served {
    clients: Vec<Outcome>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Outcome {
    Served(Box<Told>),
    Failed { error: String },
}

pub(super) fn run(options: &ServeOptions, output: &Output, progress: &Progress) -> Result<Ending, Failure> {
    let model = public_model(&options.public)?;
    let identity = options.identity.load(CertificateFiles::server)?;
    let keys = KeyStore::open(&options.keys).map_err(input)?;
    let jobs = progress.start(2);
    jobs.doing(format!("reading {}", options.model.display()));
    let checkpoint = Checkpoint::load(&options.model).map_err(input)?;
    let weights = checkpoint.weights(&model).map_err(input)?;
    drop(checkpoint);
    jobs.done();
    jobs.doing("checking that the weights fit what is public".into());
    let owner = Owner::new(&model, weights).map_err(input)?;
    drop(jobs);
    let (listener, address) = listen(&options.listen).map_err(input)?;
    let deals = keys.sessions().map_err(input)?.len();
    progress.say(&format!("listening on {address}, with keys of {deals} deals"));
    let host = Host {
        server: Server::new(&owner, &keys),
        identity,
        timeouts: options.identity.timeouts(),
        progress,
        under_way: AtomicUsize::new(0),
    };
    let served = Served { clients: host.serve(&listener, options.clients) };
    output.show(&served, || format!("{} clients", served.clients.len()))?;
    let failed = served.clients.iter().any(|outcome| matches!(outcome, Outcome::Failed { .. }));
    Ok(if failed { Ending::GateFailed } else { Ending::Done })
}

struct Host<'a> {
    server: Server<'a>,
    identity: Identity,
    timeouts: Timeouts,
    progress: &'a Progress,
    under_way: AtomicUsize,
}

impl Host<'_> {
    /// Serves `most` clients, or all that come.
    fn serve(&self, listener: &TcpListener, most: Option<usize>) -> Vec<Outcome> {
        thread::scope(|scope| {
            let mut clients = Vec::new();
            let mut taken = 0;
            while most.is_none_or(|most| taken < most) {
                let (socket, address) = match listener.accept() {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        self.progress.say(&format!("a client could not be accepted: {error}"));
                        continue;
                    }
                };
                if self.under_way.fetch_add(1, Ordering::Relaxed) >= MOST_AT_ONCE {
                    self.under_way.fetch_sub(1, Ordering::Relaxed);
                    self.progress
                        .say(&format!("{address}: turned away, {MOST_AT_ONCE} clients are being served"));
                    continue;
                }
                taken += 1;
                let client = scope.spawn(move || {
                    let served = Link::accept(socket, &self.identity, self.timeouts)
                        .and_then(|link| self.server.serve(link));
                    self.under_way.fetch_sub(1, Ordering::Relaxed);
                    self.told(&address.to_string(), served)
                });
                if most.is_some() {
                    clients.push(client);
                }
            }
            let lost = || Outcome::Failed { error: "its thread ended early".into() };
            clients.into_iter().map(|client| client.join().unwrap_or_else(|_| lost())).collect()
        })
    }

    fn told(&self, address: &str, served: gatework_fss::Result<Summary>) -> Outcome {
        match served {
            Ok(summary) => {
                let told = Told::new(summary);
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
