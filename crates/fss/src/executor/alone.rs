//! Roles that need no peer: the clear evaluation, and the estimate.

use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::backend::Backend;
use crate::bound::Bound;
use crate::cpu::CpuBackend;
use crate::error::{Error, Result};
use crate::evaluator::{Evaluator, Role};
use crate::ring::Ring;
use crate::tally::Cost;
use crate::tensor::Wire;

use super::{Circuit, Inputs, Local};

/// Runs a circuit where nothing has to be sent: what is opened is what was put in.
fn run_alone<C: Circuit>(evaluator: &Evaluator, circuit: &C) -> Result<Local<C::Output>> {
    run_stepwise(evaluator, circuit, |_| Ok(()))
}

/// The same, with something done after every step.
pub(super) fn run_stepwise<C: Circuit>(
    evaluator: &Evaluator,
    circuit: &C,
    mut after: impl FnMut(&Evaluator) -> Result<()>,
) -> Result<Local<C::Output>> {
    let mut task = pin!(circuit.run(evaluator));
    let mut context = Context::from_waker(Waker::noop());
    loop {
        let step = task.as_mut().poll(&mut context);
        after(evaluator)?;
        if let Poll::Ready(output) = step {
            return Ok(Local { output: output?, cost: evaluator.cost() });
        }
        let requests = evaluator.mailbox.take_outgoing();
        if requests.is_empty() {
            return Err(Error::Stuck);
        }
        evaluator.count(|cost| cost.rounds += 1);
        evaluator.mailbox.deliver(requests.into_iter().map(|request| request.words).collect());
    }
}

/// What needs no speed computes on the host.
pub(super) fn host() -> Arc<dyn Backend> {
    Arc::new(CpuBackend)
}

/// The integer specification: runs a circuit on plain inputs. A value outside its proved bound is an error.
pub fn run_clear<C: Circuit>(circuit: &C, inputs: Inputs) -> Result<Local<C::Output>> {
    run_alone(&Evaluator::new(Role::Clear, host(), inputs), circuit)
}

/// The cost of a circuit, from its shapes alone.
pub fn estimate<C: Circuit>(circuit: &C) -> Result<Cost> {
    Ok(rehearse(circuit)?.cost)
}

/// The same, with the shapes that come out.
pub fn rehearse<C: Circuit>(circuit: &C) -> Result<Local<C::Output>> {
    run_alone(&Evaluator::new(Role::Estimate, host(), Vec::new()), circuit)
}

/// The shape of a wire that a gate is given, with the range that is proved for its values.
#[derive(Debug, Clone)]
pub struct WireShape {
    /// Its ring.
    pub ring: Ring,
    /// Its elements.
    pub len: usize,
    /// Where its values lie.
    pub range: RangeInclusive<i64>,
}

/// What a gate costs on wires of given shapes, without what brings them there. The result is not opened
/// unless the gate does it.
///
/// ```
/// use gatework_fss::executor::{WireShape, estimate_gate};
/// use gatework_fss::{Evaluator, Ring, Wire};
/// let wire = WireShape { ring: Ring::new(64)?, len: 1000, range: i64::MIN..=i64::MAX };
/// let cost = estimate_gate(&[wire], async |evaluator: &Evaluator, wires: &[Wire]| evaluator.signs(&wires[0], &[0]))?;
/// // 57 correction words of 16 bytes a comparison; 56 blocks for its walk, one for its root, and masks of one bit each.
/// assert_eq!(cost.key_bytes, [1000 * 57 * 16; 2]);
/// assert_eq!(cost.prg_blocks, [1000 * (56 + 1) + 8; 2]);
/// # Ok::<(), gatework_fss::Error>(())
/// ```
pub fn estimate_gate<T>(
    wires: &[WireShape],
    gate: impl AsyncFn(&Evaluator, &[Wire]) -> Result<T>,
) -> Result<Cost> {
    let wire = |shape: &WireShape| {
        if shape.range.is_empty() {
            return Err(Error::Shape { gate: "a wire", what: format!("{:?} holds no value", shape.range) });
        }
        let bound = Bound::proved((*shape.range.start()).into(), (*shape.range.end()).into());
        Ok(Wire::shape(shape.ring, shape.len, bound.in_ring("a wire", shape.ring)?))
    };
    let wires = wires.iter().map(wire).collect::<Result<Vec<_>>>()?;
    // Wires without words exist for the estimate alone, so a range that nobody proved can do no harm.
    estimate(&async |evaluator: &Evaluator| gate(evaluator, &wires).await)
}
