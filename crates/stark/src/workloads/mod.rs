//! What the lab may gate and time: `stark/*`.

mod constraints;
mod fft;
mod logup;
mod merkle;
mod poseidon252;
mod prove;
mod rates;
mod streaming;
mod sums;
mod transfer;

use std::cell::RefCell;
use std::rc::Rc;

use gatework_gpu::{Device, Kind, Stream};
use gatework_lab::measure::Arithmetic;
use gatework_lab::{
    Bench, Case, Control, ErrorBudget, Evidence, Inputs, KernelSpec, Outputs, RunError, Side, Work, Workload,
};
use stwo::core::fields::m31::{BaseField, P};

use crate::airs::HostColumn;
use crate::error::OrRaise as _;
use crate::{Context, DeviceColumn};

/// All of them.
pub fn workloads() -> Vec<Box<dyn Workload>> {
    vec![
        Box::new(Job(fft::Fft)),
        Box::new(Job(merkle::Merkle)),
        Box::new(Job(poseidon252::Poseidon252)),
        Box::new(Job(constraints::Constraints)),
        Box::new(Job(logup::Logup)),
        Box::new(Job(streaming::Streamed)),
        Box::new(Job(sums::Sums)),
        Box::new(Job(transfer::Transfer)),
        Box::new(Job(rates::Rates)),
        Box::new(prove::Prove),
    ]
}

/// Columns of one size, and how many there are.
#[derive(Clone, Copy)]
struct Size {
    log_rows: u32,
    columns: usize,
}

/// Something that is done with columns, on a device and plainly.
trait Task: Send + Sync + Copy + 'static {
    fn name(&self) -> &'static str;
    fn summary(&self) -> &'static str;
    /// Logarithms of rows, and columns, of cases that the emulated device is given beside small ones.
    fn larger_sizes(&self) -> Vec<(u32, usize)> {
        Vec::new()
    }
    /// The same for a card.
    fn largest_sizes(&self) -> Vec<(u32, usize)> {
        Vec::new()
    }
    fn kernels(&self) -> Vec<KernelSpec>;
    /// Inside of a scope.
    fn on_device(&self, columns: &[HostColumn]) -> Vec<u32>;
    /// The plainest code that is right: stwo's `CpuBackend`.
    fn on_host(&self, columns: &[HostColumn]) -> Vec<u32>;
    /// A mistake that this task invites.
    fn mistaken(&self, columns: &[HostColumn]) -> (&'static str, Vec<u32>);
    fn work(&self, size: Size) -> Work;
    /// What is timed, if it is.
    fn timed(&self) -> Option<Timed> {
        None
    }
}

/// What runs again and again, inside of a scope.
trait Run: Send {
    fn run(&mut self);
    /// Makes sure that nothing of an earlier run is taken for a result.
    fn spoil(&mut self);
    /// What the last run left, or a part of it.
    fn words(&mut self) -> Vec<u32>;
}

/// A baseline: nobody looks at what it leaves.
struct Unseen<F>(F);

impl<F: FnMut() + Send> Run for Unseen<F> {
    fn run(&mut self) {
        (self.0)();
    }

    fn spoil(&mut self) {}

    fn words(&mut self) -> Vec<u32> {
        Vec::new()
    }
}

/// What is timed, on columns of the device, and what it is held against. Both are made inside of a scope.
#[derive(Clone, Copy)]
struct Timed {
    candidate: fn(Vec<DeviceColumn<BaseField>>) -> Box<dyn Run>,
    baseline: fn(Vec<DeviceColumn<BaseField>>) -> Box<dyn Run>,
    /// What the candidate leaves after so many runs on these columns.
    expected: fn(&[HostColumn], u32) -> Vec<u32>,
    baseline_name: &'static str,
    /// How many times the baseline's time the candidate may take, and why.
    at_most: f64,
    why: &'static str,
}

struct Job<T>(T);

fn size(case: &Case) -> Size {
    Size { log_rows: case.dimension("log-rows") as u32, columns: case.dimension("columns") }
}

fn case(log_rows: u32, columns: usize) -> Case {
    Case::new(format!("2^{log_rows}x{columns}")).with("log-rows", log_rows as usize).with("columns", columns)
}

fn columns(Size { log_rows, columns }: Size, seed: u64) -> Vec<HostColumn> {
    let mut inputs = Inputs::new(seed);
    let mut column = || {
        let words = inputs.integers(1 << log_rows, 0..i64::from(P));
        words.into_iter().map(|word| BaseField::from_u32_unchecked(word as u32)).collect()
    };
    (0..columns).map(|_| column()).collect()
}

/// What a side of a benchmark runs, with the context it was made in.
type Made = Rc<RefCell<Option<(Context, Box<dyn Run>)>>>;

/// A side of a benchmark, in a context on the stream that it is given.
fn side(
    name: &str,
    columns: Vec<HostColumn>,
    make: fn(Vec<DeviceColumn<BaseField>>) -> Box<dyn Run>,
    made: Made,
) -> Side {
    Side::new(name, move |stream: &Stream| {
        let mut made = made.borrow_mut();
        if made.is_none() {
            let context = Context::on(stream.clone())?;
            let upload = || columns.iter().map(|column| DeviceColumn::upload(column)).collect();
            let run = context.scope(|| make(upload()))?;
            *made = Some((context, run));
        }
        let Some((context, run)) = &mut *made else { unreachable!("it was just made") };
        context.scope(|| run.run())
    })
}

/// The words that the candidate leaves are those of the plain code.
fn evidence(columns: Vec<HostColumn>, expected: fn(&[HostColumn], u32) -> Vec<u32>, made: Made) -> Evidence {
    let seen = made.clone();
    Evidence::new(
        ErrorBudget::Exact,
        move |_| match &mut *made.borrow_mut() {
            Some((context, run)) => Ok(context.scope(|| run.spoil())?),
            None => Ok(()),
        },
        move |_| {
            let words = match &mut *seen.borrow_mut() {
                Some((context, run)) => context.scope(|| run.words())?,
                None => Vec::new(),
            };
            Ok(Outputs::new().with("words", words))
        },
        move |runs| Ok(Outputs::new().with("words", expected(&columns, runs))),
    )
}

impl<T: Task> Workload for Job<T> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn summary(&self) -> &str {
        self.0.summary()
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        self.0.kernels()
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        match kind {
            Kind::Emulated => {
                let sizes = [(3, 3), (5, 17), (8, 4)].into_iter().chain(self.0.larger_sizes());
                sizes.map(|(log_rows, columns)| case(log_rows, columns)).collect()
            }
            Kind::Cuda => {
                let sizes = [(3, 3), (5, 17), (8, 4), (13, 5), (16, 4), (17, 3)];
                let sizes = sizes.into_iter().chain(self.0.largest_sizes());
                sizes.map(|(log_rows, columns)| case(log_rows, columns)).collect()
            }
        }
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let columns = columns(size(case), seed);
        let words = Context::new(device)?.scope(|| self.0.on_device(&columns))?;
        Ok(Outputs::new().with("words", words))
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        Outputs::new().with("words", self.0.on_host(&columns(size(case), seed)))
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let (mistake, words) = self.0.mistaken(&columns(size(case), seed));
        vec![
            Control::zeros(reference),
            Control::unwritten_tail(reference, 1),
            Control::one_off(reference, "words", 1, 1.0),
            Control::swapped(reference, "words", 0, 1),
            Control::new(mistake, Outputs::new().with("words", words)),
        ]
    }

    fn work(&self, case: &Case) -> Work {
        self.0.work(size(case))
    }

    fn bench_cases(&self, kind: Kind) -> Vec<Case> {
        match (kind, self.0.timed()) {
            (Kind::Emulated, _) | (_, None) => Vec::new(),
            (Kind::Cuda, Some(_)) => vec![case(18, 100), case(20, 100), case(22, 24)],
        }
    }

    fn bench(&self, _: &Device, case: &Case) -> Result<Option<Bench>, RunError> {
        let Some(timed) = self.0.timed() else { return Ok(None) };
        let columns = columns(size(case), 1);
        let made = Made::default();
        let evidence = evidence(columns.clone(), timed.expected, made.clone());
        let candidate = side(self.0.name(), columns.clone(), timed.candidate, made);
        let baseline = side(timed.baseline_name, columns, timed.baseline, Made::default());
        let bench = Bench::new(self.work(case), candidate, baseline).expect_at_most(timed.at_most, timed.why);
        Ok(Some(bench.arithmetic(Arithmetic::Integer32).shown_by(evidence)))
    }
}

/// Copies as much memory as the columns have, at once: the least that reading and writing them takes.
fn copying(columns: Vec<DeviceColumn<BaseField>>) -> Box<dyn Run> {
    let queue = columns[0].queue().clone();
    let words = columns.iter().map(|column| column.words(&queue).len()).sum();
    let [from, mut to] = [0, 0].map(|_| DeviceColumn::<BaseField>::new(&queue, words));
    Box::new(Unseen(move || queue.stream().copy(&from.words(&queue), &mut to.words_mut()).or_raise()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_timed_shows_what_it_computed() {
        let device = Device::emulated(0).unwrap();
        for workload in workloads() {
            let case = case(6, 9);
            if workload.bench_cases(Kind::Cuda).is_empty() {
                continue;
            }
            let bench = workload.bench(&device, &case).unwrap().expect("it is timed");
            let tried = bench.try_out(&device.stream().unwrap());
            assert!(tried.is_ok(), "{}: {:?}", workload.name(), tried);
        }
    }
}
