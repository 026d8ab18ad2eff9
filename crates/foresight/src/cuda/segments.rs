//! Many tensors in one array, cut into chunks that blocks take one each.

use std::ops::Range;

use gatework_gpu::{Buffer, Grid, Stream};

use super::shared::{Chunk, REDUCE_THREADS, Segment};
use crate::error::{Error, Result};
use crate::network::Parameters;

/// Parameters of a chunk: enough that adding up threads, warps and chunks costs little beside reading them.
const CHUNK: usize = 1 << 15;
const MOST_SEGMENTS: usize = 1 << 20;

/// A tensor among all parameters, and what a step does with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Where it lies.
    pub range: Range<usize>,
    /// Decoupled weight decay.
    pub decay: f32,
    /// The factor of Muon's orthogonal direction; AdamW ignores it.
    pub scale: f32,
}

impl Tensor {
    /// Without decay.
    pub fn new(range: Range<usize>) -> Self {
        Self { range, decay: 0.0, scale: 1.0 }
    }

    /// The matrix and the bias of every group from number `frozen` on, in turn; matrices decay.
    pub fn of_groups(groups: &[Parameters], frozen: usize, decay: f32) -> Vec<Self> {
        let of_group = |group: &Parameters| {
            [Self { decay, ..Self::new(group.matrix.clone()) }, Self::new(group.bias.clone())]
        };
        groups.iter().skip(frozen).flat_map(of_group).filter(|tensor| !tensor.range.is_empty()).collect()
    }
}

/// Where tensors lie in arrays of so many parameters, on a device.
///
/// Chunks end at multiples of their length, so that they can be read in vectors wherever a tensor begins.
#[derive(Debug)]
pub struct Segments {
    parameters: usize,
    /// Parameters of every tensor.
    pub(super) lengths: Vec<usize>,
    chunk_count: usize,
    chunks: Buffer<Chunk>,
    segments: Buffer<Segment>,
    /// Blocks that have come to the end of a tensor; zeros between launches.
    arrived: Buffer<u32>,
    partials: Option<Buffer<f64>>,
}

impl Segments {
    /// Tensors in the order of their places. They may leave gaps, which no kernel touches, but not overlap.
    pub fn new(stream: &Stream, parameters: usize, tensors: &[Tensor]) -> Result<Self> {
        Self::with_chunks(stream, parameters, tensors, CHUNK)
    }

    /// The same, each of which is clipped by its own length, not by that of all of them.
    pub(super) fn apart(stream: &Stream, parameters: usize, tensors: &[Tensor]) -> Result<Self> {
        Self::build(stream, parameters, tensors, CHUNK, |number| number)
    }

    /// With chunks of that many parameters.
    pub(super) fn with_chunks(
        stream: &Stream,
        parameters: usize,
        tensors: &[Tensor],
        chunk: usize,
    ) -> Result<Self> {
        Self::build(stream, parameters, tensors, chunk, |_| 0)
    }

    fn build(
        stream: &Stream,
        parameters: usize,
        tensors: &[Tensor],
        chunk: usize,
        length: impl Fn(u32) -> u32,
    ) -> Result<Self> {
        check(parameters, tensors)?;
        let (mut chunks, mut segments) = (Vec::new(), Vec::new());
        for (number, tensor) in tensors.iter().enumerate() {
            let first_chunk = chunks.len();
            let mut start = tensor.range.start;
            while start < tensor.range.end {
                let end = ((start / chunk + 1) * chunk).min(tensor.range.end);
                let segment = number as u32;
                chunks.push(Chunk { start: start as u64, end: end as u64, segment, unused: 0 });
                start = end;
            }
            let count = chunks.len() - first_chunk;
            segments.push(Segment {
                first_chunk: first_chunk as u32,
                chunks: count as u32,
                decay: tensor.decay,
                scale: tensor.scale,
                length: length(number as u32),
            });
        }
        Ok(Self {
            parameters,
            lengths: tensors.iter().map(|tensor| tensor.range.len()).collect(),
            chunk_count: chunks.len(),
            chunks: stream.upload(&chunks)?,
            segments: stream.upload(&segments)?,
            arrived: stream.alloc_zeros(segments.len())?,
            partials: None,
        })
    }

    /// How many there are.
    pub fn tensors(&self) -> usize {
        self.lengths.len()
    }

    /// Numbers of the arrays that the tensors lie in.
    pub fn parameters(&self) -> usize {
        self.parameters
    }

    /// A block a chunk, with room for `row` values of every warp.
    pub(super) fn grid(&self, row: usize) -> Grid {
        let shared = row * (REDUCE_THREADS as usize / 32) * size_of::<f64>() + size_of::<u64>();
        Grid::new([self.chunk_count as u32, 1, 1], [REDUCE_THREADS, 1, 1]).shared(shared as u32)
    }

    /// Memory for `row` values of every chunk, beside what tells how many have come.
    pub(super) fn scratch(&mut self, stream: &Stream, row: usize) -> Result<Scratch<'_>> {
        let needed = row * self.chunk_count;
        let partials = match self.partials.take() {
            Some(partials) if partials.len() >= needed => partials,
            _ => stream.alloc(needed)?,
        };
        let partials = self.partials.insert(partials);
        Ok(Scratch { chunks: &self.chunks, segments: &self.segments, arrived: &mut self.arrived, partials })
    }

    pub(super) fn require(&self, what: &str, array: &Buffer<f32>) -> Result<()> {
        require(what, array.len(), self.parameters)
    }
}

/// What a launch needs of the segments.
pub(super) struct Scratch<'a> {
    pub(super) chunks: &'a Buffer<Chunk>,
    pub(super) segments: &'a Buffer<Segment>,
    pub(super) arrived: &'a mut Buffer<u32>,
    pub(super) partials: &'a mut Buffer<f64>,
}

pub(super) fn require(what: &str, found: usize, needed: usize) -> Result<()> {
    if found == needed {
        return Ok(());
    }
    Err(Error::shape(format!("'{what}' has {found} numbers where {needed} are needed")))
}

fn check(parameters: usize, tensors: &[Tensor]) -> Result<()> {
    if tensors.is_empty() || tensors.len() > MOST_SEGMENTS {
        return Err(Error::shape(format!("{} tensors: a launch takes 1 to {MOST_SEGMENTS}", tensors.len())));
    }
    let mut end = 0;
    for (number, Tensor { range, .. }) in tensors.iter().enumerate() {
        if range.is_empty() || range.end > parameters {
            return Err(Error::shape(format!(
                "tensor {number} is {range:?} of {parameters} parameters: it must have some of them"
            )));
        }
        if range.start < end {
            return Err(Error::shape(format!(
                "tensor {number} begins at {} and the one before ends at {end}: they come in the order of their \
                 places and may not overlap",
                range.start
            )));
        }
        end = range.end;
    }
    Ok(())
}
