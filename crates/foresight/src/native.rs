//! The trainee of this crate: perceptrons, convolutional networks and transformers on the CPU.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::data::{Cut, Data, Order, Splits};
use crate::dense::squares;
use crate::error::{Error, Result};
use crate::network::{Architecture, Parameters, Pass, Source, Tally, frozen_parameters, transformer};
use crate::optimiser::{Average, Optimiser, OptimiserOptions, grouped};
use crate::random::Random;
use crate::sampling::{Kept, choose};
use crate::snapshot::{NativeSnapshot, windows_of};
use crate::trainee::{
    Evaluation, Group, Probe, Statistics, Step, Taken, Trainee, Which, example_work, forward_cost,
    noise_scale,
};
use rayon::prelude::*;

/// Most shards of a batch. The number follows from the batch alone, so that results do not depend on threads.
const MOST_SHARDS: usize = 8;

/// Settings of a native trainee.
#[derive(Debug, Clone)]
pub struct NativeOptions {
    /// The network.
    pub architecture: Architecture,
    /// Constants of its optimiser.
    pub optimiser: OptimiserOptions,
    /// Decay of the average of weights.
    pub average_decay: f32,
    /// Examples of a step.
    pub batch: usize,
    /// Of initial weights and of the data order.
    pub seed: u64,
}

/// A network that learns on the CPU. A batch is cut into shards that run on rayon's threads, each with memory
/// of its own; their gradients are added up in the order of the shards.
pub struct Native {
    options: NativeOptions,
    material: Material,
    parameters: Vec<Parameters>,
    groups: Vec<Group>,
    weights: Vec<f32>,
    average: Average,
    optimiser: Optimiser,
    order: Order,
    shards: Vec<Shard>,
    /// Lengths of the last step's examples, while it is decided which are kept.
    lengths: Vec<f32>,
}

/// What a network of this kind learns from: examples, or a text that is cut into windows of its context.
enum Material {
    Examples(Arc<Splits>),
    Windows(Cut),
}

impl Material {
    /// Refuses data that a network cannot read.
    fn of(architecture: &Architecture, data: Data) -> Result<Self> {
        match (architecture, data) {
            (Architecture::Layers(layers), Data::Examples(splits)) => {
                for examples in [&splits.train, &splits.probe, &splits.validation] {
                    if examples.size() != layers.inputs() || examples.classes() != layers.classes() {
                        return Err(Error::shape(format!(
                            "the network takes {} numbers and knows {} classes, the data has {} and {}",
                            layers.inputs(),
                            layers.classes(),
                            examples.size(),
                            examples.classes()
                        )));
                    }
                }
                Ok(Self::Examples(splits))
            }
            (Architecture::Layers(_), Data::Text(_)) => {
                Err(Error::shape("layers learn from labelled examples, and the data is a text"))
            }
            (Architecture::Transformer(transformer), data) => {
                Ok(Self::Windows(windows_of(transformer, &data)?))
            }
        }
    }

    fn train(&self) -> Source<'_> {
        match self {
            Self::Examples(splits) => Source::Examples(&splits.train),
            Self::Windows(cut) => Source::Windows(&cut.train),
        }
    }

    fn probe(&self) -> Source<'_> {
        match self {
            Self::Examples(splits) => Source::Examples(&splits.probe),
            Self::Windows(cut) => Source::Windows(&cut.probe),
        }
    }

    fn validation(&self) -> Source<'_> {
        match self {
            Self::Examples(splits) => Source::Examples(&splits.validation),
            Self::Windows(cut) => Source::Windows(&cut.validation),
        }
    }
}

/// Memory of a shard.
struct Shard {
    /// A pass leaves nothing behind that decides what comes next, so that evaluations run in it, too.
    pass: Mutex<Pass>,
    gradient: Vec<f32>,
    tally: Tally,
}

impl Shard {
    fn pass(&self) -> MutexGuard<'_, Pass> {
        // Whatever a pass holds is written over by the next.
        self.pass.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn parts(&mut self) -> (&mut Pass, &mut [f32], &mut Tally) {
        let Self { pass, gradient, tally } = self;
        (pass.get_mut().unwrap_or_else(PoisonError::into_inner), gradient, tally)
    }
}

impl Native {
    /// A network with initial weights.
    pub fn new(options: NativeOptions, data: impl Into<Data>) -> Result<Self> {
        let architecture = &options.architecture;
        let material = Material::of(architecture, data.into())?;
        let order = Order::new(material.train().count(), options.batch, options.seed)?;
        let weights = architecture.initial(options.seed);
        let parameters = architecture.parameters();
        let [count, capacity] = shards_of(architecture, options.batch);
        let shard = || Shard {
            pass: Mutex::new(Pass::new(architecture, capacity)),
            gradient: vec![0.0; weights.len()],
            tally: Tally::default(),
        };
        Ok(Self {
            groups: architecture.groups(),
            average: Average::new(options.average_decay, &weights),
            optimiser: Optimiser::new(options.optimiser, weights.len()),
            shards: (0..count).map(|_| shard()).collect(),
            lengths: Vec::new(),
            parameters,
            weights,
            order,
            material,
            options,
        })
    }

    /// Bytes of weights and average, of the optimiser and of passes that a network would hold.
    pub fn bytes(options: &NativeOptions) -> [usize; 3] {
        let NativeOptions { architecture, optimiser, batch, .. } = options;
        let parameters = architecture.parameter_count() * size_of::<f32>();
        let [count, capacity] = shards_of(architecture, *batch);
        let passes = count * (Pass::bytes(architecture, capacity) + parameters);
        [2 * parameters, 3 * parameters + optimiser.scratch_bytes(&architecture.parameters()), passes]
    }

    /// Leaves the examples for the backward pass that are worth one. Returns which part of all they are.
    fn sample(&mut self, sizes: &[usize], times: f64) -> f64 {
        let used = sizes.len();
        if times <= 0.0 {
            return 1.0;
        }
        self.lengths.clear();
        self.shards[..used].iter().for_each(|shard| shard.pass().lengths(&mut self.lengths));
        let lengths = &self.lengths;
        // One stream for each step, so that nothing has to be remembered of it.
        let mut random = Random::new(self.options.seed, "sampling").fork(self.optimiser.steps());
        let Some(kept) = choose(lengths, times, &mut random) else { return 1.0 };
        let (mut start, mut rest) = (0, kept.as_slice());
        for (shard, size) in self.shards[..used].iter_mut().zip(sizes) {
            let end = start + size;
            let (own, after) = rest.split_at(rest.partition_point(|kept| kept.place < end));
            let own: Vec<Kept> = own.iter().map(|kept| Kept { place: kept.place - start, ..*kept }).collect();
            shard.parts().0.keep(&own);
            (start, rest) = (end, after);
        }
        kept.len() as f64 / lengths.len() as f64
    }

    /// Computes the gradient of the mean loss of `batch`, in the first shard's memory, and returns that loss,
    /// the squared lengths of the shards' mean gradients with their sizes if they are to be measured, and the
    /// part of the batch that they are of.
    fn gradient(&mut self, batch: &[u32], step: &Step) -> (f64, Vec<(f64, usize)>, f64) {
        let frozen = step.frozen;
        let first = frozen_parameters(&self.parameters, frozen);
        let from = self.parameters.get(first).map_or(self.weights.len(), |group| group.matrix.start);
        let (weights, train) = (&self.weights, self.material.train());
        let used = self.shards.len().min(batch.len());
        let part = |index: usize| index * batch.len() / used..(index + 1) * batch.len() / used;
        let small = example_work(&self.groups, 0) * (batch.len() as f64) < PARALLEL;
        let samples = step.sampled > 0.0;
        each(&mut self.shards[..used], small, |index, shard| {
            // What is frozen has no gradient, and none of an earlier step: clipping looks at the whole.
            let (pass, gradient, tally) = shard.parts();
            gradient.fill(0.0);
            *tally = if samples {
                pass.forward(weights, train, &batch[part(index)])
            } else {
                pass.learn(weights, train, &batch[part(index)], frozen, gradient)
            };
        });
        let mut kept = 1.0;
        if samples {
            let sizes: Vec<usize> = (0..used).map(|index| part(index).len()).collect();
            kept = self.sample(&sizes, step.sampled);
            let weights = &self.weights;
            each(&mut self.shards[..used], small, |_, shard| {
                let (pass, gradient, _) = shard.parts();
                pass.backward(weights, frozen, gradient);
            });
        }
        let tally: Tally = self.shards[..used].iter().map(|shard| shard.tally).sum();
        let measured = if step.measure { used } else { 0 };
        let lengths = self.shards[..measured]
            .iter()
            .enumerate()
            .map(|(index, shard)| {
                (squares(&shard.gradient[from..]) / (shard.tally.judged as f64).powi(2), part(index).len())
            })
            .collect();
        self.add_up(used, from, 1.0 / tally.judged as f32);
        (tally.mean_loss(), lengths, kept)
    }

    /// The first shard's gradient becomes the sum of so many shards', in their order, times `scale`.
    fn add_up(&mut self, used: usize, from: usize, scale: f32) {
        /// Parameters of which one thread adds up all shards' gradients while they are in its cache.
        const PART: usize = 1 << 14;
        let (first, others) = self.shards.split_at_mut(1);
        let others: Vec<&[f32]> = others[..used - 1].iter().map(|shard| &shard.gradient[from..]).collect();
        let add = |(part, sum): (usize, &mut [f32])| {
            for other in &others {
                sum.iter_mut().zip(&other[part * PART..]).for_each(|(g, more)| *g += more);
            }
            sum.iter_mut().for_each(|g| *g *= scale);
        };
        let sum = &mut first[0].gradient[from..];
        if sum.len() < 16 * PART {
            sum.chunks_mut(PART).enumerate().for_each(add);
        } else {
            sum.par_chunks_mut(PART).enumerate().for_each(add);
        }
    }

    /// What parts of the examples come to, in their order. Each shard of a batch lends its memory to one
    /// thread: an evaluation has no more threads than a step, and takes no memory of its own.
    fn tallies(&self, which: Which, source: Source<'_>) -> Vec<Tally> {
        let weights = self.weights_of(which);
        let indices: Vec<u32> = (0..source.count() as u32).collect();
        let parts: Vec<&[u32]> = indices.chunks(self.options.architecture.sharding().evaluation).collect();
        let each = parts.len().div_ceil(self.shards.len()).max(1);
        let found: Vec<Vec<Tally>> = parts
            .par_chunks(each)
            .zip(&self.shards)
            .map(|(parts, shard)| {
                let mut pass = shard.pass();
                parts.iter().map(|part| pass.forward(weights, source, part)).collect()
            })
            .collect();
        found.concat()
    }

    /// What a transformer writes: see [`Writing`].
    pub fn write(&self, which: Which, writing: &Writing<'_>, interrupted: &AtomicBool) -> Result<Vec<u16>> {
        let weights = self.weights_of(which);
        match &mut *self.shards[0].pass() {
            Pass::Transformer(pass) => write(pass, weights, writing, interrupted),
            Pass::Layers(_) => Err(self.options.architecture.knows_no_text()),
        }
    }

    fn weights_of(&self, which: Which) -> &[f32] {
        match which {
            Which::Trained => &self.weights,
            Which::Averaged => self.average.weights(),
        }
    }
}

/// What a transformer is asked to write after the tokens of a prompt: each token is drawn by `softmax(logits
/// / temperature)` of the last tokens that fit its context, or is the likeliest at temperature 0.
#[derive(Debug, Clone, Copy)]
pub struct Writing<'a> {
    /// What it goes on from: one token at least.
    pub prompt: &'a [u16],
    /// Tokens to write.
    pub count: usize,
    /// From 0 on.
    pub temperature: f64,
    /// Of what is drawn.
    pub seed: u64,
}

/// Writes, until somebody interrupts.
pub(crate) fn write(
    pass: &mut transformer::Pass,
    weights: &[f32],
    writing: &Writing<'_>,
    interrupted: &AtomicBool,
) -> Result<Vec<u16>> {
    let &Writing { prompt, count, temperature, seed } = writing;
    let (context, vocabulary) = (pass.shape().context(), pass.shape().vocabulary());
    if prompt.is_empty() || prompt.iter().any(|token| usize::from(*token) >= vocabulary) {
        return Err(Error::shape(format!(
            "a prompt is one token at least, and each of its tokens is below {vocabulary}"
        )));
    }
    if !(temperature >= 0.0 && temperature.is_finite()) {
        return Err(Error::shape(format!("a temperature of {temperature}: it is a number from 0 on")));
    }
    let mut random = Random::new(seed, "writing");
    let mut all = prompt.to_vec();
    for written in 0..count {
        if interrupted.load(Ordering::Relaxed) {
            return Err(Error::InterruptedWriting { written, count });
        }
        let seen = &all[all.len().saturating_sub(context)..];
        let logits = pass.next(weights, seen);
        all.push(drawn(&logits, temperature, &mut random)?);
    }
    Ok(all.split_off(prompt.len()))
}

/// A token by `softmax(logits / temperature)`, or the first of the likeliest at temperature 0.
fn drawn(logits: &[f32], temperature: f64, random: &mut Random) -> Result<u16> {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if !logits.iter().all(|logit| logit.is_finite()) {
        return Err(Error::shape("the network's logits are no numbers: its weights have diverged"));
    }
    let powers: Vec<f64> = logits
        .iter()
        .map(|&logit| match temperature {
            0.0 => f64::from(u8::from(logit == top)),
            temperature => (f64::from(logit - top) / temperature).exp(),
        })
        .collect();
    let mut left = match temperature {
        0.0 => 0.0,
        _ => random.uniform() * powers.iter().sum::<f64>(),
    };
    let found = powers.iter().position(|power| {
        left -= power;
        left < 0.0
    });
    // Rounding may leave a little of the sum: the last token that is possible at all has it.
    let found = found.or_else(|| powers.iter().rposition(|power| *power > 0.0)).unwrap_or(0);
    Ok(found as u16)
}

/// Multiply-adds of a step from which its shards are worth several threads: waking them up takes some
/// microseconds, twice a step.
const PARALLEL: f64 = 2e6;

/// Does something with every shard, one after another where they are small. Shards know nothing of each
/// other.
fn each(shards: &mut [Shard], small: bool, work: impl Fn(usize, &mut Shard) + Send + Sync) {
    if small {
        shards.iter_mut().enumerate().for_each(|(index, shard)| work(index, shard));
    } else {
        shards.par_iter_mut().enumerate().for_each(|(index, shard)| work(index, shard));
    }
}

/// How many shards a batch is cut into, and how many examples each has room for: its own, or those of a part of
/// an evaluation.
fn shards_of(architecture: &Architecture, batch: usize) -> [usize; 2] {
    let sharding = architecture.sharding();
    let count = (batch / sharding.batch).clamp(2, MOST_SHARDS).min(batch);
    [count, batch.div_ceil(count).max(sharding.evaluation)]
}

impl Trainee for Native {
    type Snapshot = NativeSnapshot;
    type Weights = Vec<f32>;

    fn fingerprint(&self) -> String {
        self.options.architecture.text()
    }

    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn step(&mut self, step: &Step) -> Result<Taken> {
        let batch = self.order.next_batch().to_vec();
        let used = ((step.share * batch.len() as f64).round() as usize).clamp(1, batch.len());
        let (loss, shards, kept) = self.gradient(&batch[..used], step);
        let frozen = frozen_parameters(&self.parameters, step.frozen);
        let gradient = &mut self.shards[0].gradient;
        let (length, sums) = self.optimiser.step(
            &self.parameters,
            &mut self.weights,
            gradient,
            step.rate as f32,
            frozen,
            step.measure,
        );
        self.average.take(&self.weights);
        let statistics = step.measure.then(|| {
            let whole = sums.iter().map(|sums| sums.gradient).sum();
            Statistics { groups: grouped(&self.parameters, sums), noise_scale: noise_scale(&shards, whole) }
        });
        Ok(Taken { loss, kept, gradient: length, statistics })
    }

    fn probe(&self, which: Which) -> Result<Probe> {
        Ok(Probe::of(&self.tallies(which, self.material.probe())))
    }

    fn evaluate(&self, which: Which) -> Result<Evaluation> {
        Ok(Evaluation::of(&self.tallies(which, self.material.validation())))
    }

    fn snapshot(&self) -> Result<NativeSnapshot> {
        Ok(NativeSnapshot {
            architecture: self.options.architecture.clone(),
            weights: self.weights.clone(),
            average: self.average.clone(),
            optimiser: self.optimiser.clone(),
            place: self.order.place(),
        })
    }

    fn snapshot_into(&self, snapshot: &mut NativeSnapshot) -> Result<()> {
        let NativeSnapshot { architecture, weights, average, optimiser, place } = snapshot;
        architecture.clone_from(&self.options.architecture);
        weights.clone_from(&self.weights);
        average.copy(&self.average);
        optimiser.copy(&self.optimiser);
        *place = self.order.place();
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
        self.weights.copy_from_slice(&snapshot.weights);
        self.average.copy(&snapshot.average);
        self.optimiser.copy(&snapshot.optimiser);
        Ok(())
    }

    fn weights(&self) -> Result<Vec<f32>> {
        Ok(self.weights.clone())
    }

    fn weights_into(&self, weights: &mut Vec<f32>) -> Result<()> {
        weights.clone_from(&self.weights);
        Ok(())
    }

    fn combine(&mut self, terms: &[(f32, &Vec<f32>)]) -> Result<()> {
        if let Some((_, wrong)) = terms.iter().find(|(_, weights)| weights.len() != self.weights.len()) {
            return Err(Error::shape(format!(
                "weights of {} numbers do not fit a network of {}",
                wrong.len(),
                self.weights.len()
            )));
        }
        self.weights.fill(0.0);
        for (factor, weights) in terms {
            self.weights.iter_mut().zip(*weights).for_each(|(sum, w)| *sum += factor * w);
        }
        Ok(())
    }

    fn step_work(&self) -> f64 {
        example_work(&self.groups, 0) * self.order.batch() as f64
    }

    fn probe_cost(&self) -> f64 {
        forward_cost(&self.groups, self.material.probe().count(), self.order.batch())
    }
}

#[cfg(test)]
mod tests {
    use gatework_contract::{Class, Classified as _};

    use super::*;
    use crate::data::{Examples, Text, Tokens, digits, xor};
    use crate::network::Transformer;
    use crate::optimiser::{Decay, Schedule};

    fn digits_trainee(seed: u64) -> Native {
        let splits = Arc::new(digits(200, 1).unwrap());
        let architecture = Architecture::mlp([1, 8, 8], &[32], 10).unwrap();
        let optimiser = OptimiserOptions::default();
        Native::new(NativeOptions { architecture, optimiser, average_decay: 0.98, batch: 64, seed }, splits)
            .unwrap()
    }

    #[test]
    fn digits_are_learnt() {
        let mut trainee = digits_trainee(1);
        let schedule =
            Schedule { peak: 4e-3, warmup: 20, decay: Decay::Linear, decay_share: 0.2, steps: 400 };
        for step in 0..400 {
            trainee.step(&Step::full(schedule.rate(step))).unwrap();
        }
        for which in [Which::Trained, Which::Averaged] {
            let evaluation = trainee.evaluate(which).unwrap();
            assert!(evaluation.accuracy > 0.95 && evaluation.loss < 0.2, "{which:?} {evaluation:?}");
        }
    }

    /// A text that says one thing: each token is followed by another that depends on it alone, but one time
    /// in ten.
    fn chain() -> Arc<Text> {
        let mut random = Random::new(1, "chain");
        let mut tokens = |count: usize| -> Vec<u16> {
            let mut token = 0;
            let mut next = || {
                token = if random.below(10) == 0 { random.below(97) } else { (5 * token + 3) % 97 };
                token as u16
            };
            (0..count).map(|_| next()).collect()
        };
        let tokens = Tokens::new(97, tokens(3000), tokens(400)).unwrap();
        Arc::new(Text::new(tokens, 10))
    }

    fn text_trainee(seed: u64) -> Native {
        let architecture = Architecture::Transformer(Transformer::new(97, 12, [24, 2, 3]).unwrap());
        let optimiser = OptimiserOptions { clip: 1.0, ..OptimiserOptions::default() };
        let options = NativeOptions { architecture, optimiser, average_decay: 0.98, batch: 9, seed };
        Native::new(options, chain()).unwrap()
    }

    #[test]
    fn a_text_is_learnt_and_written() {
        let mut trainee = text_trainee(1);
        let taken = trainee.step(&Step { measure: true, ..Step::full(3e-3) }).unwrap();
        assert!((taken.loss - 97f64.ln()).abs() < 0.2, "{}", taken.loss);
        let statistics = taken.statistics.unwrap();
        let counted: Vec<f64> = statistics.groups.iter().map(|sums| sums.parameters).collect();
        let groups: Vec<f64> = trainee.groups().iter().map(|group| group.parameters as f64).collect();
        assert_eq!(counted, groups);
        let gradient: f64 = statistics.groups.iter().map(|sums| sums.gradient).sum();
        assert!(gradient > 0.0 && statistics.noise_scale > 0.0, "{statistics:?}");
        (0..300).for_each(|_| drop(trainee.step(&Step::full(3e-3)).unwrap()));
        for which in [Which::Trained, Which::Averaged] {
            // The entropy of what follows is 0.77 nats.
            let evaluation = trainee.evaluate(which).unwrap();
            assert!(evaluation.accuracy > 0.8 && evaluation.loss < 1.3, "{which:?} {evaluation:?}");
        }
        let write = |trainee: &Native, prompt: &[u16], count, temperature, seed| {
            let writing = Writing { prompt, count, temperature, seed };
            trainee.write(Which::Averaged, &writing, &AtomicBool::new(false))
        };
        let written = write(&trainee, &[7], 20, 0.0, 1).unwrap();
        let mut token = 7;
        for next in &written {
            token = (5 * token + 3) % 97;
            assert_eq!(usize::from(*next), token, "{written:?}");
        }
        let drawn = |seed| write(&trainee, &[7], 40, 2.0, seed).unwrap();
        assert!(drawn(1) == drawn(1) && drawn(1) != drawn(2));
        assert!(write(&trainee, &[97], 1, 0.0, 1).unwrap_err().to_string().contains("below 97"));
        let said = write(&digits_trainee(1), &[1], 1, 0.0, 1).unwrap_err().to_string();
        assert!(said.contains("knows no text"), "{said}");
        let writing = Writing { prompt: &[7], count: 20, temperature: 0.0, seed: 1 };
        let said = trainee.write(Which::Trained, &writing, &AtomicBool::new(true)).unwrap_err();
        assert_eq!(said.class(), Class::Interrupted);
        assert!(said.to_string().contains("after 0 of 20 tokens"), "{said}");
    }

    #[test]
    fn muon_learns_a_text_and_frozen_groups_of_it_stay() {
        let architecture = Architecture::Transformer(Transformer::new(97, 12, [24, 2, 3]).unwrap());
        let optimiser =
            OptimiserOptions { method: crate::optimiser::Method::Muon, ..OptimiserOptions::default() };
        let options = NativeOptions { architecture, optimiser, average_decay: 0.98, batch: 8, seed: 1 };
        let mut trainee = Native::new(options, chain()).unwrap();
        (0..100).for_each(|_| drop(trainee.step(&Step::full(3e-3)).unwrap()));
        assert!(trainee.evaluate(Which::Trained).unwrap().loss < 2.5);
        let ends: Vec<usize> = trainee
            .groups()
            .iter()
            .scan(0, |end, group| {
                *end += group.parameters;
                Some(*end)
            })
            .collect();
        for frozen in 1..=ends.len() {
            let before = trainee.weights().unwrap();
            let step = Step { frozen, measure: true, ..Step::full(1e-3) };
            let statistics = trainee.step(&step).unwrap().statistics.unwrap();
            let moved = trainee.weights().unwrap();
            let end = ends[frozen - 1];
            assert_eq!(moved[..end], before[..end], "{frozen}");
            assert!(frozen == ends.len() || moved[end..] != before[end..], "{frozen}");
            let still = statistics.groups.iter().filter(|sums| sums.parameters == 0.0).count();
            assert_eq!((statistics.groups.len(), still), (ends.len(), frozen));
        }
    }

    #[test]
    fn data_of_another_kind_is_refused() {
        let options = |architecture| NativeOptions {
            architecture,
            optimiser: OptimiserOptions::default(),
            average_decay: 0.9,
            batch: 8,
            seed: 1,
        };
        let said = |architecture, data: Data| {
            Native::new(options(architecture), data).err().expect("it is refused").to_string()
        };
        let transformer =
            |vocabulary| Architecture::Transformer(Transformer::new(vocabulary, 12, [8, 1, 1]).unwrap());
        let splits = Arc::new(digits(200, 1).unwrap());
        assert!(said(transformer(97), splits.into()).contains("learns from a text"));
        assert!(said(transformer(96), chain().into()).contains("knows 96 tokens, the text has 97"));
        let layers = Architecture::mlp([1, 1, 12], &[4], 97).unwrap();
        assert!(said(layers, chain().into()).contains("learn from labelled examples"));
    }

    #[test]
    fn a_snapshot_whose_parts_do_not_fit_is_refused() {
        let mut trainee = digits_trainee(1);
        let whole = trainee.snapshot().unwrap();
        let shorter = |weights: &Vec<f32>| weights[..weights.len() - 1].to_vec();
        let average = Average::new(0.9, &shorter(&whole.weights));
        let optimiser = Optimiser::new(OptimiserOptions::default(), 3);
        let broken = [
            NativeSnapshot { weights: shorter(&whole.weights), ..whole.clone() },
            NativeSnapshot { average, ..whole.clone() },
            NativeSnapshot { optimiser, ..whole.clone() },
        ];
        for snapshot in &broken {
            let said = trainee.restore(snapshot).unwrap_err().to_string();
            assert!(said.contains("weights, averages and moments"), "{said}");
        }
        trainee.restore(&whole).unwrap();
    }

    #[test]
    fn xor_is_learnt_and_not_by_a_linear_model() {
        let splits = Arc::new(Splits::hold_back(&xor(600, 1).unwrap(), 100, 200, 1).unwrap());
        let mut accuracies = Vec::new();
        for hidden in [&[16][..], &[]] {
            let architecture = Architecture::mlp([1, 1, 2], hidden, 2).unwrap();
            let optimiser = OptimiserOptions::default();
            let options = NativeOptions { architecture, optimiser, average_decay: 0.9, batch: 32, seed: 1 };
            let mut trainee = Native::new(options, Arc::clone(&splits)).unwrap();
            (0..300).for_each(|_| drop(trainee.step(&Step::full(1e-2)).unwrap()));
            accuracies.push(trainee.evaluate(Which::Trained).unwrap().accuracy);
        }
        assert!(accuracies[0] > 0.95 && accuracies[1] < 0.75, "{accuracies:?}");
    }

    #[test]
    fn weights_do_not_depend_on_the_number_of_threads() {
        same_on_all_threads(digits_trainee, 0.0);
        same_on_all_threads(text_trainee, 0.0);
        same_on_all_threads(text_trainee, 0.5);
    }

    fn same_on_all_threads(trainee: fn(u64) -> Native, sampled: f64) {
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let mut trainee = trainee(3);
                let step = Step { measure: true, sampled, ..Step::full(3e-3) };
                let losses: Vec<f64> = (0..30).map(|_| trainee.step(&step).unwrap().loss).collect();
                (losses, trainee.snapshot().unwrap(), trainee.probe(Which::Averaged).unwrap().loss.to_bits())
            })
        };
        let one = run(1);
        assert_eq!(one, run(2));
        assert_eq!(one, run(5));
    }

    #[test]
    fn a_restored_snapshot_goes_on_bit_for_bit_and_a_rollback_sees_other_batches() {
        goes_on_and_rolls_back(digits_trainee);
        goes_on_and_rolls_back(text_trainee);
    }

    fn goes_on_and_rolls_back(fresh: fn(u64) -> Native) {
        let mut trainee = fresh(4);
        (0..25).for_each(|_| drop(trainee.step(&Step::full(3e-3)).unwrap()));
        let mut saved = fresh(9).snapshot().unwrap();
        trainee.snapshot_into(&mut saved).unwrap();
        assert_eq!(saved, trainee.snapshot().unwrap());
        let losses: Vec<f64> = (0..25).map(|_| trainee.step(&Step::full(3e-3)).unwrap().loss).collect();
        let end = trainee.snapshot().unwrap();
        let bytes = postcard::to_stdvec(&saved).unwrap();
        let read: NativeSnapshot = postcard::from_bytes(&bytes).unwrap();
        let mut other = fresh(4);
        other.restore(&read).unwrap();
        let again: Vec<f64> = (0..25).map(|_| other.step(&Step::full(3e-3)).unwrap().loss).collect();
        assert_eq!((losses.clone(), end), (again, other.snapshot().unwrap()));
        trainee.roll_back(&saved).unwrap();
        assert_eq!(trainee.weights().unwrap(), saved.weights);
        let on: Vec<f64> = (0..25).map(|_| trainee.step(&Step::full(3e-3)).unwrap().loss).collect();
        assert_ne!(losses, on);
    }

    /// A hidden number that is none counts as 0, so that the loss is a number while the gradient is not.
    #[test]
    fn a_gradient_that_is_no_number_shows_at_once() {
        let inputs = [vec![3e38; 4], vec![0.5; 60]].concat();
        let examples = Examples::new([1, 1, 1], 2, inputs, (0..64).map(|i| i % 2).collect()).unwrap();
        let splits = Splits { train: examples.clone(), probe: examples.clone(), validation: examples };
        let architecture = Architecture::mlp([1, 1, 1], &[1], 2).unwrap();
        let optimiser = OptimiserOptions::default();
        let options = NativeOptions { architecture, optimiser, average_decay: 0.9, batch: 64, seed: 1 };
        let mut trainee = Native::new(options, Arc::new(splits)).unwrap();
        // The hidden number of the large inputs is 3, and what flows back to it is up to 20 for each of them.
        trainee.combine(&[(1.0, &vec![1e-38, 0.0, 20.0, -20.0, 0.0, 0.0])]).unwrap();
        let taken = trainee.step(&Step::full(1e-3)).unwrap();
        assert!(taken.loss.is_finite() && !taken.gradient.is_finite(), "{taken:?}");
    }

    #[test]
    fn a_frozen_prefix_keeps_its_weights_and_costs_less() {
        let mut trainee = digits_trainee(5);
        trainee.step(&Step::full(3e-3)).unwrap();
        let before = trainee.weights().unwrap();
        let sums =
            trainee.step(&Step { frozen: 1, measure: true, ..Step::full(3e-3) }).unwrap().statistics.unwrap();
        let first = trainee.groups()[0].parameters;
        assert_eq!(trainee.weights().unwrap()[..first], before[..first]);
        assert_ne!(trainee.weights().unwrap()[first..], before[first..]);
        assert!(sums.groups[0].gradient == 0.0 && sums.groups[1].gradient > 0.0);
        // 64 x 32 and 32 x 10: (2048 + 320) + 320 over (2048 + 320) · 2 + 320.
        assert!((trainee.cost(1, 1.0) - 2688.0 / 5056.0).abs() < 1e-12);
        assert_eq!([trainee.cost(0, 1.0), trainee.cost(0, 0.5)], [1.0, 0.5]);
    }

    #[test]
    fn a_combination_is_of_weights_and_a_wrong_one_is_refused() {
        let mut trainee = digits_trainee(6);
        let first = trainee.weights().unwrap();
        trainee.step(&Step::full(1e-2)).unwrap();
        let second = trainee.weights().unwrap();
        trainee.combine(&[(0.25, &first), (0.75, &second)]).unwrap();
        let wanted = 0.0 + 0.25 * first[7] + 0.75 * second[7];
        assert_eq!(trainee.weights().unwrap()[7], wanted);
        assert!(trainee.combine(&[(1.0, &vec![0.0; 3])]).unwrap_err().to_string().contains("do not fit"));
    }
}
