//! The quantiser: tile images from matrices of any format.

use bytemuck::{Pod, Zeroable};
use gatework_gpu::{Buffer, ByValue, Grid, Source, Stream, args};

use super::workspace::Images;
use super::{Attention, KEY_TILE, Rotation, Workspace, require_length, value_group};
use crate::shape::{Shape, Strides};
use crate::{Element, Result};

/// Threads of a block.
const THREADS: u32 = 256;
/// A word for each of its warps.
const WARP_WORDS_BYTES: u32 = 64;

/// e4m3 numbers, in the layout of the attention: `codes[i] * scale` of its tensor, head, or block.
#[derive(Clone, Copy)]
pub struct Quantised<'a> {
    /// e4m3 bits.
    pub codes: &'a Buffer<u8>,
    /// Positive numbers: one; or `[batch, heads]`; or `[batch, heads, blocks]`.
    pub scales: &'a Buffer<f32>,
    /// What a scale is for.
    pub granularity: Granularity,
}

/// What shares a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granularity {
    /// The whole tensor.
    Tensor,
    /// A head of a batch.
    Head,
    /// 128 rows of a head. Of more than 512 rows, values keep their codes only where the scales of each 512 are powers of two
    /// apart: the kernel has one scale for those.
    Block,
}

impl Granularity {
    /// How far apart the scales of two heads are, and of two blocks.
    fn steps(self, rows: usize) -> [u32; 2] {
        match self {
            Self::Tensor => [0, 0],
            Self::Head => [1, 0],
            Self::Block => [rows.div_ceil(KEY_TILE) as u32, 1],
        }
    }

    fn scales(self, batch: usize, heads: usize, rows: usize) -> usize {
        match self {
            Self::Tensor => 1,
            Self::Head => batch * heads,
            Self::Block => batch * heads * rows.div_ceil(KEY_TILE),
        }
    }
}

/// `Matrix` of quantise.cuh.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Matrix {
    batch_stride: u64,
    head_stride: u64,
    row_stride: u64,
    rows: u32,
    heads: u32,
    tiles: u32,
    limit: f32,
    scales_of_head: u32,
    scales_of_block: u32,
}

/// The quantiser for inputs of one format.
pub fn quantise_source<T: Element>(shape: &Shape, rotation: Rotation) -> Source {
    source(T::BITS, T::FORMAT, shape, rotation)
}

/// The quantiser for inputs that are e4m3 already: it only lays them out.
pub fn arrange_source(shape: &Shape, rotation: Rotation) -> Source {
    source("u8", 3, shape, rotation)
}

fn source(bits: &str, format: u32, shape: &Shape, rotation: Rotation) -> Source {
    Source::new("quantise", include_str!("../../kernels/quantise.cuh"))
        .define("DIM", shape.dim)
        .define("GROUP", value_group(shape.keys))
        .define("IN", bits)
        .define("IN_FORMAT", format)
        .define("ROTATE", u32::from(rotation == Rotation::Hadamard))
}

/// Largest code value of queries and keys: a product of two rows of `dim` such codes never leaves f16.
pub(crate) fn score_limit(dim: usize) -> f32 {
    (60_000.0 / dim as f32).sqrt()
}

/// Three tensors of one element type, with the scales that came with them.
struct Inputs<'a, T: Pod> {
    tensors: [&'a Buffer<T>; 3],
    scales: [&'a Buffer<f32>; 3],
    matrices: [Matrix; 3],
}

impl Attention {
    /// Quantises into the workspace.
    pub fn quantise<T: Element>(
        &self,
        stream: &Stream,
        workspace: &mut Workspace,
        tensors: [&Buffer<T>; 3],
    ) -> Result<()> {
        self.require_inputs(tensors.map(Buffer::len))?;
        let source = quantise_source::<T>(&self.shape, self.rotation);
        let Workspace { images, no_scales, .. } = workspace;
        let inputs = Inputs { tensors, scales: [&*no_scales; 3], matrices: self.matrices([[0, 0]; 3]) };
        self.make_images(stream, images, &source, &inputs)
    }

    /// Lays out inputs that are e4m3 already.
    pub fn arrange(
        &self,
        stream: &Stream,
        workspace: &mut Workspace,
        inputs: [Quantised<'_>; 3],
    ) -> Result<()> {
        let Shape { batch, heads, key_heads, rows, keys, .. } = self.shape;
        self.require_inputs(inputs.map(|x| x.codes.len()))?;
        let sizes = [(heads, rows), (key_heads, keys), (key_heads, keys)];
        let mut steps = [[0, 0]; 3];
        for (i, tensor) in ["scales of q", "scales of k", "scales of v"].into_iter().enumerate() {
            let (x, (heads, rows)) = (inputs[i], sizes[i]);
            require_length(tensor, x.scales.len(), x.granularity.scales(batch, heads, rows))?;
            steps[i] = x.granularity.steps(rows);
        }
        let inputs = Inputs {
            tensors: inputs.map(|x| x.codes),
            scales: inputs.map(|x| x.scales),
            matrices: self.matrices(steps),
        };
        let source = arrange_source(&self.shape, self.rotation);
        self.make_images(stream, &mut workspace.images, &source, &inputs)
    }

    fn make_images<T: Pod>(
        &self,
        stream: &Stream,
        x: &mut Images,
        source: &Source,
        inputs: &Inputs<'_, T>,
    ) -> Result<()> {
        let Inputs { tensors: [q, k, v], scales: [q_given, k_given, v_given], matrices } = inputs;
        let [queries, keys, values] = matrices;
        let groups = self.key_tiles().div_ceil(value_group(self.shape.keys)) as u32;
        let blocks = [queries.tiles + keys.tiles + groups, queries.heads, self.shape.batch as u32];
        let shared = WARP_WORDS_BYTES + (KEY_TILE * self.shape.dim) as u32;
        let grid = Grid::new(blocks, [THREADS, 1, 1]).shared(shared).early();
        self.device.kernel(source)?.launch(
            stream,
            &grid,
            &args![
                *q,
                *k,
                *v,
                *q_given,
                *k_given,
                *v_given,
                &mut x.q,
                &mut x.k,
                &mut x.v,
                &mut x.q_scales,
                &mut x.k_scales,
                &mut x.v_scales,
                ByValue(queries),
                ByValue(keys),
                ByValue(values)
            ],
        )?;
        Ok(())
    }

    fn matrices(&self, steps: [[u32; 2]; 3]) -> [Matrix; 3] {
        let Shape { heads, key_heads, rows, keys, .. } = self.shape;
        let matrix = |heads, rows, tiles, [scales_of_head, scales_of_block]: [u32; 2]| {
            let Strides { batch, head, row } = self.layout.strides(heads, rows, self.shape.dim);
            Matrix {
                batch_stride: batch as u64,
                head_stride: head as u64,
                row_stride: row as u64,
                rows: rows as u32,
                heads: heads as u32,
                tiles: tiles as u32,
                limit: score_limit(self.shape.dim),
                scales_of_head,
                scales_of_block,
            }
        };
        [
            matrix(heads, rows, self.query_tiles(), steps[0]),
            matrix(key_heads, keys, self.key_tiles(), steps[1]),
            matrix(key_heads, keys, self.key_tiles(), steps[2]),
        ]
    }

    fn require_inputs(&self, [q, k, v]: [usize; 3]) -> Result<()> {
        require_length("q", q, self.shape.query_elements())?;
        require_length("k", k, self.shape.key_elements())?;
        require_length("v", v, self.shape.key_elements())
    }
}
