//! Real models: Hugging Face checkpoints of BERT and GPT-2 as networks.
//!
//! | who | has |
//! |---|---|
//! | the owner of the weights | a [`Checkpoint`], from it a [`PublicModel`] to publish, and an [`Owner`] to evaluate with |
//! | the dealer | the [`PublicModel`] |
//! | the client | the [`PublicModel`], its tokens, and the result |
//!
//! The public part is a small JSON document: shapes, number format, the choice for each truncation, hashes.
//! It is read from outside, so everything in it is checked. Weights are rounded to 12 fractional bits, biases
//! to 24.
//!
//! ```no_run
//! use std::path::Path;
//! use gatework_private::model::{Checkpoint, Options, Owner};
//!
//! # fn main() -> gatework_fss::Result<()> {
//! let checkpoint = Checkpoint::load(Path::new("all-MiniLM-L6-v2"))?;
//! let public = checkpoint.public(64, &Options::default())?;
//! let owner = Owner::new(&public, checkpoint.weights(&public)?)?;
//! let network = public.network(5)?;
//! let tokens = public.encode_tokens(&[101, 7592, 2088, 999, 102])?;
//! # let _ = (owner, network, tokens);
//! # Ok(())
//! # }
//! ```

mod bert;
mod checkpoint;
mod client;
mod config;
mod exact;
mod gpt2;
mod owner;
mod public;
mod quantised;
mod random;
mod salt;
mod tensors;

pub use checkpoint::{Checkpoint, Options};
pub use client::{Tokens, normalised};
pub use exact::{Exact, ExactWeights};
pub use owner::Owner;
pub use public::PublicModel;
pub use quantised::QuantisedWeights;
pub use random::RandomModel;
pub use salt::Salt;

use crate::error::Error;

fn refused(what: impl Into<String>) -> Error {
    Error::Model { what: what.into() }
}
