//! Warpgroup products in every format, from shared memory and registers, in every layout of shared memory.

use gatework_gpu::{ByValue, Device, Grid, Kind, Source, args, kernels};

use super::number_format::NumberFormat;
use super::operand_image::{Contiguous, DEPTH_BYTES, OperandImage, Swizzle};
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

/// One instruction: what a kernel is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Instruction {
    format: NumberFormat,
    width: usize,
    left: Left,
    right: Contiguous,
}

impl Instruction {
    /// Every format at every width, and for some widths also A in registers and the transposed operands, which only
    /// 16-bit formats have.
    fn all() -> Vec<Self> {
        use Contiguous::{Depth, Rows};
        use Left::{Registers, Shared};
        let mut all = Vec::new();
        for format in NumberFormat::ALL {
            let mut add = |width, left, right| all.push(Self { format, width, left, right });
            for width in WIDTHS {
                add(width, Shared(Depth), Depth);
            }
            add(24, Registers, Depth);
            add(128, Registers, Depth);
            if format.bytes() == 2 {
                add(24, Shared(Rows), Rows);
                add(64, Shared(Rows), Depth);
                add(64, Shared(Depth), Rows);
                add(128, Shared(Rows), Rows);
                add(256, Registers, Rows);
            }
        }
        all
    }

    fn source(self) -> Source {
        kernels::wgmma_product()
            .define("FORMAT", self.format.tag())
            .define("WIDTH", self.width)
            .define("A_IN_REGISTERS", u8::from(self.left == Left::Registers))
            .define("TRANSPOSE_A", u8::from(self.left == Left::Shared(Contiguous::Rows)))
            .define("TRANSPOSE_B", u8::from(self.right == Contiguous::Rows))
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
    fn swizzles(self) -> Vec<Swizzle> {
        let fits = |swizzle: &Swizzle| {
            self.right == Contiguous::Depth || (2 * self.width).is_multiple_of(swizzle.line_bytes())
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
        format!("{}-n{}-{left}{right}", self.format.tag().to_lowercase(), self.width)
    }
}

/// A case names its instruction and its layout by their numbers.
fn case(number: usize, swizzle: Swizzle) -> Case {
    let instruction = Instruction::all()[number];
    let line_bytes = swizzle.line_bytes();
    Case::new(format!("{}-lines{line_bytes}", instruction.name()))
        .with("instruction", number)
        .with("line_bytes", line_bytes)
}

fn parts(case: &Case) -> (Instruction, Swizzle) {
    let line_bytes = case.dimension("line_bytes");
    let swizzle = Swizzle::ALL.into_iter().find(|swizzle| swizzle.line_bytes() == line_bytes);
    (
        Instruction::all()[case.dimension("instruction")],
        swizzle.expect("cases are made with a swizzle's line"),
    )
}

/// Row-major A (64 x K), B transposed (N x K) and the start of the first half (64 x N).
struct Problem {
    instruction: Instruction,
    a: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
}

impl Problem {
    fn new(instruction: Instruction, seed: u64) -> Self {
        let mut inputs = Inputs::new(seed);
        let depth = 2 * instruction.half_depth();
        let a = instruction.format.draw(&mut inputs, ROWS * depth);
        let b = instruction.format.draw(&mut inputs, instruction.width * depth);
        // Never zero: a start that is not added, or added where it should not be, shows in every element.
        let c =
            inputs.integers(ROWS * instruction.width, 1..100).into_iter().map(|value| value as f32).collect();
        Self { instruction, a, b, c }
    }

    /// `A[half] B[half]`, plus `start`.
    fn product(&self, half: usize, start: Option<&[f32]>) -> Vec<f32> {
        let Instruction { width, .. } = self.instruction;
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
    let Instruction { format, left, right, .. } = problem.instruction;
    let a = format.encode(&problem.a);
    let a = match left {
        Left::Registers => OperandImage { bytes: a, layout: [0; 6] },
        Left::Shared(contiguous) => OperandImage::new(&a, format.bytes(), contiguous, swizzle),
    };
    let b = OperandImage::new(&format.encode(&problem.b), format.bytes(), right, swizzle);

    let stream = device.stream()?;
    let kernel = device.kernel(&problem.instruction.source())?;
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
            KernelSpec::new(instruction.source()).require(instruction.opcode()).threads(THREADS)
        };
        Instruction::all().into_iter().map(spec).collect()
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let mut cases = Vec::new();
        for (number, instruction) in Instruction::all().into_iter().enumerate() {
            let swizzles = instruction.swizzles();
            match kind {
                // Every format still meets every swizzle, at one width or another.
                Kind::Emulated => cases.push(case(number, swizzles[number % swizzles.len()])),
                Kind::Cuda => cases.extend(swizzles.into_iter().map(|swizzle| case(number, swizzle))),
            }
        }
        cases
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let (instruction, swizzle) = parts(case);
        let problem = Problem::new(instruction, seed);
        if instruction.format == NumberFormat::S8 {
            launch(device, &problem, swizzle, &integers(&problem.c))
        } else {
            launch(device, &problem, swizzle, &problem.c)
        }
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        let problem = Problem::new(parts(case).0, seed);
        problem.outputs(problem.product(0, Some(&problem.c)), problem.product(1, None))
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let problem = Problem::new(parts(case).0, seed);
        let (started, plain) = (problem.product(0, Some(&problem.c)), problem.product(1, None));
        let not_started = problem.product(0, None);
        let stale = problem.product(1, Some(&problem.c));
        vec![
            Control::zeros(reference),
            Control::new("the first half forgets its start", problem.outputs(not_started, plain)),
            Control::new("the second half keeps a stale start", problem.outputs(started.clone(), stale)),
            Control::new("both halves read the same operands", problem.outputs(started.clone(), started)),
            // The two rows of a thread's fragment.
            Control::swapped(reference, "second", 0, 8 * problem.instruction.width),
        ]
    }

    fn work(&self, case: &Case) -> Work {
        let (instruction, _) = parts(case);
        let (width, depth) = (instruction.width, 2 * instruction.half_depth());
        let bytes = (ROWS + width) * DEPTH_BYTES + 3 * 4 * ROWS * width;
        Work { operations: (2 * ROWS * width * depth) as u64, bytes: bytes as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emulated_cases_meet_every_swizzle_in_every_format() {
        let cases = Wgmma.cases(Kind::Emulated);
        for format in NumberFormat::ALL {
            for wanted in Swizzle::ALL {
                let found = cases
                    .iter()
                    .map(parts)
                    .any(|(found, swizzle)| found.format == format && swizzle == wanted);
                assert!(found, "{format:?} {wanted:?}");
            }
        }
    }
}
