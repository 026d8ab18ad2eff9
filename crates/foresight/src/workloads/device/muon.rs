//! `foresight/muon`: Muon's directions by products of bf16, held against plain loops that round where these do.

use std::cell::RefCell;
use std::rc::Rc;

use gatework_gpu::{Buffer, Device, Stream};
use gatework_lab::{
    Bench, Bounds, Case, ErrorBudget, Evidence, Inputs, KernelSpec, Outputs, RunError, Side, Timing, Work,
    ends, read_ends,
};
use half::bf16;

use super::Job;
use crate::cuda::kernels::muon;
use crate::cuda::{DeviceOptimiser, Products, ProductsBy};
use crate::network::{Architecture, Parameters};
use crate::optimiser::{MUON_ROUNDS, Method, OptimiserOptions, orthogonalise};

#[derive(Clone, Copy)]
pub(super) struct Muon;

/// Two matrices, of `first × second` and of `second × third`.
fn case(first: usize, second: usize, third: usize) -> Case {
    let name = format!("{first}x{second}x{third}");
    Case::new(name).with("first", first).with("second", second).with("third", third)
}

/// What a direction is made of.
struct Given {
    options: OptimiserOptions,
    groups: Vec<Parameters>,
    gradient: Vec<f32>,
}

fn given(case: &Case, seed: u64) -> Result<Given, RunError> {
    let widths = ["first", "second", "third"].map(|name| case.dimension(name));
    let groups = Architecture::mlp([1, 1, 1], &widths, 1)?.parameters();
    let count = groups.last().map_or(0, |group| group.bias.end);
    let options = OptimiserOptions { method: Method::Muon, ..OptimiserOptions::default() };
    Ok(Given { options, groups, gradient: Inputs::new(seed).normal(count) })
}

fn rounded(x: &[f64]) -> Vec<f64> {
    x.iter().map(|x| bf16::from_f64(*x).to_f64()).collect()
}

/// `A B` for matrices whose numbers are told by row and column.
fn product(
    [m, n, k]: [usize; 3],
    a: impl Fn(usize, usize) -> f64,
    b: impl Fn(usize, usize) -> f64,
) -> Vec<f64> {
    (0..m * n).map(|at| (0..k).map(|p| a(at / n, p) * b(p, at % n)).sum()).collect()
}

/// So many iterations in double precision, with what is multiplied rounded to bf16.
fn plain(x: &[f32], [rows, columns]: [usize; 2], rounds: usize) -> Vec<f32> {
    let mut x: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
    let length = x.iter().map(|x| x * x).sum::<f64>().sqrt() + 1e-7;
    x.iter_mut().for_each(|x| *x /= length);
    let (tall, side) = (rows > columns, rows.min(columns));
    for _ in 0..rounds {
        let short = rounded(&x);
        let at = |row: usize, column: usize| short[row * columns + column];
        let gram = if tall {
            product([side, side, rows], |i, p| at(p, i), at)
        } else {
            product([side, side, columns], at, |p, j| at(j, p))
        };
        let of_gram = rounded(&gram);
        let of = |numbers: &[f64], i: usize, j: usize| numbers[i * side + j];
        let square = product([side; 3], |i, p| of(&of_gram, i, p), |p, j| of(&of_gram, p, j));
        let factor: Vec<f64> =
            gram.iter().zip(&square).map(|(gram, square)| -4.7750 * gram + 2.0315 * square).collect();
        let factor = rounded(&factor);
        let more = if tall {
            product([rows, columns, side], at, |p, j| of(&factor, p, j))
        } else {
            product([rows, columns, side], |i, p| of(&factor, i, p), at)
        };
        x.iter_mut().zip(more).for_each(|(x, more)| *x = 3.4445 * *x + more);
    }
    x.into_iter().map(|x| x as f32).collect()
}

impl Given {
    fn matrices(&self) -> impl Iterator<Item = (&'static str, &Parameters)> {
        ["first", "second"].into_iter().zip(&self.groups[1..])
    }

    fn plain(&self, rounds: usize) -> Outputs {
        self.matrices().fold(Outputs::new(), |outputs, (name, group)| {
            outputs.with(name, plain(&self.gradient[group.matrix.clone()], group.sides, rounds))
        })
    }
}

/// What queues directions again and again: of the same gradient they are the same.
struct There {
    optimiser: DeviceOptimiser,
    products: Products,
    gradient: Buffer<f32>,
}

impl There {
    fn new(stream: &Stream, given: &Given) -> Result<Self, RunError> {
        Ok(Self {
            optimiser: DeviceOptimiser::new(stream, given.options, &given.groups, 0)?,
            products: Products::new(stream, ProductsBy::Own)?,
            gradient: stream.upload(&given.gradient)?,
        })
    }

    fn take(&mut self, stream: &Stream) -> crate::Result<()> {
        self.optimiser.begin(stream, &self.gradient)?;
        self.optimiser.muon_direction(stream, &self.gradient)?;
        self.optimiser.orthogonalise(stream, &self.products)
    }
}

impl Job for Muon {
    fn name(&self) -> &'static str {
        "foresight/muon"
    }

    fn summary(&self) -> &'static str {
        "Muon's directions: five Newton-Schulz iterations of two matrices, with products of bf16"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        vec![KernelSpec::new(muon().source()).entries(["begin_iteration", "polynomial"]).threads(256)]
    }

    fn cases(&self) -> Vec<Case> {
        vec![case(6, 20, 7), case(33, 65, 8), case(1, 1, 3)]
    }

    fn few(&self) -> usize {
        1
    }

    fn large(&self) -> Vec<Case> {
        vec![case(768, 3072, 768)]
    }

    fn tried(&self) -> Option<Case> {
        Some(case(6, 20, 7))
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let (stream, given) = (device.stream()?, given(case, seed)?);
        let mut there = There::new(&stream, &given)?;
        there.take(&stream)?;
        let (_, direction, _) = there.optimiser.direction().ok_or("there is no direction")?;
        let numbers = stream.download(direction)?;
        Ok(given.matrices().fold(Outputs::new(), |outputs, (name, group)| {
            outputs.with(name, numbers[group.matrix.clone()].to_vec())
        }))
    }

    fn reference(&self, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        Ok(given(case, seed)?.plain(MUON_ROUNDS))
    }

    /// A number that lies between two of bf16 may be rounded to the other one here and there, and iterations
    /// make as much of that as of any other rounding.
    fn within(&self, _: &Case) -> [f64; 2] {
        [4e-2, 0.15]
    }

    fn mistaken(&self, case: &Case, seed: u64) -> Result<(&'static str, Outputs), RunError> {
        Ok(("one iteration less", given(case, seed)?.plain(MUON_ROUNDS - 1)))
    }

    /// Two products with the matrix and one of squares an iteration; a matrix is read three times, written
    /// twice and rounded once.
    fn work(&self, case: &Case) -> Work {
        let [first, second, third] = ["first", "second", "third"].map(|name| case.dimension(name) as u64);
        let of = |rows: u64, columns: u64| {
            let (whole, side) = (rows * columns, rows.min(columns));
            let products = 4 * whole * side + 2 * side.pow(3);
            [5 * products, 5 * (22 * whole + 26 * side * side)]
        };
        let [a, b] = [of(first, second), of(second, third)];
        Work { operations: a[0] + b[0], bytes: a[1] + b[1] }
    }

    fn bench(&self, device: &Device, case: &Case) -> Result<Bench, RunError> {
        let (stream, given) = (device.stream()?, given(case, 1)?);
        let matrix = given.groups[1].clone();
        let job = Rc::new(RefCell::new(There::new(&stream, &given)?));
        let from: Buffer<u8> = stream.alloc_zeros((self.work(case).bytes / 2) as usize)?;
        let mut to: Buffer<u8> = stream.alloc(from.len())?;
        let (timed, spoilt, seen) = (job.clone(), job.clone(), job);
        let candidate = Side::new("directions", move |stream: &Stream| timed.borrow_mut().take(stream));
        let baseline = Side::new("a copy of as many bytes", move |stream: &Stream| -> Result<(), RunError> {
            Ok(stream.copy(&from, &mut to)?)
        });
        let start = given.gradient[matrix.matrix.clone()].to_vec();
        let (count, sides) = (start.len(), matrix.sides);
        let evidence = Evidence::new(
            // By the CPU's iterations, whose products are in single precision.
            ErrorBudget::Bounded(Bounds { relative_frobenius: 0.05, max_abs: 0.2, mean_bias: 0.05 }),
            move |stream| {
                let job = &mut *spoilt.borrow_mut();
                job.optimiser.restart(stream)?;
                let (_, direction, _) = job.optimiser.direction().ok_or("there is no direction")?;
                Ok(stream.fill(direction, f32::NAN)?)
            },
            move |stream| {
                let job = &mut *seen.borrow_mut();
                let (_, direction, _) = job.optimiser.direction().ok_or("there is no direction")?;
                let mut found = stream.alloc(count)?;
                stream.copy(&direction.slice(matrix.matrix.clone()), &mut found)?;
                Ok(Outputs::new().with("direction", read_ends(stream, &found)?))
            },
            move |_| {
                let mut wanted = start.clone();
                orthogonalise(&mut wanted, sides);
                Ok(Outputs::new().with("direction", ends(count).map(|at| wanted[at]).collect::<Vec<f32>>()))
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
