//! Pairs of f16: their arithmetic, and products that accumulate in them.

use float8::F8E4M3;
use gatework_gpu::{Device, Grid, Kind, args};
use half::f16;

use crate::kernels;
use crate::{Case, Control, ErrorBudget, Inputs, KernelSpec, Outputs, RunError, Work, Workload, poisoned};

/// Rows of both matrices of a product, and their columns.
const ROWS: usize = 64;
const DEPTH: usize = 32;
/// Registers of a lane's accumulators.
const WORDS: usize = ROWS / 4;

/// `gpu/half`.
pub(super) struct HalfPairs;

/// Whether the case is about arithmetic or about products.
fn is_product(case: &Case) -> bool {
    case.name == "product"
}

/// Two f16 a word, with sizes from the smallest that are normal to where sums still fit.
fn pairs(inputs: &mut Inputs, count: usize) -> Vec<u32> {
    let mut half = || -> Vec<u32> {
        let (values, sizes) = (inputs.normal(count), inputs.integers(count, -6..6));
        let value =
            |(value, size): (f32, i64)| u32::from(f16::from_f32(value * 2f32.powi(size as i32)).to_bits());
        values.into_iter().zip(sizes).map(value).collect()
    };
    let (low, high) = (half(), half());
    low.into_iter().zip(high).map(|(low, high)| low | high << 16).collect()
}

/// The nearest f16. Rounded to f32 first, as `f16::from_f64` does, a number may end on the wrong side of the
/// middle between two f16; an odd f32 on the number's side never lies there.
fn nearest(x: f64) -> f16 {
    let close = x as f32;
    let back = f64::from(close);
    let bits = match close.to_bits() {
        bits if back == x || bits & 1 == 1 => bits,
        bits if back.abs() > x.abs() => bits - 1,
        bits => bits + 1,
    };
    f16::from_f32(f32::from_bits(bits))
}

/// `f` on both halves of three words.
fn both(a: u32, b: u32, c: u32, f: impl Fn(f64, f64, f64) -> f64) -> u32 {
    let half = |word: u32, at: u32| f16::from_bits((word >> at) as u16).to_f64();
    let [low, high] =
        [0, 16].map(|at| u32::from(nearest(f(half(a, at), half(b, at), half(c, at))).to_bits()));
    low | high << 16
}

fn operands(n: usize, seed: u64) -> [Vec<u32>; 3] {
    let mut inputs = Inputs::new(seed);
    [pairs(&mut inputs, n), pairs(&mut inputs, n), pairs(&mut inputs, n)]
}

fn arithmetic(n: usize, seed: u64) -> Vec<u32> {
    let [a, b, c] = operands(n, seed);
    let calls: [fn(f64, f64, f64) -> f64; 5] = [
        |a, b, _| a + b,
        |a, b, _| a * b,
        |a, b, c| a * b + c,
        |a, b, c| (a * b + c).max(0.0),
        |a, b, _| a.max(b),
    ];
    calls
        .iter()
        .flat_map(|&call| (0..n).map(|i| both(a[i], b[i], c[i], call)).collect::<Vec<u32>>())
        .collect()
}

/// Small integers, which e4m3 and every sum in f16 hold exactly.
fn matrix(inputs: &mut Inputs) -> Vec<i64> {
    inputs.integers(ROWS * DEPTH, -4..5)
}

fn matrices(seed: u64) -> (Vec<i64>, Vec<i64>) {
    let mut inputs = Inputs::new(seed);
    (matrix(&mut inputs), matrix(&mut inputs))
}

/// Codes row by row, and with the 32-byte swizzle: the two chunks of every other four rows change places.
fn codes(matrix: &[i64]) -> (Vec<u8>, Vec<u8>) {
    let rows: Vec<u8> = matrix.iter().map(|&x| F8E4M3::from_f32(x as f32).to_bits()).collect();
    let mut image = vec![0; rows.len()];
    for (index, &code) in rows.iter().enumerate() {
        let (row, chunk, byte) = (index / DEPTH, index % DEPTH / 16, index % 16);
        image[row * DEPTH + (chunk ^ (row / 4 % 2)) * 16 + byte] = code;
    }
    (rows, image)
}

/// `2 a b^T` as the lanes hold it, twice.
fn product(seed: u64, flipped: usize) -> Vec<u32> {
    let (a, b) = matrices(seed);
    let dot = |row: usize, column: usize| -> u32 {
        let sum: i64 = (0..DEPTH).map(|k| a[row * DEPTH + k] * b[column * DEPTH + k]).sum();
        f16::from_f64(2.0 * sum as f64).to_bits().into()
    };
    let lane = |thread: usize| {
        let (row, column) = (thread / 32 * 16 + thread % 32 / 4, 2 * (thread % 4));
        (0..WORDS).map(move |i| {
            let (row, column) = (row + 8 * ((i + flipped) % 2), 8 * (i / 2) + column);
            dot(row, column) | dot(row, column + 1) << 16
        })
    };
    let once: Vec<u32> = (0..128).flat_map(lane).collect();
    once.repeat(2)
}

impl Workload for HalfPairs {
    fn name(&self) -> &str {
        "gpu/half"
    }

    fn summary(&self) -> &str {
        "arithmetic on pairs of f16, and wgmma products that accumulate in them"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        vec![
            KernelSpec::new(kernels::HALF_WORDS.source()).require("HFMA2").threads(128),
            KernelSpec::new(kernels::HALF_PRODUCT.source()).require("QGMMA").threads(128),
        ]
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let n = if kind == Kind::Emulated { 500 } else { 1_000_003 };
        vec![Case::new("arithmetic").with("n", n), Case::new("product").with("n", ROWS * ROWS)]
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let stream = device.stream()?;
        if is_product(case) {
            let (a, b) = matrices(seed);
            let ((rows, a_image), (_, b_image)) = (codes(&a), codes(&b));
            let (a, b, rows) = (stream.upload(&a_image)?, stream.upload(&b_image)?, stream.upload(&rows)?);
            let mut out = poisoned::<u32>(&stream, 2 * 128 * WORDS)?;
            let grid = Grid::new([1, 1, 1], [128, 1, 1]).shared(4096);
            device.kernel_of(&kernels::HALF_PRODUCT, "half_product")?.launch(
                &stream,
                &grid,
                &args![&a, &b, &rows, &mut out],
            )?;
            return Ok(Outputs::new().with("out", stream.download(&out)?));
        }
        let n = case.dimension("n");
        let [a, b, c] = operands(n, seed);
        let (a, b, c) = (stream.upload(&a)?, stream.upload(&b)?, stream.upload(&c)?);
        let mut out = poisoned::<u32>(&stream, 5 * n)?;
        let grid = Grid::new([3, 1, 1], [128, 1, 1]);
        device.kernel_of(&kernels::HALF_WORDS, "half_words")?.launch(
            &stream,
            &grid,
            &args![&a, &b, &c, &mut out, n as u32],
        )?;
        Ok(Outputs::new().with("out", stream.download(&out)?))
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        let out = if is_product(case) { product(seed, 0) } else { arithmetic(case.dimension("n"), seed) };
        Outputs::new().with("out", out)
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let wrong = if is_product(case) {
            Control::new("rows of a lane exchanged", Outputs::new().with("out", product(seed, 1)))
        } else {
            let n = case.dimension("n");
            let [a, b, c] = operands(n, seed);
            let rounded = |a: f64, b: f64| f16::from_f64(a * b).to_f64();
            let mut out = arithmetic(n, seed);
            for i in 0..n {
                out[2 * n + i] = both(a[i], b[i], c[i], |a, b, c| rounded(a, b) + c);
            }
            Control::new("the product rounded before the sum", Outputs::new().with("out", out))
        };
        vec![Control::zeros(reference), wrong, Control::unwritten_tail(reference, 1)]
    }

    fn work(&self, case: &Case) -> Work {
        let n = case.dimension("n") as u64;
        if is_product(case) {
            return Work { operations: 8 * n * DEPTH as u64, bytes: 6144 + 8 * 128 * WORDS as u64 };
        }
        Work { operations: 14 * n, bytes: 32 * n }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_just_off_the_middle_is_not_rounded_twice() {
        // Between 1 and the next f16, a little more than half way: to f32 it is exactly half way, and that
        // rounds to even.
        let middle = 1.0 + 2f64.powi(-11);
        assert_eq!(nearest(middle + 2f64.powi(-40)), f16::from_bits(0x3C01));
        assert_eq!(nearest(-middle - 2f64.powi(-40)), f16::from_bits(0xBC01));
        assert_eq!(nearest(middle), f16::ONE);
        assert_eq!(nearest(middle - 2f64.powi(-40)), f16::ONE);
        assert_eq!(nearest(0.0), f16::ZERO);
    }
}
