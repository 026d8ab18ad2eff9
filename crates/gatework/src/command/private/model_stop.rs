//! A stop of `gatework tour`: a small transformer, with dealer, server and client as in earnest.

use gatework_fss::backend_on;
use gatework_fss::executor::run_clear;
use gatework_gpu::Target;
use gatework_lab::Outcome;
use gatework_private::Error;
use gatework_private::model::{Checkpoint, Options, Owner};
use gatework_private::roles::Loopback;

use crate::command::interrupt::SecretFolder;

const CONFIG: &[u8] = include_bytes!("../../../models/small-bert/config.json");
const WEIGHTS: &[u8] = include_bytes!("../../../models/small-bert/model.safetensors");
const TEXT: [u32; 5] = [3, 14, 15, 9, 26];

/// What it computes.
pub(crate) const SUMMARY: &str =
    "a BERT between a server and a client over TLS, from dealt keys that work once";

/// The case, and what came of it on a target.
pub(crate) fn visit(target: &Target) -> (String, Outcome) {
    let case = format!("{} tokens, 2 layers, on {}", TEXT.len(), target.id());
    let outcome = match mistake(target) {
        Ok(None) => Outcome::Passed,
        Ok(Some(why)) => Outcome::Failed { why },
        Err(error) => Outcome::Failed { why: error.to_string() },
    };
    (case, outcome)
}

/// What is wrong, if anything is.
fn mistake(target: &Target) -> gatework_private::Result<Option<String>> {
    let checkpoint = Checkpoint::from_bytes(CONFIG, WEIGHTS.to_vec())?;
    let model = checkpoint.public(TEXT.len(), &Options::default())?;
    let owner = Owner::new(&model, checkpoint.weights(&model)?)?;
    let unmade = |source| Error::File { path: std::env::temp_dir(), doing: "make a folder in", source };
    let folder = SecretFolder::new(None).map_err(unmade)?;
    let roles = Loopback::new(&owner, folder.path())?.on([backend_on(target)?, backend_on(target)?]);
    roles.deal(&[TEXT.len()], &())?;
    let ask = || {
        roles.ask(|mut client| -> gatework_private::Result<_> {
            let words = client.infer(&[TEXT.to_vec()])?.remove(0);
            client.finish()?;
            Ok(words)
        })
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
        assert_eq!(visit(&Target::Cpu).1, Outcome::Passed);
    }
}
