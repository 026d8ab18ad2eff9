//! `foresight/product`: products of bf16 in every layout, and what lies between them.

use std::cell::RefCell;
use std::rc::Rc;

use gatework_gpu::{Buffer, Device, Stream};
use gatework_lab::{
    Bench, Case, Evidence, Inputs, KernelSpec, Outputs, RunError, Side, Timing, Work, Workload as _, repeated,
};
use half::bf16;

use super::Job;
use crate::cuda::kernels::{mixed, product};
use crate::cuda::{Products, ProductsBy, Turned, Write, mixed as between};

#[derive(Clone, Copy)]
pub(super) struct Product;

const LAYOUTS: [(Turned, &str); 3] =
    [(Turned::Neither, "a b"), (Turned::Left, "aT b"), (Turned::Right, "a bT")];
const KEEP: f32 = 0.9;
/// Numbers of the pattern that fills large matrices.
const PATTERN: usize = 997;

fn case(m: usize, n: usize, k: usize) -> Case {
    Case::new(format!("{m}x{n}x{k}")).with("m", m).with("n", n).with("k", k)
}

fn size(case: &Case) -> [usize; 3] {
    ["m", "n", "k"].map(|name| case.dimension(name))
}

/// What everything is computed from.
struct Given {
    size: [usize; 3],
    a: Vec<f32>,
    b: Vec<f32>,
    /// What is added to, and averaged with.
    c: Vec<f32>,
    bias: Vec<f32>,
    /// The gradient of what GELU gave.
    of_unit: Vec<f32>,
}

fn rounded(x: &[f32]) -> Vec<bf16> {
    x.iter().map(|x| bf16::from_f32(*x)).collect()
}

fn singles(x: Vec<bf16>) -> Vec<f32> {
    x.into_iter().map(bf16::to_f32).collect()
}

/// GPT-2's form of the function.
fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
}

fn gelu_slope(x: f64) -> f64 {
    let root = (2.0 / std::f64::consts::PI).sqrt();
    let t = (root * (x + 0.044715 * x.powi(3))).tanh();
    let inner = root * (1.0 + 3.0 * 0.044715 * x * x);
    0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner
}

impl Given {
    fn new(case: &Case, seed: u64) -> Self {
        let [m, n, k] = size(case);
        let mut inputs = Inputs::new(seed);
        let mut normal = |count| inputs.normal(count);
        let [a, b, c, bias] = [m * k, k * n, m * n, n].map(&mut normal);
        Self { size: [m, n, k], a, b, c, bias, of_unit: normal(m * n) }
    }

    fn on_device(&self, stream: &Stream) -> Result<Outputs, RunError> {
        let [m, n, k] = self.size;
        let products = Products::new(stream, ProductsBy::Own)?;
        let (mut a, mut b) = (stream.alloc(m * k)?, stream.alloc(k * n)?);
        between::round(stream, &stream.upload(&self.a)?, &mut a)?;
        between::round(stream, &stream.upload(&self.b)?, &mut b)?;
        let mut outputs = Outputs::new();
        for (turned, name) in LAYOUTS {
            let mut c = stream.upload(&self.c)?;
            products.multiply(turned, self.size, &a, &b, &mut c, Write::Onto)?;
            outputs = outputs.with(name, stream.download(&c)?);
        }
        let (c, bias) = (stream.upload(&self.c)?, stream.upload(&self.bias)?);
        let mut to = stream.alloc(m * n)?;
        let mut half = |name: &'static str, to: &Buffer<bf16>| -> Result<(), RunError> {
            outputs = std::mem::take(&mut outputs).with(name, singles(stream.download(to)?));
            Ok(())
        };
        between::round_with_bias(stream, &c, &bias, &mut to)?;
        half("biased", &to)?;
        between::round_gelu(stream, &c, &mut to)?;
        half("gelu", &to)?;
        let (mut biased, of_unit) = (stream.upload(&self.c)?, stream.upload(&self.of_unit)?);
        between::bias_gelu(stream, &mut biased, &bias, &mut to)?;
        half("biased gelu", &to)?;
        between::gelu_back(stream, &biased, &of_unit, &mut to)?;
        half("of unit", &to)?;
        let (mut sum, mut average) = (stream.alloc(m * n)?, stream.upload(&self.c)?);
        between::with_bias(stream, &c, &bias, &mut sum)?;
        between::average(stream, &mut average, &sum, KEEP)?;
        between::add_scaled(stream, &mut average, &sum, KEEP)?;
        Ok(outputs.with("average", stream.download(&average)?))
    }

    /// The same in double precision, where sums leave out so many of their last products, which should be
    /// none.
    fn plain(&self, left_out: usize) -> Outputs {
        let [m, n, k] = self.size;
        let (a, b) = (singles(rounded(&self.a)), singles(rounded(&self.b)));
        let mut outputs = Outputs::new();
        for (turned, name) in LAYOUTS {
            let a = |i: usize, p: usize| {
                f64::from(if turned == Turned::Left { a[p * m + i] } else { a[i * k + p] })
            };
            let b = |p: usize, j: usize| {
                f64::from(if turned == Turned::Right { b[j * k + p] } else { b[p * n + j] })
            };
            let of = |at: usize| {
                let sum: f64 = (0..k - left_out.min(k)).map(|p| a(at / n, p) * b(p, at % n)).sum();
                (f64::from(self.c[at]) + sum) as f32
            };
            outputs = outputs.with(name, (0..m * n).map(of).collect::<Vec<f32>>());
        }
        let sums: Vec<f32> = self.c.iter().zip(self.bias.iter().cycle()).map(|(c, bias)| c + bias).collect();
        let gelus: Vec<f32> = self.c.iter().map(|x| gelu(f64::from(*x)) as f32).collect();
        let of = |f: fn(f64) -> f64| sums.iter().map(move |x| f(f64::from(*x)));
        let biased_gelus: Vec<f32> = of(gelu).map(|x| x as f32).collect();
        let of_units: Vec<f32> =
            of(gelu_slope).zip(&self.of_unit).map(|(slope, d)| (slope * f64::from(*d)) as f32).collect();
        let average = self.c.iter().zip(&sums).map(|(c, x)| KEEP * c + (1.0 - KEEP) * x + KEEP * x);
        outputs
            .with("biased", singles(rounded(&sums)))
            .with("gelu", singles(rounded(&gelus)))
            .with("biased gelu", singles(rounded(&biased_gelus)))
            .with("of unit", singles(rounded(&of_units)))
            .with("average", average.collect::<Vec<f32>>())
    }
}

impl Job for Product {
    fn name(&self) -> &'static str {
        "foresight/product"
    }

    fn summary(&self) -> &'static str {
        "products of bf16 with sums in f32 in every layout, and roundings, biases and GELU between them"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let spec = |turned| {
            [(true, 64), (true, 128), (false, 64), (false, 128)]
                .map(|(wide, tile)| KernelSpec::new(product(turned, wide, tile).source()).threads(2 * tile))
        };
        let products = [[false, false], [true, false], [false, true]].into_iter().flat_map(spec);
        let entries = [
            "rounded",
            "round_with_bias",
            "with_bias",
            "bias_gelu",
            "round_gelu",
            "gelu_back",
            "average",
            "add_scaled",
        ];
        products.chain([KernelSpec::new(mixed().source()).entries(entries).threads(256)]).collect()
    }

    fn cases(&self) -> Vec<Case> {
        vec![case(40, 8, 48), case(33, 7, 35), case(1, 1, 1), case(72, 136, 64)]
    }

    fn few(&self) -> usize {
        2
    }

    fn large(&self) -> Vec<Case> {
        vec![case(8192, 768, 768)]
    }

    fn tried(&self) -> Option<Case> {
        Some(case(40, 8, 48))
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        Given::new(case, seed).on_device(&device.stream()?)
    }

    fn reference(&self, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        Ok(Given::new(case, seed).plain(0))
    }

    /// A unit in the last place of what is rounded, where a function is not the system's.
    fn within(&self, _: &Case) -> [f64; 2] {
        [1e-3, 2e-2]
    }

    fn mistaken(&self, case: &Case, seed: u64) -> Result<(&'static str, Outputs), RunError> {
        Ok(("sums without their last product", Given::new(case, seed).plain(1)))
    }

    fn work(&self, case: &Case) -> Work {
        let [m, n, k] = size(case).map(|side| side as u64);
        Work { operations: 2 * m * n * k, bytes: 2 * (m * k + k * n) + 4 * m * n }
    }

    fn bench(&self, device: &Device, case: &Case) -> Result<Bench, RunError> {
        let stream = device.stream()?;
        let [m, n, k] = size(case);
        let mut inputs = Inputs::new(1);
        let (pattern_a, pattern_b) = (rounded(&inputs.normal(PATTERN)), rounded(&inputs.normal(PATTERN)));
        let (a, b) = (repeated(&stream, &pattern_a, m * k)?, repeated(&stream, &pattern_b, k * n)?);
        let there = Rc::new(RefCell::new(stream.alloc::<f32>(m * n)?));
        let (from, mut to) = (stream.alloc_zeros::<f32>(m * n)?, stream.alloc::<f32>(m * n)?);
        let products = Products::new(&stream, ProductsBy::Own)?;
        let (timed, spoilt, seen) = (there.clone(), there.clone(), there);
        let candidate = Side::new("product", move |_: &Stream| {
            products.multiply(Turned::Neither, [m, n, k], &a, &b, &mut *timed.borrow_mut(), Write::Over)
        });
        let baseline =
            Side::new("a copy of as large a result", move |stream: &Stream| -> Result<(), RunError> {
                Ok(stream.copy(&from, &mut to)?)
            });
        let evidence = Evidence::new(
            super::OnDevice { job: *self, cases: super::Cases::All }.budget(case),
            move |stream| Ok(stream.fill(&mut *spoilt.borrow_mut(), f32::NAN)?),
            move |stream| Ok(Outputs::new().with("c", stream.download(&seen.borrow().slice(..n))?)),
            move |_| {
                // The first row.
                let at = |pattern: &[bf16], place: usize| pattern[place % PATTERN].to_f64();
                let of =
                    |j: usize| (0..k).map(|p| at(&pattern_a, p) * at(&pattern_b, p * n + j)).sum::<f64>();
                Ok(Outputs::new().with("c", (0..n).map(|j| of(j) as f32).collect::<Vec<f32>>()))
            },
        );
        stream.synchronize()?;
        Ok(Bench::new(self.work(case), candidate, baseline)
            .timing(Timing::Launches { count: 3 })
            .cold()
            .expect_recorded(1.10, super::AS_BEFORE)
            .shown_by(evidence))
    }
}
