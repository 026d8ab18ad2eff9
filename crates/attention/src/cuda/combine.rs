//! Attention over all keys from attention over parts of them.

use gatework_gpu::{Buffer, ByValue, Code as _, Grid, Module, Stream, args};

use super::DeviceAttention;
use super::workspace::PartsOfKeys;
use crate::shape::{Shape, Strides};
use crate::shared::Parts;
use crate::{Element, Result, kernels};

/// Threads of a block, of which a warp has a row.
const THREADS: u32 = 128;

/// The kernel for outputs of one format.
pub(crate) fn combine_module<O: Element>(value_dim: usize) -> Module {
    kernels::COMBINE.define("COLUMNS", value_dim as u32).define("OUT_FORMAT", O::NUMBER.code())
}

impl DeviceAttention {
    pub(super) fn combine<O: Element>(
        &self,
        stream: &Stream,
        parts: &PartsOfKeys,
        o: &mut Buffer<O>,
        lse: &mut Buffer<f32>,
    ) -> Result<()> {
        let Shape { batch: batches, heads, rows, value_dim, .. } = self.form.shape;
        let Strides { batch, head, row } = self.form.layout.strides(heads, rows, value_dim);
        let total = batches * heads * rows;
        let shape = Parts {
            count: self.schedule.splits(&self.form.shape, self.form.mask) as u32,
            rows: rows as u32,
            heads: heads as u32,
            unused: 0,
            batch_stride: batch as u64,
            head_stride: head as u64,
            row_stride: row as u64,
            total: total as u64,
        };
        let grid = Grid::covering(32 * total, THREADS).early();
        let arguments = args![&parts.outputs, &parts.lse, o, lse, ByValue(&shape)];
        let kernel = self.device.kernel_of(&combine_module::<O>(value_dim), "combine")?;
        kernel.launch(stream, &grid, &arguments)?;
        Ok(())
    }
}
