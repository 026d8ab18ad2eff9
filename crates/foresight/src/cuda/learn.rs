//! The world model's training on a device: backward through time for all members, and their steps.

use gatework_gpu::{Buffer, ByValue, Grid, Stream, args};

use super::kernels;
use super::segments::{Scratch, Segments, Tensor};
use super::shared::{
    AdamConstants, FEATURES, LEARN_THREADS, LESSON, OUTER_COLUMNS, OUTER_ROWS, WorldLayer, WorldShape,
};
use super::team::{MOST_HIDDEN, Places, room_of};
use crate::error::{Error, Result};
use crate::world::inside::{BETAS, CLIP, Linear, Slice, Weights, corrections};
use crate::world::{ACTION, Ensemble, Episode, Losses, Reset, WorldOptions};

/// Blocks along the grid's second axis, at most.
const MOST_MEMBERS: usize = 65_535;
/// Parts of the loss.
const PARTS: usize = 4;

/// An ensemble that learns on a device as it does on the CPU: the same windows, the same random numbers, and
/// gradients that differ in the order of their sums. In f32; given the same updates it does the same, bit for
/// bit, under every schedule.
///
/// An update is four launches whatever the members: a block a window goes through time and back, then the
/// gradients of all layers, the lengths that they are clipped by, and AdamW.
#[derive(Debug)]
pub struct WorldTrainer {
    stream: Stream,
    ensemble: Ensemble,
    /// Whether the device has learnt what the ensemble has not.
    is_ahead: bool,
    shape: WorldShape,
    parameters: Buffer<f32>,
    first: Buffer<f32>,
    second: Buffer<f32>,
    /// The last step, which comes with AdamW's kernel.
    last: Buffer<f32>,
    gradient: Buffer<f32>,
    trace: Buffer<f32>,
    layers: Buffer<WorldLayer>,
    /// Tiles of a member's gradient.
    tiles: u32,
    segments: Segments,
    squared_lengths: Buffer<f64>,
    losses: Buffer<f64>,
    /// Sums that no update asks for.
    unmeasured: Buffer<f64>,
    shared_bytes: usize,
}

/// Arrays of a member's trace, one after another.
struct Arrays(usize);

impl Arrays {
    fn take(&mut self, rows: usize, width: usize) -> usize {
        let at = self.0;
        self.0 = self.0.saturating_add(rows.saturating_mul(width));
        at
    }
}

/// What a layer read, and where the gradient of what it wrote is: array and columns of a row.
struct Ends<'a> {
    layer: &'a Linear,
    from: [usize; 2],
    delta: [usize; 2],
}

/// A place that kernels count in 32 bits.
fn word(at: usize) -> Result<u32> {
    u32::try_from(at).map_err(|_| {
        Error::shape(
            "a member of the world model has more than 2^32 numbers: lower 'world.hidden', 'world.window' or \
             'world.batch'",
        )
    })
}

/// The kernels' shape, the layers of a member, and the shared memory of a block that learns.
fn shape_of(options: &WorldOptions) -> Result<(WorldShape, Vec<WorldLayer>, usize)> {
    let WorldOptions { members, hidden, categories, classes, window, batch, .. } = *options;
    let stochastic = categories.saturating_mul(classes);
    if hidden > MOST_HIDDEN || stochastic > MOST_HIDDEN || members > MOST_MEMBERS {
        return Err(Error::shape(format!(
            "{members} members with {hidden} hidden numbers and {categories} x {classes} classes: a device takes \
             {MOST_MEMBERS} members, {MOST_HIDDEN} hidden numbers and as many classes at most"
        )));
    }
    let member = options.member();
    let (features, rows) = (FEATURES as usize, window.saturating_mul(batch));
    let (both, heads) = (hidden + stochastic, features + 4);
    let mut arrays = Arrays(0);
    let given = arrays.take(rows, stochastic + ACTION);
    let state = arrays.take(rows.saturating_add(batch), both);
    let seen = arrays.take(rows, hidden + features);
    let inner = arrays.take(rows, hidden);
    let gates = arrays.take(rows, 3 * hidden);
    let [prior, posterior] = [0; 2].map(|_| arrays.take(rows, stochastic));
    let dgates = arrays.take(rows, 3 * hidden);
    let dinner = arrays.take(rows, hidden);
    let [dprior, dposterior] = [0; 2].map(|_| arrays.take(rows, stochastic));
    let dheads = arrays.take(rows, heads);
    let trace = word(arrays.0)?;

    // The state before a tick is a row above the one that the tick leaves.
    let (before, after) = ([state, both], [state + batch * both, both]);
    let gru = &member.gru;
    let of_candidate = match options.reset {
        Reset::After => before,
        Reset::Before => [inner, hidden],
    };
    let ends = [
        Ends { layer: &gru.input, from: [given, stochastic + ACTION], delta: [dgates, 3 * hidden] },
        Ends { layer: &gru.state[0], from: before, delta: [dgates, 3 * hidden] },
        Ends { layer: &gru.state[1], from: before, delta: [dgates + hidden, 3 * hidden] },
        Ends { layer: &gru.state[2], from: of_candidate, delta: [dinner, hidden] },
        Ends { layer: &member.prior, from: after, delta: [dprior, stochastic] },
        Ends { layer: &member.posterior, from: [seen, hidden + features], delta: [dposterior, stochastic] },
        Ends { layer: &member.features, from: after, delta: [dheads, heads] },
        Ends { layer: &member.change, from: after, delta: [dheads + features, heads] },
        Ends { layer: &member.end, from: after, delta: [dheads + features + 2, heads] },
    ];
    let mut layers = Vec::with_capacity(ends.len());
    let mut end_block = 0;
    for Ends { layer, from, delta } in ends {
        let first_block = end_block;
        // A row more for the bias.
        let tiles =
            (layer.inputs + 1).div_ceil(OUTER_ROWS as usize) * layer.outputs.div_ceil(OUTER_COLUMNS as usize);
        end_block += word(tiles)?;
        layers.push(WorldLayer {
            from: word(from[0])?,
            from_row: word(from[1])?,
            inputs: word(layer.inputs)?,
            delta: word(delta[0])?,
            delta_row: word(delta[1])?,
            outputs: word(layer.outputs)?,
            matrix: word(layer.matrix.start)?,
            first_block,
            end_block,
        });
    }

    let groups = |columns: usize| columns * (LEARN_THREADS as usize / columns).max(1);
    let partial = [4 * hidden, 3 * hidden, hidden, 2 * stochastic, heads].map(groups);
    let mut places = Places::after(2 * LEARN_THREADS as usize * size_of::<f64>());
    let scale = 1.0 / rows as f32;
    let Weights { prior: prior_weight, posterior: posterior_weight } = options.weights();
    let place = |layer: &Linear| word(layer.matrix.start);
    let shape = WorldShape {
        parameters: word(member.parameters)?.into(),
        trace: trace.into(),
        ticks: word(window)?,
        windows: word(batch)?,
        hidden: word(hidden)?,
        categories: word(categories)?,
        classes: word(classes)?,
        sampled: 1,
        input: place(&gru.input)?,
        state_z: place(&gru.state[0])?,
        state_r: place(&gru.state[1])?,
        state_n: place(&gru.state[2])?,
        prior: place(&member.prior)?,
        posterior: place(&member.posterior)?,
        features: place(&member.features)?,
        change: place(&member.change)?,
        end: place(&member.end)?,
        given_at: word(given)?,
        state_at: word(state)?,
        seen_at: word(seen)?,
        inner_at: word(inner)?,
        gates_at: word(gates)?,
        prior_at: word(prior)?,
        posterior_at: word(posterior)?,
        dgates_at: word(dgates)?,
        dinner_at: word(dinner)?,
        dprior_at: word(dprior)?,
        dposterior_at: word(dposterior)?,
        dheads_at: word(dheads)?,
        partial_at: places.floats(partial.into_iter().max().unwrap_or(0)),
        dh_at: places.floats(hidden),
        dz_at: places.floats(stochastic),
        scale,
        of_feature: scale / FEATURES as f32,
        prior_weight: prior_weight * scale,
        posterior_weight: posterior_weight * scale,
    };
    Ok((shape, layers, places.bytes()))
}

impl WorldTrainer {
    /// Goes on with an ensemble on the device of `stream`.
    pub fn new(stream: &Stream, ensemble: Ensemble) -> Result<Self> {
        let options = *ensemble.options();
        let (shape, layers, shared_bytes) = shape_of(&options)?;
        let room = room_of(stream.device().properties());
        if shared_bytes > room {
            return Err(Error::shape(format!(
                "{shared_bytes} bytes of shared memory a block where {} has {room}: lower 'world.hidden'",
                stream.device().properties().name
            )));
        }
        let (needed, free) = (Self::bytes(&options)?, stream.device().budget().free());
        if needed as u64 > free {
            let way_out = "lower 'world.hidden', 'world.members', 'world.window' or 'world.batch'";
            return Err(Error::too_large("the device's memory", needed, free as usize, way_out));
        }
        let (members, numbers) = (options.members, shape.parameters as usize);
        let count = members * numbers;
        let tensors: Vec<Tensor> =
            (0..members).map(|member| Tensor::new(member * numbers..(member + 1) * numbers)).collect();
        let all = |part: usize| -> Vec<f32> {
            ensemble.learnt().flat_map(|arrays| arrays[part].iter().copied()).collect()
        };
        Ok(Self {
            parameters: stream.upload(&all(0))?,
            first: stream.upload(&all(1))?,
            second: stream.upload(&all(2))?,
            last: stream.alloc_zeros(count)?,
            gradient: stream.alloc_zeros(count)?,
            // The states before the first tick, and the step before it, are zeros.
            trace: stream.alloc_zeros(members * shape.trace as usize)?,
            tiles: layers.last().map_or(0, |layer| layer.end_block),
            layers: stream.upload(&layers)?,
            segments: Segments::apart(stream, count, &tensors)?,
            squared_lengths: stream.alloc_zeros(members)?,
            losses: stream.alloc_zeros(members * options.batch * PARTS)?,
            unmeasured: stream.alloc_zeros(1)?,
            stream: stream.clone(),
            is_ahead: false,
            shared_bytes,
            ensemble,
            shape,
        })
    }

    /// Bytes on the device: parameters, moments, the last step, the gradient, and what a pass leaves of every
    /// tick.
    pub fn bytes(options: &WorldOptions) -> Result<usize> {
        let (shape, layers, _) = shape_of(options)?;
        let lesson = options.window * options.batch * LESSON as usize;
        let of_member = 4 * (5 * shape.parameters as usize + shape.trace as usize + lesson)
            + 8 * (2 + options.batch * PARTS);
        Ok(options.members * of_member + layers.len() * size_of::<WorldLayer>())
    }

    /// One update of every member on windows of these episodes; nothing if none is long enough. It waits for
    /// the losses alone.
    pub fn update(&mut self, episodes: &[&Episode]) -> Result<Option<Losses>> {
        if episodes
            .iter()
            .flat_map(|episode| &episode.ticks)
            .any(|tick| tick.features.len() != LESSON_FEATURES)
        {
            return Err(Error::shape(format!("a tick of an episode has not {LESSON_FEATURES} features")));
        }
        let Some(lessons) = self.ensemble.lessons(episodes) else { return Ok(None) };
        self.pass(&lessons)?;
        self.step()?;
        let found = self.stream.download(&self.losses)?;
        let of_member = |rows: &[f64]| {
            let part = |at: usize| rows.chunks_exact(PARTS).map(|row| row[at]).sum();
            Losses { features: part(0), change: part(1), end: part(2), divergence: part(3) }
        };
        let losses: Vec<Losses> =
            found.chunks_exact(PARTS * self.shape.windows as usize).map(of_member).collect();
        Ok(Some(Losses::mean(&losses)))
    }

    /// The ensemble with all that it has learnt. This waits for the device.
    pub fn ensemble(&mut self) -> Result<&Ensemble> {
        if self.is_ahead {
            let numbers = self.shape.parameters as usize;
            for (member, arrays) in self.ensemble.learnt_mut().enumerate() {
                let range = member * numbers..(member + 1) * numbers;
                for (from, to) in [&self.parameters, &self.first, &self.second].into_iter().zip(arrays) {
                    self.stream.copy_to_host(&from.slice(range.clone()), to)?;
                }
            }
            self.is_ahead = false;
        }
        Ok(&self.ensemble)
    }

    /// Queues the gradients of all members on these slices, and the losses.
    fn pass(&mut self, lessons: &[Vec<Slice>]) -> Result<()> {
        let numbers =
            self.shape.ticks as u64 * u64::from(self.shape.windows) * u64::from(self.shape.categories);
        let drawn = if self.shape.sampled == 1 { numbers } else { 0 };
        let bases = self.stream.upload(&self.ensemble.take_numbers(drawn))?;
        let lessons = self.stream.upload(&packed(lessons))?;
        let Self { stream, shape, .. } = self;
        let (members, reset) = (self.ensemble.options().members as u32, self.ensemble.options().reset);
        let module = kernels::learn(reset);
        let grid =
            Grid::new([shape.windows, members, 1], [LEARN_THREADS, 1, 1]).shared(self.shared_bytes as u32);
        let arguments =
            args![&self.parameters, &lessons, &bases, &mut self.trace, &mut self.losses, ByValue(shape)];
        stream.device().kernel_of(&module, "learn")?.launch(stream, &grid, &arguments)?;
        let grid = Grid::new([self.tiles, members, 1], [LEARN_THREADS, 1, 1]);
        let arguments = args![
            &self.trace,
            &mut self.gradient,
            &self.layers,
            shape.trace,
            shape.parameters,
            shape.ticks * shape.windows
        ];
        Ok(stream.device().kernel_of(&module, "gradients")?.launch(stream, &grid, &arguments)?)
    }

    /// Queues the steps along the gradients. A member whose gradient is no number stays as it is.
    fn step(&mut self) -> Result<()> {
        let Self { stream, segments, .. } = self;
        let device = stream.device();
        let module = kernels::update(false);
        let (lengths, adamw) =
            (device.kernel_of(&module, "squared_lengths")?, device.kernel_of(&module, "adamw")?);
        let grid = segments.grid(1);
        let Scratch { chunks, segments: tensors, arrived, partials } = segments.scratch(stream, 1)?;
        let found = &mut self.squared_lengths;
        let arguments = args![&self.gradient, chunks, tensors, &mut *partials, &mut *arrived, found];
        lengths.launch(stream, &grid, &arguments)?;
        let [beta1, beta2] = BETAS;
        let [first_scale, second_scale] = corrections(self.ensemble.updates());
        let constants = AdamConstants {
            clip: CLIP,
            beta1,
            rest1: 1.0 - beta1,
            beta2,
            rest2: 1.0 - beta2,
            first_scale,
            second_scale,
            rate: self.ensemble.options().rate as f32,
            guarded: 1,
        };
        let arguments = args![
            &mut self.parameters,
            &self.gradient,
            &mut self.first,
            &mut self.second,
            &mut self.last,
            ByValue(&constants),
            &self.squared_lengths,
            chunks,
            tensors,
            partials,
            arrived,
            &mut self.unmeasured
        ];
        adamw.launch(stream, &grid, &arguments)?;
        self.is_ahead = true;
        Ok(())
    }
}

const LESSON_FEATURES: usize = FEATURES as usize;

/// Slices of every member as the kernel has them: `[member, tick, window, LESSON]`.
fn packed(lessons: &[Vec<Slice>]) -> Vec<f32> {
    let mut numbers = Vec::new();
    for slice in lessons.iter().flatten() {
        let windows = slice.x.chunks_exact(LESSON_FEATURES).zip(slice.a.chunks_exact(ACTION));
        for ((x, a), targets) in windows.zip(slice.change.iter().zip(&slice.end)) {
            numbers.extend_from_slice(x);
            numbers.extend_from_slice(a);
            for target in [targets.0, targets.1] {
                numbers.extend([target.unwrap_or(0.0), f32::from(u8::from(target.is_some()))]);
            }
        }
    }
    numbers
}

/// What tests look into.
#[cfg(test)]
impl WorldTrainer {
    /// Takes means for samples and weighs both parts of the divergence with 1, so that the loss is smooth.
    pub(super) fn smooth(&mut self) {
        self.shape.sampled = 0;
        (self.shape.prior_weight, self.shape.posterior_weight) = (self.shape.scale, self.shape.scale);
    }

    pub(super) fn download_parameters(&self) -> Vec<f32> {
        self.stream.download(&self.parameters).unwrap()
    }

    /// The losses and the gradient on slices with other parameters.
    pub(super) fn losses_and_gradient(
        &mut self,
        parameters: &[f32],
        lessons: &[Vec<Slice>],
    ) -> (Vec<f64>, Vec<f32>) {
        self.stream.copy_from_host(parameters, &mut self.parameters).unwrap();
        self.pass(lessons).unwrap();
        (self.stream.download(&self.losses).unwrap(), self.stream.download(&self.gradient).unwrap())
    }
}
