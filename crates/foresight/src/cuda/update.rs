//! Steps of AdamW and of Muon.

use gatework_gpu::{Buffer, ByValue, Stream, args};

use super::muon::NewtonSchulz;
use super::segments::{Scratch, Segments, Tensor, require};
use super::shared::{AdamConstants, UPDATE_SUMS};
use super::{Products, kernels};
use crate::error::{Error, Result};
use crate::network::Parameters;
use crate::optimiser::{Method, OptimiserOptions, Sums, muon_scale};

const SUMS: usize = UPDATE_SUMS as usize;

/// Tensors that take one kind of step, whose groups they are of, and what their last step added up to.
#[derive(Debug)]
struct Share {
    segments: Segments,
    groups: Vec<usize>,
    found: Buffer<f64>,
}

impl Share {
    fn new(stream: &Stream, parameters: usize, tensors: Vec<(usize, Tensor)>) -> Result<Option<Self>> {
        if tensors.is_empty() {
            return Ok(None);
        }
        let (groups, tensors): (Vec<usize>, Vec<Tensor>) = tensors.into_iter().unzip();
        let segments = Segments::new(stream, parameters, &tensors)?;
        let found = stream.alloc_zeros(tensors.len() * SUMS)?;
        Ok(Some(Self { segments, groups, found }))
    }
}

/// What is stepped where a prefix of groups is frozen.
struct Shares {
    adam: Option<Share>,
    muon: Option<Share>,
    matrices: Vec<Parameters>,
}

impl Shares {
    fn new(
        stream: &Stream,
        options: &OptimiserOptions,
        groups: &[Parameters],
        frozen: usize,
    ) -> Result<Self> {
        let parameters = groups.last().map_or(0, |group| group.bias.end);
        let (mut adam, mut muon, mut matrices) = (Vec::new(), Vec::new(), Vec::new());
        for (place, group) in groups.iter().enumerate().skip(frozen) {
            let inner = place > 0 && place + 1 < groups.len();
            let matrix = Tensor { decay: options.weight_decay, ..Tensor::new(group.matrix.clone()) };
            if options.method == Method::Muon && inner {
                muon.push((place, Tensor { scale: muon_scale(group.sides), ..matrix }));
                matrices.push(group.clone());
            } else if !matrix.range.is_empty() {
                adam.push((place, matrix));
            }
            if !group.bias.is_empty() {
                adam.push((place, Tensor::new(group.bias.clone())));
            }
        }
        let [adam, muon] = [adam, muon].map(|tensors| Share::new(stream, parameters, tensors));
        Ok(Self { adam: adam?, muon: muon?, matrices })
    }
}

/// The matrices that Muon steps where nothing is frozen: those between the first group and the last.
fn inner(options: &OptimiserOptions, groups: &[Parameters]) -> impl Iterator<Item = [usize; 2]> + Clone {
    let inner = match options.method {
        Method::AdamW => &[],
        Method::Muon => groups.get(1..groups.len().saturating_sub(1)).unwrap_or_default(),
    };
    inner.iter().map(|group| group.sides)
}

/// The optimiser of the CPU on a device: the same moments and AdamW's steps, bit for bit, as long as
/// gradients are not clipped; clipped ones may differ in the last place, since their length is added up in
/// another order. Muon's directions differ by what products of bf16 lose.
///
/// A step is [`begin`](Self::begin), then [`adamw`](Self::adamw), and with Muon
/// [`muon_direction`](Self::muon_direction), [`orthogonalise`](Self::orthogonalise) and
/// [`muon_step`](Self::muon_step).
#[derive(Debug)]
pub struct DeviceOptimiser {
    options: OptimiserOptions,
    steps: u64,
    parameters: usize,
    groups: Vec<Parameters>,
    frozen: usize,
    whole: Segments,
    adam: Option<Share>,
    muon: Option<Share>,
    /// Sides and places of the matrices that Muon steps, in order.
    matrices: Vec<Parameters>,
    first: Buffer<f32>,
    second: Buffer<f32>,
    last: Buffer<f32>,
    direction: Option<Buffer<f32>>,
    squared_length: Buffer<f64>,
    squared_directions: Option<Buffer<f64>>,
    iterations: Option<NewtonSchulz>,
}

impl DeviceOptimiser {
    /// For these groups, of which those before number `frozen` keep weights and moments.
    pub fn new(
        stream: &Stream,
        options: OptimiserOptions,
        groups: &[Parameters],
        frozen: usize,
    ) -> Result<Self> {
        let Some(parameters) = groups.last().map(|group| group.bias.end).filter(|_| frozen < groups.len())
        else {
            return Err(Error::shape(format!(
                "{} groups of which {frozen} are frozen: one at least must move",
                groups.len()
            )));
        };
        let Shares { adam, muon, matrices } = Shares::new(stream, &options, groups, frozen)?;
        let zeros = || stream.alloc_zeros(parameters);
        // For all that may be stepped once nothing is frozen.
        let sides = inner(&options, groups);
        let muons = sides.clone().count();
        Ok(Self {
            options,
            steps: 0,
            parameters,
            groups: groups.to_vec(),
            whole: Segments::new(stream, parameters, &[Tensor::new(0..parameters)])?,
            adam,
            frozen,
            direction: (muons > 0).then(zeros).transpose()?,
            squared_directions: (muons > 0).then(|| stream.alloc(muons)).transpose()?,
            iterations: (muons > 0).then(|| NewtonSchulz::new(stream, sides)).transpose()?,
            muon,
            matrices,
            first: zeros()?,
            second: zeros()?,
            last: zeros()?,
            squared_length: stream.alloc_zeros(1)?,
        })
    }

    /// Bytes that it holds on the device: moments and the last step, and with Muon its direction and what
    /// becomes of that on the way to being orthogonal.
    pub fn bytes(options: &OptimiserOptions, groups: &[Parameters]) -> usize {
        let parameters = groups.last().map_or(0, |group| group.bias.end);
        let sides = inner(options, groups);
        let direction = if sides.clone().count() > 0 { 4 * parameters } else { 0 };
        12 * parameters + direction + NewtonSchulz::bytes(sides)
    }

    /// Steps that were begun.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Goes back to where it began: no steps, and no moments.
    pub fn restart(&mut self, stream: &Stream) -> Result<()> {
        for array in [&mut self.first, &mut self.second, &mut self.last] {
            stream.fill(array, 0.0)?;
        }
        self.steps = 0;
        Ok(())
    }

    /// Steps from now on all but the groups before number `frozen`, which keep weights and moments; nothing
    /// where that are all of them.
    pub fn freeze(&mut self, stream: &Stream, frozen: usize) -> Result<()> {
        if frozen != self.frozen {
            let Shares { adam, muon, matrices } = Shares::new(stream, &self.options, &self.groups, frozen)?;
            (self.adam, self.muon, self.matrices, self.frozen) = (adam, muon, matrices, frozen);
        }
        Ok(())
    }

    /// Goes on after so many steps, with these first moments, second moments and last step.
    pub fn restore(&mut self, stream: &Stream, steps: u64, moments: [&[f32]; 3]) -> Result<()> {
        for moments in moments {
            require("moments", moments.len(), self.parameters)?;
        }
        let [first, second, last] = moments;
        stream.copy_from_host(first, &mut self.first)?;
        stream.copy_from_host(second, &mut self.second)?;
        stream.copy_from_host(last, &mut self.last)?;
        self.steps = steps;
        Ok(())
    }

    /// Begins a step: counts it, and adds up the gradient's length where it may be clipped.
    pub fn begin(&mut self, stream: &Stream, gradient: &Buffer<f32>) -> Result<()> {
        require("gradient", gradient.len(), self.parameters)?;
        self.steps += 1;
        if self.options.clip > 0.0 { self.add_up(stream, gradient) } else { Ok(()) }
    }

    /// The same, with the gradient's squared length, whether it may be clipped or not. This waits for the
    /// device.
    pub fn begin_with_length(&mut self, stream: &Stream, gradient: &Buffer<f32>) -> Result<f64> {
        let squared = self.squared_length(stream, gradient)?;
        self.steps += 1;
        Ok(squared)
    }

    /// The squared length of a gradient. This waits for the device.
    pub fn squared_length(&mut self, stream: &Stream, gradient: &Buffer<f32>) -> Result<f64> {
        require("gradient", gradient.len(), self.parameters)?;
        self.add_up(stream, gradient)?;
        let [length] = stream.download(&self.squared_length)?[..] else {
            return Err(Error::shape("a length is one number"));
        };
        Ok(length)
    }

    fn add_up(&mut self, stream: &Stream, gradient: &Buffer<f32>) -> Result<()> {
        let grid = self.whole.grid(1);
        let kernel = stream.device().kernel_of(&kernels::update(false), "squared_lengths")?;
        let Scratch { chunks, segments, arrived, partials } = self.whole.scratch(stream, 1)?;
        let found = &mut self.squared_length;
        Ok(kernel.launch(stream, &grid, &args![gradient, chunks, segments, partials, arrived, found])?)
    }

    /// AdamW's step of all that it is for, in one launch; with `measure` its sums come with it.
    pub fn adamw(
        &mut self,
        stream: &Stream,
        weights: &mut Buffer<f32>,
        gradient: &Buffer<f32>,
        rate: f32,
        measure: bool,
    ) -> Result<()> {
        self.check(weights, gradient)?;
        let Some(Share { segments: share, found, .. }) = &mut self.adam else { return Ok(()) };
        let OptimiserOptions { beta1, beta2, clip, .. } = self.options;
        let [first_scale, second_scale] = self.options.corrections(self.steps);
        let (rest1, rest2) = (1.0 - beta1, 1.0 - beta2);
        let constants =
            AdamConstants { clip, beta1, rest1, beta2, rest2, first_scale, second_scale, rate, guarded: 0 };
        let grid = share.grid(SUMS);
        let kernel = stream.device().kernel_of(&kernels::update(measure), "adamw")?;
        let Scratch { chunks, segments, arrived, partials } = share.scratch(stream, SUMS)?;
        let arguments = args![
            weights,
            gradient,
            &mut self.first,
            &mut self.second,
            &mut self.last,
            ByValue(&constants),
            &self.squared_length,
            chunks,
            segments,
            partials,
            arrived,
            found
        ];
        kernel.launch(stream, &grid, &arguments)?;
        Ok(())
    }

    /// Muon's momentum and direction of all its matrices, in one launch; nothing where it has none.
    pub fn muon_direction(&mut self, stream: &Stream, gradient: &Buffer<f32>) -> Result<()> {
        require("gradient", gradient.len(), self.parameters)?;
        self.begun()?;
        let (Some(Share { segments: share, .. }), Some(direction), Some(found)) =
            (&mut self.muon, &mut self.direction, &mut self.squared_directions)
        else {
            return Ok(());
        };
        let grid = share.grid(1);
        let kernel = stream.device().kernel_of(&kernels::update(false), "muon_direction")?;
        let Scratch { chunks, segments, arrived, partials } = share.scratch(stream, 1)?;
        let arguments = args![
            gradient,
            &mut self.first,
            direction,
            self.options.momentum,
            self.options.clip,
            &self.squared_length,
            chunks,
            segments,
            partials,
            arrived,
            found
        ];
        kernel.launch(stream, &grid, &arguments)?;
        Ok(())
    }

    /// The matrices that Muon steps, with where each lies in the direction; the direction; and the squared
    /// length of each before it is orthogonal.
    pub fn direction(&mut self) -> Option<(&[Parameters], &mut Buffer<f32>, &Buffer<f64>)> {
        Some((&self.matrices, self.direction.as_mut()?, self.squared_directions.as_ref()?))
    }

    /// Makes every matrix of the direction orthogonal, nearly, by products of bf16; nothing where there is
    /// none. It comes between [`Self::muon_direction`] and [`Self::muon_step`].
    pub fn orthogonalise(&mut self, stream: &Stream, products: &Products) -> Result<()> {
        self.begun()?;
        let (Some(direction), Some(squared), Some(iterations)) =
            (&mut self.direction, &self.squared_directions, &mut self.iterations)
        else {
            return Ok(());
        };
        for (place, group) in self.matrices.iter().enumerate() {
            let mut x = direction.slice_mut(group.matrix.clone());
            let length = squared.slice(place..place + 1);
            iterations.orthogonalise(stream, products, &mut x, group.sides, length)?;
        }
        Ok(())
    }

    /// Muon's step along the direction, in one launch; nothing where it has no matrix.
    pub fn muon_step(
        &mut self,
        stream: &Stream,
        weights: &mut Buffer<f32>,
        gradient: &Buffer<f32>,
        rate: f32,
        measure: bool,
    ) -> Result<()> {
        self.check(weights, gradient)?;
        let (Some(Share { segments: share, found, .. }), Some(direction)) = (&mut self.muon, &self.direction)
        else {
            return Ok(());
        };
        let grid = share.grid(SUMS);
        let kernel = stream.device().kernel_of(&kernels::update(measure), "muon_step")?;
        let Scratch { chunks, segments, arrived, partials } = share.scratch(stream, SUMS)?;
        let arguments = args![
            weights,
            gradient,
            &self.first,
            direction,
            &mut self.last,
            rate,
            self.options.clip,
            &self.squared_length,
            chunks,
            segments,
            partials,
            arrived,
            found
        ];
        kernel.launch(stream, &grid, &arguments)?;
        Ok(())
    }

    /// The sums of every group in the last step that was measured, zeros for the frozen.
    pub fn sums(&self, stream: &Stream) -> Result<Vec<Sums>> {
        let mut of_groups = vec![Sums::default(); self.groups.len()];
        for Share { segments, groups, found } in [&self.adam, &self.muon].into_iter().flatten() {
            let found = stream.download(found)?;
            let rows = found.chunks_exact(SUMS).zip(groups).zip(&segments.lengths);
            for ((row, group), length) in rows {
                of_groups[*group] = of_groups[*group]
                    + Sums {
                        gradient: row[0],
                        weight: row[1],
                        update: row[2],
                        along: row[3],
                        before: row[4],
                        first_moment: row[5],
                        second_moment: row[6],
                        parameters: *length as f64,
                    };
            }
        }
        Ok(of_groups)
    }

    /// First moments, second moments and the last step, on the device.
    pub fn moments(&self) -> [&Buffer<f32>; 3] {
        [&self.first, &self.second, &self.last]
    }

    fn begun(&self) -> Result<()> {
        if self.steps == 0 {
            return Err(Error::shape(
                "no step was begun: call DeviceOptimiser::begin with the gradient first",
            ));
        }
        Ok(())
    }

    fn check(&self, weights: &Buffer<f32>, gradient: &Buffer<f32>) -> Result<()> {
        require("weights", weights.len(), self.parameters)?;
        require("gradient", gradient.len(), self.parameters)?;
        self.begun()
    }
}
