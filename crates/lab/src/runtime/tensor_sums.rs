//! How tensor cores add: sums of products, bit for bit, in every floating-point format and from every kind of
//! input.

use gatework_gpu::{Device, Grid, Kind, Module, args};
use half::f16;

use super::number_format::NumberFormat;
use crate::kernels;
use crate::{Case, Control, ErrorBudget, Inputs, KernelSpec, Outputs, RunError, Work, Workload, poisoned};

/// Bytes of K that one instruction takes.
const STEP_BYTES: usize = 32;
/// Steps of a long chain: K = 131072 elements of 8 bits.
const CHAIN: usize = 4096;

/// `gpu/tensor-sums`.
pub(super) struct TensorSums;

/// Who multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instruction {
    /// `mma` of a warp, 16 x 8.
    Warp(NumberFormat),
    /// `wgmma` of a warpgroup, 64 x 8.
    Warpgroup(NumberFormat),
    /// `wgmma` of e4m3 with f16 accumulators, 64 x 16.
    Half,
}

impl Instruction {
    const FORMATS: [NumberFormat; 4] =
        [NumberFormat::F16, NumberFormat::Bf16, NumberFormat::E4m3, NumberFormat::E5m2];

    fn all() -> Vec<Self> {
        let warps = Self::FORMATS.into_iter().map(Self::Warp);
        warps.chain(Self::FORMATS.into_iter().map(Self::Warpgroup)).chain([Self::Half]).collect()
    }

    fn format(self) -> NumberFormat {
        match self {
            Self::Warp(format) | Self::Warpgroup(format) => format,
            Self::Half => NumberFormat::E4m3,
        }
    }

    fn name(self) -> String {
        let (who, accumulators) = match self {
            Self::Warp(_) => ("mma", ""),
            Self::Warpgroup(_) => ("wgmma", ""),
            Self::Half => ("wgmma", "-f16"),
        };
        format!("{who}-{}{accumulators}", self.format().tag().to_lowercase())
    }

    fn module(self) -> Module {
        kernels::TENSOR_SUMS.define("FORMAT", self.format().tag())
    }

    fn entry(self) -> &'static str {
        match self {
            Self::Warp(_) => "mma_sums",
            Self::Warpgroup(_) => "wgmma_sums",
            Self::Half => "wgmma_sums_half",
        }
    }

    fn opcode(self) -> &'static str {
        match self {
            // Hopper multiplies 8-bit floats of a single warp as 16-bit ones.
            Self::Warp(_) => "HMMA",
            Self::Warpgroup(NumberFormat::F16 | NumberFormat::Bf16) => "HGMMA",
            Self::Warpgroup(_) | Self::Half => "QGMMA",
        }
    }

    /// Rows of A, columns of B, threads.
    fn shape(self) -> (usize, usize, usize) {
        match self {
            Self::Warp(_) => (16, 8, 32),
            Self::Warpgroup(_) => (64, 8, 128),
            Self::Half => (64, 16, 128),
        }
    }

    /// Row, column and thread's word (and half of it) of every accumulator.
    fn accumulators(self) -> impl Iterator<Item = (usize, usize, usize, usize)> {
        let (_, _, threads) = self.shape();
        let halves = if self == Self::Half { 2 } else { 1 };
        (0..threads * 4).flat_map(move |word| (0..halves).map(move |half| (word, half))).map(
            move |(word, half)| {
                let (thread, i) = (word / 4, word % 4);
                let (row, column) = (16 * (thread / 32) + thread % 32 / 4, 2 * (thread % 4));
                match self {
                    Self::Half => (row + 8 * (i % 2), column + 8 * (i / 2) + half, word, half),
                    _ => (row + 8 * (i / 2), column + i % 2, word, 0),
                }
            },
        )
    }
}

/// What the elements are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    /// Any finite code.
    Codes,
    /// Numbers around one.
    Near,
    /// Zeros beside numbers of any size.
    Zeros,
    /// Numbers around one, infinities and NaNs.
    Special,
    /// The smallest numbers.
    Small,
    /// The largest numbers.
    Large,
    /// One eighth everywhere, from zero.
    Eighths,
}

impl Family {
    const ALL: [Self; 7] =
        [Self::Codes, Self::Near, Self::Zeros, Self::Special, Self::Small, Self::Large, Self::Eighths];

    fn name(self) -> &'static str {
        match self {
            Self::Codes => "codes",
            Self::Near => "near-one",
            Self::Zeros => "zeros",
            Self::Special => "special",
            Self::Small => "small",
            Self::Large => "large",
            Self::Eighths => "eighths",
        }
    }

    /// The bits of an element, from 64 random ones.
    fn code(self, layout: Layout, random: u64) -> u32 {
        let Layout { exponent_bits, mantissa_bits, .. } = layout;
        let field = |at: u32, count: u32| (random >> at) as u32 % count;
        let sign = field(0, 2) << (exponent_bits + mantissa_bits);
        let mantissa = field(8, 1 << mantissa_bits);
        let with = |exponent: u32| sign | exponent << mantissa_bits | mantissa;
        let (bias, top) = (layout.bias() as u32, layout.largest_exponent());
        let near = with(bias - 3 + field(32, 6));
        let code = match self {
            Self::Codes => with(field(32, top + 1)),
            Self::Near => near,
            Self::Zeros if field(24, 2) == 0 => sign,
            Self::Zeros if field(24, 16) == 1 => with(top),
            Self::Zeros => with(field(32, top + 1)),
            Self::Special if field(24, 48) == 0 => sign | layout.nan(),
            Self::Special if field(24, 48) == 1 => sign | layout.infinity().unwrap_or(near),
            Self::Special => near,
            Self::Small => with(field(32, 2)),
            Self::Large => with(top - field(32, 2)),
            Self::Eighths => (bias - 3) << mantissa_bits,
        };
        // Only this family asks for a NaN.
        if self != Self::Special && layout.is_nan(code) { code - 1 } else { code }
    }

    /// The bits of an accumulator's start, from 64 random ones.
    fn start(self, layout: Layout, random: u64) -> u32 {
        let field = |at: u32, count: u32| (random >> at) as u32 % count;
        let bits = layout.exponent_bits + layout.mantissa_bits;
        let (sign, mantissa) = (field(0, 2) << bits, field(8, 1 << layout.mantissa_bits));
        let with = |exponent: u32| sign | exponent << layout.mantissa_bits | mantissa;
        let bias = layout.bias() as u32;
        match field(40, 6) {
            _ if self == Self::Eighths => 0,
            0 => 0,
            1 => sign,
            2 => with(bias - 3 + field(48, 12)),
            3 => with(bias - bias / 4 + field(48, bias / 2)),
            4 => with(field(48, layout.largest_exponent() + 1)),
            _ if self == Self::Special && field(56, 16) == 0 => sign | layout.nan(),
            _ => with(field(48, 3)),
        }
    }
}

/// How the bits of a floating-point format lie.
#[derive(Debug, Clone, Copy)]
struct Layout {
    exponent_bits: u32,
    mantissa_bits: u32,
    /// Whether the largest exponent is of infinities and NaNs, but for one code.
    infinities: bool,
}

const F32: Layout = Layout { exponent_bits: 8, mantissa_bits: 23, infinities: true };
const F16: Layout = Layout { exponent_bits: 5, mantissa_bits: 10, infinities: true };

impl Layout {
    fn of(format: NumberFormat) -> Self {
        let (exponent_bits, mantissa_bits, infinities) = match format {
            NumberFormat::F16 => return F16,
            NumberFormat::Bf16 => (8, 7, true),
            NumberFormat::E4m3 => (4, 3, false),
            NumberFormat::E5m2 => (5, 2, true),
            NumberFormat::S8 => unreachable!("integers are no floating-point format"),
        };
        Self { exponent_bits, mantissa_bits, infinities }
    }

    fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    fn largest_exponent(self) -> u32 {
        (1 << self.exponent_bits) - 1 - u32::from(self.infinities)
    }

    fn nan(self) -> u32 {
        (1 << (self.exponent_bits + self.mantissa_bits)) - 1
    }

    fn infinity(self) -> Option<u32> {
        self.infinities.then(|| ((1 << self.exponent_bits) - 1) << self.mantissa_bits)
    }

    fn is_nan(self, code: u32) -> bool {
        let magnitude = code & self.nan();
        magnitude > self.infinity().unwrap_or(self.nan() - 1)
    }

    fn decode(self, code: u32) -> Number {
        let negative = code >> (self.exponent_bits + self.mantissa_bits) & 1 == 1;
        if self.is_nan(code) {
            return Number::Nan;
        }
        if Some(code & self.nan()) == self.infinity() {
            return Number::Infinite { negative };
        }
        let exponent = (code >> self.mantissa_bits & ((1 << self.exponent_bits) - 1)) as i32;
        let mantissa = i64::from(code & ((1 << self.mantissa_bits) - 1));
        let magnitude = if exponent == 0 { mantissa } else { mantissa | 1 << self.mantissa_bits };
        let steps = if negative { -magnitude } else { magnitude };
        let exponent = exponent.max(1) - self.bias();
        Number::Finite { steps, exponent, unit: exponent - self.mantissa_bits as i32 }
    }
}

/// A number as its code says: `steps` times two to the power of `unit`, with an exponent that counts even if
/// the leading bits of the steps are zeros.
#[derive(Debug, Clone, Copy)]
enum Number {
    Finite { steps: i64, exponent: i32, unit: i32 },
    Infinite { negative: bool },
    Nan,
}

impl Number {
    fn times(self, other: Self) -> Self {
        match (self, other) {
            (
                Self::Finite { steps, exponent, unit },
                Self::Finite { steps: by, exponent: more, unit: finer },
            ) => Self::Finite { steps: steps * by, exponent: exponent + more, unit: unit + finer },
            (Self::Nan, _) | (_, Self::Nan) => Self::Nan,
            (Self::Infinite { .. }, Self::Finite { steps: 0, .. })
            | (Self::Finite { steps: 0, .. }, Self::Infinite { .. }) => Self::Nan,
            (Self::Infinite { negative }, Self::Finite { steps, .. })
            | (Self::Finite { steps, .. }, Self::Infinite { negative }) => {
                Self::Infinite { negative: negative != (steps < 0) }
            }
            (Self::Infinite { negative }, Self::Infinite { negative: other }) => {
                Self::Infinite { negative: negative != other }
            }
        }
    }
}

/// `value` times two to the power of `shift`, cut off towards zero.
fn cut(value: i64, shift: i32) -> i64 {
    let magnitude = value.unsigned_abs();
    let moved =
        if shift >= 0 { magnitude << shift } else { magnitude.checked_shr(-shift as u32).unwrap_or(0) };
    if value < 0 { -(moved as i64) } else { moved as i64 }
}

/// The sum of terms as one instruction makes it: each cut off `bits` below the largest exponent. Terms that
/// are zero do not count.
fn add(terms: &[Number], bits: i32) -> Number {
    let infinite = |sign: bool| {
        terms.iter().any(|term| matches!(term, Number::Infinite { negative } if *negative == sign))
    };
    let not_a_number = terms.iter().any(|term| matches!(term, Number::Nan));
    if not_a_number || (infinite(true) && infinite(false)) {
        return Number::Nan;
    }
    if infinite(true) || infinite(false) {
        return Number::Infinite { negative: infinite(true) };
    }
    let finite = || {
        terms.iter().filter_map(|term| match *term {
            Number::Finite { steps, exponent, unit } if steps != 0 => Some((steps, exponent, unit)),
            _ => None,
        })
    };
    let largest = finite().map(|(_, exponent, _)| exponent).max().unwrap_or(0);
    let unit = largest - bits;
    let steps = finite().map(|(steps, _, finer)| cut(steps, finer - unit)).sum();
    Number::Finite { steps, exponent: largest, unit }
}

/// An f32 with `bits` of its mantissa, the rest cut off. What vanishes is +0.
fn to_f32(sum: Number, bits: i32) -> u32 {
    let (steps, unit) = match sum {
        Number::Nan => return 0x7FFF_FFFF,
        Number::Infinite { negative } => return 0x7F80_0000 | u32::from(negative) << 31,
        Number::Finite { steps, unit, .. } => (steps, unit),
    };
    let leading = 63 - steps.unsigned_abs().leading_zeros() as i32 + unit;
    let last = leading.max(-126) - bits;
    // What is left has few enough bits to be an f32 as it is.
    let kept = cut(steps, unit - last) as f64 * 2f64.powi(last);
    if kept == 0.0 { 0 } else { (kept as f32).to_bits() }
}

/// An f16, rounded to nearest.
fn to_f16(sum: Number) -> u32 {
    match sum {
        Number::Nan => 0x7FFF,
        Number::Infinite { negative } => 0x7C00 | u32::from(negative) << 15,
        Number::Finite { steps: 0, .. } => 0,
        Number::Finite { steps, unit, .. } => {
            u32::from(f16::from_f64(steps as f64 * 2f64.powi(unit)).to_bits())
        }
    }
}

/// `c + a . b` for the codes of one step, on the bits of the accumulator.
fn step(instruction: Instruction, c: u32, a: &[u32], b: &[u32]) -> u32 {
    use NumberFormat::{Bf16, E4m3, E5m2, F16 as Halves};
    let products = |layout: Layout, chosen: &dyn Fn(usize) -> bool| -> Vec<Number> {
        let pairs = a.iter().zip(b).enumerate().filter(|(k, _)| chosen(*k));
        pairs.map(|(_, (&a, &b))| layout.decode(a).times(layout.decode(b))).collect()
    };
    let all = |_: usize| true;
    match instruction {
        Instruction::Half => {
            let mut terms = products(Layout::of(E4m3), &all);
            terms.push(F16.decode(c));
            to_f16(add(&terms, 13))
        }
        Instruction::Warpgroup(format @ (E4m3 | E5m2)) => {
            let mut terms = products(Layout::of(format), &all);
            terms.push(F32.decode(c));
            to_f32(add(&terms, 13), 13)
        }
        Instruction::Warpgroup(format) | Instruction::Warp(format @ (Halves | Bf16)) => {
            let mut terms = products(Layout::of(format), &all);
            terms.push(F32.decode(c));
            to_f32(add(&terms, 25), 23)
        }
        // Two products of f16, and an addition.
        Instruction::Warp(format) => {
            let widen = |code: &u32| match format {
                E4m3 => u32::from(f16::from_f32(float8::F8E4M3::from_bits(*code as u8).to_f32()).to_bits()),
                _ => code << 8,
            };
            let (a, b): (Vec<u32>, Vec<u32>) = (a.iter().map(widen).collect(), b.iter().map(widen).collect());
            let mut sum = 0;
            for pair in 0..2 {
                let chosen = (0..a.len()).filter(|k| k % 4 / 2 == pair);
                let mut terms: Vec<Number> =
                    chosen.map(|k| F16.decode(a[k]).times(F16.decode(b[k]))).collect();
                terms.push(F32.decode(sum));
                sum = to_f32(add(&terms, 25), 23);
            }
            let sum = f32::from_bits(c) + f32::from_bits(sum);
            if sum.is_nan() { 0x7FFF_FFFF } else { sum.to_bits() }
        }
    }
}

/// One case: so many products of so many steps each.
struct Problem {
    instruction: Instruction,
    steps: usize,
    products: usize,
    /// Codes in `[product][step][row][k]`.
    a: Vec<u32>,
    b: Vec<u32>,
    /// What threads start from, `[product][thread][4]`.
    c: Vec<u32>,
}

impl Problem {
    fn new(case: &Case, seed: u64) -> Self {
        let instruction = Instruction::all()[case.dimension("instruction")];
        let family = Family::ALL[case.dimension("family")];
        let (steps, products) = (case.dimension("steps"), case.dimension("products"));
        let (rows, columns, threads) = instruction.shape();
        let mut inputs = Inputs::new(seed);
        let mut random = |count: usize| -> Vec<u64> {
            let words = inputs.words(2 * count);
            words.chunks_exact(2).map(|pair| u64::from(pair[0]) << 32 | u64::from(pair[1])).collect()
        };
        let layout = Layout::of(instruction.format());
        let mut codes = |lines: usize| -> Vec<u32> {
            let count = products * steps * lines * STEP_BYTES / instruction.format().bytes();
            random(count).into_iter().map(|random| family.code(layout, random)).collect()
        };
        let (a, b) = (codes(rows), codes(columns));
        let words = products * threads * 4;
        let c = match instruction {
            Instruction::Half => {
                let halves: Vec<u32> =
                    random(2 * words).into_iter().map(|random| family.start(F16, random)).collect();
                halves.chunks_exact(2).map(|pair| pair[0] | pair[1] << 16).collect()
            }
            _ => random(words).into_iter().map(|random| family.start(F32, random)).collect(),
        };
        Self { instruction, steps, products, a, b, c }
    }

    fn depth(&self) -> usize {
        STEP_BYTES / self.instruction.format().bytes()
    }

    /// Every accumulator after `advance` has taken it through all steps.
    fn sums(&self, advance: impl Fn(u32, &[u32], &[u32]) -> u32) -> Vec<u32> {
        let (rows, columns, threads) = self.instruction.shape();
        let depth = self.depth();
        let mut out = vec![0; self.c.len()];
        for product in 0..self.products {
            for (row, column, word, half) in self.instruction.accumulators() {
                let word = product * threads * 4 + word;
                let mut sum = match self.instruction {
                    Instruction::Half => self.c[word] >> (16 * half) & 0xFFFF,
                    _ => self.c[word],
                };
                for step in 0..self.steps {
                    let line = product * self.steps + step;
                    let a = &self.a[(line * rows + row) * depth..][..depth];
                    let b = &self.b[(line * columns + column) * depth..][..depth];
                    sum = advance(sum, a, b);
                }
                out[word] |= sum << (16 * half);
            }
        }
        out
    }

    fn reference(&self) -> Vec<u32> {
        self.sums(|c, a, b| step(self.instruction, c, a, b))
    }

    /// The same with sums in f64 that are rounded once a step: what no tensor core does.
    fn rounded(&self) -> Vec<u32> {
        let layout = Layout::of(self.instruction.format());
        let value = |number: Number| match number {
            Number::Finite { steps, unit, .. } => steps as f64 * 2f64.powi(unit),
            Number::Infinite { negative: true } => f64::NEG_INFINITY,
            Number::Infinite { negative: false } => f64::INFINITY,
            Number::Nan => f64::NAN,
        };
        self.sums(|c, a, b| {
            let products = a.iter().zip(b).map(|(&a, &b)| value(layout.decode(a)) * value(layout.decode(b)));
            let sum: f64 = products.sum();
            match self.instruction {
                Instruction::Half => u32::from(f16::from_f64(sum + value(F16.decode(c))).to_bits()),
                _ => ((sum + value(F32.decode(c))) as f32).to_bits(),
            }
        })
    }

    /// Codes as the kernel takes them: rows for a warp, tiles of 8 rows of 16 bytes for a warpgroup.
    fn bytes(&self, codes: &[u32], rows: usize) -> Vec<u8> {
        let width = self.instruction.format().bytes();
        let bytes: Vec<u8> =
            codes.iter().flat_map(|code| code.to_le_bytes().into_iter().take(width)).collect();
        if matches!(self.instruction, Instruction::Warp(_)) {
            return bytes;
        }
        let mut image = Vec::with_capacity(bytes.len());
        for step in bytes.chunks_exact(rows * STEP_BYTES) {
            for tile in 0..rows / 8 {
                for half in 0..2 {
                    for row in 0..8 {
                        image.extend(&step[(8 * tile + row) * STEP_BYTES + 16 * half..][..16]);
                    }
                }
            }
        }
        image
    }

    fn run(&self, device: &Device) -> Result<Vec<u32>, RunError> {
        let (rows, columns, threads) = self.instruction.shape();
        let stream = device.stream()?;
        let kernel = device.kernel_of(&self.instruction.module(), self.instruction.entry())?;
        let (a, b) = (self.bytes(&self.a, rows), self.bytes(&self.b, columns));
        let steps = self.steps as u32;
        let grid = Grid::new([self.products as u32, 1, 1], [threads as u32, 1, 1])
            .shared(((rows + columns) * STEP_BYTES) as u32);
        if self.instruction == Instruction::Half {
            let (a, b, c) = (stream.upload(&a)?, stream.upload(&b)?, stream.upload(&self.c)?);
            let mut d = poisoned::<u32>(&stream, self.c.len())?;
            kernel.launch(&stream, &grid, &args![&a, &b, &c, &mut d, steps])?;
            return Ok(stream.download(&d)?);
        }
        let start: Vec<f32> = self.c.iter().map(|&bits| f32::from_bits(bits)).collect();
        let c = stream.upload(&start)?;
        let mut d = poisoned::<f32>(&stream, self.c.len())?;
        if let Instruction::Warp(_) = self.instruction {
            let words = |bytes: &[u8]| -> Vec<u32> {
                bytes.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect()
            };
            let (a, b) = (stream.upload(&words(&a))?, stream.upload(&words(&b))?);
            kernel.launch(&stream, &grid, &args![&a, &b, &c, &mut d, steps])?;
        } else {
            let (a, b) = (stream.upload(&a)?, stream.upload(&b)?);
            kernel.launch(&stream, &grid, &args![&a, &b, &c, &mut d, steps])?;
        }
        Ok(stream.download(&d)?.into_iter().map(f32::to_bits).collect())
    }
}

fn case(number: usize, family: Family, steps: usize, products: usize) -> Case {
    let instruction = Instruction::all()[number];
    let place = Family::ALL.iter().position(|known| *known == family).unwrap_or_default();
    let chain = if steps == CHAIN { "-chain" } else { "" };
    Case::new(format!("{}-{}{chain}", instruction.name(), family.name()))
        .with("instruction", number)
        .with("family", place)
        .with("steps", steps)
        .with("products", products)
}

fn outputs(bits: Vec<u32>) -> Outputs {
    Outputs::new().with("bits", bits)
}

impl Workload for TensorSums {
    fn name(&self) -> &str {
        "gpu/tensor-sums"
    }

    fn summary(&self) -> &str {
        "sums of products as the tensor cores make them, bit for bit, up to K = 131072"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let spec = |instruction: Instruction| {
            let (_, _, threads) = instruction.shape();
            KernelSpec::new(instruction.module().source())
                .entries([instruction.entry()])
                .require(instruction.opcode())
                .threads(threads as u32)
        };
        Instruction::all().into_iter().map(spec).collect()
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let (steps, products) = match kind {
            Kind::Emulated => (2, 1),
            Kind::Cuda => (5, 16),
        };
        let mut cases = Vec::new();
        for (number, instruction) in Instruction::all().into_iter().enumerate() {
            cases.extend(Family::ALL.map(|family| case(number, family, steps, products)));
            if instruction == Instruction::Warpgroup(NumberFormat::E4m3) {
                cases.extend([Family::Near, Family::Eighths].map(|family| case(number, family, CHAIN, 1)));
            }
        }
        cases
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        Ok(outputs(Problem::new(case, seed).run(device)?))
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        outputs(Problem::new(case, seed).reference())
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let problem = Problem::new(case, seed);
        let mut controls = vec![Control::zeros(reference)];
        let rounded = outputs(problem.rounded());
        // Sums of special numbers, and short ones of equal terms, are the same either way.
        if rounded != *reference {
            controls.push(Control::new("sums are rounded once a step", rounded));
        }
        controls
    }

    fn work(&self, case: &Case) -> Work {
        let problem = Problem::new(case, 0);
        let (rows, columns, _) = problem.instruction.shape();
        let products = problem.products * problem.steps;
        let operations = 2 * products * rows * columns * problem.depth();
        let bytes = products * (rows + columns) * STEP_BYTES + 8 * problem.c.len();
        Work { operations: operations as u64, bytes: bytes as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The case of a warpgroup's e4m3 products.
    fn chain(family: Family, steps: usize) -> Case {
        let wanted = Instruction::Warpgroup(NumberFormat::E4m3);
        let number = Instruction::all().iter().position(|known| *known == wanted).unwrap();
        case(number, family, steps, 1)
    }

    #[test]
    fn a_long_sum_of_e4m3_stops_where_its_terms_fall_below_the_last_bit() {
        // 131072 times 1/64 is 2048. At 256 the accumulator's last bit is worth 1/32.
        let problem = Problem::new(&chain(Family::Eighths, CHAIN), 0);
        let device = Device::emulated(0).unwrap();
        let sums: Vec<f32> = problem.run(&device).unwrap().into_iter().map(f32::from_bits).collect();
        assert!(sums.iter().all(|&sum| sum == 256.0), "{sums:?}");
    }

    #[test]
    fn every_format_shows_that_sums_are_cut_off() {
        for (number, instruction) in Instruction::all().into_iter().enumerate() {
            let differ = |family| {
                let problem = Problem::new(&case(number, family, 2, 1), 1);
                let pairs = problem.reference().into_iter().zip(problem.rounded());
                pairs.filter(|(cut, rounded)| cut != rounded).count()
            };
            let (near, codes) = (differ(Family::Near), differ(Family::Codes));
            assert!(near.max(codes) > 20, "{instruction:?}: {near} and {codes}");
        }
    }
}
