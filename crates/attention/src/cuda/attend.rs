//! The attention kernel over what the quantiser made.

use std::f32::consts::LOG2_E;

use gatework_gpu::{Buffer, ByValue, Code as _, Grid, Module, Stream, args};

use super::schedule::{Exponential, Schedule};
use super::workspace::Images;
use super::{DeviceAttention, Workspace, require_length, value_group};
use crate::dimensions::HeadDimension;
use crate::form::Form;
use crate::shape::{Layout, Mask, Shape, Strides};
use crate::shared::{Problem, WITH_CURVE, WITH_SINKS, WITH_SOFT_CAP, WITH_TURNS, WITH_WINDOW};
use crate::{Element, Result, kernels};

/// What is compiled into a kernel.
pub(super) fn features(form: &Form, turns: bool, exponential: Exponential) -> u32 {
    let features = [
        (turns, WITH_TURNS),
        (exponential == Exponential::Parabola, WITH_CURVE),
        (matches!(form.mask, Mask::Window { .. }), WITH_WINDOW),
        (form.sinks.is_some(), WITH_SINKS),
        (form.soft_cap.is_some(), WITH_SOFT_CAP),
    ];
    features.iter().map(|&(has, feature)| if has { feature } else { 0 }).sum()
}

/// A soft cap as kernels take it: the cap in eighths of log2, and what scores are multiplied with before the
/// hyperbolic tangent.
pub(super) fn cap_of(form: &Form) -> [f32; 2] {
    // Nobody reads a cap that is not asked for.
    let cap = form.soft_cap.unwrap_or(1.0);
    [8.0 * LOG2_E * cap, 0.25 / cap]
}

/// The attention kernel for outputs of one format.
pub(crate) fn attention_module<O: Element>(known: &HeadDimension, form: &Form, schedule: Schedule) -> Module {
    module::<O>(known, form, schedule, value_group(form.shape.keys), 0)
}

/// The attention kernel for so many tiles of values with one scale, and features besides those of the form.
pub(super) fn module<O: Element>(
    known: &HeadDimension,
    form: &Form,
    schedule: Schedule,
    group: usize,
    more_features: u32,
) -> Module {
    let features = features(form, schedule.turns, schedule.exponential) | more_features;
    kernels::ATTENTION
        .define("DIM", known.dim as u32)
        .define("VALUE_COLUMNS", form.shape.value_dim as u32)
        .define("GROUP", group as u32)
        .define("OUT_FORMAT", O::NUMBER.code())
        .define("CONSUMERS", schedule.consumers)
        .define("STAGES", schedule.stages)
        .define("FEATURES", features)
        .define("SHARED_BYTES", schedule.shared_bytes(known))
}

impl DeviceAttention {
    /// Attends over what the workspace holds.
    pub fn attend<O: Element>(
        &self,
        stream: &Stream,
        workspace: &mut Workspace,
        o: &mut Buffer<O>,
    ) -> Result<()> {
        self.require_own(workspace)?;
        require_length("o", o.len(), self.form.shape.output_elements())?;
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
        let module = attention_module::<O>(self.known, &self.form, self.schedule);
        let kernel = self.device.kernel_of(&module, "attention")?;
        let Images { q, k, v, q_scales, k_scales, v_scales, q_marks, k_marks, v_marks, sinks, .. } = images;
        let arguments = args![
            q,
            k,
            v,
            q_scales,
            k_scales,
            v_scales,
            q_marks,
            k_marks,
            v_marks,
            sinks,
            lists,
            o,
            lse,
            ByValue(problem)
        ];
        kernel.launch(stream, &self.grid(), &arguments)?;
        Ok(())
    }

    /// A block an item, or a block a multiprocessor if they have lists.
    fn grid(&self) -> Grid {
        let multiprocessors = self.device.properties().multiprocessors as usize;
        let Form { shape, mask, .. } = &self.form;
        let has_lists = self.schedule.has_lists(shape, *mask, multiprocessors);
        let blocks = if has_lists { multiprocessors } else { self.schedule.items(shape, *mask) };
        Grid::new([blocks as u32, 1, 1], [self.schedule.threads(), 1, 1])
            .shared(self.schedule.shared_bytes(self.known))
            .early()
    }

    fn problem(&self, items: usize, in_parts: bool) -> Problem {
        let Shape { heads, key_heads, rows, keys, value_dim, .. } = self.form.shape;
        let layout = if in_parts { Layout::HeadsFirst } else { self.form.layout };
        let Strides { batch, head, row } = layout.strides(heads, rows, value_dim);
        let place = keys as i32 - rows as i32;
        let [cap, cap_factor] = cap_of(&self.form);
        let at_most = |size: usize, most: usize| size.min(most) as i32;
        Problem {
            rows: rows as u32,
            keys: keys as u32,
            key_tiles: self.key_tiles() as u32,
            query_tiles: self.query_tiles() as u32,
            heads: heads as u32,
            key_heads: key_heads as u32,
            diagonal: match self.form.mask {
                Mask::Full => keys as i32,
                Mask::Causal => place,
                Mask::Window { right, .. } => place + at_most(right, rows),
            },
            first_diagonal: match self.form.mask {
                Mask::Full | Mask::Causal => 0,
                Mask::Window { left, .. } => place - at_most(left, keys),
            },
            cap,
            cap_factor,
            log2_scale: LOG2_E * self.form.scale,
            batch_stride: batch as u64,
            head_stride: head as u64,
            row_stride: row as u64,
            split_stride: self.form.shape.output_elements() as u64,
            split_lse_stride: self.form.shape.query_rows() as u64,
            splits: self.schedule.splits(&self.form.shape, self.form.mask) as u32,
            split_tiles: self.schedule.split_tiles(&self.form.shape, self.form.mask) as u32,
            items: items as u32,
            value_groups: 0,
            work_at: 0,
            sequences_at: 0,
            unused: 0,
        }
    }
}
