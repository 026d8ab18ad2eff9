//! Attention on a device: the quantiser, the kernel, and the memory between them.

pub mod schedule;

use bytemuck::{Pod, Zeroable};
use gatework_gpu::{Buffer, ByValue, Device, Grid, Kernel, Source, Stream, ViewMut, args};

use crate::attention::Place;
use crate::shape::{Layout, Mask, Shape, Strides};
use crate::{Element, Error, Result};
use schedule::Schedule;

/// Query rows of a tile.
const QUERY_TILE: usize = 64;
/// Keys of a tile.
pub(crate) const KEY_TILE: usize = 128;
/// Rows below the values of a tile, which sum p.
const SUM_ROWS: usize = 8;
/// Threads of a block of the quantiser.
const QUANTISER_THREADS: u32 = 256;
/// A word for each of its warps.
const QUANTISER_SHARED_BYTES: u32 = 64;

/// An attention of one shape over buffers on one device.
#[derive(Debug, Clone)]
pub struct Attention {
    device: Device,
    shape: Shape,
    mask: Mask,
    layout: Layout,
    scale: f32,
    rotation: Rotation,
    schedule: Schedule,
}

/// Whether queries and keys are rotated before they are quantised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rotation {
    /// As they are.
    #[default]
    None,
    /// By a Hadamard matrix, which spreads outliers over the row and leaves products as they are.
    Hadamard,
}

/// What an [`Attention`] is made from.
#[derive(Debug, Clone)]
pub struct Builder {
    pub(crate) shape: Shape,
    pub(crate) mask: Mask,
    pub(crate) layout: Layout,
    scale: Option<f32>,
    rotation: Rotation,
    schedule: Option<Schedule>,
}

impl Builder {
    /// Which keys a row sees. Default: all.
    pub fn mask(self, mask: Mask) -> Self {
        Self { mask, ..self }
    }

    /// The order of dimensions of all four tensors. Default: heads first.
    pub fn layout(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }

    /// What scores are multiplied with. Default: `1 / sqrt(dim)`.
    pub fn scale(self, scale: f32) -> Self {
        Self { scale: Some(scale), ..self }
    }

    /// Whether to spread outliers. Default: no.
    pub fn rotation(self, rotation: Rotation) -> Self {
        Self { rotation, ..self }
    }

    /// How the kernel is run. Default: what suits the shape and the device.
    pub fn schedule(self, schedule: Schedule) -> Self {
        Self { schedule: Some(schedule), ..self }
    }

    /// Checks the combination. A [`Target`](gatework_gpu::Target) gives an [`Attention`](crate::Attention) of slices in
    /// host memory, a [`Device`] one of buffers in its own.
    pub fn build<P: Place>(self, place: &P) -> Result<P::Attention> {
        place.build(self)
    }

    /// The scale, once the combination is checked.
    pub(crate) fn checked_scale(&self) -> Result<f32> {
        self.shape.check()?;
        let scale = self.scale.unwrap_or_else(|| 1.0 / (self.shape.dim as f32).sqrt());
        if !(scale > 0.0 && scale.is_finite()) {
            return Err(Error::Unsupported {
                what: format!("scale {scale}; it must be positive and finite"),
            });
        }
        Ok(scale)
    }

    pub(crate) fn build_on(self, device: &Device) -> Result<Attention> {
        let scale = self.checked_scale()?;
        let schedule = self.schedule.unwrap_or_else(|| Schedule::suited(&self.shape, device.properties()));
        Ok(Attention {
            device: device.clone(),
            shape: self.shape,
            mask: self.mask,
            layout: self.layout,
            scale,
            rotation: self.rotation,
            schedule,
        })
    }
}

/// Quantised queries, keys and values as tile images, and the row log-sum-exp: all the memory an attention needs besides
/// its inputs and output.
#[derive(Debug)]
pub struct Workspace {
    q: Buffer<u8>,
    k: Buffer<u8>,
    v: Buffer<u8>,
    q_scales: Buffer<f32>,
    k_scales: Buffer<f32>,
    v_scales: Buffer<f32>,
    v_largest: Buffer<f32>,
    lse: Buffer<f32>,
}

impl Workspace {
    /// Log-sum-exp of every query row, `[batch, heads, rows]`, natural logarithm.
    pub fn lse(&self) -> &Buffer<f32> {
        &self.lse
    }
}

/// `Problem` of attention.cuh.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Problem {
    rows: u32,
    keys: u32,
    key_tiles: u32,
    query_tiles: u32,
    heads: u32,
    key_heads: u32,
    diagonal: i32,
    log2_scale: f32,
    batch_stride: u64,
    head_stride: u64,
    row_stride: u64,
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
}

/// The attention kernel for outputs of one format.
pub fn attention_source<O: Element>(dim: usize, schedule: Schedule) -> Source {
    Source::new("attention", include_str!("../../kernels/attention.cuh"))
        .define("DIM", dim)
        .define("OUT", O::BITS)
        .define("OUT_FORMAT", O::FORMAT)
        .define("CONSUMERS", schedule.consumers)
        .define("STAGES", schedule.stages)
}

/// The quantiser's kernels for inputs of one format.
pub fn quantise_source<T: Element>(dim: usize, rotation: Rotation) -> Source {
    Source::new("quantise", include_str!("../../kernels/quantise.cuh"))
        .define("DIM", dim)
        .define("IN", T::BITS)
        .define("IN_FORMAT", T::FORMAT)
        .define("ROTATE", u32::from(rotation == Rotation::Hadamard))
}

impl Attention {
    /// Starts with full attention over tensors with heads first.
    pub fn builder(shape: Shape) -> Builder {
        Builder {
            shape,
            mask: Mask::default(),
            layout: Layout::default(),
            scale: None,
            rotation: Rotation::default(),
            schedule: None,
        }
    }

    /// The shape it was built for.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// How the kernel is run.
    pub fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// Memory for one attention at a time. Allocate it once and use it for every call.
    pub fn workspace(&self, stream: &Stream) -> Result<Workspace> {
        let Shape { batch, heads, key_heads, rows, dim, .. } = self.shape;
        let (query_tiles, key_tiles) =
            (batch * heads * self.query_tiles(), batch * key_heads * self.key_tiles());
        Ok(Workspace {
            q: stream.alloc(query_tiles * QUERY_TILE * dim)?,
            k: stream.alloc(key_tiles * KEY_TILE * dim)?,
            v: stream.alloc(key_tiles * KEY_TILE * (dim + SUM_ROWS))?,
            q_scales: stream.alloc(query_tiles)?,
            k_scales: stream.alloc(key_tiles)?,
            v_scales: stream.alloc(batch * key_heads)?,
            v_largest: stream.alloc(key_tiles)?,
            lse: stream.alloc(batch * heads * rows)?,
        })
    }

    /// `o <- softmax(scale q k^T + mask) v`: quantises and attends, on `stream`, without waiting for it.
    pub fn forward<T: Element, O: Element>(
        &self,
        stream: &Stream,
        workspace: &mut Workspace,
        [q, k, v]: [&Buffer<T>; 3],
        o: &mut Buffer<O>,
    ) -> Result<()> {
        self.quantise(stream, workspace, [q, k, v])?;
        self.attend(stream, workspace, o)
    }

    /// Quantises into the workspace.
    pub fn quantise<T: Element>(
        &self,
        stream: &Stream,
        workspace: &mut Workspace,
        [q, k, v]: [&Buffer<T>; 3],
    ) -> Result<()> {
        let Shape { heads, key_heads, rows, keys, .. } = self.shape;
        require_length("q", q.len(), self.shape.query_elements())?;
        require_length("k", k.len(), self.shape.key_elements())?;
        require_length("v", v.len(), self.shape.key_elements())?;
        let queries = self.matrix(heads, rows, self.query_tiles());
        let keys = self.matrix(key_heads, keys, self.key_tiles());
        let batch = self.shape.batch as u32;
        let x = workspace;

        let blocks = [queries.tiles + 2 * keys.tiles, queries.heads, batch];
        let grid = Grid::new(blocks, [QUANTISER_THREADS, 1, 1]).shared(QUANTISER_SHARED_BYTES);
        let arguments = args![
            q,
            k,
            v,
            &mut x.q,
            &mut x.k,
            &mut x.q_scales,
            &mut x.k_scales,
            &mut x.v_largest,
            ByValue(&queries),
            ByValue(&keys)
        ];
        self.quantiser::<T>("quantise")?.launch(stream, &grid, &arguments)?;

        let blocks = [keys.tiles, keys.heads, batch];
        let shared = QUANTISER_SHARED_BYTES + (KEY_TILE * self.shape.dim) as u32;
        let grid = Grid::new(blocks, [QUANTISER_THREADS, 1, 1]).shared(shared);
        let arguments = args![v, &x.v_largest, &mut x.v, &mut x.v_scales, ByValue(&keys)];
        self.quantiser::<T>("quantise_values")?.launch(stream, &grid, &arguments)?;
        Ok(())
    }

    /// Attends over what the workspace holds.
    pub fn attend<O: Element>(
        &self,
        stream: &Stream,
        workspace: &mut Workspace,
        o: &mut Buffer<O>,
    ) -> Result<()> {
        require_length("o", o.len(), self.shape.query_elements())?;
        let kernel = self.device.kernel(&attention_source::<O>(self.shape.dim, self.schedule))?;
        let Shape { batch, heads, rows, .. } = self.shape;
        let blocks = rows.div_ceil(self.schedule.block_rows());
        let grid = Grid::new([blocks as u32, heads as u32, batch as u32], [self.schedule.threads(), 1, 1])
            .shared(self.schedule.shared_bytes(self.shape.dim));
        let problem = self.problem();
        let x = &mut *workspace;
        let mut bits = o.view_mut();
        kernel.launch(
            stream,
            &grid,
            &args![
                &x.q,
                &x.k,
                &x.v,
                &x.q_scales,
                &x.k_scales,
                &x.v_scales,
                bits.slice_mut(..),
                &mut x.lse,
                ByValue(&problem)
            ],
        )?;
        Ok(())
    }

    fn problem(&self) -> Problem {
        let Shape { heads, key_heads, rows, keys, dim, .. } = self.shape;
        let Strides { batch, head, row } = self.layout.strides(heads, rows, dim);
        Problem {
            rows: rows as u32,
            keys: keys as u32,
            key_tiles: self.key_tiles() as u32,
            query_tiles: self.query_tiles() as u32,
            heads: heads as u32,
            key_heads: key_heads as u32,
            diagonal: match self.mask {
                Mask::Full => keys as i32,
                Mask::Causal => keys as i32 - rows as i32,
            },
            log2_scale: std::f32::consts::LOG2_E * self.scale,
            batch_stride: batch as u64,
            head_stride: head as u64,
            row_stride: row as u64,
        }
    }

    fn matrix(&self, heads: usize, rows: usize, tiles: usize) -> Matrix {
        let Strides { batch, head, row } = self.layout.strides(heads, rows, self.shape.dim);
        Matrix {
            batch_stride: batch as u64,
            head_stride: head as u64,
            row_stride: row as u64,
            rows: rows as u32,
            heads: heads as u32,
            tiles: tiles as u32,
            limit: score_limit(self.shape.dim),
        }
    }

    fn quantiser<T: Element>(&self, entry: &str) -> Result<Kernel> {
        Ok(self.device.kernel_named(&quantise_source::<T>(self.shape.dim, self.rotation), entry)?)
    }

    /// Tiles of queries of a head: as many as its blocks have consumers.
    fn query_tiles(&self) -> usize {
        self.shape.rows.div_ceil(self.schedule.block_rows()) * self.schedule.consumers as usize
    }

    fn key_tiles(&self) -> usize {
        self.shape.keys.div_ceil(KEY_TILE)
    }
}

fn require_length(tensor: &'static str, found: usize, needed: usize) -> Result<()> {
    if found == needed { Ok(()) } else { Err(Error::Length { tensor, found, needed }) }
}

/// Largest code value of queries and keys: a product of two rows of `dim` such codes never leaves f16.
pub(crate) fn score_limit(dim: usize) -> f32 {
    (60_000.0 / dim as f32).sqrt()
}
