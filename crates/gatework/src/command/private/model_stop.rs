//! A stop of `gatework tour`: a small transformer, with dealer, server and client as in earnest.

use gatework_fss::backend_on;
use gatework_fss::executor::run_clear;
use gatework_gpu::Target;
use gatework_private::Error;
use gatework_private::model::{Options, Owner};
use gatework_private::roles::Loopback;

use super::bundled;
use crate::command::interrupt::SecretFolder;
use crate::command::noun::Seen;

const TEXT: [u32; 5] = [3, 14, 15, 9, 26];

/// What it computes.
pub(crate) const SUMMARY: &str =
    "a BERT between a server and a client over TLS, from dealt keys that work once";

/// What came of it on a target.
pub(crate) fn visit(target: &Target) -> Seen {
    let checked = checked(target).unwrap_or_else(|error| Err(error.to_string()));
    Seen::of_engine(format!("{} tokens, 2 layers, on {}", TEXT.len(), target.id()), checked)
}

/// What was shown, or what is wrong.
fn checked(target: &Target) -> gatework_private::Result<Result<String, String>> {
    let checkpoint = bundled::checkpoint()?;
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
        return Ok(Err("the client's result is not what the clear evaluation gives".into()));
    }
    match ask() {
        Err(Error::NoKeys { .. }) => Ok(Ok(format!(
            "a BERT of 2 layers read {} tokens that its server never saw, over TLS, on {}: bit for bit what the clear \
             evaluation gives, and the used key is refused a second time",
            TEXT.len(),
            target.id()
        ))),
        Err(other) => Ok(Err(format!("a key that was used is refused for another reason: {other}"))),
        Ok(_) => Ok(Err("a key was used twice".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dealer_server_and_client_pass() {
        let seen = visit(&Target::Cpu);
        assert!(seen.outcome.is_passed(), "{seen:?}");
    }
}
