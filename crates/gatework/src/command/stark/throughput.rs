//! Many proofs of one statement at once on one device.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use gatework_gpu::Device;
use gatework_stark::airs::{self, Air, HostColumn, Input, Proved, ProvesWith};
use gatework_stark::{Context, CudaBackend, Plan, Provers};
use serde::Serialize;
use stwo::core::channel::MerkleChannel;
use stwo::core::pcs::PcsConfig;
use stwo::core::vcs_lifted::merkle_hasher::MerkleHasherLifted;

use crate::command::ending::Failure;

/// Preprocessed columns by name, and traces.
pub(super) type Columns = (Vec<(String, HostColumn)>, Vec<Vec<HostColumn>>);

#[derive(Serialize)]
pub(super) struct Throughput {
    /// Proofs that run side by side.
    at_once: usize,
    proofs: usize,
    /// From traces on the device, which are copied there for each proof, to proofs in host memory.
    per_second: f64,
    pub(super) same_bytes: bool,
}

impl fmt::Display for Throughput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at once: {:.0} proofs a second, of {}", self.at_once, self.per_second, self.proofs)
    }
}

/// The bytes that proofs are compared by.
pub(super) fn json<H: MerkleHasherLifted + Serialize>(proved: &Proved<H>) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(proved)
        .map_err(|error| Failure::device(format!("the proof could not be written as JSON: {error}")))
}

/// Refuses so many proofs at once that the device has no memory for, each beside its trace.
pub(super) fn require_room(device: &Device, at_once: NonZeroUsize, plan: &Plan) -> Result<(), Failure> {
    let one = plan.peak_bytes() + plan.column_bytes();
    let (needed, free) = (one.saturating_mul(at_once.get() as u64), device.budget().free());
    if needed <= free {
        return Ok(());
    }
    let way_out = match free / one {
        0 => "leave --at-once out, which streams columns for one proof after the other".to_owned(),
        most => format!("give --at-once {most} or fewer"),
    };
    Err(Failure::input(format!(
        "{at_once} proofs at once need {needed} bytes of device memory and {free} may still be held: {way_out}"
    )))
}

/// Proves `repeats` times in each of `at_once` contexts, after one proof that is not timed.
pub(super) fn measure<MC: MerkleChannel, A: Air>(
    device: &Device,
    (at_once, repeats): (NonZeroUsize, NonZeroUsize),
    (air, config): (&A, PcsConfig),
    columns: &Columns,
    expected: &[u8],
) -> Result<Throughput, Failure>
where
    CudaBackend: ProvesWith<MC>,
    Proved<MC::H>: Send,
    MC::H: Serialize,
{
    let provers = Provers::new(std::slice::from_ref(device), at_once)?;
    let barrier = Barrier::new(at_once.get());
    let work = |context: &Context| -> Result<_, Failure> {
        let input = context.scope(|| Input::<CudaBackend>::of(columns.0.clone(), &columns.1, config));
        let prove = |input: &Input<CudaBackend>| {
            context
                .scope(|| airs::prove_with::<MC, _, _>(air, config, input.clone()))
                .and_then(|proved| proved)
        };
        let first = input.and_then(|input| prove(&input).map(|_| input));
        // Everybody comes here, whatever failed: the others would wait for ever.
        barrier.wait();
        let input = first?;
        let start = Instant::now();
        let proofs = (0..repeats.get()).map(|_| prove(&input)).collect::<Result<Vec<_>, _>>()?;
        Ok((start, Instant::now(), proofs))
    };
    let lanes = thread::scope(|scope| {
        let lanes: Vec<_> = provers.contexts().map(|context| scope.spawn(|| work(context))).collect();
        let joined = lanes
            .into_iter()
            .map(|lane| lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect::<Result<Vec<_>, Failure>>()
    })?;
    let start = lanes.iter().map(|(start, _, _)| *start).min();
    let end = lanes.iter().map(|(_, end, _)| *end).max();
    let time = start.zip(end).map_or(0.0, |(start, end)| (end - start).as_secs_f64());
    let proofs: Vec<_> = lanes.iter().flat_map(|(_, _, proofs)| proofs).collect();
    let mut same_bytes = true;
    for proved in &proofs {
        same_bytes &= json(proved)? == expected;
    }
    let per_second = proofs.len() as f64 / time;
    Ok(Throughput { at_once: at_once.get(), proofs: proofs.len(), per_second, same_bytes })
}
