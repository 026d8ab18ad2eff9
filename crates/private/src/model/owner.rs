//! Who has the weights.

use gatework_fss::executor::Inputs;

use crate::error::Result;

use super::public::PublicModel;
use super::quantised::QuantisedWeights;
use super::refused;

/// Weights that are those of a public model, and for which what it claims is proved.
///
/// Two parties do not notice a value that leaves its ring. So the inputs of a set-up come from here alone,
/// and this can only be made of weights that pass both checks.
pub struct Owner {
    public: PublicModel,
    weights: QuantisedWeights,
}

impl Owner {
    /// Fails unless the weights have the hash that is public, and the public choices hold for them.
    pub fn new(public: &PublicModel, weights: QuantisedWeights) -> Result<Self> {
        if weights.hash() != public.weights_hash() {
            return Err(refused(
                "the weights are not those that were made public, or the salt of their hash is not: the hash differs",
            ));
        }
        // The longest sequence covers all shorter ones.
        let network = public.network(public.longest())?;
        network.proved().holds_with(&weights.facts(network.proved().graph())?)?;
        Ok(Self { public: public.clone(), weights })
    }

    /// The model of which these are the weights.
    pub fn public(&self) -> &PublicModel {
        &self.public
    }

    /// Party 0's inputs to [`crate::circuit::Network::set_up`].
    pub fn set_up_inputs(&self) -> Inputs {
        self.weights.words(self.public.format().ring).into_iter().map(Some).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Checkpoint, Options};

    /// A description that is well formed, of these weights, and claims too much.
    #[test]
    fn choices_that_are_not_proved_are_refused() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/bert");
        let checkpoint = Checkpoint::load(&folder).unwrap();
        let public = checkpoint.public(4, &Options::default()).unwrap();
        let weights = || checkpoint.weights(&public).unwrap();
        assert!(Owner::new(&public, weights()).is_ok());
        let claimed = public.claiming_bits(public.format().ring.bits() - 4);
        let error = Owner::new(&claimed, weights()).err().unwrap();
        assert!(matches!(error, crate::Error::Unproved { .. }), "{error}");
    }
}
