//! Attention of packed sequences on a device: one launch quantises all of them, and one attends.
//!
//! Each sequence has tiles of its own, so rows of two sequences never share a scale. Tiles of all sequences
//! follow each other in the images of a head. The host says which rows a tile has and what each block works
//! on; both lists stay in the workspace.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

#[cfg(feature = "lab")]
use gatework_gpu::Module;
use gatework_gpu::{Buffer, ByValue, Device, Grid, Stream, args};

use super::quantise::module_of;
use super::schedule::{ITEM_OVERHEAD, Parts, Schedule};
use super::workspace::Images;
use super::{KEY_TILE, LARGEST_GROUP, QUERY_TILE, Rotation, attend, require_length, score_limit};
use crate::dimensions::HeadDimension;
use crate::form::Form;
use crate::lengths::Lengths;
use crate::shape::{Mask, Shape, Strides};
use crate::shared::{
    Matrix, NO_ITEM, PackedSequence, PackedWork, Problem, QUANTISE_THREADS, QUANTISE_WORDS_BYTES, SUM_ROWS,
    Span, WITH_SEQUENCES,
};
use crate::{Element, Error, Result};

/// Attention of packed sequences over buffers on one device: queries `[rows, heads, dim]`, keys and values
/// `[keys, key heads, dim]`. Made by [`Builder::build_packed_on`](crate::Builder::build_packed_on).
///
/// A row's bits depend on its own sequence and head alone.
#[derive(Debug, Clone)]
pub struct DevicePackedAttention {
    device: Device,
    known: &'static HeadDimension,
    /// Its rows and keys are those of all sequences.
    form: Form,
    rotation: Rotation,
    schedule: Schedule,
    lengths: Lengths,
    plan: Arc<Plan>,
}

/// Which tiles there are, and who works on what.
#[derive(Debug, Clone)]
struct Plan {
    /// Tiles of queries, tiles of keys, groups of tiles of values.
    spans: Vec<Span>,
    query_tiles: usize,
    key_tiles: usize,
    value_groups: usize,
    sequences: Vec<PackedSequence>,
    /// Blocks of rows, those of the most tiles first.
    work: Vec<PackedWork>,
    /// The work of each block, place by place, if blocks have several items each.
    lists: Vec<u32>,
}

/// Blocks of rows of all heads, and tiles of keys, that one call takes.
const MOST_ITEMS: usize = 1 << 24;

/// Memory for one attention of packed sequences at a time: images, log-sum-exps, and the lists.
#[derive(Debug)]
pub struct PackedWorkspace {
    /// Of the attention that it was made by, or of a copy of that.
    plan: Arc<Plan>,
    images: Images,
    lse: Buffer<f32>,
    spans: Buffer<Span>,
    lists: Buffer<u32>,
    no_scales: Buffer<f32>,
}

/// The quantiser and the kernel, for the gates.
#[cfg(feature = "lab")]
pub(crate) fn packed_modules<T: Element, O: Element>(
    known: &HeadDimension,
    form: &Form,
    schedule: Schedule,
) -> [Module; 2] {
    let rotation = Rotation::None;
    [
        module_of(T::NUMBER, known, &form.shape, rotation, LARGEST_GROUP, true),
        attend::module::<O>(known, form, schedule, LARGEST_GROUP, WITH_SEQUENCES),
    ]
}

impl PackedWorkspace {
    /// Log-sum-exp of every query row, `[heads, rows]`, natural logarithm.
    pub fn lse(&self) -> &Buffer<f32> {
        &self.lse
    }
}

impl Plan {
    fn new(lengths: &Lengths, form: &Form, schedule: &Schedule, multiprocessors: usize) -> Result<Self> {
        let Shape { heads, .. } = form.shape;
        let block_rows = schedule.block_rows();
        // Before there is a list of them.
        let blocks: usize = lengths.each().map(|(rows, _)| rows.len().div_ceil(block_rows)).sum();
        let tiles: usize = lengths.each().map(|(_, keys)| keys.len().div_ceil(KEY_TILE)).sum();
        if blocks.saturating_mul(heads) > MOST_ITEMS || tiles > MOST_ITEMS {
            return Err(Error::Lengths {
                what: format!(
                    "{blocks} blocks of rows in {heads} heads, and {tiles} tiles of keys; one call takes \
                     {MOST_ITEMS} of either"
                ),
            });
        }
        let mut plan = Self {
            spans: Vec::new(),
            query_tiles: 0,
            key_tiles: 0,
            value_groups: 0,
            sequences: Vec::with_capacity(lengths.sequences()),
            work: Vec::new(),
            lists: Vec::new(),
        };
        let (mut of_keys, mut groups) = (Vec::new(), Vec::new());
        let mut costs = Vec::new();
        for (number, (rows, keys)) in lengths.each().enumerate() {
            let shape = Shape { batch: 1, rows: rows.len(), keys: keys.len(), ..form.shape };
            plan.sequences.push(PackedSequence {
                first_row: rows.start as u32,
                rows: rows.len() as u32,
                keys: keys.len() as u32,
                query_tile: plan.spans.len() as u32,
                key_tile: of_keys.len() as u32,
                value_group: groups.len() as u32,
                unused: [0; 2],
            });
            if rows.is_empty() {
                continue;
            }
            let span = |first: usize, end: usize| Span { first: first as u32, end: end as u32 };
            // Whole blocks of tiles: what is past the last row becomes zeros.
            let tiles = rows.len().div_ceil(block_rows) * schedule.consumers as usize;
            plan.spans.extend((0..tiles).map(|tile| span(rows.start + tile * QUERY_TILE, rows.end)));
            let first = of_keys.len();
            of_keys.extend((keys.start..keys.end).step_by(KEY_TILE).map(|key| span(key, keys.end)));
            let ends = (first..of_keys.len()).step_by(LARGEST_GROUP);
            groups.extend(ends.map(|tile| span(tile, of_keys.len().min(tile + LARGEST_GROUP))));
            for block in 0..rows.len().div_ceil(block_rows) {
                let cost = if keys.is_empty() { 0 } else { schedule.tiles(&shape, form.mask, block) };
                let work = |head: usize| PackedWork {
                    sequence: number as u32,
                    first_row: (block * block_rows) as u32,
                    head: head as u32,
                    unused: 0,
                };
                costs.extend((0..heads).map(|head| (cost, work(head))));
            }
        }
        (plan.query_tiles, plan.key_tiles, plan.value_groups) =
            (plan.spans.len(), of_keys.len(), groups.len());
        plan.spans.extend(of_keys);
        plan.spans.extend(groups);
        // Heads of a block of rows stay together: they read the same keys, or their neighbours.
        costs.sort_by_key(|&(cost, _)| Reverse(cost));
        if schedule.persistent && costs.len() > multiprocessors {
            plan.lists = lists_of(costs.iter().map(|&(cost, _)| cost), multiprocessors);
        }
        plan.work = costs.into_iter().map(|(_, work)| work).collect();
        Ok(plan)
    }

    /// Entries of the list, or the number of items.
    fn items(&self) -> usize {
        if self.lists.is_empty() { self.work.len() } else { self.lists.len() }
    }

    /// The list, what it counts, and the sequences, as words.
    fn words(&self) -> Vec<u32> {
        let work = bytemuck::cast_slice::<PackedWork, u32>(&self.work);
        [&self.lists[..], work, bytemuck::cast_slice(&self.sequences)].concat()
    }

    fn work_at(&self) -> usize {
        self.lists.len()
    }

    fn sequences_at(&self) -> usize {
        self.work_at() + self.work.len() * size_of::<PackedWork>() / size_of::<u32>()
    }
}

/// Items of these costs, each to the block that is free first, place by place.
fn lists_of(costs: impl Iterator<Item = u64>, blocks: usize) -> Vec<u32> {
    let mut lists = vec![Vec::new(); blocks];
    let mut free: BinaryHeap<_> = (0..blocks).map(|block| Reverse((0, block))).collect();
    for (item, cost) in costs.enumerate() {
        let Some(Reverse((busy, block))) = free.pop() else { continue };
        lists[block].push(item as u32);
        free.push(Reverse((busy + cost + ITEM_OVERHEAD, block)));
    }
    let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
    let place = |place: usize| lists.iter().map(move |list| list.get(place).copied().unwrap_or(NO_ITEM));
    (0..longest).flat_map(place).collect()
}

impl DevicePackedAttention {
    /// `form` has the rows and the keys of all sequences, and rows before heads.
    pub(crate) fn new(
        device: &Device,
        form: Form,
        rotation: Rotation,
        schedule: Option<Schedule>,
        lengths: &Lengths,
    ) -> Result<Self> {
        let known = HeadDimension::of(form.shape.dim, form.shape.value_dim)?;
        let multiprocessors = device.properties().multiprocessors as usize;
        let allowed = known.consumers(form.soft_cap.is_some());
        let schedule = match schedule {
            Some(schedule) => {
                let Schedule { consumers, parts, .. } = schedule;
                if !allowed.contains(&consumers) || parts != Parts::Count(1) {
                    let (least, most) = allowed.into_inner();
                    return Err(Error::Unsupported {
                        what: format!(
                            "{consumers} consumers and {parts:?} of packed sequences; there may be {least} to \
                             {most} consumers, and one part"
                        ),
                    });
                }
                schedule
            }
            None => {
                let blocks = |consumers: u32| -> usize {
                    let rows = QUERY_TILE * consumers as usize;
                    form.shape.heads * lengths.each().map(|(of, _)| of.len().div_ceil(rows)).sum::<usize>()
                };
                let (least, most) = allowed.into_inner();
                let fills = |consumers: &u32| blocks(*consumers) >= multiprocessors;
                let consumers = (least..=most).rev().find(fills).unwrap_or(least);
                Schedule { consumers, ..Schedule::usual(form.shape.dim, form.shape.value_dim)? }
            }
        };
        schedule.check(&form.shape, form.mask, device.properties())?;
        let plan = Arc::new(Plan::new(lengths, &form, &schedule, multiprocessors)?);
        let lengths = lengths.clone();
        Ok(Self { device: device.clone(), known, form, rotation, schedule, lengths, plan })
    }

    /// The sequences it was built for.
    pub fn lengths(&self) -> &Lengths {
        &self.lengths
    }

    /// Elements of queries, keys, values and the output.
    pub fn elements(&self) -> [usize; 4] {
        let Shape { heads, key_heads, dim, value_dim, .. } = self.form.shape;
        let (rows, keys) = (self.lengths.rows(), self.lengths.keys());
        [rows * heads * dim, keys * key_heads * dim, keys * key_heads * value_dim, rows * heads * value_dim]
    }

    /// Memory for one attention at a time. Allocate it once and use it for every call of this attention: that
    /// of other lengths is refused.
    pub fn workspace(&self, stream: &Stream) -> Result<PackedWorkspace> {
        let Shape { heads, key_heads, .. } = self.form.shape;
        let (width, value_width) = (self.known.dim, self.known.value_dim);
        let (query_tiles, key_tiles) = (heads * self.plan.query_tiles, key_heads * self.plan.key_tiles);
        // Memory of no bytes is none that a kernel could be given.
        let some = |count: usize| count.max(1);
        let images = Images {
            q: stream.alloc(some(query_tiles * QUERY_TILE * width))?,
            k: stream.alloc(some(key_tiles * KEY_TILE * width))?,
            v: stream.alloc(some(key_tiles * KEY_TILE * (value_width + SUM_ROWS as usize)))?,
            q_scales: stream.alloc(some(query_tiles))?,
            k_scales: stream.alloc(some(key_tiles))?,
            v_scales: stream.alloc(some(key_heads * self.plan.value_groups))?,
            q_marks: stream.alloc(some(query_tiles * QUERY_TILE))?,
            k_marks: stream.alloc(some(key_tiles * KEY_TILE))?,
            v_marks: stream.alloc(some(key_tiles * value_width))?,
            sinks: match &self.form.sinks {
                Some(sinks) => stream.upload(sinks)?,
                None => stream.alloc(1)?,
            },
            no_spans: stream.alloc(1)?,
        };
        let words = self.plan.words();
        Ok(PackedWorkspace {
            plan: self.plan.clone(),
            images,
            lse: stream.alloc(some(heads * self.lengths.rows()))?,
            spans: if self.plan.spans.is_empty() {
                stream.alloc(1)?
            } else {
                stream.upload(&self.plan.spans)?
            },
            lists: if words.is_empty() { stream.alloc(1)? } else { stream.upload(&words)? },
            no_scales: stream.alloc(1)?,
        })
    }

    /// `o <- softmax(scale q k^T + mask) v` of every sequence, on `stream`, without waiting for it. Buffers may
    /// be longer.
    pub fn forward<T: Element, O: Element>(
        &self,
        stream: &Stream,
        workspace: &mut PackedWorkspace,
        [q, k, v]: [&Buffer<T>; 3],
        o: &mut Buffer<O>,
    ) -> Result<()> {
        if !Arc::ptr_eq(&workspace.plan, &self.plan) {
            let what = "the workspace is of an attention of other sequences; make it with this one".into();
            return Err(Error::Lengths { what });
        }
        let needed = self.elements();
        let found = [("q", q.len()), ("k", k.len()), ("v", v.len()), ("o", o.len())];
        for ((tensor, found), needed) in found.into_iter().zip(needed) {
            if found < needed {
                require_length(tensor, found, needed)?;
            }
        }
        if self.plan.work.is_empty() {
            return Ok(());
        }
        self.quantise(stream, workspace, [q, k, v])?;
        self.attend(stream, workspace, o)
    }

    fn quantise<T: Element>(
        &self,
        stream: &Stream,
        workspace: &mut PackedWorkspace,
        [q, k, v]: [&Buffer<T>; 3],
    ) -> Result<()> {
        let PackedWorkspace { images: x, spans, no_scales, .. } = workspace;
        let [queries, keys, values] = self.matrices();
        let tiles = self.plan.spans.len() as u32;
        let shared = QUANTISE_WORDS_BYTES + (KEY_TILE * self.known.value_dim) as u32;
        let grid = Grid::new([tiles, queries.heads, 1], [QUANTISE_THREADS, 1, 1]).shared(shared).early();
        let module = module_of(T::NUMBER, self.known, &self.form.shape, self.rotation, LARGEST_GROUP, true);
        self.device.kernel_of(&module, "quantise")?.launch(
            stream,
            &grid,
            &args![
                q,
                k,
                v,
                &*no_scales,
                &*no_scales,
                &*no_scales,
                &mut x.q,
                &mut x.k,
                &mut x.v,
                &mut x.q_scales,
                &mut x.k_scales,
                &mut x.v_scales,
                &mut x.q_marks,
                &mut x.k_marks,
                &mut x.v_marks,
                &*spans,
                ByValue(&queries),
                ByValue(&keys),
                ByValue(&values)
            ],
        )?;
        Ok(())
    }

    fn attend<O: Element>(
        &self,
        stream: &Stream,
        workspace: &mut PackedWorkspace,
        o: &mut Buffer<O>,
    ) -> Result<()> {
        let PackedWorkspace { images, lists, lse, .. } = workspace;
        let Images { q, k, v, q_scales, k_scales, v_scales, q_marks, k_marks, v_marks, sinks, .. } = images;
        let module =
            attend::module::<O>(self.known, &self.form, self.schedule, LARGEST_GROUP, WITH_SEQUENCES);
        let problem = self.problem();
        let arguments = args![
            &*q,
            &*k,
            &*v,
            &*q_scales,
            &*k_scales,
            &*v_scales,
            &*q_marks,
            &*k_marks,
            &*v_marks,
            &*sinks,
            &*lists,
            o,
            lse,
            ByValue(&problem)
        ];
        let multiprocessors = self.device.properties().multiprocessors as usize;
        let blocks = if self.plan.lists.is_empty() { self.plan.work.len() } else { multiprocessors };
        let grid = Grid::new([blocks as u32, 1, 1], [self.schedule.threads(), 1, 1])
            .shared(self.schedule.shared_bytes(self.known))
            .early();
        self.device.kernel_of(&module, "attention")?.launch(stream, &grid, &arguments)?;
        Ok(())
    }

    fn matrices(&self) -> [Matrix; 3] {
        let Shape { heads, key_heads, dim, value_dim, .. } = self.form.shape;
        let Plan { query_tiles, key_tiles, value_groups, .. } = *self.plan;
        // A rotation spreads a row over its padding, too.
        let columns = if self.rotation == Rotation::Hadamard { self.known.dim } else { dim };
        let matrix = |heads: usize, rows: usize, length: usize, tiles: usize| {
            let Strides { batch, head, row } = self.form.layout.strides(heads, rows, length);
            Matrix {
                batch_stride: batch as u64,
                head_stride: head as u64,
                row_stride: row as u64,
                rows: rows as u32,
                heads: heads as u32,
                tiles: tiles as u32,
                limit: score_limit(columns),
                scales_of_head: 0,
                scales_of_block: 0,
                groups: value_groups as u32,
                unused: 0,
            }
        };
        let (rows, keys) = (self.lengths.rows(), self.lengths.keys());
        [
            matrix(heads, rows, dim, query_tiles),
            matrix(key_heads, keys, dim, key_tiles),
            matrix(key_heads, keys, value_dim, key_tiles),
        ]
    }

    fn problem(&self) -> Problem {
        let Shape { heads, key_heads, value_dim, .. } = self.form.shape;
        let (rows, keys) = (self.lengths.rows(), self.lengths.keys());
        let Strides { batch, head, row } = self.form.layout.strides(heads, rows, value_dim);
        let [cap, cap_factor] = attend::cap_of(&self.form);
        let at_most = |size: usize| size.min(i32::MAX as usize) as i32;
        Problem {
            rows: rows as u32,
            keys: keys as u32,
            key_tiles: self.plan.key_tiles as u32,
            query_tiles: self.plan.query_tiles as u32,
            heads: heads as u32,
            key_heads: key_heads as u32,
            diagonal: match self.form.mask {
                Mask::Full => i32::MAX,
                Mask::Causal => 0,
                Mask::Window { right, .. } => at_most(right),
            },
            first_diagonal: match self.form.mask {
                Mask::Full | Mask::Causal => 0,
                Mask::Window { left, .. } => at_most(left),
            },
            log2_scale: std::f32::consts::LOG2_E * self.form.scale,
            batch_stride: batch as u64,
            head_stride: head as u64,
            row_stride: row as u64,
            split_stride: 0,
            split_lse_stride: 0,
            splits: 1,
            split_tiles: u32::MAX,
            items: self.plan.items() as u32,
            cap,
            cap_factor,
            value_groups: self.plan.value_groups as u32,
            work_at: self.plan.work_at() as u32,
            sequences_at: self.plan.sequences_at() as u32,
            unused: 0,
        }
    }
}
