//! A server and a client in two threads of this process, over a connection as in earnest.

use std::path::Path;
use std::thread;

use gatework_fss::disk::KeyFile;
use gatework_fss::model::Owner;
use gatework_fss::net::{CertificateFiles, Link, Timeouts, listen};
use gatework_fss::session::{Client, KeyStore, Server};
use gatework_fss::{Error, Party, Result};

/// The name in the server's certificate.
pub(super) const NAME: &str = "localhost";

/// Serves one client, which is `ask`. If both fail, the client's error is the cause: the server's is mostly that the client has gone.
pub(super) fn serve_and_ask<T, E: From<Error>>(
    owner: &Owner,
    certificates: &CertificateFiles,
    [server_keys, client_keys]: [&Path; 2],
    timeouts: Timeouts,
    ask: impl FnOnce(Client<'_>) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    let (listener, address) = listen("127.0.0.1:0")?;
    thread::scope(|scope| {
        let server = scope.spawn(|| -> Result<()> {
            let keys = KeyStore::open(server_keys)?;
            let (socket, _) = listener.accept().map_err(|source| Error::Socket { source })?;
            let link = Link::accept(socket, &certificates.server()?, timeouts)?;
            Server::new(owner, &keys).serve(link).map(drop)
        });
        let connect = || -> Result<Client<'_>> {
            let link = Link::connect(&address.to_string(), NAME, &certificates.client()?, timeouts)?;
            Client::new(owner.public(), KeyFile::open(client_keys, Party::One)?, link)
        };
        let asked = connect().map_err(E::from).and_then(ask);
        let served = server.join().unwrap_or(Err(Error::Closed));
        let answer = asked?;
        served?;
        Ok(answer)
    })
}
