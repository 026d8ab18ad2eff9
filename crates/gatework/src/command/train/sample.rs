//! What a trained network writes.

use gatework_foresight::data::{Part, Text};
use gatework_foresight::{Learner, Which};
use serde::Serialize;

use crate::command::ending::Failure;

/// The start of a held-out text, and how a network goes on from there.
#[derive(Serialize)]
pub(super) struct Sample {
    /// The start of what validates.
    pub(super) prompt: String,
    /// What the averaged weights write after it.
    pub(super) written: String,
}

/// Tokens of the prompt.
const PROMPT: usize = 16;
/// Below 1, so that what is likely is written more often than it comes.
const TEMPERATURE: f64 = 0.8;
/// Tokens of GPT-2, which its tokenizer decodes.
const VOCABULARY: usize = 50_257;

impl Sample {
    pub(super) fn of(trainee: &Learner, text: &Text, count: usize, seed: u64) -> Result<Self, Failure> {
        let vocabulary = text.tokens().vocabulary();
        if vocabulary != VOCABULARY {
            return Err(Failure::input(format!(
                "--sample: the text has {vocabulary} tokens, and only those of GPT-2, {VOCABULARY}, can be decoded"
            )));
        }
        let tokenizer = tiktoken_rs::r50k_base()
            .map_err(|error| Failure::input(format!("the tokenizer cannot be made: {error}")))?;
        let decode = |tokens: &[u16]| -> Result<String, Failure> {
            let tokens: Vec<u32> = tokens.iter().map(|token| u32::from(*token)).collect();
            // A token may be a part of a character, so that the bytes of several need not be text.
            let bytes = tokenizer.decode_bytes(&tokens);
            let bytes = bytes.map_err(|error| {
                Failure::input(format!("--sample: the tokens cannot be decoded: {error}"))
            })?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let held_out = text.tokens().part(Part::Validation);
        let prompt = &held_out[..PROMPT.min(held_out.len())];
        let written = trainee.write(Which::Averaged, prompt, count, TEMPERATURE, seed)?;
        Ok(Self { prompt: decode(prompt)?, written: decode(&written)? })
    }
}
