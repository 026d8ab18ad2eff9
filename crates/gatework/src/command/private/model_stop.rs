//! A stop of `gatework tour`: a small transformer, with dealer, server and client as in earnest.

use std::thread;

use gatework_fss::disk::KeyFile;
use gatework_fss::model::{Checkpoint, Options, Owner, PublicModel};
use gatework_fss::net::{CertificateFiles, Link, Timeouts, listen, make_test_certificates};
use gatework_fss::session::{Client, KeyStore, Server, deal_files};
use gatework_fss::{Error, Party, Randomness, run_clear};
use gatework_lab::Outcome;

const CONFIG: &[u8] = include_bytes!("../../../models/small-bert/config.json");
const WEIGHTS: &[u8] = include_bytes!("../../../models/small-bert/model.safetensors");
const TEXT: [u32; 5] = [3, 14, 15, 9, 26];
const NAME: &str = "localhost";

/// What it computes.
pub(crate) const SUMMARY: &str =
    "a BERT between a server and a client over TLS, from dealt keys that work once";

/// The case, and what came of it.
pub(crate) fn visit() -> (String, Outcome) {
    let case = format!("{} tokens, 2 layers, on the CPU", TEXT.len());
    let outcome = match mistake() {
        Ok(None) => Outcome::Passed,
        Ok(Some(why)) => Outcome::Failed { why },
        Err(error) => Outcome::Failed { why: error.to_string() },
    };
    (case, outcome)
}

/// What is wrong, if anything is.
fn mistake() -> gatework_fss::Result<Option<String>> {
    let checkpoint = Checkpoint::from_bytes(CONFIG, WEIGHTS.to_vec())?;
    let model = checkpoint.public(TEXT.len(), &Options::default())?;
    let owner = Owner::new(&model, checkpoint.weights(&model)?)?;
    let folder = tempfile::tempdir().map_err(|source| Error::Socket { source })?;
    let [server_keys, client_keys] = ["server.keys", "client.keys"].map(|name| folder.path().join(name));
    let mut randomness = Randomness::from_os()?;
    deal_files(&mut randomness, &model, &[TEXT.len()], [&server_keys, &client_keys], &mut |_| ())?;
    let certificates = make_test_certificates(folder.path(), &[NAME.into()])?;
    let once = session(&model, &owner, &certificates, [&server_keys, &client_keys])?;
    let network = model.network(TEXT.len())?;
    let weights = run_clear(&network.set_up(), owner.set_up_inputs())?.output;
    let clear = run_clear(&network.inference(&weights), vec![Some(model.encode_tokens(&TEXT)?)])?.output;
    if Some(once) != clear {
        return Ok(Some("the client's result is not what the clear evaluation gives".into()));
    }
    match session(&model, &owner, &certificates, [&server_keys, &client_keys]) {
        Err(Error::NoKeys { .. }) => Ok(None),
        Err(other) => Ok(Some(format!("a key that was used is refused for another reason: {other}"))),
        Ok(_) => Ok(Some("a key was used twice".into())),
    }
}

/// One text between two threads that talk over a connection.
fn session(
    model: &PublicModel,
    owner: &Owner,
    certificates: &CertificateFiles,
    [server_keys, client_keys]: [&std::path::Path; 2],
) -> gatework_fss::Result<Vec<u64>> {
    let (listener, address) = listen("127.0.0.1:0")?;
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let keys = KeyStore::open(server_keys)?;
            let (socket, _) = listener.accept().map_err(|source| Error::Socket { source })?;
            let link = Link::accept(socket, &certificates.server()?, Timeouts::default())?;
            Server::new(owner, &keys).serve(link)
        });
        let ask = || {
            let identity = certificates.client()?;
            let link = Link::connect(&address.to_string(), NAME, &identity, Timeouts::default())?;
            let mut client = Client::new(model, KeyFile::open(client_keys, Party::One)?, link)?;
            let words = client.infer(&[TEXT.to_vec()])?.remove(0);
            client.finish()?;
            Ok(words)
        };
        let asked = ask();
        let served = server.join().unwrap_or(Err(Error::Closed));
        asked.and_then(|words| served.map(|_| words))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dealer_server_and_client_pass() {
        assert_eq!(visit().1, Outcome::Passed);
    }
}
