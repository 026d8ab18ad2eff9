//! `gatework stark prove`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use gatework_gpu::Observer;
use gatework_stark::CudaBackend;
use gatework_stark::airs::{self, Air, Proved, ProvesWith};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stwo::core::channel::MerkleChannel;
use stwo::core::pcs::PcsConfig;
use stwo::core::vcs_lifted::merkle_hasher::MerkleHasherLifted;
use stwo::prover::backend::simd::SimdBackend;

use super::memory;
use super::place::Place;
use super::statement::{Statement, StatementOptions, Visitor};
use crate::command::device_memory::MemoryOptions;
use crate::command::ending::{Ending, Failure};
use crate::command::files::{require_writable, write_file};
use crate::command::schema;
use crate::command::shell::Shell;

pub(super) const EXAMPLES: &str = "\
Examples:
  gatework stark prove
  gatework stark prove --air wide-fibonacci --log-rows 16 --columns 100 --out proof.json
  gatework stark prove --air poseidon2 --log-rows 10 --security 96 --out proof.json --device cuda
  gatework stark prove --log-rows 10 --channel poseidon252 --out proof.json
  gatework stark prove --log-rows 22 --columns 400 --out proof.json --device cuda:0,1

Without options it proves 1024 rows and writes proof.json, unless there is such a file already.
Without a GPU, proofs are made by stwo's SimdBackend; they are the same.
Columns that do not fit into the device's memory stay in the machine's and visit the device.
Several devices (cuda:all, cuda:0,1, emulated:4) share the columns of one proof: 2, 4, 8 and so on.";

#[derive(Debug, Args)]
pub(crate) struct ProveOptions {
    #[command(flatten)]
    pub(super) statement: StatementOptions,
    /// The base-2 logarithm of the number of rows, from 4 to 26
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u32).range(4..=26))]
    pub(super) log_rows: u32,
    /// The file to write the proof to [default: a new proof.json]
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
    #[command(flatten)]
    pub(super) memory: MemoryOptions,
}

/// Where a proof goes if nothing else is said.
const DEFAULT_OUT: &str = "proof.json";

impl ProveOptions {
    /// The file to write. One that was named may be replaced; one that was not named is never lost.
    fn file(&self) -> Result<PathBuf, Failure> {
        let path = match &self.out {
            Some(path) => path.clone(),
            None if Path::new(DEFAULT_OUT).exists() => {
                return Err(Failure::input(format!(
                    "{DEFAULT_OUT} is there already and would be lost: name a file with --out"
                )));
            }
            None => PathBuf::from(DEFAULT_OUT),
        };
        require_writable("--out", &path)?;
        Ok(path)
    }
}

/// A proof file.
#[derive(Serialize, Deserialize)]
pub(super) struct ProofFile<H: MerkleHasherLifted> {
    #[serde(flatten)]
    pub(super) statement: Statement,
    #[serde(flatten)]
    pub(super) proved: Proved<H>,
}

impl<H: MerkleHasherLifted> schema::Document for ProofFile<H>
where
    Self: Serialize,
{
    const SCHEMA: schema::Schema = schema::PROOF;
}

#[derive(Serialize)]
struct Done {
    #[serde(flatten)]
    statement: Statement,
    device: String,
    out: PathBuf,
    bytes: usize,
    /// The command that verifies it.
    verify: String,
    /// Trace generation, writing the proof as JSON and, on a device, the upload included; a first run on a
    /// device compiles, too.
    seconds: f64,
}

impl schema::Document for Done {
    const SCHEMA: schema::Schema = schema::STARK_PROVE;
}

pub(super) fn run(options: &ProveOptions, shell: &Shell) -> Result<Ending, Failure> {
    let statement = Statement::new(&options.statement, options.log_rows)?;
    statement.check()?;
    let out = options.file()?;
    let place = Place::open(shell, options.memory)?;
    let jobs = shell.progress.start(1);
    jobs.doing(format!("proving {} on {}", statement.text(), place.id()));
    let observer = Arc::new(shell.progress.clone());
    let start = Instant::now();
    let file = statement.accept(Prove { statement, place: &place, observer })?;
    let seconds = start.elapsed().as_secs_f64();
    drop(jobs);
    write_file(&out, &file)?;
    let device = place.id().to_owned();
    let verify = format!("gatework stark verify {}", out.display());
    let done = Done { statement, device, out, bytes: file.len(), verify, seconds };
    shell.output.show(&done, || {
        format!(
            "{} proved on {} in {seconds:.3} s, {} bytes written to {}\nverify it: {}",
            statement.text(),
            done.device,
            done.bytes,
            done.out.display(),
            done.verify
        )
    })?;
    Ok(Ending::Done)
}

/// Proves: the bytes of a proof file.
pub(super) struct Prove<'a> {
    pub(super) statement: Statement,
    pub(super) place: &'a Place,
    /// Who is told of the stages of the proof.
    pub(super) observer: Arc<dyn Observer>,
}

impl Visitor for Prove<'_> {
    type Output = Result<Vec<u8>, Failure>;

    fn visit<A: Air, MC: MerkleChannel>(self, air: &A, config: PcsConfig) -> Self::Output
    where
        SimdBackend: ProvesWith<MC>,
        CudaBackend: ProvesWith<MC>,
        MC::H: Serialize + DeserializeOwned,
    {
        let plan = <CudaBackend as ProvesWith<MC>>::plan(airs::plan(air, config));
        memory::require_to_prove(self.place.host_bytes(&plan))?;
        let proved = self.place.prover(self.observer)?.prove_with::<MC, _>(air, config)?;
        let file = ProofFile { statement: self.statement, proved };
        serde_json::to_vec(&schema::Versioned::new(&file))
            .map_err(|error| Failure::device(format!("the proof could not be written as JSON: {error}")))
    }
}
