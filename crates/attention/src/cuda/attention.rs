//! The attention kernel over what the quantiser made.

use bytemuck::{Pod, Zeroable};
use gatework_gpu::{Buffer, ByValue, Grid, Source, Stream, args};

use super::schedule::{Exponential, Schedule};
use super::workspace::Images;
use super::{Attention, Workspace, require_length, value_group};
use crate::shape::{Layout, Mask, Shape, Strides};
use crate::{Element, Result};

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
    split_stride: u64,
    split_lse_stride: u64,
    splits: u32,
    split_tiles: u32,
    items: u32,
    padding: u32,
}

/// The attention kernel for outputs of one format.
pub fn attention_source<O: Element>(shape: &Shape, schedule: Schedule) -> Source {
    Source::new("attention", include_str!("../../kernels/attention.cuh"))
        .define("DIM", shape.dim)
        .define("GROUP", value_group(shape.keys))
        .define("OUT", O::BITS)
        .define("OUT_FORMAT", O::FORMAT)
        .define("CONSUMERS", schedule.consumers)
        .define("STAGES", schedule.stages)
        .define("TURNS", u32::from(schedule.turns))
        .define("CURVE", u32::from(schedule.exponential == Exponential::Parabola))
}

impl Attention {
    /// Attends over what the workspace holds.
    pub fn attend<O: Element>(
        &self,
        stream: &Stream,
        workspace: &mut Workspace,
        o: &mut Buffer<O>,
    ) -> Result<()> {
        require_length("o", o.len(), self.shape.query_elements())?;
        let Workspace { images, lists, items, lse, parts, .. } = workspace;
        let problem = self.problem(*items, parts.is_some());
        match parts {
            None => self.launch(stream, images, lists, &problem, o, lse),
            Some(parts) => {
                self.launch(stream, images, lists, &problem, &mut parts.outputs, &mut parts.lse)?;
                self.combine(stream, parts, o, lse)
            }
        }
    }

    fn launch<O: Element>(
        &self,
        stream: &Stream,
        images: &Images,
        lists: &Buffer<u32>,
        problem: &Problem,
        o: &mut Buffer<O>,
        lse: &mut Buffer<f32>,
    ) -> Result<()> {
        let kernel = self.device.kernel(&attention_source::<O>(&self.shape, self.schedule))?;
        let Images { q, k, v, q_scales, k_scales, v_scales } = images;
        let arguments = args![q, k, v, q_scales, k_scales, v_scales, lists, o, lse, ByValue(problem)];
        kernel.launch(stream, &self.grid(), &arguments)?;
        Ok(())
    }

    /// A block an item, or a block a multiprocessor if they have lists.
    fn grid(&self) -> Grid {
        let multiprocessors = self.device.properties().multiprocessors as usize;
        let items = self.schedule.items(&self.shape);
        let blocks = if self.schedule.has_lists(items, multiprocessors) { multiprocessors } else { items };
        Grid::new([blocks as u32, 1, 1], [self.schedule.threads(), 1, 1])
            .shared(self.schedule.shared_bytes(self.shape.dim))
            .early()
    }

    fn problem(&self, items: usize, in_parts: bool) -> Problem {
        let Shape { heads, key_heads, rows, keys, dim, .. } = self.shape;
        let layout = if in_parts { Layout::HeadsFirst } else { self.layout };
        let Strides { batch, head, row } = layout.strides(heads, rows, dim);
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
            split_stride: self.shape.query_elements() as u64,
            split_lse_stride: (self.shape.query_elements() / dim) as u64,
            splits: self.schedule.splits,
            split_tiles: self.schedule.split_tiles(&self.shape) as u32,
            items: items as u32,
            padding: 0,
        }
    }
}
