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
use super::{Circuit, Plan, Script};

struct Task<'a, T> {
    evaluator: Rc<Evaluator>,
    future: Pin<Box<dyn Future<Output = Result<T>> + 'a>>,
    /// As in earnest: what is asked of keys, how many words of it may be ready, and rounds of it that were foreseen.
    script: Option<(Arc<Script>, usize)>,
    foreseen: usize,
    requests: Vec<Request>,
    output: Option<T>,
}

/// Runs circuits as a party on the backend of a [`Rehearsal`](crate::backend::Rehearsal), super-batch by super-batch as planned: what
/// comes out has lengths, and the rehearsal's count says what was held at most. `together` jobs are evaluated at once, if they are more than
/// these: each has so much the less ahead.
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
        let script = match (words_ahead, plan.script(job)) {
            (None, _) => None,
            (Some(words), Some(script)) => Some((script.clone(), words)),
            (Some(words), None) => Some((Arc::new(Script::of(circuit)?), words)),
        };
        tasks.push(Task { evaluator, future, script, foreseen: 0, requests: Vec::new(), output: None });
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
                tasks[job].look_ahead(party, true)?;
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
    /// Tells the keys what one more round asks for, and makes it ready.
    fn look_ahead(&mut self, party: Party, ready: bool) -> Result<()> {
        if let (None, Some((script, words)), Role::Party(_, keys)) =
            (&self.output, &self.script, &self.evaluator.role)
        {
            keys.borrow_mut().foresee(script.round(self.foreseen, party));
            self.foreseen += 1;
            if ready {
                keys.borrow_mut().make_ready(*words)?;
            }
        }
        Ok(())
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
        if task.foreseen == 0 {
            task.look_ahead(party, false)?;
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
