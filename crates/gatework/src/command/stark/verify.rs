//! `gatework stark verify`.

use std::path::PathBuf;

use clap::Args;
use gatework_stark::CudaBackend;
use gatework_stark::airs::{self, Air, ProvesWith, VerifyError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use stwo::core::channel::MerkleChannel;
use stwo::core::pcs::PcsConfig;
use stwo::prover::backend::simd::SimdBackend;

use super::memory;
use super::prove::ProofFile;
use super::quiet::quietly;
use super::statement::{Statement, Visitor};
use crate::command::ending::{Ending, Failure};
use crate::command::schema;
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

impl schema::Document for Document {
    const SCHEMA: schema::Schema = schema::STARK_VERIFY;
}

pub(super) fn run(options: &VerifyOptions, shell: &Shell) -> Result<Ending, Failure> {
    let path = &options.proof;
    let input = |what: String| Failure::input(format!("{}: {what}", path.display()));
    let bytes = std::fs::read(path)
        .map_err(|error| input(format!("{error}; 'gatework stark prove --out FILE' writes such a file")))?;
    let no_proof = |why: String| input(format!("it is no proof that 'gatework stark prove' wrote: {why}"));
    schema::PROOF.require(&bytes).map_err(no_proof)?;
    let unreadable = |error: serde_json::Error| no_proof(error.to_string());
    let statement: Statement = serde_json::from_slice(&bytes).map_err(unreadable)?;
    statement.check()?;
    memory::require_to_verify(statement.accept(Needs))?;
    let verified = statement.accept(Verify { file: &bytes }).map_err(unreadable)?;
    let why = verified.err().map(|error| error.to_string());
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

    fn visit<A: Air, MC: MerkleChannel>(self, air: &A, config: PcsConfig) -> Self::Output
    where
        SimdBackend: ProvesWith<MC>,
        CudaBackend: ProvesWith<MC>,
        MC::H: Serialize + DeserializeOwned,
    {
        airs::verifying_bytes(air, config)
    }
}

/// Verifies the proof of a file, if that holds one of the channel's.
pub(super) struct Verify<'a> {
    pub(super) file: &'a [u8],
}

impl Visitor for Verify<'_> {
    type Output = Result<Result<(), VerifyError>, serde_json::Error>;

    fn visit<A: Air, MC: MerkleChannel>(self, air: &A, config: PcsConfig) -> Self::Output
    where
        SimdBackend: ProvesWith<MC>,
        CudaBackend: ProvesWith<MC>,
        MC::H: Serialize + DeserializeOwned,
    {
        let ProofFile::<MC::H> { proved, .. } = serde_json::from_slice(self.file)?;
        // stwo's verifier panics at some altered proofs; what it says of itself is no use to who has one.
        Ok(quietly(|| airs::verify_with::<MC, A>(air, config, proved)))
    }
}
