//! What is evaluated.

use std::future::Future;

use crate::error::{Error, Result};
use crate::evaluator::Evaluator;
use crate::ring::FixedPoint;
use crate::tally::Cost;

/// A computation over an [`Evaluator`], the same in every role.
pub trait Circuit {
    /// What a role gets out of it.
    type Output;

    /// Runs it.
    fn run(&self, evaluator: &Evaluator) -> impl Future<Output = Result<Self::Output>>;

    /// The number format that its keys must have been dealt for, if it has one.
    fn format(&self) -> Option<FixedPoint> {
        None
    }

    /// Fails for keys of another number format.
    fn fits(&self, keys: FixedPoint) -> Result<()> {
        match self.format() {
            Some(circuit) if circuit != keys => {
                Err(Error::Format { keys: keys.to_string(), circuit: circuit.to_string() })
            }
            _ => Ok(()),
        }
    }
}

impl<T, F: AsyncFn(&Evaluator) -> Result<T>> Circuit for F {
    type Output = T;

    fn run(&self, evaluator: &Evaluator) -> impl Future<Output = Result<T>> {
        self(evaluator)
    }
}

/// A circuit's inputs in the order in which it asks for them. A party gives only its own.
pub type Inputs = Vec<Option<Vec<u64>>>;

/// The output of a circuit in a role that needs no peer, and its cost.
#[derive(Debug, Clone)]
pub struct Local<T> {
    /// Its output.
    pub output: T,
    /// The counted cost.
    pub cost: Cost,
}
