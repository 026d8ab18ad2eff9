//! The model that comes with the command, for a first look and for the tour: small, and trained for nothing.

use gatework_private::model::Checkpoint;
use tokenizers::Tokenizer;

use crate::command::ending::Failure;

const CONFIG: &[u8] = include_bytes!("../../../models/small-bert/config.json");
const WEIGHTS: &[u8] = include_bytes!("../../../models/small-bert/model.safetensors");
const TOKENIZER: &[u8] = include_bytes!("../../../models/small-bert/tokenizer.json");

/// What is said where it stands in for a model that was not named.
pub(super) const NOTICE: &str = "\
no --model was given: this is the bundled small-bert, two layers of 16 columns with random weights, a token for each letter and at \
most 62 letters. Its embedding means nothing; dealer, server, client and keys work as with any model";

pub(super) fn checkpoint() -> gatework_private::Result<Checkpoint> {
    Checkpoint::from_bytes(CONFIG, WEIGHTS.to_vec())
}

pub(super) fn tokenizer() -> Result<Tokenizer, Failure> {
    Tokenizer::from_bytes(TOKENIZER)
        .map_err(|error| Failure::input(format!("the bundled tokenizer cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The model has a word for every token that its tokenizer knows.
    #[test]
    fn the_tokenizer_is_the_models() {
        let tokenizer = tokenizer().unwrap();
        assert_eq!(tokenizer.get_vocab_size(true), 32);
        let encoding = tokenizer.encode("Is it?", true).unwrap();
        assert_eq!(encoding.get_tokens(), ["[CLS]", "i", "s", " ", "i", "t", "?", "[SEP]"]);
        let model = checkpoint().unwrap().public(64, &gatework_private::model::Options::default()).unwrap();
        let ids: Vec<u32> = (0..32).collect();
        assert!(model.encode_tokens(&ids).is_ok() && model.encode_tokens(&[32]).is_err());
    }
}
