//! Floating-point functions: those that round correctly, bit for bit, and the hardware's approximations,
//! within what the PTX manual promises.

use gatework_gpu::{Device, Grid, Kind, args};

use crate::kernels;
use crate::{Case, Control, ErrorBudget, Inputs, KernelSpec, Outputs, RunError, Work, Workload, poisoned};

const ENTRIES: [&str; 2] = ["float_exact", "float_approximate"];
const THREADS: u32 = 128;
const BLOCKS: u32 = 2;
/// What NaNs are compared as: the hardware's payload is not documented.
const NAN: u32 = 0x7fff_ffff;
/// Largest error of an approximation, relative to the result, or for log2 to 1 where the result is smaller.
const APPROXIMATION_BOUND: f64 = 1.0 / (1 << 21) as f64;

/// `gpu/float`.
pub(super) struct Float;

/// Values where functions change their mind.
const SPECIAL: [f32; 12] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    f32::MAX,
    f32::MIN_POSITIVE,
    1e-40,
    -1e-45,
    16_777_216.0,
];

/// What a case checks.
enum Subject {
    Exact(Exact),
    Approximate(Approximate),
}

impl Subject {
    fn new(case: &Case, seed: u64) -> Self {
        let n = case.dimension("n");
        match case.name.as_str() {
            "exact" => Self::Exact(Exact::new(n, seed)),
            _ => Self::Approximate(Approximate::new(n, seed)),
        }
    }
}

/// Three operands for each element: all pairs of special values, then random bits and random numbers.
struct Exact {
    a: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
}

/// How a wrong device might compute.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Right,
    /// Products and sums are fused where they may not be.
    Fused,
    /// Subnormal results become zero.
    Flushed,
}

impl Exact {
    fn new(n: usize, seed: u64) -> Self {
        let mut inputs = Inputs::new(seed);
        let pairs = SPECIAL.iter().flat_map(|&x| SPECIAL.iter().map(move |&y| (x, y)));
        let (mut a, mut b): (Vec<f32>, Vec<f32>) = pairs.unzip();
        let mut column = |mut start: Vec<f32>| {
            let bits = inputs.words(n / 2).into_iter().map(f32::from_bits);
            start.extend(bits);
            let numbers = inputs.normal(n - start.len());
            start.extend(numbers);
            start
        };
        let c = column(a.iter().rev().copied().collect());
        a = column(a);
        b = column(b);
        Self { a, b, c }
    }

    /// Results by call, then by element, as bits.
    fn results(&self, manner: Manner) -> Vec<u32> {
        let operands = || self.a.iter().zip(&self.b).zip(&self.c).map(|((&x, &y), &z)| (x, y, z));
        let flushed =
            |value: f32| if manner == Manner::Flushed && value.is_subnormal() { 0.0 } else { value };
        let product_sum =
            |x: f32, y: f32, z: f32| if manner == Manner::Fused { x.mul_add(y, z) } else { x * y + z };
        let calls: [&dyn Fn(f32, f32, f32) -> f32; 8] = [
            &|x, _, _| x.sqrt(),
            &|x, y, z| flushed(x.mul_add(y, z)),
            &|x, y, z| flushed(product_sum(x, y, z)),
            &|x, y, _| larger(x, y),
            &|x, y, _| -larger(-x, -y),
            &|x, _, _| if x.is_sign_negative() { -x } else { x },
            &|x, y, z| f64::from(x).mul_add(f64::from(y), f64::from(z)) as f32,
            &|x, y, z| flushed(product_sum(x, y, z)),
        ];
        calls.iter().flat_map(|call| operands().map(|(x, y, z)| bits(call(x, y, z)))).collect()
    }

    fn run(&self, device: &Device) -> Result<Vec<u32>, RunError> {
        let stream = device.stream()?;
        let kernel = device.kernel_of(&kernels::FLOAT_WORDS.exact(), ENTRIES[0])?;
        let n = self.a.len();
        let (a, b, c) = (stream.upload(&self.a)?, stream.upload(&self.b)?, stream.upload(&self.c)?);
        let mut out = poisoned::<f32>(&stream, 8 * n)?;
        let grid = Grid::new([BLOCKS, 1, 1], [THREADS, 1, 1]);
        kernel.launch(&stream, &grid, &args![&a, &b, &c, &mut out, n as u32])?;
        Ok(stream.download(&out)?.into_iter().map(bits).collect())
    }
}

/// The larger of two values: +0 is larger than -0, and a number is larger than a NaN.
fn larger(x: f32, y: f32) -> f32 {
    match (x.is_nan(), y.is_nan()) {
        (true, _) => y,
        (_, true) => x,
        _ if x.total_cmp(&y).is_gt() => x,
        _ => y,
    }
}

fn bits(value: f32) -> u32 {
    if value.is_nan() { NAN } else { value.to_bits() }
}

/// Operands of the approximations: results are neither subnormal nor infinite.
struct Approximate {
    exponents: Vec<f32>,
    positives: Vec<f32>,
}

impl Approximate {
    fn new(n: usize, seed: u64) -> Self {
        let mut inputs = Inputs::new(seed);
        let exponents = inputs.uniform(n, -125.0..127.0);
        let positives = inputs.uniform(n, -125.0..125.0).into_iter().map(f32::exp2).collect();
        Self { exponents, positives }
    }

    /// For each call and element, whether the value is within the bound of the right one.
    fn judged(&self, values: &[f32]) -> Vec<u32> {
        let within = |value: &f32, right: f64, scale: f64| {
            u32::from((f64::from(*value) - right).abs() <= APPROXIMATION_BOUND * scale)
        };
        let right = self.right().into_iter().enumerate();
        let n = self.exponents.len();
        let is_logarithm = |at: usize| at / n == 1;
        let scale = |at: usize, right: f64| if is_logarithm(at) { right.abs().max(1.0) } else { right.abs() };
        right.zip(values).map(|((at, right), value)| within(value, right, scale(at, right))).collect()
    }

    fn right(&self) -> Vec<f64> {
        let positives = || self.positives.iter().map(|&value| f64::from(value));
        let exp2 = self.exponents.iter().map(|&value| f64::from(value).exp2());
        exp2.chain(positives().map(f64::log2))
            .chain(positives().map(|value| 1.0 / value.sqrt()))
            .chain(positives().map(f64::recip))
            .collect()
    }

    fn run(&self, device: &Device) -> Result<Vec<u32>, RunError> {
        let stream = device.stream()?;
        let kernel = device.kernel_of(&kernels::FLOAT_WORDS.exact(), ENTRIES[1])?;
        let n = self.exponents.len();
        let (exponents, positives) = (stream.upload(&self.exponents)?, stream.upload(&self.positives)?);
        let mut out = poisoned::<f32>(&stream, 4 * n)?;
        let grid = Grid::new([BLOCKS, 1, 1], [THREADS, 1, 1]);
        kernel.launch(&stream, &grid, &args![&exponents, &positives, &mut out, n as u32])?;
        Ok(self.judged(&stream.download(&out)?))
    }
}

impl Workload for Float {
    fn name(&self) -> &str {
        "gpu/float"
    }

    fn summary(&self) -> &str {
        "floating-point functions, correctly rounded and approximate"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let source = kernels::FLOAT_WORDS.exact().source();
        vec![
            KernelSpec::new(source.clone()).entries([ENTRIES[0]]).require("FFMA").threads(THREADS),
            KernelSpec::new(source).entries([ENTRIES[1]]).require("MUFU").threads(THREADS),
        ]
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let n = match kind {
            Kind::Emulated => 4000,
            Kind::Cuda => 1_000_000,
        };
        ["exact", "approximate"].map(|name| Case::new(name).with("n", n)).to_vec()
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let out = match Subject::new(case, seed) {
            Subject::Exact(exact) => exact.run(device)?,
            Subject::Approximate(approximate) => approximate.run(device)?,
        };
        Ok(Outputs::new().with("out", out))
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        let out = match Subject::new(case, seed) {
            Subject::Exact(exact) => exact.results(Manner::Right),
            Subject::Approximate(approximate) => vec![1; 4 * approximate.exponents.len()],
        };
        Outputs::new().with("out", out)
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let wrong = |name, out: Vec<u32>| Control::new(name, Outputs::new().with("out", out));
        let mut controls = vec![Control::zeros(reference)];
        match Subject::new(case, seed) {
            Subject::Exact(exact) => {
                controls.push(wrong("a product and a sum are fused", exact.results(Manner::Fused)));
                controls.push(wrong("subnormal results are flushed", exact.results(Manner::Flushed)));
            }
            Subject::Approximate(approximate) => {
                // One part in a million: eight units in the last place.
                let off: Vec<f32> =
                    approximate.right().iter().map(|right| (right * 1.000_001) as f32).collect();
                let natural: Vec<f32> =
                    approximate.right().iter().map(|right| right.abs().ln() as f32).collect();
                controls.push(wrong("one part in a million off", approximate.judged(&off)));
                controls.push(wrong("another function", approximate.judged(&natural)));
            }
        }
        controls
    }

    fn work(&self, case: &Case) -> Work {
        let n = case.dimension("n") as u64;
        let (calls, operands) = if case.name == "exact" { (8, 3) } else { (4, 2) };
        Work { operations: calls * n, bytes: 4 * (calls + operands) * n }
    }
}
