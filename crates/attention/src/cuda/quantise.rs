//! The quantiser: tile images from matrices of any format.

use bytemuck::Pod;
use gatework_gpu::{Buffer, ByValue, Code as _, Grid, Module, Stream, args};

use super::workspace::Images;
use super::{DeviceAttention, KEY_TILE, Rotation, Workspace, require_length, value_group};
use crate::dimensions::HeadDimension;
use crate::shape::{Shape, Strides};
use crate::shared::{Matrix, Number, QUANTISE_THREADS, QUANTISE_WORDS_BYTES};
use crate::{Element, Result, kernels};

/// e4m3 numbers, in the layout of the attention: `codes[i] * scale` of its tensor, head, or block.
#[derive(Clone, Copy)]
pub struct Quantised<'a> {
    /// e4m3 bits.
    pub codes: &'a Buffer<u8>,
    /// Positive numbers: one; or `[batch, heads]`; or `[batch, heads, blocks]`.
    pub scales: &'a Buffer<f32>,
    /// The group of values that shares a scale.
    pub granularity: Granularity,
}

/// The groups of values that may share a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granularity {
    /// The whole tensor.
    Tensor,
    /// A head of a batch.
    Head,
    /// 128 rows of a head. Of more than 512 rows, values keep their codes only where the scales of each 512
    /// are powers of two apart: the kernel has one scale for those.
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

/// The quantiser for inputs of one format. Those that are e4m3 already it only lays out.
fn module(number: Number, known: &HeadDimension, shape: &Shape, rotation: Rotation) -> Module {
    module_of(number, known, shape, rotation, value_group(shape.keys), false)
}

/// The quantiser for so many tiles of values with one scale, of packed sequences or not.
pub(super) fn module_of(
    number: Number,
    known: &HeadDimension,
    shape: &Shape,
    rotation: Rotation,
    group: usize,
    packed: bool,
) -> Module {
    kernels::QUANTISE
        .define("PACKED", u32::from(packed))
        .define("DIM", known.dim as u32)
        .define("COLUMNS", shape.dim as u32)
        .define("VALUE_COLUMNS", shape.value_dim as u32)
        .define("GROUP", group as u32)
        .define("IN_FORMAT", number.code())
        .define("ROTATE", u32::from(rotation == Rotation::Hadamard))
}

/// The quantiser for inputs of one format, for the gates.
#[cfg(feature = "lab")]
pub(crate) fn quantise_module<T: Element>(
    known: &HeadDimension,
    shape: &Shape,
    rotation: Rotation,
) -> Module {
    module(T::NUMBER, known, shape, rotation)
}

/// Largest code value of queries and keys: a product of two rows of `dim` such codes never leaves f16. The code of
/// a number is the nearest, which may be above it: then the limit is the code below.
pub fn score_limit(dim: usize) -> f32 {
    let limit = (60_000.0 / dim as f32).sqrt();
    // Codes near it are `step` apart: three bits behind the leading one.
    let step = limit.log2().floor().exp2() / 8.0;
    let below = (limit / step).floor() * step;
    let nearest = if limit - below > 0.5 * step { below + step } else { below };
    if nearest * nearest * dim as f32 > MOST_OF_F16 { below } else { limit }
}

/// The largest number of f16.
const MOST_OF_F16: f32 = 65_504.0;

/// Three tensors of one element type, with the scales that came with them.
struct Inputs<'a, T: Pod> {
    tensors: [&'a Buffer<T>; 3],
    scales: [&'a Buffer<f32>; 3],
    matrices: [Matrix; 3],
}

impl DeviceAttention {
    /// Quantises into the workspace.
    pub fn quantise<T: Element>(
        &self,
        stream: &Stream,
        workspace: &mut Workspace,
        tensors: [&Buffer<T>; 3],
    ) -> Result<()> {
        self.require_own(workspace)?;
        self.require_inputs(tensors.map(Buffer::len))?;
        let module = module(T::NUMBER, self.known, &self.form.shape, self.rotation);
        let Workspace { images, no_scales, .. } = workspace;
        let inputs = Inputs { tensors, scales: [&*no_scales; 3], matrices: self.matrices([[0, 0]; 3]) };
        self.make_images(stream, images, &module, &inputs)
    }

    /// Lays out inputs that are e4m3 already.
    pub fn arrange(
        &self,
        stream: &Stream,
        workspace: &mut Workspace,
        inputs: [Quantised<'_>; 3],
    ) -> Result<()> {
        let Shape { batch, heads, key_heads, rows, keys, .. } = self.form.shape;
        self.require_own(workspace)?;
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
        let module = module(Number::E4m3, self.known, &self.form.shape, self.rotation);
        self.make_images(stream, &mut workspace.images, &module, &inputs)
    }

    fn make_images<T: Pod>(
        &self,
        stream: &Stream,
        x: &mut Images,
        module: &Module,
        inputs: &Inputs<'_, T>,
    ) -> Result<()> {
        let Inputs { tensors: [q, k, v], scales: [q_given, k_given, v_given], matrices } = inputs;
        let [queries, keys, values] = matrices;
        let groups = self.key_tiles().div_ceil(value_group(self.form.shape.keys)) as u32;
        let blocks = [queries.tiles + keys.tiles + groups, queries.heads, self.form.shape.batch as u32];
        let shared = QUANTISE_WORDS_BYTES + (KEY_TILE * self.known.value_dim) as u32;
        let grid = Grid::new(blocks, [QUANTISE_THREADS, 1, 1]).shared(shared).early();
        self.device.kernel_of(module, "quantise")?.launch(
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
                &mut x.q_marks,
                &mut x.k_marks,
                &mut x.v_marks,
                &x.no_spans,
                ByValue(queries),
                ByValue(keys),
                ByValue(values)
            ],
        )?;
        Ok(())
    }

    fn matrices(&self, steps: [[u32; 2]; 3]) -> [Matrix; 3] {
        let Shape { heads, key_heads, rows, keys, dim, value_dim, .. } = self.form.shape;
        // A rotation spreads a row over its padding, too.
        let columns = if self.rotation == Rotation::Hadamard { self.known.dim } else { dim };
        let matrix = |heads, rows, length, tiles, [scales_of_head, scales_of_block]: [u32; 2]| {
            let Strides { batch, head, row } = self.form.layout.strides(heads, rows, length);
            Matrix {
                batch_stride: batch as u64,
                head_stride: head as u64,
                row_stride: row as u64,
                rows: rows as u32,
                heads: heads as u32,
                tiles: tiles as u32,
                limit: score_limit(columns),
                scales_of_head,
                scales_of_block,
                groups: 0,
                unused: 0,
            }
        };
        [
            matrix(heads, rows, dim, self.query_tiles(), steps[0]),
            matrix(key_heads, keys, dim, self.key_tiles(), steps[1]),
            matrix(key_heads, keys, value_dim, self.key_tiles(), steps[2]),
        ]
    }

    fn require_inputs(&self, [q, k, v]: [usize; 3]) -> Result<()> {
        require_length("q", q, self.form.shape.query_elements())?;
        require_length("k", k, self.form.shape.key_elements())?;
        require_length("v", v, self.form.shape.value_elements())
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::score_limit;

    #[test]
    fn products_of_the_largest_codes_stay_in_f16() {
        for dim in 1..=256usize {
            let limit = score_limit(dim);
            // Every number of e4m3 from 1 on is an eighth of a power of two times 8 to 15.
            let codes =
                (0..9).flat_map(|power| (8..16).map(move |part| part as f32 / 8.0 * 2f32.powi(power)));
            let nearest = codes.min_by(|a, b| (a - limit).abs().total_cmp(&(b - limit).abs())).unwrap_or(0.0);
            let product = nearest * nearest * dim as f32;
            assert!(f16::from_f32(product).is_finite(), "{dim}: {product}");
            assert!(product > 40_000.0, "{dim}: {product} wastes codes");
        }
    }
}
