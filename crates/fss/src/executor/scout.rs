//! A circuit on shapes, a round ahead of the party that evaluates it.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::evaluator::{Ask, Evaluator, Role};
use crate::party::Party;

use super::Circuit;

/// Runs a circuit to hear what it asks of a party's keys.
pub(super) struct Scout<'a, T> {
    evaluator: Rc<Evaluator>,
    future: Option<Pin<Box<dyn Future<Output = Result<T>> + 'a>>>,
    most_words: usize,
}

impl<'a, T> Scout<'a, T> {
    pub(super) fn new<C: Circuit<Output = T>>(
        party: Party,
        circuit: &'a C,
        backend: &Arc<dyn Backend>,
        most_words: usize,
    ) -> Self {
        let role = Role::Scout(party, RefCell::default());
        let evaluator = Rc::new(Evaluator::new(role, backend.clone(), Vec::new()));
        let own = evaluator.clone();
        let future = Box::pin(async move { circuit.run(&own).await });
        Self { evaluator, future: Some(future), most_words }
    }

    /// Words that may be ready.
    pub(super) fn most_words(&self) -> usize {
        self.most_words
    }

    /// What the next round asks for; nothing after the last.
    pub(super) fn step(&mut self) -> Result<Vec<Ask>> {
        let Some(future) = &mut self.future else { return Ok(Vec::new()) };
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => {
                self.future = None;
                output?;
            }
            Poll::Pending => {
                let requests = self.evaluator.mailbox.take_outgoing();
                if requests.is_empty() {
                    return Err(Error::Stuck);
                }
                let words = requests.into_iter().map(|request| request.words);
                self.evaluator.mailbox.deliver(words.collect());
            }
        }
        let Role::Scout(_, asks) = &self.evaluator.role else { return Ok(Vec::new()) };
        Ok(asks.take())
    }
}
