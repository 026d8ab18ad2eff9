//! What a trained network writes.

use std::sync::atomic::AtomicBool;

use clap::Args;
use gatework_foresight::config::Config;
use gatework_foresight::data::{Data, Part, Text};
use gatework_foresight::{Learner, Which, Writing};
use serde::Serialize;

use crate::command::ending::Failure;

#[derive(Debug, Args)]
pub(super) struct SampleOptions {
    /// After a run on text, write so many tokens after the start of the held-out text, with averaged weights;
    /// 0 for none
    #[arg(long, value_name = "TOKENS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    sample: u64,
}

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

impl SampleOptions {
    /// Refuses a run that writes nothing, before its data is read.
    pub(super) fn check(&self, config: &Config) -> Result<(), Failure> {
        if self.sample == 0 || config.data.kind.is_text() {
            return Ok(());
        }
        let why =
            "only a run on text writes: use --preset text, or --set data.kind=text with --set model.kind=gpt";
        Err(Failure::input(format!("--sample {}: {why}", self.sample)))
    }

    /// Refuses tokens that cannot be decoded, before anything is trained.
    pub(super) fn check_data(&self, data: &Data) -> Result<(), Failure> {
        let Data::Text(text) = data else { return Ok(()) };
        let vocabulary = text.tokens().vocabulary();
        if self.sample == 0 || vocabulary == VOCABULARY {
            return Ok(());
        }
        Err(Failure::input(format!(
            "--sample {}: the text has {vocabulary} tokens, and only those of GPT-2, {VOCABULARY}, can be decoded: \
             leave out --sample",
            self.sample
        )))
    }

    /// What the network writes, if it is asked to. An interrupt ends it.
    pub(super) fn of(
        &self,
        trainee: &Learner,
        data: &Data,
        seed: u64,
        interrupted: &AtomicBool,
    ) -> Result<Option<Sample>, Failure> {
        match (self.sample, data) {
            (count @ 1.., Data::Text(text)) => {
                write(trainee, text, count as usize, seed, interrupted).map(Some)
            }
            _ => Ok(None),
        }
    }
}

fn write(
    trainee: &Learner,
    text: &Text,
    count: usize,
    seed: u64,
    interrupted: &AtomicBool,
) -> Result<Sample, Failure> {
    let held_out = text.tokens().part(Part::Validation);
    let prompt = &held_out[..PROMPT.min(held_out.len())];
    let writing = Writing { prompt, count, temperature: TEMPERATURE, seed };
    let written = trainee.write(Which::Averaged, &writing, interrupted)?;
    let tokenizer = tiktoken_rs::r50k_base()
        .map_err(|error| Failure::input(format!("the tokenizer cannot be made: {error}")))?;
    let decode = |tokens: &[u16]| -> Result<String, Failure> {
        let tokens: Vec<u32> = tokens.iter().map(|token| u32::from(*token)).collect();
        // A token may be a part of a character, so that the bytes of several need not be text.
        let bytes = tokenizer.decode_bytes(&tokens);
        let bytes = bytes
            .map_err(|error| Failure::input(format!("--sample: the tokens cannot be decoded: {error}")))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    Ok(Sample { prompt: decode(prompt)?, written: decode(&written)? })
}

impl Sample {
    /// For people, below what else is said of a run.
    pub(super) fn text(&self) -> String {
        format!("\n\nafter the held-out text\n{}\nit writes\n{}", self.prompt, self.written)
    }
}
