//! Programs as instructions for the interpreter kernel.

use gatework_gpu::{Buffer, ByValue, Code as _, Grid, args};

use super::graph::{Graph, Id, Node};
use super::inputs::{Inputs, or_some_words};
use super::program::{Program, Root, Roots, Slots, Step};
use crate::cuda::flat_words;
use crate::kernels;
use crate::queue::Queue;
use crate::shared::{Instruction, Operation, Rows};

/// Threads of a block, most first: as many as the slots leave room for.
const BLOCK_SIZES: [u32; 4] = [256, 128, 64, 32];
/// Threads that work at once where slots are in device memory.
const SCRATCH_THREADS: u32 = 132 * 256;

/// A program for the interpreter.
pub(crate) struct Interpreted {
    instructions: Buffer<Instruction>,
    slots: u32,
    constrains: bool,
}

impl Interpreted {
    /// Writes a program for `roots`, whose columns are numbered by `column`.
    pub(crate) fn new(queue: &Queue, graph: &Graph, roots: &Roots, column: impl Fn(u32, u32) -> u32) -> Self {
        let program = Program::new(graph, roots.of(0..roots.groups()));
        let slots = Slots::new(graph, &program);
        let instructions = program.steps.iter().map(|step| match *step {
            Step::Compute(id) => compute(graph, &slots, id, &column),
            Step::Finish(root, id) => finish(graph, &slots, root, id),
        });
        let constrains =
            program.steps.iter().any(|step| matches!(step, Step::Finish(Root::Constraint(_), _)));
        let instructions: Vec<_> = instructions.collect();
        Self { instructions: queue.upload(&instructions), slots: slots.count, constrains }
    }

    /// Runs it on all rows.
    pub(crate) fn launch(&self, queue: &Queue, inputs: &Inputs, rows: &Rows, outputs: Option<&Buffer<u64>>) {
        let columns = queue.upload(&inputs.columns);
        let parameters = queue.upload(&or_some_words(flat_words(&inputs.parameters)));
        let rows = Rows { columns: columns.as_raw(), parameters: parameters.as_raw(), ..*rows };
        let properties = queue.stream().device().properties();
        let bytes = |threads: u32| self.slots * threads * size_of::<u32>() as u32;
        let shared =
            BLOCK_SIZES.iter().copied().find(|&size| bytes(size) <= properties.shared_memory_per_block);
        let count = 1usize << rows.log_rows;
        let (grid, scratch_words) = match shared {
            Some(threads) => (Grid::covering(count, threads).shared(bytes(threads)), 1),
            None => {
                let threads = BLOCK_SIZES[0];
                let blocks = (count as u32).div_ceil(threads).min(SCRATCH_THREADS / threads);
                let words = self.slots as usize * (blocks * threads) as usize;
                (Grid::new([blocks, 1, 1], [threads, 1, 1]), words)
            }
        };
        let mut scratch = queue.alloc::<u32>(scratch_words);
        let arguments = args![
            &self.instructions,
            self.instructions.len() as u32,
            ByValue(&rows),
            // Without outputs nothing is written to any.
            outputs.unwrap_or(&columns),
            u32::from(self.constrains),
            &mut scratch,
            u32::from(shared.is_some()),
        ];
        queue.launch(&kernels::INTERPRETER, "interpret", &grid, &arguments);
    }
}

fn compute(graph: &Graph, slots: &Slots, id: Id, column: &impl Fn(u32, u32) -> u32) -> Instruction {
    let place = |id: Id| slots.place(id);
    let (operation, a, b) = match *graph.node(id) {
        Node::Column { interaction, column: index, offset } => {
            (Operation::Column, column(interaction, index), offset as u32)
        }
        Node::Constant(value) => (Operation::Constant, value, 0),
        Node::Add(a, b) => (Operation::Add, place(a), place(b)),
        Node::Sub(a, b) => (Operation::Sub, place(a), place(b)),
        Node::Mul(a, b) => (Operation::Mul, place(a), place(b)),
        Node::Neg(a) => (Operation::Neg, place(a), 0),
        Node::Inverse(a) => (Operation::Inverse, place(a), 0),
        Node::SecureParameter(slot) => (Operation::Parameter, slot, 0),
        Node::SecureLift(a) => (Operation::Lift, place(a), 0),
        Node::SecureCombine([a, b, c, d]) => {
            assert!([a, b, c, d].iter().all(|&id| place(id) < 1 << 16), "four places share two words");
            (Operation::Combine, place(a) | place(b) << 16, place(c) | place(d) << 16)
        }
        Node::SecureAdd(a, b) => (Operation::SecureAdd, place(a), place(b)),
        Node::SecureSub(a, b) => (Operation::SecureSub, place(a), place(b)),
        Node::SecureMul(a, b) => (Operation::SecureMul, place(a), place(b)),
        Node::SecureNeg(a) => (Operation::SecureNeg, place(a), 0),
        Node::SecureAddBase(a, b) => (Operation::SecureAddBase, place(a), place(b)),
        Node::SecureMulBase(a, b) => (Operation::SecureMulBase, place(a), place(b)),
    };
    Instruction { code: operation.code() | place(id) << 8, a, b, unused: 0 }
}

fn finish(graph: &Graph, slots: &Slots, root: Root, id: Id) -> Instruction {
    let secure = graph.node(id).is_secure();
    let (operation, number) = match (root, secure) {
        (Root::Constraint(number), false) => (Operation::Constrain, number),
        (Root::Constraint(number), true) => (Operation::SecureConstrain, number),
        (Root::Output(number), false) => (Operation::Output, number),
        (Root::Output(number), true) => (Operation::SecureOutput, number),
    };
    Instruction { code: operation.code(), a: number, b: slots.place(id), unused: 0 }
}
