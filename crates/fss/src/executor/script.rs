//! What a circuit asks of its keys, known before it is evaluated.

use std::cell::RefCell;
use std::sync::Arc;

use crate::error::Result;
use crate::evaluator::{Ask, Evaluator, Role};
use crate::party::Party;

use super::Circuit;
use super::alone::{host, run_stepwise};

/// Everything that a circuit asks of keys, round by round. It follows from shapes alone, so that keys can be
/// made ready a round ahead.
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
    fn round(&self, round: usize, party: Party) -> impl Iterator<Item = Ask> {
        let asks = self.rounds.get(round).into_iter().flatten();
        asks.filter(move |(owner, _)| owner.is_none_or(|owner| owner == party)).map(|(_, ask)| *ask)
    }
}

/// How far a job's keys were told what its script asks for.
pub(super) struct Lookout {
    script: Arc<Script>,
    /// Words that may be ready.
    most_words: usize,
    /// Rounds that were foreseen.
    rounds: usize,
}

impl Lookout {
    /// The lookout of a job, which has the script that was planned, or that of its circuit where none was.
    /// None where nothing is made ready ahead.
    pub(super) fn new<C: Circuit>(
        words_ahead: Option<usize>,
        planned: Option<&Arc<Script>>,
        circuit: &C,
    ) -> Result<Option<Self>> {
        let Some(most_words) = words_ahead else { return Ok(None) };
        let script = planned.cloned().map_or_else(|| Script::of(circuit).map(Arc::new), Ok)?;
        Ok(Some(Self { script, most_words, rounds: 0 }))
    }

    /// Tells a party's keys what one more round asks for. The first is asked for at once; what comes after is
    /// made ready.
    pub(super) fn look_ahead(&mut self, evaluator: &Evaluator) -> Result<()> {
        let Role::Party(party, keys) = &evaluator.role else { return Ok(()) };
        let mut keys = keys.borrow_mut();
        keys.foresee(self.script.round(self.rounds, *party));
        self.rounds += 1;
        if self.rounds == 1 { Ok(()) } else { keys.make_ready(self.most_words) }
    }
}
