//! `foresight/statistics`: sums, norms, extrema and cosines of many tensors in one launch.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use gatework_gpu::{Buffer, Device, Stream};
use gatework_lab::{
    Bench, Case, Evidence, Inputs, KernelSpec, Outputs, RunError, Side, Timing, Work, repeated,
};

use super::Job;
use crate::cuda::kernels::statistics;
use crate::cuda::{DeviceStatistics, Segments, Tensor, TensorStatistics, Watched};

const ARRAYS: usize = 6;
/// Elements of the random pattern that fills large tensors.
const PATTERN: usize = 1_000_003;

#[derive(Clone, Copy)]
pub(super) struct Statistics;

fn case(parameters: usize, tensors: usize, shards: usize) -> Case {
    Case::new(format!("{tensors}-of-{parameters}-{shards}-shards"))
        .with("parameters", parameters)
        .with("tensors", tensors)
        .with("shards", shards)
}

/// Tensors of lengths that grow, with a gap of one in front of each.
fn ranges(case: &Case) -> Vec<Range<usize>> {
    let (parameters, tensors) = (case.dimension("parameters"), case.dimension("tensors"));
    let place = |number: usize| parameters * number * number / (tensors * tensors);
    (0..tensors)
        .map(|number| place(number) + 1..place(number + 1))
        .filter(|range| !range.is_empty())
        .collect()
}

/// The six arrays and the shards, all of them repetitions of patterns.
struct Arrays {
    of: [Vec<f32>; ARRAYS],
    shards: Vec<f32>,
}

impl Arrays {
    fn new(case: &Case, seed: u64) -> Self {
        let count = case.dimension("parameters").min(PATTERN);
        let mut inputs = Inputs::new(seed);
        let mut of: [Vec<f32>; ARRAYS] = std::array::from_fn(|_| inputs.normal(count));
        of[0].iter_mut().for_each(|w| *w += 3.0);
        of[5].iter_mut().for_each(|v| *v *= *v);
        let shards = case.dimension("shards");
        Self { of, shards: inputs.normal(if shards == 0 { 1 } else { count }) }
    }

    /// Means of every tensor: of numbers, of squares, of products, and the extrema; in double precision.
    fn plain(&self, case: &Case, along_itself: bool) -> Outputs {
        let (parameters, shards) = (case.dimension("parameters"), case.dimension("shards"));
        let number = |array: &[f32], at: usize| f64::from(array[at % array.len()]);
        let mut found = Vec::new();
        for range in ranges(case) {
            let count = range.len() as f64;
            let mean = |value: &dyn Fn(usize) -> f64| range.clone().map(value).sum::<f64>() / count;
            for array in &self.of {
                let values = || range.clone().map(|i| number(array, i));
                found.push(mean(&|i| number(array, i)));
                found.push(mean(&|i| number(array, i).powi(2)));
                found.push(values().fold(f64::INFINITY, f64::min));
                found.push(values().fold(f64::NEG_INFINITY, f64::max));
            }
            let before = if along_itself { 2 } else { 3 };
            found.push(mean(&|i| number(&self.of[2], i) * number(&self.of[before], i)));
            for shard in 0..shards {
                found.push(mean(&|i| number(&self.shards, shard * parameters + i).powi(2)));
            }
        }
        Outputs::new().with("statistics", found)
    }
}

fn outputs(tensors: &[TensorStatistics]) -> Outputs {
    let mut found = Vec::new();
    for tensor in tensors {
        let count = tensor.weights.count;
        for moments in [
            &tensor.weights,
            &tensor.gradient,
            &tensor.displacement,
            &tensor.before,
            &tensor.first,
            &tensor.second,
        ] {
            found.extend([moments.mean(), moments.squares / count, moments.least, moments.most]);
        }
        found.push(tensor.along / count);
        found.extend(tensor.shards.iter().map(|squares| squares / count));
    }
    Outputs::new().with("statistics", found)
}

/// A job with its arrays on the device.
struct Bound {
    statistics: DeviceStatistics,
    of: [Buffer<f32>; ARRAYS],
    shards: Buffer<f32>,
}

impl Bound {
    fn new(stream: &Stream, case: &Case, seed: u64) -> Result<Self, RunError> {
        let (parameters, shards) = (case.dimension("parameters"), case.dimension("shards"));
        let arrays = Arrays::new(case, seed);
        let tensors: Vec<Tensor> = ranges(case).into_iter().map(Tensor::new).collect();
        let segments = Segments::new(stream, parameters, &tensors)?;
        let mut of = Vec::with_capacity(ARRAYS);
        for array in &arrays.of {
            of.push(repeated(stream, array, parameters)?);
        }
        Ok(Self {
            statistics: DeviceStatistics::new(stream, segments, shards)?,
            of: of.try_into().map_err(|_| "there are six arrays")?,
            shards: repeated(stream, &arrays.shards, (shards * parameters).max(1))?,
        })
    }

    fn measure(&mut self, stream: &Stream) -> crate::Result<()> {
        let [weights, gradient, displacement, before, first, second] = &self.of;
        let shards = &self.shards;
        let watched = Watched { weights, gradient, displacement, before, first, second, shards };
        self.statistics.measure(stream, &watched)
    }
}

impl Job for Statistics {
    fn name(&self) -> &'static str {
        "foresight/statistics"
    }

    fn summary(&self) -> &'static str {
        "sums, squares and extrema of six arrays, cosines and lengths of shards, of many tensors in one launch"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        vec![KernelSpec::new(statistics().source()).threads(256)]
    }

    fn cases(&self) -> Vec<Case> {
        vec![case(70_001, 2, 1), case(11, 2, 2), case(5003, 7, 0), case(40_000, 3, 8)]
    }

    fn few(&self) -> usize {
        1
    }

    fn large(&self) -> Vec<Case> {
        vec![case(124_439_808, 148, 0)]
    }

    fn tried(&self) -> Option<Case> {
        Some(case(5003, 7, 0))
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let stream = device.stream()?;
        let mut bound = Bound::new(&stream, case, seed)?;
        bound.measure(&stream)?;
        Ok(outputs(&bound.statistics.download(&stream)?))
    }

    fn reference(&self, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        Ok(Arrays::new(case, seed).plain(case, false))
    }

    fn within(&self, _: &Case) -> [f64; 2] {
        [1e-12, 1e-11]
    }

    fn mistaken(&self, case: &Case, seed: u64) -> Result<(&'static str, Outputs), RunError> {
        Ok(("the step along itself", Arrays::new(case, seed).plain(case, true)))
    }

    fn work(&self, case: &Case) -> Work {
        let parameters = case.dimension("parameters") as u64;
        let shards = case.dimension("shards") as u64;
        Work { operations: (25 + 2 * shards) * parameters, bytes: 4 * (ARRAYS as u64 + shards) * parameters }
    }

    fn bench(&self, device: &Device, case: &Case) -> Result<Bench, RunError> {
        const SEED: u64 = 1;
        let stream = device.stream()?;
        let bound = Rc::new(RefCell::new(Bound::new(&stream, case, SEED)?));
        // A copy moves every byte twice: half of the arrays are read and written.
        let from: Buffer<f32> = stream.alloc_zeros(3 * case.dimension("parameters"))?;
        let mut to: Buffer<f32> = stream.alloc(from.len())?;
        let (timed, spoilt, seen) = (bound.clone(), bound.clone(), bound);
        let candidate = Side::new("one pass", move |stream: &Stream| timed.borrow_mut().measure(stream));
        let baseline = Side::new("a copy of as many bytes", move |stream: &Stream| -> Result<(), RunError> {
            Ok(stream.copy(&from, &mut to)?)
        });
        let expected = Arrays::new(case, SEED).plain(case, false);
        let evidence = Evidence::new(
            gatework_lab::Workload::budget(&super::OnDevice { job: *self, cases: super::Cases::All }, case),
            move |stream| Ok(spoilt.borrow_mut().statistics.spoil(stream)?),
            move |stream| Ok(outputs(&seen.borrow().statistics.download(stream)?)),
            move |_| Ok(expected.clone()),
        );
        stream.synchronize()?;
        let why = "85 % of the bandwidth of a copy";
        let bench =
            Bench::new(self.work(case), candidate, baseline).timing(Timing::Launches { count: 3 }).cold();
        Ok(bench.shown_by(evidence).expect_at_most(1.0 / 0.85, why))
    }
}
