//! `gatework stark verify`.

use std::path::PathBuf;

use clap::Args;
use gatework_stark::airs::{self, Air, Proved, VerifyError};
use serde::Serialize;
use stwo::core::pcs::PcsConfig;

use super::memory;
use super::prove::ProofFile;
use super::quiet::quietly;
use super::statement::{Statement, Visitor};
use crate::command::ending::{Ending, Failure};
use crate::command::shell::Shell;

#[derive(Debug, Args)]
pub(crate) struct VerifyOptions {
    /// The file with the proof
    #[arg(value_name = "FILE")]
    pub(super) proof: PathBuf,
}

#[derive(Serialize)]
struct Document {
    proof: PathBuf,
    #[serde(flatten)]
    statement: Statement,
    holds: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

pub(super) fn run(options: &VerifyOptions, shell: &Shell) -> Result<Ending, Failure> {
    let path = &options.proof;
    let input = |what: String| Failure::input(format!("{}: {what}", path.display()));
    let bytes = std::fs::read(path).map_err(|error| input(error.to_string()))?;
    let ProofFile { statement, proved } = serde_json::from_slice(&bytes)
        .map_err(|error| input(format!("it is no proof that 'gatework stark prove' wrote: {error}")))?;
    statement.check()?;
    memory::require_to_verify(statement.accept(Needs))?;
    let why = statement.accept(Verify { proved }).err().map(|error| error.to_string());
    let document = Document { proof: path.clone(), statement, holds: why.is_none(), why };
    shell.output.show(&document, || match &document.why {
        None => format!("the proof of {} holds", statement.text()),
        Some(why) => format!("{}: {why}", statement.text()),
    })?;
    Ok(if document.holds { Ending::Done } else { Ending::GateFailed })
}

/// The memory that a proof of the AIR is verified in.
struct Needs;

impl Visitor for Needs {
    type Output = u64;

    fn visit<A: Air>(self, air: &A, config: PcsConfig) -> u64 {
        airs::verifying_bytes(air, config)
    }
}

/// Verifies a proof of the AIR.
pub(super) struct Verify {
    pub(super) proved: Proved,
}

impl Visitor for Verify {
    type Output = Result<(), VerifyError>;

    fn visit<A: Air>(self, air: &A, config: PcsConfig) -> Self::Output {
        // stwo's verifier panics at some altered proofs; what it says of itself is no use to who has one.
        quietly(|| airs::verify(air, config, self.proved))
    }
}
