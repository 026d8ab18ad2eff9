//! Warpgroup products in every format, from shared memory and registers, in every layout of shared memory.

use gatework_gpu::{ByValue, Device, Grid, Kind, Module, args};

use super::number_format::NumberFormat;
use super::operand_image::{Contiguous, DEPTH_BYTES, OperandImage, Swizzle};
use crate::kernels;
use crate::tensor::Tensor;
use crate::{Case, Control, ErrorBudget, Inputs, KernelSpec, Outputs, RunError, Work, Workload, poisoned};

const THREADS: u32 = 128;
/// Rows of A and D: what one warpgroup multiplies.
const ROWS: usize = 64;
const WIDTHS: [usize; 5] = [8, 24, 64, 128, 256];

/// `gpu/wgmma`.
pub(super) struct Wgmma;

/// Where A is when the product starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Registers,
    Shared(Contiguous),
}

/// An instruction in all widths: what a source is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Instruction {
    format: NumberFormat,
    left: Left,
    right: Contiguous,
}

impl Instruction {
    /// A from shared memory and from registers, and for the 16-bit formats, which alone have them, transposed
    /// operands.
    fn all() -> Vec<Self> {
        use Contiguous::{Depth, Rows};
        use Left::{Registers, Shared};
        let stored = [(Shared(Depth), Depth), (Registers, Depth)];
        let transposed =
            [(Shared(Rows), Depth), (Shared(Depth), Rows), (Shared(Rows), Rows), (Registers, Rows)];
        let of_format = |format: NumberFormat| {
            let transposed = transposed.into_iter().filter(move |_| format.bytes() == 2);
            stored.into_iter().chain(transposed).map(move |(left, right)| Self { format, left, right })
        };
        NumberFormat::ALL.into_iter().flat_map(of_format).collect()
    }

    fn module(self) -> Module {
        kernels::WGMMA_PRODUCT
            .define("FORMAT", self.format.tag())
            .define("A_IN_REGISTERS", u32::from(self.left == Left::Registers))
            .define("TRANSPOSE_A", u32::from(self.left == Left::Shared(Contiguous::Rows)))
            .define("TRANSPOSE_B", u32::from(self.right == Contiguous::Rows))
    }

    /// The tensor core's instruction: one for 16-bit floats, one for 8-bit floats, one for integers.
    fn opcode(self) -> &'static str {
        match self.format {
            NumberFormat::F16 | NumberFormat::Bf16 => "HGMMA",
            NumberFormat::E4m3 | NumberFormat::E5m2 => "QGMMA",
            NumberFormat::S8 => "IGMMA",
        }
    }

    /// Elements of K in one of the two halves.
    fn half_depth(self) -> usize {
        DEPTH_BYTES / self.format.bytes() / 2
    }

    /// The layouts whose lines the operands fill. A has 64 rows: enough for any.
    fn swizzles(self, width: usize) -> Vec<Swizzle> {
        let fits = |swizzle: &Swizzle| {
            self.right == Contiguous::Depth || (2 * width).is_multiple_of(swizzle.line_bytes())
        };
        Swizzle::ALL.into_iter().filter(fits).collect()
    }

    fn name(self) -> String {
        let left = match self.left {
            Left::Registers => "registers",
            Left::Shared(Contiguous::Depth) => "shared",
            Left::Shared(Contiguous::Rows) => "transposed",
        };
        let right = if self.right == Contiguous::Rows { "-by-transposed" } else { "" };
        format!("{}-{left}{right}", self.format.tag().to_lowercase())
    }
}

/// A case names its instruction by its number and its layout by the length of a line.
fn case(number: usize, width: usize, swizzle: Swizzle) -> Case {
    let line_bytes = swizzle.line_bytes();
    Case::new(format!("{}-n{width}-lines{line_bytes}", Instruction::all()[number].name()))
        .with("instruction", number)
        .with("width", width)
        .with("line_bytes", line_bytes)
}

fn instruction(case: &Case) -> Instruction {
    Instruction::all()[case.dimension("instruction")]
}

fn swizzle(case: &Case) -> Swizzle {
    let line_bytes = case.dimension("line_bytes");
    let swizzle = Swizzle::ALL.into_iter().find(|swizzle| swizzle.line_bytes() == line_bytes);
    swizzle.expect("cases are made with a swizzle's line")
}

/// Row-major A (64 x K), B transposed (N x K) and the start of the first half (64 x N).
struct Problem {
    instruction: Instruction,
    width: usize,
    a: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
}

impl Problem {
    fn new(case: &Case, seed: u64) -> Self {
        let (instruction, width) = (instruction(case), case.dimension("width"));
        let mut inputs = Inputs::new(seed);
        let depth = 2 * instruction.half_depth();
        let a = instruction.format.draw(&mut inputs, ROWS * depth);
        let b = instruction.format.draw(&mut inputs, width * depth);
        // Never zero: a start that is not added, or added where it should not be, shows in every element.
        let c = inputs.integers(ROWS * width, 1..100).into_iter().map(|value| value as f32).collect();
        Self { instruction, width, a, b, c }
    }

    /// `A[half] B[half]`, plus `start`.
    fn product(&self, half: usize, start: Option<&[f32]>) -> Vec<f32> {
        let width = self.width;
        let half_depth = self.instruction.half_depth();
        let run = |matrix: &[f32], row: usize| {
            let from = (2 * row + half) * half_depth;
            matrix[from..from + half_depth].to_vec()
        };
        let columns: Vec<Vec<f32>> = (0..width).map(|column| run(&self.b, column)).collect();
        let mut product = Vec::with_capacity(ROWS * width);
        for row in 0..ROWS {
            let left = run(&self.a, row);
            for (column, right) in columns.iter().enumerate() {
                let sum: f32 = left.iter().zip(right).map(|(a, b)| a * b).sum();
                product.push(sum + start.map_or(0.0, |start| start[row * width + column]));
            }
        }
        product
    }

    /// Accumulators as the instruction has them.
    fn tensor(&self, values: Vec<f32>) -> Tensor {
        if self.instruction.format == NumberFormat::S8 { integers(&values).into() } else { values.into() }
    }

    fn outputs(&self, first: Vec<f32>, second: Vec<f32>) -> Outputs {
        Outputs::new().with("first", self.tensor(first)).with("second", self.tensor(second))
    }
}

fn integers(values: &[f32]) -> Vec<i32> {
    values.iter().map(|&value| value as i32).collect()
}

/// The kernel of a width.
fn entry(width: usize) -> &'static str {
    const ENTRIES: [&str; WIDTHS.len()] =
        ["wgmma_product_8", "wgmma_product_24", "wgmma_product_64", "wgmma_product_128", "wgmma_product_256"];
    let place = WIDTHS.iter().position(|known| *known == width);
    ENTRIES[place.unwrap_or_else(|| unreachable!("no kernel multiplies {width} columns"))]
}

/// Starts the kernel on accumulators of type `T`, and returns both halves.
fn launch<T: bytemuck::Pod>(
    device: &Device,
    problem: &Problem,
    swizzle: Swizzle,
    start: &[T],
) -> Result<Outputs, RunError>
where
    Tensor: From<Vec<T>>,
{
    let Instruction { format, left, right } = problem.instruction;
    let a = format.encode(&problem.a);
    let a = match left {
        Left::Registers => OperandImage { bytes: a, layout: [0; 6] },
        Left::Shared(contiguous) => OperandImage::new(&a, format.bytes(), contiguous, swizzle),
    };
    let b = OperandImage::new(&format.encode(&problem.b), format.bytes(), right, swizzle);

    let stream = device.stream()?;
    let kernel = device.kernel_of(&problem.instruction.module(), entry(problem.width))?;
    let (a_device, b_device) = (stream.upload(&a.bytes)?, stream.upload(&b.bytes)?);
    let c_device = stream.upload(start)?;
    let mut d = poisoned::<T>(&stream, 2 * start.len())?;
    let grid = Grid::new([1, 1, 1], [THREADS, 1, 1]).shared((a.bytes.len() + b.bytes.len()) as u32);
    kernel.launch(
        &stream,
        &grid,
        &args![&a_device, &b_device, &c_device, &mut d, ByValue(&a.layout), ByValue(&b.layout)],
    )?;
    let mut first = stream.download(&d)?;
    let second = first.split_off(start.len());
    Ok(Outputs::new().with("first", first).with("second", second))
}

impl Workload for Wgmma {
    fn name(&self) -> &str {
        "gpu/wgmma"
    }

    fn summary(&self) -> &str {
        "warpgroup products in five formats, from every layout of shared memory and from registers"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let spec = |instruction: Instruction| {
            let entries = WIDTHS.map(entry);
            KernelSpec::new(instruction.module().source())
                .entries(entries)
                .require(instruction.opcode())
                .threads(THREADS)
        };
        Instruction::all().into_iter().map(spec).collect()
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let mut cases = Vec::new();
        for (number, instruction) in Instruction::all().into_iter().enumerate() {
            for (turn, width) in WIDTHS.into_iter().enumerate() {
                let swizzles = instruction.swizzles(width);
                match kind {
                    // Every instruction still meets every swizzle, at one width or another.
                    Kind::Emulated => {
                        cases.push(case(number, width, swizzles[(number + turn) % swizzles.len()]));
                    }
                    Kind::Cuda => {
                        cases.extend(swizzles.into_iter().map(|swizzle| case(number, width, swizzle)));
                    }
                }
            }
        }
        cases
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let problem = Problem::new(case, seed);
        if problem.instruction.format == NumberFormat::S8 {
            launch(device, &problem, swizzle(case), &integers(&problem.c))
        } else {
            launch(device, &problem, swizzle(case), &problem.c)
        }
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        let problem = Problem::new(case, seed);
        problem.outputs(problem.product(0, Some(&problem.c)), problem.product(1, None))
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let problem = Problem::new(case, seed);
        let (started, plain) = (problem.product(0, Some(&problem.c)), problem.product(1, None));
        let not_started = problem.product(0, None);
        let stale = problem.product(1, Some(&problem.c));
        vec![
            Control::zeros(reference),
            Control::new("the first half forgets its start", problem.outputs(not_started, plain)),
            Control::new("the second half keeps a stale start", problem.outputs(started.clone(), stale)),
            Control::new("both halves read the same operands", problem.outputs(started.clone(), started)),
            // The two rows of a thread's fragment.
            Control::swapped(reference, "second", 0, 8 * problem.width),
        ]
    }

    fn work(&self, case: &Case) -> Work {
        let (width, depth) = (case.dimension("width"), 2 * instruction(case).half_depth());
        let bytes = (ROWS + width) * DEPTH_BYTES + 3 * 4 * ROWS * width;
        Work { operations: (2 * ROWS * width * depth) as u64, bytes: bytes as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emulated_cases_meet_every_swizzle_with_every_stored_instruction() {
        let cases = Wgmma.cases(Kind::Emulated);
        for wanted in Instruction::all().into_iter().filter(|wanted| wanted.right == Contiguous::Depth) {
            for layout in Swizzle::ALL {
                let found = cases.iter().any(|case| instruction(case) == wanted && swizzle(case) == layout);
                assert!(found, "{wanted:?} {layout:?}");
            }
        }
    }
}
