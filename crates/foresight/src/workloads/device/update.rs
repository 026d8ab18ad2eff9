//! `foresight/update`: steps of AdamW and of Muon over all tensors, and the average of the weights that they
//! lead to.

use std::cell::RefCell;
use std::rc::Rc;

use gatework_gpu::{Buffer, Device, Stream};
use gatework_lab::{
    Bench, Bounds, Case, ErrorBudget, Evidence, KernelSpec, Outputs, RunError, Side, Timing, Work, ends,
    read_ends,
};

use super::Job;
use crate::cuda::kernels::{combine, update};
use crate::cuda::{DeviceOptimiser, Snapshots};
use crate::optimiser::{Method, OptimiserOptions, Sums, orthogonalise};
use crate::workloads::host::{AVERAGE, RATE, Trained};

const STEPS: usize = 3;

#[derive(Clone, Copy)]
pub(super) struct Update;

fn case(method: Method, width: usize) -> Case {
    let (name, muon) = match method {
        Method::AdamW => ("adamw", 0),
        Method::Muon => ("muon", 1),
    };
    Case::new(format!("{name}-{width}")).with("width", width).with("muon", muon)
}

fn trained(case: &Case, seed: u64) -> Result<Trained, RunError> {
    let method = if case.dimension("muon") == 1 { Method::Muon } else { Method::AdamW };
    Trained::new(method, case.dimension("width"), STEPS, seed)
}

/// The sums of all groups, per parameter.
fn of_groups(sums: &[Sums]) -> Vec<f64> {
    let of_group = |sums: &Sums| {
        [
            sums.gradient,
            sums.weight,
            1e4 * sums.update,
            1e4 * sums.along,
            1e4 * sums.before,
            sums.first_moment,
        ]
        .map(|sum| sum / sums.parameters)
    };
    sums.iter().flat_map(of_group).collect()
}

fn plain(trained: &Trained) -> Result<Outputs, RunError> {
    let found = trained.plain();
    let gradient = trained.gradients.last().ok_or("there are no gradients")?;
    let sums = trained.groups.iter().map(|group| {
        let range = group.range();
        let sum = |value: &dyn Fn(usize) -> f64| range.clone().map(value).sum::<f64>();
        Sums {
            gradient: sum(&|i| f64::from(gradient[i]).powi(2)),
            // Weights are those before the step.
            weight: sum(&|i| (found.weights[i] - found.step[i]).powi(2)),
            update: sum(&|i| found.step[i].powi(2)),
            along: sum(&|i| found.step[i] * found.before[i]),
            before: sum(&|i| found.before[i].powi(2)),
            first_moment: sum(&|i| found.first[i].powi(2)),
            second_moment: 0.0,
            parameters: range.len() as f64,
        }
    });
    let single = |x: &[f64]| x.iter().map(|x| *x as f32).collect::<Vec<f32>>();
    Ok(Outputs::new()
        .with("weights", single(&found.weights))
        .with("average", single(&found.average))
        .with("sums", of_groups(&sums.collect::<Vec<Sums>>())))
}

impl Job for Update {
    fn name(&self) -> &'static str {
        "foresight/update"
    }

    fn summary(&self) -> &'static str {
        "steps of AdamW or Muon over all tensors with their sums, and the average of the weights, a launch each"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        vec![
            KernelSpec::new(update(true).source()).entries(["adamw", "muon_step"]).threads(256),
            KernelSpec::new(update(false).source())
                .entries(["adamw", "muon_direction", "muon_step", "squared_lengths"])
                .threads(256),
            KernelSpec::new(combine().source()).threads(256),
        ]
    }

    fn cases(&self) -> Vec<Case> {
        vec![
            case(Method::Muon, 8),
            // Its middle matrix has two chunks.
            case(Method::AdamW, 200),
            case(Method::AdamW, 8),
            case(Method::Muon, 33),
        ]
    }

    fn few(&self) -> usize {
        2
    }

    fn large(&self) -> Vec<Case> {
        vec![case(Method::AdamW, 11_000)]
    }

    fn tried(&self) -> Option<Case> {
        Some(case(Method::AdamW, 8))
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let (stream, trained) = (device.stream()?, trained(case, seed)?);
        let mut weights = stream.upload(&trained.weights)?;
        let mut average = stream.upload(&trained.weights)?;
        // Far above the length of these gradients: the length is added up, and clips nothing.
        let options = OptimiserOptions { clip: 1e6, ..trained.options };
        let mut optimiser = DeviceOptimiser::new(&stream, options, &trained.groups, 0)?;
        let mut snapshots = Snapshots::new(&stream, 2, trained.weights.len())?;
        for (t, gradient) in (1u16..).zip(&trained.gradients) {
            let gradient = stream.upload(gradient)?;
            optimiser.begin(&stream, &gradient)?;
            optimiser.adamw(&stream, &mut weights, &gradient, RATE, true)?;
            optimiser.muon_direction(&stream, &gradient)?;
            if let Some((matrices, direction, _)) = optimiser.direction() {
                let mut numbers = stream.download(direction)?;
                matrices
                    .iter()
                    .for_each(|group| orthogonalise(&mut numbers[group.matrix.clone()], group.sides));
                stream.copy_from_host(&numbers, direction)?;
            }
            optimiser.muon_step(&stream, &mut weights, &gradient, RATE, true)?;
            let keep = AVERAGE.min(f32::from(t) / (f32::from(t) + 10.0));
            snapshots.take(&stream, 0, &average)?;
            snapshots.take(&stream, 1, &weights)?;
            snapshots.combine(&stream, &[keep, 1.0 - keep], &mut average)?;
        }
        Ok(Outputs::new()
            .with("weights", stream.download(&weights)?)
            .with("average", stream.download(&average)?)
            .with("sums", of_groups(&optimiser.sums(&stream)?)))
    }

    fn reference(&self, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        plain(&trained(case, seed)?)
    }

    fn within(&self, _: &Case) -> [f64; 2] {
        [2e-6, 5e-5]
    }

    fn mistaken(&self, case: &Case, seed: u64) -> Result<(&'static str, Outputs), RunError> {
        let right = trained(case, seed)?;
        let options = OptimiserOptions { weight_decay: 0.0, ..right.options };
        Ok(("no weight decay", plain(&Trained { options, ..right })?))
    }

    /// Of one step without sums: four arrays are read and written, and the gradient is read.
    fn work(&self, case: &Case) -> Work {
        let width = case.dimension("width") as u64;
        let parameters = 10 * width + (width + 1) * (width + 3) + 5 * (width + 4);
        Work { operations: 18 * parameters, bytes: 4 * 9 * parameters }
    }

    fn bench(&self, device: &Device, case: &Case) -> Result<Bench, RunError> {
        const SEED: u64 = 1;
        let (stream, trained) =
            (device.stream()?, Trained::new(Method::AdamW, case.dimension("width"), 1, SEED)?);
        let count = trained.weights.len();
        let optimiser = DeviceOptimiser::new(&stream, trained.options, &trained.groups, 0)?;
        let gradient = stream.upload(&trained.gradients[0])?;
        let job = Rc::new(RefCell::new((optimiser, stream.upload(&trained.weights)?)));
        let from: Buffer<u8> = stream.alloc_zeros(4 * 9 * count / 2)?;
        let mut to: Buffer<u8> = stream.alloc(from.len())?;
        let (timed, spoilt, seen) = (job.clone(), job.clone(), job);
        let candidate = Side::new("AdamW in one launch", move |stream: &Stream| -> crate::Result<()> {
            let (optimiser, weights) = &mut *timed.borrow_mut();
            optimiser.begin(stream, &gradient)?;
            optimiser.adamw(stream, weights, &gradient, RATE, false)
        });
        let baseline = Side::new("a copy of as many bytes", move |stream: &Stream| -> Result<(), RunError> {
            Ok(stream.copy(&from, &mut to)?)
        });
        let trained = Rc::new(trained);
        let (start, expected) = (trained.clone(), trained);
        let evidence = Evidence::new(
            ErrorBudget::Bounded(Bounds { relative_frobenius: 1e-3, max_abs: 1e-2, mean_bias: 1e-2 }),
            move |stream| {
                let (optimiser, weights) = &mut *spoilt.borrow_mut();
                optimiser.restart(stream)?;
                Ok(stream.copy_from_host(&start.weights, weights)?)
            },
            move |stream| Ok(Outputs::new().with("weights", read_ends(stream, &seen.borrow().1)?)),
            // With the same gradient in every step, moments over their corrections are the gradient and its
            // square.
            move |steps| {
                let decays = |at: usize| expected.groups.iter().any(|group| group.matrix.contains(&at));
                let of_weight = |at: usize| {
                    let g = f64::from(expected.gradients[0][at]);
                    let decay = if decays(at) { f64::from(expected.options.weight_decay) } else { 0.0 };
                    let step = |w: f64, _| w - f64::from(RATE) * (g / (g.abs() + 1e-8) + decay * w);
                    (0..steps).fold(f64::from(expected.weights[at]), step) as f32
                };
                Ok(Outputs::new().with("weights", ends(count).map(of_weight).collect::<Vec<f32>>()))
            },
        );
        stream.synchronize()?;
        let why = "85 % of the bandwidth of a copy";
        let bench =
            Bench::new(self.work(case), candidate, baseline).timing(Timing::Launches { count: 3 }).cold();
        Ok(bench.shown_by(evidence).expect_at_most(1.0 / 0.85, why))
    }
}
