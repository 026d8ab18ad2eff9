//! Statistics of many tensors in one launch.

use gatework_gpu::{Buffer, Stream, args};

use super::kernels;
use super::segments::{Scratch, Segments, require};
use super::shared::{STATISTIC_ARRAYS, STATISTIC_BEFORE, STATISTIC_DISPLACEMENT};
use crate::error::Result;
use crate::optimiser::Sums;
use crate::trainee::noise_scale;

const ARRAYS: usize = STATISTIC_ARRAYS as usize;
const SUMS: usize = 2 * ARRAYS + 1;
const EXTREMA: usize = 2 * ARRAYS;

/// The arrays that statistics are of, each of all parameters.
#[derive(Debug, Clone, Copy)]
pub struct Watched<'a> {
    /// Weights.
    pub weights: &'a Buffer<f32>,
    /// The gradient of the batch.
    pub gradient: &'a Buffer<f32>,
    /// The last step.
    pub displacement: &'a Buffer<f32>,
    /// The step before it.
    pub before: &'a Buffer<f32>,
    /// First moments.
    pub first: &'a Buffer<f32>,
    /// Second moments.
    pub second: &'a Buffer<f32>,
    /// Mean gradients of shards of the batch, one after another. With statistics of no shards it is not
    /// looked at.
    pub shards: &'a Buffer<f32>,
}

/// One array of one tensor.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Moments {
    /// `Σ x`.
    pub sum: f64,
    /// `Σ x²`.
    pub squares: f64,
    /// The least number.
    pub least: f64,
    /// The largest number.
    pub most: f64,
    /// How many numbers there are.
    pub count: f64,
}

impl Moments {
    /// The Euclidean norm.
    pub fn norm(&self) -> f64 {
        self.squares.sqrt()
    }

    /// `Σ x / n`.
    pub fn mean(&self) -> f64 {
        self.sum / self.count
    }

    /// `Σ x² / n − mean²`, not below 0.
    pub fn variance(&self) -> f64 {
        (self.squares / self.count - self.mean().powi(2)).max(0.0)
    }
}

/// One tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorStatistics {
    /// Weights.
    pub weights: Moments,
    /// The gradient.
    pub gradient: Moments,
    /// The last step.
    pub displacement: Moments,
    /// The step before it.
    pub before: Moments,
    /// First moments.
    pub first: Moments,
    /// Second moments.
    pub second: Moments,
    /// `Σ u u'` of the step and the one before.
    pub along: f64,
    /// The squared length of each shard's gradient.
    pub shards: Vec<f64>,
}

impl TensorStatistics {
    /// The cosine of the step and the one before; 0 where one of them is none.
    pub fn cosine(&self) -> f64 {
        let scale = (self.displacement.squares * self.before.squares).sqrt();
        if scale > 0.0 { (self.along / scale).clamp(-1.0, 1.0) } else { 0.0 }
    }

    /// The sums that features are made of.
    pub fn sums(&self) -> Sums {
        Sums {
            gradient: self.gradient.squares,
            weight: self.weights.squares,
            update: self.displacement.squares,
            along: self.along,
            before: self.before.squares,
            first_moment: self.first.squares,
            second_moment: self.second.sum,
            parameters: self.weights.count,
        }
    }
}

/// The gradient noise scale `tr Σ / |G|²` in examples, of all tensors together, from shards of so many
/// examples each; none where there are fewer than two shards.
pub fn noise(tensors: &[TensorStatistics], examples: &[usize]) -> Option<f64> {
    let shards = tensors.first()?.shards.len();
    if shards < 2 || shards != examples.len() || examples.contains(&0) {
        return None;
    }
    let squares = |shard: usize| tensors.iter().map(|tensor| tensor.shards[shard]).sum::<f64>();
    let lengths: Vec<(f64, usize)> = (0..shards).map(|shard| (squares(shard), examples[shard])).collect();
    Some(noise_scale(&lengths, tensors.iter().map(|tensor| tensor.gradient.squares).sum()))
}

/// Statistics on a device: what was found stays there until it is asked for.
#[derive(Debug)]
pub struct DeviceStatistics {
    segments: Segments,
    shards: usize,
    found: Buffer<f64>,
}

impl DeviceStatistics {
    /// Of these tensors, with so many shards of the batch.
    pub fn new(stream: &Stream, segments: Segments, shards: usize) -> Result<Self> {
        let row = SUMS + EXTREMA + shards;
        let found = stream.alloc(segments.tensors() * row)?;
        Ok(Self { segments, shards, found })
    }

    /// Queues the pass: one launch, and the same bits whatever its schedule.
    pub fn measure(&mut self, stream: &Stream, watched: &Watched<'_>) -> Result<()> {
        let Watched { weights, gradient, displacement, before, first, second, shards } = *watched;
        for (name, array) in [
            ("weights", weights),
            ("gradient", gradient),
            ("displacement", displacement),
            ("before", before),
            ("first", first),
            ("second", second),
        ] {
            self.segments.require(name, array)?;
        }
        let (count, parameters) = (self.shards, self.segments.parameters());
        if count > 0 {
            require("shards", shards.len(), count * parameters)?;
        }
        let row = SUMS + EXTREMA + count;
        let grid = self.segments.grid(row);
        let kernel = stream.device().kernel_of(&kernels::statistics(), "statistics")?;
        let Scratch { chunks, segments, arrived, partials } = self.segments.scratch(stream, row)?;
        let arguments = args![
            weights,
            gradient,
            displacement,
            before,
            first,
            second,
            shards,
            parameters as u64,
            count as u32,
            chunks,
            segments,
            partials,
            arrived,
            &mut self.found
        ];
        kernel.launch(stream, &grid, &arguments)?;
        Ok(())
    }

    /// Makes what was found no numbers, so that it shows whether the next pass finds anything.
    #[cfg(feature = "lab")]
    pub(crate) fn spoil(&mut self, stream: &Stream) -> Result<()> {
        Ok(stream.fill(&mut self.found, f64::NAN)?)
    }

    /// Downloads the statistics of the last pass, tensor by tensor.
    pub fn download(&self, stream: &Stream) -> Result<Vec<TensorStatistics>> {
        let found = stream.download(&self.found)?;
        let rows = found.chunks_exact(SUMS + EXTREMA + self.shards);
        Ok(rows.zip(&self.segments.lengths).map(|(row, count)| of_row(row, *count as f64)).collect())
    }
}

fn of_row(row: &[f64], count: f64) -> TensorStatistics {
    let moments = |array: usize| Moments {
        sum: row[2 * array],
        squares: row[2 * array + 1],
        least: row[SUMS + array],
        most: row[SUMS + ARRAYS + array],
        count,
    };
    TensorStatistics {
        weights: moments(0),
        gradient: moments(1),
        displacement: moments(STATISTIC_DISPLACEMENT as usize),
        before: moments(STATISTIC_BEFORE as usize),
        first: moments(4),
        second: moments(5),
        along: row[SUMS - 1],
        shards: row[SUMS + EXTREMA..].to_vec(),
    }
}
