//! Formulas on vectors.
//!
//! A formula is interpreted for [`BLOCK`] words at a time, which stay in the first-level cache from step to
//! step: each step is one loop over a block, compiled for several instruction sets.

use rayon::prelude::*;

use crate::formula::{Formula, Step, View};
use crate::secret::Secret;

/// Words that a step computes at a time.
const BLOCK: usize = 256;
/// Steps times words below which another thread is not worth its start.
const WORTH_A_THREAD: usize = 1 << 18;

/// An operand's words, and which of them is read.
type Source<'a> = (&'a [u64], &'a View);

/// `len` words of a formula, on all threads of the pool that are worth it.
pub(super) fn evaluate(formula: &Formula, operands: &[Source<'_>], len: usize) -> Secret<u64> {
    let program = Program::new(formula, operands);
    let mut words = Secret::new(vec![0; len]);
    let threads =
        (program.steps.len().saturating_mul(len) / WORTH_A_THREAD).clamp(1, rayon::current_num_threads());
    let each = len.div_ceil(threads).next_multiple_of(BLOCK);
    if each >= len {
        program.run(0, &mut words);
    } else {
        let parts = words.par_chunks_mut(each).enumerate();
        parts.for_each(|(part, words)| program.run(part * each, words));
    }
    words
}

/// Where the words of a step are.
#[derive(Clone, Copy)]
enum Place {
    /// In an operand, from here on for the first word of the result.
    Operand(usize, usize),
    /// In a block.
    Block(usize),
    /// In the result.
    Result,
}

/// A formula with a place for every step.
struct Program<'a> {
    operands: &'a [Source<'a>],
    steps: Vec<(Step, Place)>,
    blocks: usize,
    constants: Vec<(usize, u64)>,
}

impl<'a> Program<'a> {
    /// Gives every step a block until its last reader, the last step the result. Operands that are read in
    /// order need no block.
    fn new(formula: &Formula, operands: &'a [Source<'a>]) -> Self {
        let steps = formula.steps();
        let mut last_reader: Vec<usize> = (0..steps.len()).collect();
        for (number, step) in steps.iter().enumerate() {
            step.sources().for_each(|source| last_reader[source as usize] = number);
        }
        let mut program = Self { operands, steps: Vec::new(), blocks: 0, constants: Vec::new() };
        let mut free: Vec<usize> = Vec::new();
        for (number, &step) in steps.iter().enumerate() {
            let mut block = || {
                free.pop().unwrap_or_else(|| {
                    program.blocks += 1;
                    program.blocks - 1
                })
            };
            let place = match step {
                _ if number + 1 == steps.len() => Place::Result,
                Step::Operand(operand) => match operands[operand as usize].1 {
                    View::Whole => Place::Operand(operand as usize, 0),
                    View::From(start) => Place::Operand(operand as usize, *start),
                    View::Each(_) | View::Cycle(_) | View::Places(_) => Place::Block(block()),
                },
                Step::Constant(word) => {
                    // Filled once, and so never used for anything else.
                    program.blocks += 1;
                    program.constants.push((program.blocks - 1, word));
                    Place::Block(program.blocks - 1)
                }
                _ => Place::Block(block()),
            };
            program.steps.push((step, place));
            // A block is free again after its last reader, not for it: steps do not write where they read.
            for source in step.sources() {
                let (origin, place) = program.steps[source as usize];
                let constant = matches!(origin, Step::Constant(_));
                if let Place::Block(block) = place
                    && last_reader[source as usize] == number
                    && !constant
                    && !free.contains(&block)
                {
                    free.push(block);
                }
            }
        }
        program
    }

    /// The words of the result from `start` on.
    fn run(&self, start: usize, words: &mut [u64]) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as detected;
            if detected!("avx512f") && detected!("avx512dq") && detected!("avx512vl") {
                // SAFETY: the machine has these instructions.
                return unsafe { self.with_avx512(start, words) };
            }
            if detected!("avx2") {
                // SAFETY: the machine has these instructions.
                return unsafe { self.with_avx2(start, words) };
            }
        }
        self.portable(start, words);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
    fn with_avx512(&self, start: usize, words: &mut [u64]) {
        self.portable(start, words);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn with_avx2(&self, start: usize, words: &mut [u64]) {
        self.portable(start, words);
    }

    /// For any machine; inlined where more instructions are allowed.
    #[inline(always)]
    fn portable(&self, start: usize, words: &mut [u64]) {
        let mut blocks: Vec<Secret<u64>> = (0..self.blocks).map(|_| Secret::new(vec![0; BLOCK])).collect();
        for &(block, constant) in &self.constants {
            blocks[block].fill(constant);
        }
        for (number, result) in words.chunks_mut(BLOCK).enumerate() {
            let at = start + number * BLOCK;
            for &(step, place) in &self.steps {
                match place {
                    Place::Operand(..) => {}
                    Place::Result => self.step(step, at, &blocks, result),
                    Place::Block(_) if matches!(step, Step::Constant(_)) => {}
                    Place::Block(block) => {
                        let mut target = std::mem::take(&mut blocks[block]);
                        self.step(step, at, &blocks, &mut target[..result.len()]);
                        blocks[block] = target;
                    }
                }
            }
        }
    }

    /// One step for the words from `at` on.
    #[inline(always)]
    fn step(&self, step: Step, at: usize, blocks: &[Secret<u64>], target: &mut [u64]) {
        let len = target.len();
        let source = |step: u32| match self.steps[step as usize].1 {
            Place::Operand(operand, start) => &self.operands[operand].0[start + at..start + at + len],
            Place::Block(block) => &blocks[block][..len],
            Place::Result => unreachable!("the last step is read by none"),
        };
        macro_rules! binary {
            ($a:ident, $b:ident, $word:expr) => {
                for ((target, &a), &b) in target.iter_mut().zip(source($a)).zip(source($b)) {
                    *target = $word(a, b);
                }
            };
        }
        match step {
            Step::Operand(operand) => self.read(operand, at, target),
            Step::Constant(word) => target.fill(word),
            Step::Add(a, b) => binary!(a, b, |a: u64, b: u64| a.wrapping_add(b)),
            Step::Subtract(a, b) => binary!(a, b, |a: u64, b: u64| a.wrapping_sub(b)),
            Step::Multiply(a, b) => binary!(a, b, |a: u64, b: u64| a.wrapping_mul(b)),
            Step::Xor(a, b) => binary!(a, b, |a: u64, b: u64| a ^ b),
            Step::And(a, b) => binary!(a, b, |a: u64, b: u64| a & b),
            Step::Below(a, b) => binary!(a, b, |a: u64, b: u64| u64::from(a < b)),
            Step::ShiftLeft(a, by) => {
                target.iter_mut().zip(source(a)).for_each(|(target, &a)| *target = a << by);
            }
            Step::ShiftRight(a, by) => {
                target.iter_mut().zip(source(a)).for_each(|(target, &a)| *target = a >> by);
            }
        }
    }

    /// The words of an operand that belong to the words from `at` on.
    #[inline(always)]
    fn read(&self, operand: u32, at: usize, target: &mut [u64]) {
        let (words, view) = self.operands[operand as usize];
        match view {
            View::Whole => target.copy_from_slice(&words[at..at + target.len()]),
            View::From(start) => target.copy_from_slice(&words[start + at..start + at + target.len()]),
            View::Each(times) => {
                let (mut place, mut left) = (at / times, times - at % times);
                for target in target {
                    *target = words[place];
                    left -= 1;
                    if left == 0 {
                        (place, left) = (place + 1, *times);
                    }
                }
            }
            View::Cycle(period) => {
                let mut place = at % period;
                for target in target {
                    *target = words[place];
                    place += 1;
                    if place == *period {
                        place = 0;
                    }
                }
            }
            View::Places(places) => {
                for (index, target) in target.iter_mut().enumerate() {
                    *target = places.get(at + index).map_or(0, |place| words[place]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formula::{Places, Tape, Word};
    use proptest::prelude::*;

    use crate::backend::{Backend, Words};
    use crate::cpu::CpuBackend;
    use std::sync::Arc;

    fn spread(len: usize, by: u64) -> Vec<u64> {
        (0..len as u64).map(|i| (i + 1).wrapping_mul(by) ^ by.rotate_left(i as u32 % 64)).collect()
    }

    /// A formula that takes every kind of step and keeps many of them for later, built from a list of
    /// choices.
    fn record<'t>(w: &'t Tape, operands: &[(Words, View)], choices: &[u8]) -> Word<'t> {
        let mut words: Vec<Word<'t>> =
            operands.iter().map(|(words, view)| w.read_as(words, view.clone())).collect();
        words.push(w.number(0x8000_0000_0000_0001));
        for pair in choices.chunks_exact(2) {
            let pick = |by: usize| words[(pair[1] as usize * (by + 7) + by) % words.len()];
            let (a, b, by) = (pick(1), pick(3), u32::from(pair[1] % 70));
            words.push(match pair[0] % 11 {
                0 => a + b,
                1 => a - b,
                2 => a * b,
                3 => a ^ b,
                4 => a & b,
                5 => a << by,
                6 => a >> by,
                7 => a.below(b),
                8 => (b & 1).choose(a, b),
                9 => (a & 1).sign(b),
                _ => -a,
            });
        }
        words[1..].iter().fold(words[0], |sum, &word| sum + word)
    }

    fn operands(len: usize) -> (Vec<Vec<u64>>, Vec<View>) {
        let places = Places::of((0..len).map(|i| (i % 5 != 3).then_some((i * 7) % 50))).unwrap();
        let views = vec![
            View::Whole,
            View::From(3),
            View::Each(3),
            View::Cycle(7),
            View::Places(places),
            View::Whole,
        ];
        let words = views
            .iter()
            .enumerate()
            .map(|(index, view)| spread(view.needs(len).max(1), 0x9e37_79b9_7f4a_7c15 ^ index as u64));
        (words.collect(), views)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn vectors_match_one_word_at_a_time(
            choices in prop::collection::vec(any::<u8>(), 0..90),
            len in prop::sample::select(vec![1usize, 2, 255, 256, 257, 700, 40_000]),
        ) {
            let backend: Arc<dyn Backend> = Arc::new(CpuBackend);
            let (words, views) = operands(len);
            let kept: Vec<(Words, View)> = (words.iter().zip(&views))
                .map(|(words, view)| {
                    let handle = backend.upload(Secret::new(words.clone())).unwrap();
                    (Words::new(&backend, words.len(), handle), view.clone())
                })
                .collect();
            let tape = Tape::default();
            let (formula, read) = record(&tape, &kept, &choices).finish().unwrap();
            let mut steps = formula.steps().iter().enumerate();
            let ordered = steps.all(|(number, step)| step.sources().all(|source| (source as usize) < number));
            prop_assert!(ordered);
            let slices: Vec<Source<'_>> = read
                .iter()
                .map(|operand| (operand.words.get::<Secret<u64>>().unwrap().as_slice(), &operand.view))
                .collect();
            let word = |index: usize| {
                formula.word(|operand| {
                    let (words, view) = slices[operand as usize];
                    view.place(index).map_or(0, |place| words[place])
                })
            };
            let expected: Vec<u64> = (0..len).map(word).collect();
            prop_assert!(*evaluate(&formula, &slices, len) == expected);
            // Every instruction set, and from the middle of a result.
            let program = Program::new(&formula, &slices);
            let start = len / 2;
            let mut found = vec![0; len - start];
            program.portable(start, &mut found);
            prop_assert!(found == expected[start..]);
            #[cfg(target_arch = "x86_64")]
            if std::arch::is_x86_feature_detected!("avx2") {
                found.fill(0);
                // SAFETY: the machine has these instructions.
                unsafe { program.with_avx2(start, &mut found) };
                prop_assert!(found == expected[start..]);
            }
        }
    }

    #[test]
    fn what_is_computed_twice_is_one_step_and_numbers_fold() {
        let backend: Arc<dyn Backend> = Arc::new(CpuBackend);
        let handle = backend.upload(Secret::new(vec![5, 6])).unwrap();
        let words = Words::new(&backend, 2, handle);
        let tape = Tape::default();
        let x = tape.read(&words);
        let unused = x * 77;
        let word = (x + 3) * (tape.number(3) + x)
            + x * tape.number(0)
            + (x ^ tape.number(0)) * tape.number(1)
            + (tape.number(4) << 1);
        let (formula, operands) = word.finish().unwrap();
        assert_eq!(operands.len(), 1);
        // x, 3, x + 3, its square, + x, 8, + 8.
        assert_eq!(formula.steps().len(), 7);
        assert_eq!(formula.word(|_| 5), 64 + 5 + 8);
        assert!(unused.finish().is_some());
        let absent = Tape::default();
        assert!(absent.read(&Words::absent(2)).finish().is_none(), "nothing is computed from nothing");
    }
}
