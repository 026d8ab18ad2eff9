//! Dealer, server and client in this process, over a connection as in earnest: for a first look, for examples
//! and tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use gatework_fss::backend::Backend;
use gatework_fss::{Cost, CpuBackend, Party, Randomness};
use gatework_gpu::Observer;

use crate::disk::KeyFile;
use crate::error::{Error, Result};
use crate::model::Owner;
use crate::net::{CertificateFiles, Link, Reception, Timeouts, listen, make_test_certificates};

use super::{Client, KeyStore, Server, deal_files};

/// The name in the server's certificate.
const NAME: &str = "localhost";

/// All three roles, with their key files and certificates in one folder.
pub struct Loopback<'a> {
    owner: &'a Owner,
    server_keys: PathBuf,
    client_keys: PathBuf,
    certificates: CertificateFiles,
    timeouts: Timeouts,
    backends: [Arc<dyn Backend>; 2],
}

impl<'a> Loopback<'a> {
    /// Makes certificates in a folder, in which nothing else should be.
    pub fn new(owner: &'a Owner, folder: &Path) -> Result<Self> {
        let host: Arc<dyn Backend> = Arc::new(CpuBackend);
        Ok(Self {
            owner,
            server_keys: folder.join("server.keys"),
            client_keys: folder.join("client.keys"),
            certificates: make_test_certificates(folder, &[NAME.into()])?,
            timeouts: Timeouts::default(),
            backends: [host.clone(), host],
        })
    }

    /// The same, with the server and the client on backends of their own.
    pub fn on(self, backends: [Arc<dyn Backend>; 2]) -> Self {
        Self { backends, ..self }
    }

    /// The same, with other limits to waiting.
    pub fn with_timeouts(self, timeouts: Timeouts) -> Self {
        Self { timeouts, ..self }
    }

    /// Deals keys for inferences of the given numbers of tokens.
    pub fn deal(&self, tokens: &[usize], observer: &dyn Observer) -> Result<Vec<Cost>> {
        let paths = [self.server_keys.as_path(), self.client_keys.as_path()];
        let (randomness, model) = (&mut Randomness::from_os()?, self.owner.public());
        deal_files(&self.backends[0], randomness, model, tokens, paths, observer)
    }

    /// Serves one client, which is `ask`. If both fail, the client's error is the cause: the server's is
    /// mostly that the client has gone.
    pub fn ask<T, E: From<Error>>(
        &self,
        ask: impl FnOnce(Client<'_>) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let (listener, address) = listen("127.0.0.1:0")?;
        let [server_backend, client_backend] = &self.backends;
        thread::scope(|scope| {
            let server = scope.spawn(|| -> Result<()> {
                let keys = KeyStore::open(&self.server_keys)?;
                let reception = Reception::new(self.certificates.server()?, self.timeouts);
                let link = reception.accept(&listener)?;
                Server::new(self.owner, &keys).on(server_backend.clone()).serve(link).map(drop)
            });
            let connect = || -> Result<Client<'_>> {
                let identity = self.certificates.client()?;
                let link = Link::connect(&address.to_string(), NAME, &identity, self.timeouts)?;
                let keys = KeyFile::open(&self.client_keys, Party::One)?;
                Client::on(self.owner.public(), client_backend.clone(), keys, link)
            };
            let asked = connect().map_err(E::from).and_then(ask);
            let served = server.join().unwrap_or(Err(Error::Closed));
            let answer = asked?;
            served?;
            Ok(answer)
        })
    }
}
