//! `gatework stark prove`.

use std::path::PathBuf;
use std::time::Instant;

use gatework_gpu::Target;
use gatework_lab::write_file;
use gatework_stark::airs::{self, Air, Input, Proved};
use gatework_stark::{Context, CudaBackend, Stage};
use serde::{Deserialize, Serialize};
use stwo::core::pcs::PcsConfig;
use stwo::prover::ComponentProver;
use stwo::prover::backend::simd::SimdBackend;
use stwo_constraint_framework::FrameworkComponent;

use super::cli::ProveOptions;
use super::statement::{Statement, Visitor};
use super::{failure, memory};
use crate::command::device::{DeviceChoice, target};
use crate::command::ending::{Ending, Failure};
use crate::command::interrupt::uninterrupted;
use crate::command::output::Output;
use crate::command::progress::Progress;

/// A proof file.
#[derive(Serialize, Deserialize)]
pub(super) struct ProofFile {
    #[serde(flatten)]
    pub(super) statement: Statement,
    #[serde(flatten)]
    pub(super) proved: Proved,
}

#[derive(Serialize)]
struct Done {
    #[serde(flatten)]
    statement: Statement,
    device: String,
    out: PathBuf,
    bytes: usize,
    /// Trace generation and, on a device, its upload included; a first run on a device compiles, too.
    seconds: f64,
}

pub(super) fn run(
    options: &ProveOptions,
    choice: &DeviceChoice,
    output: &Output,
    progress: &Progress,
) -> Result<Ending, Failure> {
    let statement = Statement::new(&options.statement, options.log_rows)?;
    statement.check()?;
    crate::command::attention::require_writable("--out", &options.out)?;
    let target = target(choice, progress)?;
    let jobs = progress.start(1);
    let doing = format!("proving {} on {}", statement.text(), target.id());
    jobs.doing(doing.clone());
    let stages = progress.clone();
    let told = move |stage: Stage| stages.message(format!("{doing}: {}", stage.name()));
    let start = Instant::now();
    let proved = statement.accept(Prove { target: &target, told: Box::new(told) })?;
    let seconds = start.elapsed().as_secs_f64();
    drop(jobs);
    let file = serde_json::to_vec(&ProofFile { statement, proved })
        .map_err(|error| Failure::Device(format!("the proof could not be written as JSON: {error}")))?;
    uninterrupted(|| write_file(&options.out, &file))?;
    let device = target.id().to_owned();
    let done = Done { statement, device, out: options.out.clone(), bytes: file.len(), seconds };
    output.show(&done, || {
        format!(
            "{} proved on {} in {seconds:.3} s, {} bytes written to {}",
            statement.text(),
            done.device,
            done.bytes,
            done.out.display()
        )
    })?;
    Ok(Ending::Done)
}

/// Proves on a target.
pub(super) struct Prove<'a> {
    pub(super) target: &'a Target,
    /// Who is told of the stages of a proof on a device.
    pub(super) told: Box<dyn Fn(Stage) + Send + Sync>,
}

impl Visitor for Prove<'_> {
    type Output = Result<Proved, Failure>;

    fn visit<A: Air>(self, air: &A, config: PcsConfig) -> Self::Output
    where
        FrameworkComponent<A::Eval>: ComponentProver<CudaBackend> + ComponentProver<SimdBackend>,
    {
        let plan = airs::plan(air, config);
        memory::require_to_prove(match self.target {
            Target::Cpu => plan.host_peak_bytes(),
            // The memory of an emulated device is the host's.
            Target::Gpu(device) if device.is_emulated() => plan.column_bytes() + plan.peak_bytes(),
            Target::Gpu(_) => plan.column_bytes(),
        })?;
        let proved = match self.target {
            Target::Cpu => airs::prove(air, config, Input::<SimdBackend>::new(air, config)),
            Target::Gpu(device) => Context::new(device).and_then(|context| {
                context.watch(self.told);
                plan.check(device)?;
                context.scope(|| airs::prove(air, config, Input::<CudaBackend>::new(air, config)))?
            }),
        };
        proved.map_err(failure)
    }
}
