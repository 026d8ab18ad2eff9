//! A transformer that learns on a device.

use std::cell::RefCell;

use gatework_gpu::{Buffer, Device, Kind, Presence, Stream, presence};
use half::bf16;

use super::pass::{Frozen, Pass, Weights};
use super::{DeviceOptimiser, MOST_HEAD_NUMBERS, ProductsBy, mixed};
use crate::data::{Cut, Data, Order, Windows};
use crate::error::{Error, Result};
use crate::network::{Architecture, Group, Parameters, Tally, Transformer, frozen_parameters};
use crate::optimiser::{Average, Optimiser};
use crate::snapshot::{NativeSnapshot, windows_of};
use crate::trainee::{
    Evaluation, Probe, Statistics, Step, Taken, Trainee, Which, example_work, forward_cost, noise_scale,
};
use crate::{NativeOptions, optimiser};

/// Tokens of a shard of a batch, at most: of GPT-2 small each takes half a megabyte.
const SHARD_TOKENS: usize = 16_384;
/// Shards of a batch, at least, where it has as many windows: the noise scale is of how far they disagree.
const LEAST_SHARDS: usize = 2;

/// A transformer that learns on a device: passes in bf16 with sums in f32; weights, their average, moments
/// and the gradient in f32. A batch is cut into shards, one after another, whose gradients are added up in
/// their order. Given the same steps it does the same, bit for bit, on devices of one kind.
#[derive(Debug)]
pub struct DeviceTrainee {
    options: NativeOptions,
    stream: Stream,
    cut: Cut,
    parameters: Vec<Parameters>,
    groups: Vec<Group>,
    order: Order,
    weights: Buffer<f32>,
    average: Buffer<f32>,
    average_steps: u64,
    optimiser: DeviceOptimiser,
    gradient: Buffer<f32>,
    /// The gradient of a shard but the first.
    of_shard: Option<Buffer<f32>>,
    /// A pass leaves nothing behind that decides what comes next, so that probes may run one.
    work: RefCell<Work>,
}

#[derive(Debug)]
struct Work {
    pass: Pass,
    capacity: usize,
    rounded: Buffer<bf16>,
    /// Which weights those are; none after a step.
    holds: Option<Which>,
}

fn shape_of(architecture: &Architecture) -> Result<&Transformer> {
    let shape = architecture.transformer().map_err(|_| {
        Error::config(format!(
            "'{}' trains on the CPU: only a network of 'model.kind = \"gpt\"' trains on a device; use --device cpu, or \
             'run.device = \"cpu\"'",
            architecture.text()
        ))
    })?;
    let numbers = shape.width() / shape.heads();
    if numbers > MOST_HEAD_NUMBERS {
        return Err(Error::config(format!(
            "heads of {numbers} numbers: on a device a head has {MOST_HEAD_NUMBERS} at most; set 'model.heads' to {} or \
             more, or use --device cpu",
            shape.width().div_ceil(MOST_HEAD_NUMBERS)
        )));
    }
    Ok(shape)
}

/// Shards of a batch, and windows of the largest: no more tokens than are meant.
pub(super) fn shards_of(shape: &Transformer, batch: usize) -> [usize; 2] {
    let by_tokens = (batch * shape.context()).div_ceil(SHARD_TOKENS);
    let count = by_tokens.max(LEAST_SHARDS).min(batch);
    [count, batch.div_ceil(count)]
}

/// What kernels were compiled for, and by whom: others may round or add up in another way.
fn compiled(device: &Device) -> String {
    let properties = device.properties();
    match properties.kind {
        Kind::Cuda => {
            let compiler = match presence::nvrtc() {
                Presence::Found { what } => what,
                Presence::Missing { .. } => "an unknown compiler".into(),
            };
            format!("a card of {} with kernels by {compiler}", properties.architecture)
        }
        Kind::Emulated => format!("the emulated device with kernels by {}", properties.driver),
    }
}

impl DeviceTrainee {
    /// A transformer with initial weights, on the device of `stream`, whose products are by somebody that is
    /// named. Another network is refused here.
    pub fn new(stream: &Stream, options: NativeOptions, data: &Data, by: ProductsBy) -> Result<Self> {
        let shape = shape_of(&options.architecture)?;
        let cut = windows_of(shape, data)?;
        let order = Order::new(cut.train.count(), options.batch, options.seed)?;
        let [shards, capacity] = shards_of(shape, options.batch);
        let (needed, free) =
            (Self::bytes(&options, by)?.iter().sum::<usize>(), stream.device().budget().free());
        if needed as u64 > free {
            let way_out = "lower 'batch', 'model.context', 'model.width' or 'model.layers'";
            return Err(Error::too_large("the device's memory", needed, free as usize, way_out));
        }
        let parameters = options.architecture.parameters();
        let initial = options.architecture.initial(options.seed);
        let zeros = || stream.alloc_zeros::<f32>(initial.len());
        let work = Work {
            pass: Pass::new(stream, shape, capacity, by)?,
            capacity,
            rounded: stream.alloc(initial.len())?,
            holds: None,
        };
        Ok(Self {
            weights: stream.upload(&initial)?,
            average: stream.upload(&initial)?,
            average_steps: 0,
            optimiser: DeviceOptimiser::new(stream, options.optimiser, &parameters, 0)?,
            gradient: zeros()?,
            of_shard: (shards > 1).then(zeros).transpose()?,
            work: RefCell::new(work),
            groups: options.architecture.groups(),
            stream: stream.clone(),
            parameters,
            cut,
            order,
            options,
        })
    }

    /// Bytes on the device: of weights, of the optimiser, and of passes with their gradients.
    pub fn bytes(options: &NativeOptions, by: ProductsBy) -> Result<[usize; 3]> {
        let shape = shape_of(&options.architecture)?;
        let [shards, capacity] = shards_of(shape, options.batch);
        let groups = options.architecture.parameters();
        let parameters = options.architecture.parameter_count();
        let gradients = if shards > 1 { 2 } else { 1 };
        Ok([
            10 * parameters,
            DeviceOptimiser::bytes(&options.optimiser, &groups),
            Pass::bytes(shape, capacity, by) + gradients * 4 * parameters,
        ])
    }

    /// Where it learns, who compiled its kernels and who multiplies: all that decides its bits beside its
    /// settings. As `a card of sm_90a with kernels by NVRTC 13.0, products by own`.
    pub fn place(&self) -> String {
        let products = self.work.borrow().pass.products().text();
        format!("{}, products by {products}", compiled(self.stream.device()))
    }

    /// Its settings.
    pub fn options(&self) -> &NativeOptions {
        &self.options
    }

    /// Weights, downloaded.
    pub fn download(&self, which: Which) -> Result<Vec<f32>> {
        Ok(self.stream.download(self.weights_of(which))?)
    }

    fn weights_of(&self, which: Which) -> &Buffer<f32> {
        match which {
            Which::Trained => &self.weights,
            Which::Averaged => &self.average,
        }
    }

    /// What windows come to, one by one.
    fn tallies(&self, which: Which, windows: &Windows) -> Result<Vec<Tally>> {
        let master = self.weights_of(which);
        let mut work = self.work.borrow_mut();
        let Work { pass, capacity, rounded, holds } = &mut *work;
        refresh(&self.stream, which, master, rounded, holds)?;
        let weights = Weights { master, rounded };
        let mut tallies = Vec::with_capacity(windows.count());
        let all: Vec<u32> = (0..windows.count() as u32).collect();
        for indices in all.chunks(*capacity) {
            let [inputs, targets] = tokens_of(windows, indices);
            pass.forward(weights, inputs)?;
            let found = pass.judge(weights, &targets, 1.0, None)?;
            let of_windows =
                found.losses.chunks(windows.columns()).zip(found.right.chunks(windows.columns()));
            tallies.extend(of_windows.map(|(losses, right)| tally(losses, right)));
        }
        Ok(tallies)
    }

    /// Leaves the gradient of the mean loss of `batch`, and returns that loss, and the squared lengths of the
    /// shards' mean gradients with their sizes if they are to be measured.
    fn take_gradient(&mut self, batch: &[u32], step: &Step) -> Result<(f64, Vec<(f64, usize)>)> {
        let columns = self.cut.train.columns();
        let [count, _] = shards_of(shape_of(&self.options.architecture)?, self.options.batch);
        let used = count.min(batch.len());
        let Work { pass, rounded, holds, .. } = self.work.get_mut();
        refresh(&self.stream, Which::Trained, &self.weights, rounded, holds)?;
        let weights = Weights { master: &self.weights, rounded };
        let judged = batch.len() * columns;
        let (mut all, mut lengths) = (Tally::default(), Vec::new());
        self.stream.fill(&mut self.gradient, 0.0)?;
        for shard in 0..used {
            let part = &batch[shard * batch.len() / used..(shard + 1) * batch.len() / used];
            let gradient = match &mut self.of_shard {
                Some(of_shard) if shard > 0 => {
                    self.stream.fill(of_shard, 0.0)?;
                    of_shard
                }
                _ => &mut self.gradient,
            };
            let [inputs, targets] = tokens_of(&self.cut.train, part);
            pass.forward(weights, inputs)?;
            let frozen = if step.frozen > 0 { Frozen::Embedding } else { Frozen::Nothing };
            let learns = step.frozen < self.groups.len();
            let to = learns.then_some((&mut *gradient, frozen));
            let found = pass.judge(weights, &targets, 1.0 / judged as f32, to)?;
            if learns {
                pass.back(weights, step.frozen, gradient)?;
            }
            all = all + tally(&found.losses, &found.right);
            if step.measure {
                let squared = self.optimiser.squared_length(&self.stream, gradient)?;
                lengths.push((squared * (judged as f64 / targets.len() as f64).powi(2), part.len()));
            }
            if let (Some(of_shard), true) = (&self.of_shard, shard > 0) {
                mixed::add_scaled(&self.stream, &mut self.gradient, of_shard, 1.0)?;
            }
        }
        Ok((all.loss / judged as f64, lengths))
    }
}

/// Rounds weights, unless that is what was rounded last.
fn refresh(
    stream: &Stream,
    which: Which,
    master: &Buffer<f32>,
    rounded: &mut Buffer<bf16>,
    holds: &mut Option<Which>,
) -> Result<()> {
    if *holds != Some(which) {
        mixed::round(stream, master, rounded)?;
        *holds = Some(which);
    }
    Ok(())
}

/// Inputs and targets of windows.
fn tokens_of(windows: &Windows, indices: &[u32]) -> [Vec<u32>; 2] {
    let tokens = |of: fn(&Windows, usize) -> &[u16]| {
        indices.iter().flat_map(|&index| of(windows, index as usize)).map(|&token| u32::from(token)).collect()
    };
    [tokens(Windows::inputs), tokens(Windows::targets)]
}

fn tally(losses: &[f32], right: &[u32]) -> Tally {
    Tally {
        loss: losses.iter().copied().map(f64::from).sum(),
        correct: right.iter().filter(|right| **right == 1).count(),
        judged: losses.len(),
    }
}

impl Trainee for DeviceTrainee {
    type Snapshot = NativeSnapshot;
    type Weights = Vec<f32>;

    fn fingerprint(&self) -> String {
        format!("{}, in bf16 on {}", self.options.architecture.text(), self.place())
    }

    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn step(&mut self, step: &Step) -> Result<Taken> {
        if step.sampled > 0.0 {
            return Err(Error::config(format!(
                "'engine.options.sampled' is {}: on a device every example has its backward pass, set it to 0",
                step.sampled
            )));
        }
        let batch = self.order.next_batch().to_vec();
        let used = ((step.share * batch.len() as f64).round() as usize).clamp(1, batch.len());
        let (loss, shards) = self.take_gradient(&batch[..used], step)?;
        self.optimiser.freeze(&self.stream, frozen_parameters(&self.parameters, step.frozen))?;
        let squared = self.optimiser.begin_with_length(&self.stream, &self.gradient)?;
        let (weights, gradient) = (&mut self.weights, &self.gradient);
        let (stream, rate) = (&self.stream, step.rate as f32);
        self.optimiser.adamw(stream, weights, gradient, rate, step.measure)?;
        self.optimiser.muon_direction(stream, gradient)?;
        self.optimiser.orthogonalise(stream, self.work.get_mut().pass.products())?;
        self.optimiser.muon_step(stream, weights, gradient, rate, step.measure)?;
        self.work.get_mut().holds = None;
        self.average_steps += 1;
        let keep = Average::share_kept(self.options.average_decay, self.average_steps);
        mixed::average(&self.stream, &mut self.average, &self.weights, keep)?;
        let statistics = if step.measure {
            let sums = self.optimiser.sums(&self.stream)?;
            let whole = sums.iter().map(|sums| sums.gradient).sum();
            let groups = optimiser::grouped(&self.parameters, sums);
            Some(Statistics { groups, noise_scale: noise_scale(&shards, whole) })
        } else {
            None
        };
        Ok(Taken { loss, kept: 1.0, gradient: squared.sqrt(), statistics })
    }

    fn probe(&self, which: Which) -> Result<Probe> {
        Ok(Probe::of(&self.tallies(which, &self.cut.probe)?))
    }

    fn evaluate(&self, which: Which) -> Result<Evaluation> {
        Ok(Evaluation::of(&self.tallies(which, &self.cut.validation)?))
    }

    fn snapshot(&self) -> Result<NativeSnapshot> {
        let down = |array: &Buffer<f32>| self.stream.download(array);
        let [first, second, last] = self.optimiser.moments();
        let moments = [down(first)?, down(second)?, down(last)?];
        Ok(NativeSnapshot {
            architecture: self.options.architecture.clone(),
            weights: down(&self.weights)?,
            average: Average::of(self.options.average_decay, self.average_steps, down(&self.average)?),
            optimiser: Optimiser::of(self.options.optimiser, self.optimiser.steps(), moments),
            place: self.order.place(),
        })
    }

    fn snapshot_into(&self, snapshot: &mut NativeSnapshot) -> Result<()> {
        snapshot.check(&self.options.architecture, self.weights.len())?;
        let down = |array: &Buffer<f32>, to: &mut [f32]| self.stream.copy_to_host(array, to);
        down(&self.weights, &mut snapshot.weights)?;
        down(&self.average, snapshot.average.weights_mut(self.average_steps))?;
        let moments = snapshot.optimiser.parts_mut(self.optimiser.steps());
        for (array, to) in self.optimiser.moments().into_iter().zip(moments) {
            down(array, to)?;
        }
        snapshot.place = self.order.place();
        Ok(())
    }

    fn restore(&mut self, snapshot: &NativeSnapshot) -> Result<()> {
        self.order.require(snapshot.place)?;
        self.roll_back(snapshot)?;
        self.order.go_to(snapshot.place);
        Ok(())
    }

    fn roll_back(&mut self, snapshot: &NativeSnapshot) -> Result<()> {
        snapshot.check(&self.options.architecture, self.weights.len())?;
        let (steps, moments) = snapshot.optimiser.parts();
        self.stream.copy_from_host(&snapshot.weights, &mut self.weights)?;
        self.stream.copy_from_host(snapshot.average.weights(), &mut self.average)?;
        self.optimiser.restore(&self.stream, steps, moments)?;
        self.average_steps = snapshot.average.steps();
        self.work.get_mut().holds = None;
        Ok(())
    }

    fn weights(&self) -> Result<Vec<f32>> {
        self.download(Which::Trained)
    }

    fn weights_into(&self, weights: &mut Vec<f32>) -> Result<()> {
        weights.resize(self.weights.len(), 0.0);
        Ok(self.stream.copy_to_host(&self.weights, weights)?)
    }

    /// Terms are uploaded one after another, into the gradient's memory: a step begins by filling it.
    fn combine(&mut self, terms: &[(f32, &Vec<f32>)]) -> Result<()> {
        if let Some((_, wrong)) = terms.iter().find(|(_, weights)| weights.len() != self.weights.len()) {
            return Err(Error::shape(format!(
                "weights of {} numbers do not fit a network of {}",
                wrong.len(),
                self.weights.len()
            )));
        }
        self.stream.fill(&mut self.weights, 0.0)?;
        for (factor, weights) in terms {
            self.stream.copy_from_host(weights, &mut self.gradient)?;
            mixed::add_scaled(&self.stream, &mut self.weights, &self.gradient, *factor)?;
        }
        self.work.get_mut().holds = None;
        Ok(())
    }

    fn step_work(&self) -> f64 {
        example_work(&self.groups, 0) * self.order.batch() as f64
    }

    fn probe_cost(&self) -> f64 {
        forward_cost(&self.groups, self.cut.probe.count(), self.order.batch())
    }
}
