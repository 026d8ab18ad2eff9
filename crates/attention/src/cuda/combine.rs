//! Attention over all keys from attention over parts of them.

use bytemuck::{Pod, Zeroable};
use gatework_gpu::{Buffer, ByValue, Grid, Source, Stream, args};

use super::Attention;
use super::workspace::Parts;
use crate::shape::{Shape, Strides};
use crate::{Element, Result};

/// Threads of a block, of which a warp has a row.
const THREADS: u32 = 128;

/// `Parts` of combine.cuh.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PartsShape {
    count: u32,
    rows: u32,
    heads: u32,
    padding: u32,
    batch_stride: u64,
    head_stride: u64,
    row_stride: u64,
    total: u64,
}

/// The kernel for outputs of one format.
pub fn combine_source<O: Element>(dim: usize) -> Source {
    Source::new("combine", include_str!("../../kernels/combine.cuh"))
        .define("DIM", dim)
        .define("OUT", O::BITS)
        .define("OUT_FORMAT", O::FORMAT)
}

impl Attention {
    pub(super) fn combine<O: Element>(
        &self,
        stream: &Stream,
        parts: &Parts,
        o: &mut Buffer<O>,
        lse: &mut Buffer<f32>,
    ) -> Result<()> {
        let Shape { batch: batches, heads, rows, dim, .. } = self.shape;
        let Strides { batch, head, row } = self.layout.strides(heads, rows, dim);
        let total = batches * heads * rows;
        let shape = PartsShape {
            count: self.schedule.splits,
            rows: rows as u32,
            heads: heads as u32,
            padding: 0,
            batch_stride: batch as u64,
            head_stride: head as u64,
            row_stride: row as u64,
            total: total as u64,
        };
        let grid = Grid::covering(32 * total, THREADS).early();
        let arguments = args![&parts.outputs, &parts.lse, o, lse, ByValue(&shape)];
        self.device.kernel(&combine_source::<O>(dim))?.launch(stream, &grid, &arguments)?;
        Ok(())
    }
}
