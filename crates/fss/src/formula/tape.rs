//! Recording.

use std::cell::{Cell, RefCell};
use std::ops::{Add, BitAnd, BitXor, Mul, Neg, Shl, Shr, Sub};

use hashbrown::HashMap;

use crate::handle::Handle;
use crate::party::Party;
use crate::ring::Ring;

use super::{Formula, Operand, Step, View};

/// Words that a formula can read.
pub trait Source {
    /// Where they are kept, if they are anywhere.
    fn handle(&self) -> Option<&Handle>;

    /// How many there are.
    fn count(&self) -> usize;
}

/// Where a formula is recorded. What is computed twice is one step.
#[derive(Default)]
pub struct Tape {
    steps: RefCell<Vec<Step>>,
    known: RefCell<HashMap<Step, u32>>,
    operands: RefCell<Vec<Operand>>,
    absent: Cell<bool>,
}

/// A word of a result under way: a number, or a symbol.
#[derive(Clone, Copy)]
pub struct Word<'t> {
    tape: &'t Tape,
    value: Value,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    Number(u64),
    Symbol(u32),
}

impl Tape {
    /// A public constant.
    pub fn number(&self, number: u64) -> Word<'_> {
        Word { tape: self, value: Value::Number(number) }
    }

    /// The word of an operand at the place of the result.
    pub fn read(&self, words: &impl Source) -> Word<'_> {
        self.read_as(words, View::Whole)
    }

    /// The same of several operands.
    pub fn read_all<'t, const N: usize>(&'t self, words: [&impl Source; N]) -> [Word<'t>; N] {
        words.map(|words| self.read(words))
    }

    /// The word of an operand that `view` names.
    pub fn read_as(&self, words: &impl Source, view: View) -> Word<'_> {
        let Some(handle) = words.handle() else {
            self.absent.set(true);
            return self.number(0);
        };
        let mut operands = self.operands.borrow_mut();
        let same = |operand: &Operand| operand.words.is(handle) && operand.view == view;
        let number = operands.iter().position(same).unwrap_or_else(|| {
            operands.push(Operand { words: handle.clone(), len: words.count(), view });
            operands.len() - 1
        });
        self.symbol(Step::Operand(number as u32))
    }

    fn symbol(&self, step: Step) -> Word<'_> {
        let number = *self.known.borrow_mut().entry(step).or_insert_with(|| {
            let mut steps = self.steps.borrow_mut();
            steps.push(step);
            steps.len() as u32 - 1
        });
        Word { tape: self, value: Value::Symbol(number) }
    }

    /// The number of a word's step.
    fn step(&self, word: Word<'_>) -> u32 {
        let word = match word.value {
            Value::Number(number) => self.symbol(Step::Constant(number)),
            Value::Symbol(_) => word,
        };
        let Value::Symbol(step) = word.value else { unreachable!("it was made one") };
        step
    }

    fn binary(&self, a: Word<'_>, b: Word<'_>, step: impl Fn(u32, u32) -> Step) -> Word<'_> {
        let (a, b) = (self.step(a), self.step(b));
        self.symbol(step(a, b))
    }

    /// The same where the order does not matter, so that a + b is b + a.
    fn commutative(&self, a: Word<'_>, b: Word<'_>, step: impl Fn(u32, u32) -> Step) -> Word<'_> {
        let (a, b) = (self.step(a), self.step(b));
        self.symbol(step(a.min(b), a.max(b)))
    }

    /// The formula that ends with a step, with its operands; `None` if something was read that is not there.
    /// Steps and operands that the result does not need are left out.
    pub(crate) fn finish(&self, result: u32) -> Option<(Formula, Vec<Operand>)> {
        if self.absent.get() {
            return None;
        }
        let steps = &self.steps.borrow()[..=result as usize];
        let mut needed = vec![false; steps.len()];
        needed[result as usize] = true;
        // Sources come before what reads them: one pass from the end meets every reader first.
        for number in (0..steps.len()).rev() {
            if needed[number] {
                steps[number].sources().for_each(|source| needed[source as usize] = true);
            }
        }
        let operands = self.operands.borrow();
        let (mut renumbered, mut kept) = (vec![0u32; steps.len()], Vec::new());
        let mut formula = Vec::new();
        for (number, &step) in steps.iter().enumerate().filter(|(number, _)| needed[*number]) {
            let at = |source: u32| renumbered[source as usize];
            let step = match step {
                Step::Operand(operand) => {
                    kept.push(operands[operand as usize].clone());
                    Step::Operand(kept.len() as u32 - 1)
                }
                Step::Constant(_) => step,
                Step::Add(a, b) => Step::Add(at(a), at(b)),
                Step::Subtract(a, b) => Step::Subtract(at(a), at(b)),
                Step::Multiply(a, b) => Step::Multiply(at(a), at(b)),
                Step::Xor(a, b) => Step::Xor(at(a), at(b)),
                Step::And(a, b) => Step::And(at(a), at(b)),
                Step::ShiftLeft(a, by) => Step::ShiftLeft(at(a), by),
                Step::ShiftRight(a, by) => Step::ShiftRight(at(a), by),
                Step::Below(a, b) => Step::Below(at(a), at(b)),
            };
            renumbered[number] = formula.len() as u32;
            formula.push(step);
        }
        Some((Formula { steps: formula }, kept))
    }
}

impl<'t> Word<'t> {
    /// The formula of this word, with its operands.
    pub(crate) fn finish(self) -> Option<(Formula, Vec<Operand>)> {
        self.tape.finish(self.tape.step(self))
    }

    /// A public constant beside it.
    pub fn number(self, number: u64) -> Self {
        self.tape.number(number)
    }

    /// 1 if this is less than `other`, else 0.
    pub fn below(self, other: Self) -> Self {
        match (self.value, other.value) {
            (Value::Number(a), Value::Number(b)) => self.tape.number(u64::from(a < b)),
            _ => self.tape.binary(self, other, Step::Below),
        }
    }

    /// One of two words by a bit, without a branch.
    pub fn choose(self, when_zero: Self, when_one: Self) -> Self {
        when_zero ^ (-self & (when_zero ^ when_one))
    }

    /// (1 − 2 b) v for this bit b.
    pub fn sign(self, value: Self) -> Self {
        self.choose(value, -value)
    }

    /// The word for party 0, zero for party 1: how something public enters a sum of shares once.
    pub fn once(self, party: Party) -> Self {
        match party {
            Party::Zero => self,
            Party::One => self.tape.number(0),
        }
    }

    /// The residue in a ring.
    pub fn reduce(self, ring: Ring) -> Self {
        self & ring.mask()
    }

    /// The top bit of the residue in a ring.
    pub fn msb(self, ring: Ring) -> Self {
        (self >> (ring.bits() - 1)) & 1
    }

    fn is(self, number: u64) -> bool {
        self.value == Value::Number(number)
    }
}

impl Add for Word<'_> {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        match (self.value, other.value) {
            (Value::Number(a), Value::Number(b)) => self.tape.number(a.wrapping_add(b)),
            _ if self.is(0) => other,
            _ if other.is(0) => self,
            _ => self.tape.commutative(self, other, Step::Add),
        }
    }
}

impl Sub for Word<'_> {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        match (self.value, other.value) {
            (Value::Number(a), Value::Number(b)) => self.tape.number(a.wrapping_sub(b)),
            _ if other.is(0) => self,
            _ => self.tape.binary(self, other, Step::Subtract),
        }
    }
}

impl Neg for Word<'_> {
    type Output = Self;

    fn neg(self) -> Self {
        self.tape.number(0) - self
    }
}

impl Mul for Word<'_> {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        match (self.value, other.value) {
            (Value::Number(a), Value::Number(b)) => self.tape.number(a.wrapping_mul(b)),
            _ if self.is(0) || other.is(1) => self,
            _ if other.is(0) || self.is(1) => other,
            _ => self.tape.commutative(self, other, Step::Multiply),
        }
    }
}

impl BitXor for Word<'_> {
    type Output = Self;

    fn bitxor(self, other: Self) -> Self {
        match (self.value, other.value) {
            (Value::Number(a), Value::Number(b)) => self.tape.number(a ^ b),
            _ if self.is(0) => other,
            _ if other.is(0) => self,
            _ => self.tape.commutative(self, other, Step::Xor),
        }
    }
}

impl BitAnd for Word<'_> {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        match (self.value, other.value) {
            (Value::Number(a), Value::Number(b)) => self.tape.number(a & b),
            _ if self.is(0) || other.is(u64::MAX) => self,
            _ if other.is(0) || self.is(u64::MAX) => other,
            _ => self.tape.commutative(self, other, Step::And),
        }
    }
}

impl Shl<u32> for Word<'_> {
    type Output = Self;

    /// Shifts of 64 bits and more leave nothing.
    fn shl(self, by: u32) -> Self {
        match self.value {
            Value::Number(number) => self.tape.number(number.checked_shl(by).unwrap_or(0)),
            Value::Symbol(_) if by == 0 => self,
            Value::Symbol(_) if by > 63 => self.tape.number(0),
            Value::Symbol(step) => self.tape.symbol(Step::ShiftLeft(step, by)),
        }
    }
}

impl Shr<u32> for Word<'_> {
    type Output = Self;

    /// Shifts of 64 bits and more leave nothing.
    fn shr(self, by: u32) -> Self {
        match self.value {
            Value::Number(number) => self.tape.number(number.checked_shr(by).unwrap_or(0)),
            Value::Symbol(_) if by == 0 => self,
            Value::Symbol(_) if by > 63 => self.tape.number(0),
            Value::Symbol(step) => self.tape.symbol(Step::ShiftRight(step, by)),
        }
    }
}

/// Arithmetic of a word with a public number on its right.
macro_rules! with_numbers {
    ($($operator:ident::$method:ident),*) => {$(
        impl $operator<u64> for Word<'_> {
            type Output = Self;

            fn $method(self, number: u64) -> Self {
                self.$method(self.tape.number(number))
            }
        }
    )*};
}

with_numbers!(Add::add, Sub::sub, Mul::mul, BitXor::bitxor, BitAnd::bitand);
