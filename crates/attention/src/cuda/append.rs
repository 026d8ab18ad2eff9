//! Pages of a cache in the memory of a device, and what writes them.

use gatework_gpu::{Buffer, ByValue, Code as _, Device, Grid, Kernel, Module, Stream, args};
use half::f16;

use super::{KEY_TILE, score_limit};
use crate::shared::{
    AppendItem, CacheShape, Number, PLAN_APPENDS, PLAN_WORDS, QUANTISE_THREADS, QUANTISE_WORDS_BYTES,
    ReopenItem, SUM_ROWS,
};
use crate::{Element, Result, kernels};

/// Pages of [`KEY_TILE`] keys of every key head: images of e4m3 codes with their scales and marks, and f16
/// rows of those that are open.
#[derive(Debug)]
pub(crate) struct DevicePages {
    pub(super) stream: Stream,
    pub(super) key_heads: usize,
    pub(super) dim: usize,
    /// `[page, key head]` tiles, as the attention kernel reads them.
    pub(super) k: Buffer<u8>,
    pub(super) v: Buffer<u8>,
    pub(super) k_scales: Buffer<f32>,
    pub(super) v_scales: Buffer<f32>,
    pub(super) k_marks: Buffer<u8>,
    pub(super) v_marks: Buffer<u32>,
    /// `[place, key head, keys or values, row, dim]`.
    open: Buffer<f16>,
}

/// The kernels that write pages, for rows of one format.
fn module(number: Number, dim: usize) -> Module {
    kernels::APPEND.define("DIM", dim as u32).define("IN_FORMAT", number.code())
}

/// The kernels that write pages, for the gates.
#[cfg(feature = "lab")]
pub(crate) fn append_module<T: Element>(dim: usize) -> Module {
    module(T::NUMBER, dim)
}

/// Shared memory of a block that appends.
fn append_shared_bytes(dim: usize) -> u32 {
    QUANTISE_WORDS_BYTES + (KEY_TILE * dim) as u32
}

impl DevicePages {
    /// So many pages, and places for the f16 rows of so many that are open.
    pub(crate) fn new(
        stream: &Stream,
        key_heads: usize,
        dim: usize,
        pages: usize,
        open: usize,
    ) -> Result<Self> {
        let tiles = pages * key_heads;
        Ok(Self {
            key_heads,
            dim,
            k: stream.alloc(tiles * KEY_TILE * dim)?,
            v: stream.alloc(tiles * KEY_TILE * (dim + SUM_ROWS as usize))?,
            k_scales: stream.alloc(tiles)?,
            v_scales: stream.alloc(tiles)?,
            k_marks: stream.alloc(tiles * KEY_TILE)?,
            v_marks: stream.alloc(tiles * dim)?,
            open: stream.alloc(open * key_heads * 2 * KEY_TILE * dim)?,
            stream: stream.clone(),
        })
    }

    /// The stream that calls over host memory are queued on.
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The bytes of a page: images and scales.
    #[cfg(test)]
    pub(crate) fn page(&self, page: usize) -> Result<Vec<u8>> {
        let tiles = page * self.key_heads..(page + 1) * self.key_heads;
        let part = |size: usize| tiles.start * size..tiles.end * size;
        let mut bytes = self.stream.download(&self.k.slice(part(KEY_TILE * self.dim)))?;
        let v_size = KEY_TILE * (self.dim + SUM_ROWS as usize);
        bytes.extend(self.stream.download(&self.v.slice(part(v_size)))?);
        for scales in [&self.k_scales, &self.v_scales] {
            bytes.extend(bytemuck::cast_slice::<f32, u8>(&self.stream.download(&scales.slice(part(1)))?));
        }
        Ok(bytes)
    }

    fn shape(&self, appends_at: usize) -> CacheShape {
        CacheShape {
            key_heads: self.key_heads as u32,
            limit: score_limit(self.dim),
            appends_at: appends_at as u32,
            unused: 0,
        }
    }

    /// Puts the first rows of full pages into places for open ones.
    pub(crate) fn reopen(&mut self, stream: &Stream, items: &[ReopenItem]) -> Result<()> {
        if items.is_empty() {
            return Ok(());
        }
        let kernel = stream.device().kernel_of(&module(Number::F16, self.dim), "reopen")?;
        let grid =
            Grid::new([items.len() as u32, self.key_heads as u32, 1], [QUANTISE_THREADS, 1, 1]).early();
        let (items, shape) = (stream.upload(items)?, self.shape(0));
        let Self { k, v, k_scales, v_scales, k_marks, v_marks, open, .. } = self;
        let arguments =
            args![&*k, &*v, &*k_scales, &*v_scales, &*k_marks, &*v_marks, open, &items, ByValue(&shape)];
        kernel.launch(stream, &grid, &arguments)?;
        Ok(())
    }

    /// Does appends with rows `[row, key head, dim]`.
    pub(crate) fn append_now<T: Element>(
        &mut self,
        stream: &Stream,
        items: &[AppendItem],
        rows: [&Buffer<T>; 2],
    ) -> Result<()> {
        if items.is_empty() {
            return Ok(());
        }
        let mut words = vec![0; PLAN_WORDS as usize];
        words[PLAN_APPENDS as usize] = items.len() as u32;
        words.extend_from_slice(bytemuck::cast_slice(items));
        let plan = stream.upload(&words)?;
        let kernel = self.append_kernel::<T>(stream.device())?;
        self.append(&kernel, stream, &plan, PLAN_WORDS as usize, items.len(), rows)
    }

    /// The kernel that appends rows of a format.
    pub(super) fn append_kernel<T: Element>(&self, device: &Device) -> Result<Kernel> {
        Ok(device.kernel_of(&module(T::NUMBER, self.dim), "append")?)
    }

    /// Does the appends of a plan, of which there are at most `most`, with rows `[row, key head, dim]`.
    pub(super) fn append<T: Element>(
        &mut self,
        kernel: &Kernel,
        stream: &Stream,
        plan: &Buffer<u32>,
        appends_at: usize,
        most: usize,
        [rows_k, rows_v]: [&Buffer<T>; 2],
    ) -> Result<()> {
        let blocks = [2 * most as u32, self.key_heads as u32, 1];
        let grid = Grid::new(blocks, [QUANTISE_THREADS, 1, 1]).shared(append_shared_bytes(self.dim)).early();
        let shape = self.shape(appends_at);
        let Self { k, v, k_scales, v_scales, k_marks, v_marks, open, .. } = self;
        let arguments =
            args![rows_k, rows_v, k, v, k_scales, v_scales, k_marks, v_marks, open, plan, ByValue(&shape)];
        kernel.launch(stream, &grid, &arguments)?;
        Ok(())
    }
}

impl AppendItem {
    /// Whether the page is full after it.
    pub(crate) fn fills(&self) -> bool {
        (self.kept + self.added) as usize == KEY_TILE
    }
}
