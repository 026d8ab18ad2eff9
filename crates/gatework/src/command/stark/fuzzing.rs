//! Entries for fuzzers to proof files.

use std::sync::Arc;

use clap::ValueEnum as _;
use gatework_gpu::Target;
use gatework_stark::CudaBackend;
use gatework_stark::airs::{Air, ProvesWith};
use serde::Serialize;
use serde::de::DeserializeOwned;
use stwo::core::channel::MerkleChannel;
use stwo::core::pcs::PcsConfig;
use stwo::prover::backend::simd::SimdBackend;

use super::place::Place;
use super::prove::{ProofFile, Prove};
use super::statement::{AirChoice, ChannelChoice, Security, Statement, Visitor};
use super::verify::Verify;
use crate::command::schema::Versioned;

/// What takes long to verify is not the reader's fault.
const MOST_LOG_ROWS: u32 = 6;
const MOST_COLUMNS: usize = 32;

/// Whether a file holds a proof that holds, of a statement that is small.
pub(in crate::command) fn holds(file: &[u8]) -> bool {
    let Ok(statement) = serde_json::from_slice::<Statement>(file) else { return false };
    let is_small = statement.log_rows <= MOST_LOG_ROWS && statement.columns.unwrap_or(0) <= MOST_COLUMNS;
    if statement.check().is_err() || !is_small || !matches!(statement.accept(Verify { file }), Ok(Ok(()))) {
        return false;
    }
    let read = statement.accept(Rewritten { file, statement });
    assert_eq!(read, String::from_utf8(proof(statement)).ok(), "another proof than ours is accepted");
    true
}

/// A proof file as it was understood: spaces and keys that nobody knows are left out.
struct Rewritten<'a> {
    file: &'a [u8],
    statement: Statement,
}

impl Visitor for Rewritten<'_> {
    type Output = Option<String>;

    fn visit<A: Air, MC: MerkleChannel>(self, _: &A, _: PcsConfig) -> Self::Output
    where
        SimdBackend: ProvesWith<MC>,
        CudaBackend: ProvesWith<MC>,
        MC::H: Serialize + DeserializeOwned,
    {
        let ProofFile::<MC::H> { proved, .. } = serde_json::from_slice(self.file).ok()?;
        let file = ProofFile { statement: self.statement, proved };
        serde_json::to_string(&Versioned::new(&file)).ok()
    }
}

fn proof(statement: Statement) -> Vec<u8> {
    let proved =
        statement.accept(Prove { statement, place: &Place::One(Target::Cpu), observer: Arc::new(()) });
    proved.expect("a small statement is proved")
}

/// Proofs of AIRs of every kind and with every channel, with names. Those of Poseidon2 are too long to be
/// altered usefully.
pub(in crate::command) fn sample_proofs() -> Vec<(String, Vec<u8>)> {
    let channels = ChannelChoice::value_variants().iter().map(|&channel| (AirChoice::WideFibonacci, channel));
    let airs = AirChoice::value_variants().iter().map(|&air| (air, ChannelChoice::Blake2s));
    let airs = airs.filter(|(air, _)| *air != AirChoice::Poseidon2);
    let mut found = Vec::new();
    for (air, channel) in airs.chain(channels.filter(|(_, channel)| *channel != ChannelChoice::Blake2s)) {
        let columns = (air == AirChoice::WideFibonacci).then_some(4);
        let log_rows = if air == AirChoice::StateMachine { 5 } else { 4 };
        let statement = Statement { air, log_rows, columns, security: Security::Default, channel };
        let name = statement.text().replace(['^', ' ', ','], "-");
        found.push((name, proof(statement)));
    }
    found
}
