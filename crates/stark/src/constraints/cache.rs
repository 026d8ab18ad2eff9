//! What is made once for an AIR and serves every proof of it.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use gatework_gpu::{Buffer, Locked};
use hashbrown::HashMap;
use itertools::Itertools as _;
use stwo::core::fields::qm31::SecureField;
use stwo_constraint_framework::FrameworkEval;

use super::adaptive::Adaptive;
use super::generate::{Generated, parts};
use super::graph::Graph;
use super::inputs::Inputs;
use super::interpret::Interpreted;
use super::program::Roots;
use super::record::record;
use super::tape::Tape;
use crate::Result;
use crate::queue::Queue;
use crate::shared::{Instruction, Rows};

/// How constraints are evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tier {
    /// By one kernel that reads them as data: nothing is compiled.
    Interpreted,
    /// By kernels that are generated for the AIR and compiled once.
    Generated,
    /// By the interpreter while a thread compiles kernels for the AIR, then by those. The results are the
    /// same.
    Adaptive,
}

/// Constraints that are ready to be run.
pub(crate) enum Prepared {
    Interpreted(Interpreted),
    Generated(Generated),
    Adaptive(Adaptive),
}

impl Prepared {
    /// All of `roots`, whose columns are numbered by `column`.
    pub(crate) fn new(
        queue: &Queue,
        tier: Tier,
        graph: &Graph,
        roots: &Roots,
        column: impl Fn(u32, u32) -> u32,
    ) -> Result<Self> {
        Ok(match tier {
            Tier::Interpreted => Self::Interpreted(Interpreted::new(queue, graph, roots, column)),
            Tier::Generated => Self::Generated(Generated::new(queue, &parts(graph, roots, column))?),
            Tier::Adaptive => {
                let interpreted = Interpreted::new(queue, graph, roots, &column);
                Self::Adaptive(Adaptive::new(queue, interpreted, &parts(graph, roots, column)))
            }
        })
    }

    /// Runs it on all rows. Columns and parameters of `rows` are `inputs`.
    pub(crate) fn launch(&self, queue: &Queue, inputs: &Inputs, rows: &Rows, outputs: Option<&Buffer<u64>>) {
        match self {
            Self::Interpreted(program) => program.launch(queue, inputs, rows, outputs),
            Self::Generated(kernels) => kernels.launch(queue, inputs, rows, outputs),
            Self::Adaptive(either) => either.launch(queue, inputs, rows, outputs),
        }
    }
}

/// No less than what is prepared for these components takes of a device, and their constants: programs of
/// their fractions and their constraints, of which those of one kind of component are one.
pub(crate) fn program_bytes<'a, E: FrameworkEval + 'a>(evals: impl Iterator<Item = &'a E>) -> u64 {
    let tapes = evals.map(|eval| record(eval, SecureField::default())).unique_by(Tape::key);
    let bytes = |tape: Tape| {
        // Every operation is an instruction, or part of one, and so is every use of a result. Fractions are in
        // both programs, if there are any.
        let steps = tape.len() + tape.constraints.len() + 2 * tape.batches.len();
        let programs = if tape.batches.is_empty() { 1 } else { 2 };
        let coefficients = tape.parameters.len() + tape.constraints.len();
        (programs * steps * size_of::<Instruction>() + coefficients * size_of::<SecureField>()) as u64
    };
    tapes.map(bytes).sum()
}

/// Of everything that what is prepared depends on.
type Key = blake3::Hash;

/// How a context has constraints evaluated, and what was prepared for it so far.
pub(crate) struct Workshop {
    tier: Locked<Tier>,
    prepared: Locked<HashMap<Key, Arc<Prepared>>>,
}

impl Workshop {
    /// That of a queue. The emulated device is for kernels as they are: an AIR's own would need a compiler
    /// for each.
    pub(crate) fn of(queue: &Queue) -> Arc<Self> {
        queue.keeps(|stream| {
            let tier = if stream.device().is_emulated() { Tier::Interpreted } else { Tier::Generated };
            Self { tier: Locked::new(tier), prepared: Locked::default() }
        })
    }

    pub(crate) fn tier(&self) -> Tier {
        *self.tier.lock()
    }

    pub(crate) fn set_tier(&self, tier: Tier) {
        *self.tier.lock() = tier;
    }

    /// What `prepare` made for that, once.
    pub(crate) fn get(
        &self,
        depends_on: impl Hash,
        prepare: impl FnOnce() -> Result<Prepared>,
    ) -> Result<Arc<Prepared>> {
        let mut bytes = Bytes::default();
        depends_on.hash(&mut bytes);
        let key = blake3::hash(&bytes.0);
        if let Some(found) = self.prepared.lock().get(&key) {
            return Ok(found.clone());
        }
        // Not under the lock: a compilation uses the pool, whose threads may come here with work of their
        // own.
        let made = Arc::new(prepare()?);
        // Another thread may have been quicker. What is not taken is let go of after the lock.
        let kept = self.prepared.lock().entry(key).or_insert_with(|| made.clone()).clone();
        Ok(kept)
    }

    /// Waits for everything that is being compiled.
    pub(crate) fn wait(&self) {
        let all: Vec<_> = self.prepared.lock().values().cloned().collect();
        for prepared in all {
            if let Prepared::Adaptive(adaptive) = &*prepared {
                adaptive.wait();
            }
        }
    }
}

/// What `Hash` feeds to a hasher, as it is.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Hasher for Bytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        unreachable!("the bytes themselves are asked for")
    }
}
