//! Element-wise arithmetic that is written once and runs anywhere.
//!
//! A gate says what a word of its result is by computing with [`Word`]s. Each is a number, or a symbol for
//! something that is known only where the tensors lie. What is computed with symbols is recorded as a
//! [`Formula`], a list of steps without branches, which a backend interprets on vectors, or compiles into a
//! kernel.

mod tape;
mod view;

pub use tape::{Source, Tape, Word};
pub(crate) use view::NOWHERE;
pub use view::{Places, View};

use crate::handle::Handle;

/// One step of a formula, modulo 2^64. Numbers name earlier steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// A word of an operand.
    Operand(u32),
    /// A public constant.
    Constant(u64),
    /// a + b.
    Add(u32, u32),
    /// a − b.
    Subtract(u32, u32),
    /// a b.
    Multiply(u32, u32),
    /// a ⊕ b, bit by bit.
    Xor(u32, u32),
    /// a ∧ b, bit by bit.
    And(u32, u32),
    /// a 2^k for a k below 64.
    ShiftLeft(u32, u32),
    /// ⌊a / 2^k⌋ for a k below 64.
    ShiftRight(u32, u32),
    /// 1 if a < b, else 0.
    Below(u32, u32),
}

impl Step {
    /// The steps that this one reads.
    pub fn sources(self) -> impl Iterator<Item = u32> {
        let (first, second) = match self {
            Self::Operand(_) | Self::Constant(_) => (None, None),
            Self::ShiftLeft(a, _) | Self::ShiftRight(a, _) => (Some(a), None),
            Self::Add(a, b)
            | Self::Subtract(a, b)
            | Self::Multiply(a, b)
            | Self::Xor(a, b)
            | Self::And(a, b)
            | Self::Below(a, b) => (Some(a), Some(b)),
        };
        first.into_iter().chain(second)
    }
}

/// What a word of a result is, over words of operands. Steps read only earlier ones; the last is the result,
/// and all are used.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Formula {
    steps: Vec<Step>,
}

impl Formula {
    /// Its steps, in an order in which they can be taken.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The word at `index`, where `operand` gives the words of operands: the plain meaning of a formula, one
    /// word at a time.
    pub fn word(&self, operand: impl Fn(u32) -> u64) -> u64 {
        let mut words: Vec<u64> = Vec::with_capacity(self.steps.len());
        for &step in &self.steps {
            let at = |step: u32| words[step as usize];
            words.push(match step {
                Step::Operand(number) => operand(number),
                Step::Constant(word) => word,
                Step::Add(a, b) => at(a).wrapping_add(at(b)),
                Step::Subtract(a, b) => at(a).wrapping_sub(at(b)),
                Step::Multiply(a, b) => at(a).wrapping_mul(at(b)),
                Step::Xor(a, b) => at(a) ^ at(b),
                Step::And(a, b) => at(a) & at(b),
                Step::ShiftLeft(a, by) => at(a) << by,
                Step::ShiftRight(a, by) => at(a) >> by,
                Step::Below(a, b) => u64::from(at(a) < at(b)),
            });
        }
        words.last().copied().unwrap_or(0)
    }
}

/// Words that a formula reads: where they lie, and which of them belongs to which word of the result.
#[derive(Clone)]
pub struct Operand {
    /// Where they lie.
    pub words: Handle,
    /// How many there are.
    pub len: usize,
    /// Which of them is read.
    pub view: View,
}
