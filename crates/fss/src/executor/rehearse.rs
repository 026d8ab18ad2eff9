//! A party's evaluation with lengths alone, in the order in which it runs in earnest.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::backend::{Backend, Words};
use crate::error::{Error, Result};
use crate::evaluator::{Evaluator, KeysAhead, Request, Role};
use crate::key::{KeySection, Material};
use crate::party::Party;
use crate::secret::{Secret, SharedBytes};

use super::evaluate::MESSAGE_HEADER;
use super::script::Lookout;
use super::{Circuit, Plan};

struct Task<'a, T> {
    evaluator: Rc<Evaluator>,
    future: Pin<Box<dyn Future<Output = Result<T>> + 'a>>,
    /// As in earnest.
    lookout: Option<Lookout>,
    requests: Vec<Request>,
    output: Option<T>,
}

/// Runs circuits as a party on the backend of a [`Rehearsal`](crate::backend::Rehearsal), super-batch by
/// super-batch as planned: what comes out has lengths, and the rehearsal's count says what was held at most.
/// `together` jobs are evaluated at once, if they are more than these: each has so much the less ahead.
pub fn rehearse_on<C: Circuit>(
    backend: &Arc<dyn Backend>,
    party: Party,
    plan: &Plan,
    circuits: &[&C],
    together: usize,
) -> Result<Vec<C::Output>> {
    let together = together.max(circuits.len()).max(1);
    let words_ahead = backend.words_ahead().map(|words| words / together);
    let mut tasks = Vec::with_capacity(circuits.len());
    for (job, &circuit) in circuits.iter().enumerate() {
        let length = plan.cost(job).map_or(0, |cost| cost.key_bytes[party.index()]);
        let material: Box<dyn Material> = Box::new(SharedBytes::new(Secret::default()));
        let section = KeySection::new(0, 0, length, material).used_beside(together);
        let role = Role::Party(party, RefCell::new(KeysAhead::new(backend.party_keys(party, section)?)));
        let evaluator = Rc::new(Evaluator::new(role, backend.clone(), Vec::new()).rehearsing());
        let own = evaluator.clone();
        let future = Box::pin(async move { circuit.run(&own).await });
        let lookout = Lookout::new(words_ahead, plan.script(job), circuit)?;
        let mut task = Task { evaluator, future, lookout, requests: Vec::new(), output: None };
        task.look_ahead()?;
        tasks.push(task);
    }
    let mut live = Vec::new();
    for batch in plan.batches() {
        if advance(backend, party, &mut tasks, batch)? {
            live.push(batch);
        }
    }
    while !live.is_empty() {
        let mut still = Vec::with_capacity(live.len());
        for batch in live {
            for &job in batch {
                tasks[job].look_ahead()?;
            }
            receive(backend, party, &mut tasks, batch)?;
            if advance(backend, party, &mut tasks, batch)? {
                still.push(batch);
            }
        }
        live = still;
    }
    tasks.into_iter().map(|task| task.output.ok_or(Error::Stuck)).collect()
}

impl<T> Task<'_, T> {
    /// Tells the keys of what is not done yet what one more round asks for.
    fn look_ahead(&mut self) -> Result<()> {
        match (&self.output, &mut self.lookout) {
            (None, Some(lookout)) => lookout.look_ahead(&self.evaluator),
            _ => Ok(()),
        }
    }
}

/// Runs a super-batch up to its next message. Whether there is one.
fn advance<T>(
    backend: &Arc<dyn Backend>,
    party: Party,
    tasks: &mut [Task<'_, T>],
    batch: &[usize],
) -> Result<bool> {
    let mut context = Context::from_waker(Waker::noop());
    let (mut parts, mut waiting) = (Vec::new(), false);
    for &job in batch {
        let task = &mut tasks[job];
        if task.output.is_some() {
            continue;
        }
        if let Poll::Ready(output) = task.future.as_mut().poll(&mut context) {
            task.output = Some(output?);
            continue;
        }
        task.requests = task.evaluator.mailbox.take_outgoing();
        if task.requests.is_empty() {
            return Err(Error::Stuck);
        }
        waiting = true;
        parts.extend(
            task.requests.iter().filter(|request| request.sent_by(party)).map(|request| request.part(true)),
        );
    }
    if waiting {
        backend.pack(&[0; MESSAGE_HEADER], &parts)?;
    }
    Ok(waiting)
}

/// Gives every task what its requests become.
fn receive<T>(
    backend: &Arc<dyn Backend>,
    party: Party,
    tasks: &mut [Task<'_, T>],
    batch: &[usize],
) -> Result<()> {
    let sender = party.peer();
    let requests = batch.iter().flat_map(|&job| &tasks[job].requests);
    let parts = requests.map(|request| request.part(request.sent_by(sender))).collect();
    let mut opened = backend.open(parts, &[])?.into_iter();
    for &job in batch {
        let requests = std::mem::take(&mut tasks[job].requests);
        if requests.is_empty() {
            continue;
        }
        let words = requests.into_iter().zip(opened.by_ref());
        let words = words.map(|(request, handle)| Words::new(backend, request.words.len(), handle));
        tasks[job].evaluator.mailbox.deliver(words.collect());
    }
    Ok(())
}
