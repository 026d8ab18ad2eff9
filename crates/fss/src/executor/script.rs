//! What a circuit asks of its keys, known before it is evaluated.

use std::cell::RefCell;

use crate::error::Result;
use crate::evaluator::{Ask, Evaluator, Role};
use crate::party::Party;

use super::Circuit;
use super::alone::{host, run_stepwise};

/// Everything that a circuit asks of keys, round by round. It follows from shapes alone, so that keys can be made ready a round ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    rounds: Vec<Vec<(Option<Party>, Ask)>>,
}

impl Script {
    /// The script of a circuit.
    pub fn of<C: Circuit>(circuit: &C) -> Result<Self> {
        let evaluator = Evaluator::new(Role::Scout(RefCell::default()), host(), Vec::new());
        let mut rounds = Vec::new();
        run_stepwise(&evaluator, circuit, |evaluator| {
            if let Role::Scout(asks) = &evaluator.role {
                rounds.push(asks.take());
            }
            Ok(())
        })?;
        Ok(Self { rounds })
    }

    /// What a party asks for in a round; nothing after the last.
    pub(super) fn round(&self, round: usize, party: Party) -> impl Iterator<Item = Ask> {
        let asks = self.rounds.get(round).into_iter().flatten();
        asks.filter(move |(owner, _)| owner.is_none_or(|owner| owner == party)).map(|(_, ask)| *ask)
    }
}
