//! Both parties in one process.

use std::sync::Arc;

use crate::backend::Backend;
use crate::cpu::CpuBackend;
use crate::error::{Error, Result};
use crate::key::KeyStream;
use crate::random::Randomness;
use crate::ring::FixedPoint;

use super::{Circuit, Inputs, Limits, Local, MemoryChannel, Plan, deal, evaluate};

/// Deals keys from the operating system's randomness and runs one circuit as both parties, in two threads on
/// the CPU.
pub fn run_in_process<C>(format: FixedPoint, circuit: C, inputs: [Inputs; 2]) -> Result<[Local<C::Output>; 2]>
where
    C: Circuit<Output: Send> + Sync,
{
    let host: Arc<dyn Backend> = Arc::new(CpuBackend);
    run_in_process_on([host.clone(), host], format, circuit, inputs)
}

/// The same, with each party on a backend of its own.
pub fn run_in_process_on<C>(
    backends: [Arc<dyn Backend>; 2],
    format: FixedPoint,
    circuit: C,
    inputs: [Inputs; 2],
) -> Result<[Local<C::Output>; 2]>
where
    C: Circuit<Output: Send> + Sync,
{
    let circuits = [circuit];
    let dealt = deal(&mut Randomness::from_os()?, format, &circuits)?;
    let plan = Plan::new(Limits::default(), &dealt.costs());
    let run = |keys: KeyStream, backend: Arc<dyn Backend>, mut channel: MemoryChannel, inputs: Inputs| {
        let jobs = vec![(&circuits[0], inputs)];
        let outputs = evaluate(keys.party(), keys, &backend, &mut channel, &plan, jobs)?;
        outputs.into_iter().next().ok_or(Error::Stuck)
    };
    let [zero, one] = MemoryChannel::pair();
    let [zero_inputs, one_inputs] = inputs;
    let [zero_keys, one_keys] = dealt.streams;
    let [zero_backend, one_backend] = backends;
    let (zero, one) = std::thread::scope(|scope| {
        let peer = scope.spawn(|| run(one_keys, one_backend, one, one_inputs));
        (run(zero_keys, zero_backend, zero, zero_inputs), peer.join().unwrap_or(Err(Error::Closed)))
    });
    // The first error is the cause; the other party's is that the channel closed.
    match (zero, one) {
        (Ok(zero), Ok(one)) => Ok([zero, one]),
        (Err(Error::Closed), Err(cause)) | (Err(cause), _) | (_, Err(cause)) => Err(cause),
    }
}
