//! Formulas on the device: interpreted, or compiled into a kernel of their own.
//!
//! Both forms take the same operands and give the same words. What a formula was prepared into is kept under
//! the formula itself, as gates record the same ones for every tensor.

use std::sync::Arc;

use bytemuck::Zeroable as _;
use gatework_gpu::{Buffer, ByValue, Code as _, Grid, Locked, View as _, args};
use hashbrown::HashMap;

use crate::error::{Error, Result};
use crate::formula::{self, Formula, Step, View};

use super::generated::Generated;
use super::kernels;
use super::queue::Queue;
use super::schedule::FormulaTier;
use super::shared::{ARITHMETIC_THREADS, Instruction, MOST_OPERANDS, Operand, Operands, Operation, ViewKind};
use super::words::{Copies, DeviceWords, words};

/// Threads of a block, most first: as many as the slots leave room for.
const BLOCK_SIZES: [u32; 4] = [ARITHMETIC_THREADS, 128, 64, 32];

/// Formulas that were met, and what is needed to run them.
pub(super) struct Formulas {
    tier: FormulaTier,
    interpreted: Locked<HashMap<Formula, Arc<Interpreted>>>,
    generated: Generated,
    places: Copies<u32>,
}

/// What a formula reads.
struct Read {
    table: Operands,
    kinds: Vec<ViewKind>,
    /// Copies live until the launch is queued; what frees them is queued behind it.
    _places: Vec<Arc<Buffer<u32>>>,
}

/// A formula as a program of the interpreter.
struct Interpreted {
    program: Buffer<Instruction>,
    slots: u32,
}

impl Formulas {
    pub(super) fn new(queue: &Queue, tier: FormulaTier) -> Self {
        Self {
            tier,
            interpreted: Locked::default(),
            generated: Generated::new(queue.device()),
            places: Copies::new(),
        }
    }

    /// Formulas that have a kernel of their own.
    pub(super) fn generated_kernels(&self) -> usize {
        self.generated.count()
    }

    /// Waits for kernels that are being compiled.
    pub(super) fn wait(&self) {
        self.generated.wait();
    }

    /// `len` words of a formula.
    pub(super) fn compute(
        &self,
        queue: &Queue,
        formula: &Formula,
        operands: &[formula::Operand],
        len: usize,
    ) -> Result<DeviceWords> {
        let mut to = queue.alloc(len)?;
        if len == 0 {
            return Ok(to);
        }
        let n =
            u32::try_from(len).map_err(|_| unsupported(format!("{len} words are too many for a device")))?;
        let read = self.operands(queue, operands)?;
        let (table, kinds) = (&read.table, &read.kinds);
        let kernel = match self.tier {
            FormulaTier::Interpreted => None,
            FormulaTier::Generated => Some(self.generated.now(formula, kinds)?),
            FormulaTier::Adaptive => self.generated.if_there(formula, kinds)?,
        };
        if let Some(kernel) = kernel {
            let grid = Grid::covering(len, ARITHMETIC_THREADS);
            kernel.launch(queue.stream(), &grid, &args![ByValue(table), n, &mut to])?;
            return Ok(to);
        }
        let interpreted = self.interpreted(queue, formula)?;
        let bytes = |threads: u32| u64::from(interpreted.slots) * u64::from(threads) * 8;
        let room = u64::from(queue.device().properties().shared_memory_per_block);
        let threads = BLOCK_SIZES.into_iter().find(|&threads| bytes(threads) <= room).ok_or_else(|| {
            unsupported(format!("it keeps {} words at once, which no block has room for", interpreted.slots))
        })?;
        let grid = Grid::covering(len, threads).shared(bytes(threads) as u32);
        let (program, length) = (&interpreted.program, interpreted.program.len() as u32);
        queue.launch(
            &kernels::ARITHMETIC,
            "interpret",
            &grid,
            &args![program, length, ByValue(table), n, &mut to],
        )?;
        Ok(to)
    }

    /// What a formula reads, as kernels take it.
    fn operands(&self, queue: &Queue, operands: &[formula::Operand]) -> Result<Read> {
        let most = MOST_OPERANDS as usize;
        if operands.len() > most {
            return Err(unsupported(format!("it reads {} tensors, a kernel takes {most}", operands.len())));
        }
        let (mut table, mut kinds, mut kept) = (Operands::zeroed(), Vec::new(), Vec::new());
        for (place, operand) in table.at.iter_mut().zip(operands) {
            let mut address = 0;
            let (kind, number) = match &operand.view {
                View::Whole => (ViewKind::Whole, 0),
                View::From(start) => (ViewKind::From, *start),
                View::Each(times) => (ViewKind::Each, *times),
                View::Cycle(period) => (ViewKind::Cycle, *period),
                View::Places(places) => {
                    let copy = self.places.of(queue, places.shared())?;
                    address = copy.view().as_raw();
                    kept.push(copy);
                    (ViewKind::Places, 0)
                }
            };
            let number = match u32::try_from(number) {
                Ok(number) => number,
                // A word that repeats longer than any result is the first one throughout.
                Err(_) if matches!(kind, ViewKind::Each | ViewKind::Cycle) => u32::MAX,
                Err(_) => return Err(unsupported(format!("it reads from word {number} on, 2^32 at most"))),
            };
            let words = words(queue, &operand.words)?.view().as_raw();
            *place = Operand { words, places: address, number, view: kind.code() };
            kinds.push(kind);
        }
        Ok(Read { table, kinds, _places: kept })
    }

    fn interpreted(&self, queue: &Queue, formula: &Formula) -> Result<Arc<Interpreted>> {
        if let Some(found) = self.interpreted.lock().get(formula) {
            return Ok(found.clone());
        }
        let (instructions, slots) = program(formula);
        let made = Arc::new(Interpreted { program: queue.upload(&instructions)?, slots });
        Ok(self.interpreted.lock().entry(formula.clone()).or_insert(made).clone())
    }
}

fn unsupported(what: String) -> Error {
    Error::Unsupported { gate: "a formula", what }
}

/// Instructions of a formula, and slots that they need: a step has one until its last reader.
fn program(formula: &Formula) -> (Vec<Instruction>, u32) {
    let steps = formula.steps();
    let mut last_reader: Vec<usize> = (0..steps.len()).collect();
    for (number, step) in steps.iter().enumerate() {
        step.sources().for_each(|source| last_reader[source as usize] = number);
    }
    let (mut places, mut free, mut count) = (Vec::with_capacity(steps.len()), Vec::new(), 0);
    let mut instructions = Vec::with_capacity(steps.len());
    for (number, &step) in steps.iter().enumerate() {
        let at = |source: u32| places[source as usize];
        let (operation, a, b) = match step {
            Step::Operand(operand) => (Operation::Operand, operand, 0),
            Step::Constant(word) => (Operation::Constant, word as u32, (word >> 32) as u32),
            Step::Add(a, b) => (Operation::Add, at(a), at(b)),
            Step::Subtract(a, b) => (Operation::Subtract, at(a), at(b)),
            Step::Multiply(a, b) => (Operation::Multiply, at(a), at(b)),
            Step::Xor(a, b) => (Operation::Xor, at(a), at(b)),
            Step::And(a, b) => (Operation::And, at(a), at(b)),
            Step::ShiftLeft(a, by) => (Operation::ShiftLeft, at(a), by),
            Step::ShiftRight(a, by) => (Operation::ShiftRight, at(a), by),
            Step::Below(a, b) => (Operation::Below, at(a), at(b)),
        };
        // Slots of sources that nobody reads after this step; one that is read twice is freed once.
        let mut ended: Vec<u32> =
            step.sources().filter(|&source| last_reader[source as usize] == number).map(at).collect();
        ended.dedup();
        free.append(&mut ended);
        let slot = free.pop().unwrap_or_else(|| {
            count += 1;
            count - 1
        });
        places.push(slot);
        instructions.push(Instruction { operation: operation.code(), slot, a, b });
    }
    (instructions, count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Backend, Words};
    use crate::cpu::CpuBackend;
    use crate::cuda::{CudaBackend, Schedule};
    use crate::formula::{Places, Tape, Word};
    use crate::secret::Secret;
    use gatework_gpu::Device;

    fn mixed(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        *state ^ *state >> 29
    }

    /// A formula of every kind of step, by chance.
    fn record<'t>(w: &'t Tape, operands: &[(Words, View)], choices: usize, seed: u64) -> Word<'t> {
        let mut state = seed;
        let mut words: Vec<Word<'t>> =
            operands.iter().map(|(words, view)| w.read_as(words, view.clone())).collect();
        words.push(w.number(0x8000_0000_0000_0001));
        for _ in 0..choices {
            let chance = mixed(&mut state);
            let pick = |by: u32| words[(chance >> by) as usize % words.len()];
            let (a, b, by) = (pick(8), pick(20), (chance >> 32) as u32 % 70);
            words.push(match chance % 10 {
                0 => a + b,
                1 => a - b,
                2 => a * b,
                3 => a ^ b,
                4 => a & b,
                5 => a << by,
                6 => a >> by,
                7 => a.below(b),
                8 => (b & 1).choose(a, b),
                _ => -a,
            });
        }
        let bits = 1 + seed as u32 % 64;
        words[1..].iter().fold(words[0], |sum, &word| sum + word) & (u64::MAX >> (64 - bits))
    }

    /// The same words, kept by a backend.
    fn operands(backend: &Arc<dyn Backend>, len: usize) -> Vec<(Words, View)> {
        let places = Places::of((0..len).map(|i| (i % 5 != 3).then_some((i * 7) % 50))).unwrap();
        let views =
            [View::Whole, View::From(3), View::Each(3), View::Cycle(7), View::Places(places), View::Whole];
        let operand = |(index, view): (usize, View)| {
            let mut state = index as u64;
            let words: Vec<u64> = (0..view.needs(len).max(1)).map(|_| mixed(&mut state)).collect();
            let handle = backend.upload(Secret::new(words.clone())).unwrap();
            (Words::new(backend, words.len(), handle), view)
        };
        views.into_iter().enumerate().map(operand).collect()
    }

    fn evaluate(backend: &Arc<dyn Backend>, len: usize, steps: usize, seed: u64) -> Vec<u64> {
        let kept = operands(backend, len);
        let tape = Tape::default();
        let (formula, read) = record(&tape, &kept, steps, seed).finish().unwrap();
        let found = backend.compute(&formula, &read, len).unwrap();
        backend.download(&found).unwrap().to_vec()
    }

    fn on(tier: FormulaTier) -> Arc<dyn Backend> {
        let device = Device::emulated(7).unwrap();
        let schedule = Schedule { formulas: tier, ..Schedule::of(&device) };
        Arc::new(CudaBackend::with(&device, schedule).unwrap())
    }

    fn matches_cpu(tier: FormulaTier, cases: u64) {
        let (host, device): (Arc<dyn Backend>, _) = (Arc::new(CpuBackend), on(tier));
        for seed in 0..cases {
            let len = [1, 2, 31, 257, 700][seed as usize % 5];
            let expected = evaluate(&host, len, seed as usize * 3, seed);
            assert_eq!(evaluate(&device, len, seed as usize * 3, seed), expected, "{tier:?}, seed {seed}");
        }
    }

    #[test]
    fn interpreted_formulas_match_cpu() {
        matches_cpu(FormulaTier::Interpreted, 25);
    }

    #[test]
    fn generated_formulas_match_cpu() {
        matches_cpu(FormulaTier::Generated, 5);
    }

    #[test]
    fn a_formula_is_interpreted_until_its_kernel_is_there() {
        let device = Device::emulated(3).unwrap();
        let schedule = Schedule { formulas: FormulaTier::Adaptive, ..Schedule::of(&device) };
        let cuda = Arc::new(CudaBackend::with(&device, schedule).unwrap());
        let (host, backend): (Arc<dyn Backend>, Arc<dyn Backend>) = (Arc::new(CpuBackend), cuda.clone());
        let expected = evaluate(&host, 100, 20, 5);
        assert_eq!(evaluate(&backend, 100, 20, 5), expected);
        cuda.settle().unwrap();
        assert_eq!(evaluate(&backend, 100, 20, 5), expected);
        assert_eq!(cuda.generated_kernels(), 1);
    }

    #[test]
    fn a_slot_is_used_again_after_its_last_reader() {
        let backend: Arc<dyn Backend> = Arc::new(CpuBackend);
        let words = Words::new(&backend, 1, backend.upload(Secret::new(vec![3])).unwrap());
        let tape = Tape::default();
        let x = tape.read(&words);
        let (formula, _) = (((x + 1) ^ 2) * 3).finish().unwrap();
        assert_eq!(formula.steps().len(), 7);
        assert_eq!(program(&formula).1, 2);
    }
}
