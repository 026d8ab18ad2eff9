//! A stop of `gatework tour`: a small transformer, with dealer, server and client as in earnest.

use gatework_fss::model::{Checkpoint, Options, Owner};
use gatework_fss::net::{Timeouts, make_test_certificates};
use gatework_fss::session::deal_files;
use gatework_fss::{Error, Randomness, run_clear};
use gatework_lab::Outcome;

use super::loopback::{NAME, serve_and_ask};

const CONFIG: &[u8] = include_bytes!("../../../models/small-bert/config.json");
const WEIGHTS: &[u8] = include_bytes!("../../../models/small-bert/model.safetensors");
const TEXT: [u32; 5] = [3, 14, 15, 9, 26];

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
    let unmade = |source| Error::File { path: std::env::temp_dir(), doing: "make a folder in", source };
    let folder = tempfile::tempdir().map_err(unmade)?;
    let [server_keys, client_keys] = ["server.keys", "client.keys"].map(|name| folder.path().join(name));
    let mut randomness = Randomness::from_os()?;
    deal_files(&mut randomness, &model, &[TEXT.len()], [&server_keys, &client_keys], &mut |_| ())?;
    let certificates = make_test_certificates(folder.path(), &[NAME.into()])?;
    let keys = [server_keys.as_path(), client_keys.as_path()];
    let ask = || {
        serve_and_ask(
            &owner,
            &certificates,
            keys,
            Timeouts::default(),
            |mut client| -> gatework_fss::Result<_> {
                let words = client.infer(&[TEXT.to_vec()])?.remove(0);
                client.finish()?;
                Ok(words)
            },
        )
    };
    let once = ask()?;
    let network = model.network(TEXT.len())?;
    let weights = run_clear(&network.set_up(), owner.set_up_inputs())?.output;
    let clear = run_clear(&network.inference(&weights), vec![Some(model.encode_tokens(&TEXT)?)])?.output;
    if Some(once) != clear {
        return Ok(Some("the client's result is not what the clear evaluation gives".into()));
    }
    match ask() {
        Err(Error::NoKeys { .. }) => Ok(None),
        Err(other) => Ok(Some(format!("a key that was used is refused for another reason: {other}"))),
        Ok(_) => Ok(Some("a key was used twice".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dealer_server_and_client_pass() {
        assert_eq!(visit().1, Outcome::Passed);
    }
}
