//! Attention over pages of a cache: which block works on what, and the launches of a step.

use std::f32::consts::LOG2_E;
use std::marker::PhantomData;

use bytemuck::Pod;
use gatework_gpu::{
    Buffer, ByValue, Code as _, Device, DeviceProperties, Grid, Kernel, Module, Stream, args,
};

use super::append::DevicePages;
use super::attend::{cap_of, features};
use super::schedule::Exponential;
use super::{KEY_TILE, QUERY_TILE, score_limit};
use crate::dimensions::{HeadDimension, Tuned};
use crate::form::Form;
use crate::shape::{Mask, Shape};
use crate::shared::{
    self, AppendItem, BARRIER_BYTES, CACHED_FLAG_BYTES, CacheProblem, CachedItem, CachedSequence,
    PLAN_APPENDS, PLAN_ITEMS, PLAN_ROWS, PLAN_WORDS, SUM_ROWS, WARPGROUP,
};
use crate::{Element, Error, Result, kernels};

/// Rows up to which keys are cut into parts.
pub(crate) const FEW_ROWS: usize = 16;
/// Pages of a part: 1024 keys. 8 key heads over 16384 keys are then 128 blocks, for the 132 multiprocessors
/// of an H200.
pub(crate) const PART_PAGES: usize = 8;
/// Pairs of pages in flight: at head dimension 128 they are 135 KB, more than memory's latency times its
/// bandwidth asks for.
const STAGES: u32 = 4;

/// How the kernel over caches is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tiling {
    consumers: u32,
    turns: bool,
}

impl Tiling {
    /// One warpgroup where no sequence has more packed rows than it takes, else as many as suit long rows.
    /// Bits are the same.
    pub(crate) fn suited(form: &Form, most_rows: usize) -> Result<Self> {
        let Tuned { consumers, turns, .. } = HeadDimension::of(form.shape.dim, form.shape.value_dim)?.tuned;
        let is_one = most_rows.saturating_mul(group_of(form)) <= QUERY_TILE;
        let consumers = if is_one { 1 } else { consumers.min(most_consumers(form)) };
        Ok(Self { consumers, turns: turns && consumers > 1 })
    }

    fn block_rows(self) -> usize {
        QUERY_TILE * self.consumers as usize
    }

    pub(crate) fn threads(self) -> u32 {
        WARPGROUP * (self.consumers + 1)
    }

    /// Queries, a ring of keys and values, the barriers; words of reductions, marks of queries, a flag,
    /// scales of values.
    pub(crate) fn shared_bytes(self, dim: usize) -> u32 {
        let dim = dim as u32;
        let pair = shared::KEY_TILE * dim + (dim + SUM_ROWS) * shared::KEY_TILE;
        let ring =
            self.consumers * shared::QUERY_TILE * dim + STAGES * pair + BARRIER_BYTES * (2 + 2 * STAGES);
        let words = 2 * 4 * self.consumers * WARPGROUP / 32;
        let scales = 4 * self.consumers * WARPGROUP;
        ring + words + self.consumers * shared::QUERY_TILE + CACHED_FLAG_BYTES + scales
    }
}

/// Warpgroups of a block whose code is compiled without spills.
fn most_consumers(form: &Form) -> u32 {
    if form.soft_cap.is_some() && form.shape.dim > 64 { 1 } else { 2 }
}

fn group_of(form: &Form) -> usize {
    form.shape.heads / form.shape.key_heads
}

/// The kernel over caches, for queries of one format and outputs of another.
pub(crate) fn cached_module<T: Element, O: Element>(form: &Form, tiling: Tiling) -> Module {
    kernels::CACHED
        .define("DIM", form.shape.dim as u32)
        .define("GROUP", 1u32)
        .define("IN_FORMAT", T::NUMBER.code())
        .define("OUT_FORMAT", O::NUMBER.code())
        .define("CONSUMERS", tiling.consumers)
        .define("STAGES", STAGES)
        .define("FEATURES", features(form, tiling.turns, Exponential::Parabola))
        .define("SHARED_BYTES", tiling.shared_bytes(form.shape.dim))
}

/// What a step does: rows that go into pages, and rows that attend.
#[derive(Debug)]
pub(crate) struct Plan {
    tiling: Tiling,
    pub(crate) appends: Vec<AppendItem>,
    sequences: Vec<CachedSequence>,
    items: Vec<CachedItem>,
    tables: Vec<u32>,
    rows: usize,
    parts: usize,
    counters: usize,
}

/// How much of everything plans may have, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) appends: usize,
    pub(crate) sequences: usize,
    pub(crate) items: usize,
    pub(crate) tables: usize,
    pub(crate) rows: usize,
    /// Parts of keys whose results are kept, and tiles that have several.
    pub(crate) parts: usize,
    pub(crate) counters: usize,
}

impl Size {
    /// What steps of `sequences` sequences need, each of which appends and attends up to `rows` rows and has
    /// up to `keys` keys.
    pub(crate) fn of(
        form: &Form,
        tiling: Tiling,
        sequences: usize,
        rows: usize,
        keys: usize,
    ) -> Result<Self> {
        let tiles_of = |rows: usize| rows.saturating_mul(group_of(form)).div_ceil(tiling.block_rows());
        // A step may have fewer rows than the most: parts are of few rows alone, tiles are the most of many.
        let (tiles, few_tiles) = (tiles_of(rows), tiles_of(rows.min(FEW_ROWS)));
        let pages = keys.div_ceil(KEY_TILE);
        // A window may begin inside of one part and end inside of another.
        let parts = pages.div_ceil(PART_PAGES).max(1);
        let times = |of_sequence: usize| sequences.checked_mul(of_sequence).filter(|&all| all < 1 << 31);
        let sizes = || {
            let few_items = few_tiles.checked_mul(parts)?;
            Some(Self {
                // One that starts inside of a page touches one more.
                appends: times(rows.div_ceil(KEY_TILE) + 1)?,
                sequences,
                items: times(tiles.max(few_items))?,
                tables: times(pages)?,
                rows: times(rows)?,
                parts: if parts > 1 { times(few_items)? } else { 0 },
                counters: if parts > 1 { times(few_tiles)? } else { 0 },
            })
        };
        sizes().ok_or_else(|| Error::Cache {
            what: format!(
                "steps of {sequences} sequences of {rows} rows over {keys} keys are too large; take fewer"
            ),
        })
    }

    fn covers(&self, other: &Self) -> bool {
        let sizes = |x: &Self| [x.appends, x.sequences, x.items, x.tables, x.rows, x.parts, x.counters];
        sizes(self).iter().zip(sizes(other)).all(|(has, needs)| *has >= needs)
    }

    fn appends_at(&self) -> usize {
        PLAN_WORDS as usize
    }

    fn sequences_at(&self) -> usize {
        self.appends_at() + self.appends * words_of::<AppendItem>()
    }

    fn items_at(&self) -> usize {
        self.sequences_at() + self.sequences * words_of::<CachedSequence>()
    }

    fn tables_at(&self) -> usize {
        self.items_at() + self.items * words_of::<CachedItem>()
    }

    fn words(&self) -> usize {
        self.tables_at() + self.tables
    }
}

fn words_of<T>() -> usize {
    size_of::<T>() / size_of::<u32>()
}

impl Plan {
    pub(crate) fn new(tiling: Tiling) -> Self {
        Self {
            tiling,
            appends: Vec::new(),
            sequences: Vec::new(),
            items: Vec::new(),
            tables: Vec::new(),
            rows: 0,
            parts: 0,
            counters: 0,
        }
    }

    /// The last rows of a sequence with these pages attend.
    pub(crate) fn attend(&mut self, form: &Form, pages: &[usize], keys: usize, rows: usize) {
        let (first_row, table) = (self.rows as u32, self.tables.len() as u32);
        let sequence = self.sequences.len() as u32;
        self.sequences.push(CachedSequence { table, keys: keys as u32, rows: rows as u32, first_row });
        self.tables.extend(pages.iter().map(|&page| page as u32));
        self.rows += rows;
        let (group, block_rows) = (group_of(form), self.tiling.block_rows());
        // The last rows see the most keys under a causal mask: they come first.
        for tile in (0..(rows * group).div_ceil(block_rows)).rev() {
            let first = tile * block_rows / group;
            let last = ((tile + 1) * block_rows - 1).min(rows * group - 1) / group;
            let parts = parts_of(&Shape { rows, keys, ..form.shape }, form.mask, first, last);
            let several = parts.len() > 1;
            let (first_part, counter) = (self.parts as u32, self.counters as u32);
            for (part, &(first_page, pages)) in parts.iter().enumerate() {
                self.items.push(CachedItem {
                    sequence,
                    tile: tile as u32,
                    first_page: first_page as u32,
                    pages: pages as u32,
                    part: part as u32,
                    parts: parts.len() as u32,
                    first_part,
                    counter,
                });
            }
            if several {
                self.parts += parts.len();
                self.counters += 1;
            }
        }
    }

    pub(crate) fn size(&self) -> Size {
        Size {
            appends: self.appends.len(),
            sequences: self.sequences.len(),
            items: self.items.len(),
            tables: self.tables.len(),
            rows: self.rows,
            parts: self.parts,
            counters: self.counters,
        }
    }

    /// The words that kernels read, with lists at the places of a size.
    fn words(&self, size: &Size) -> Vec<u32> {
        let mut words = vec![0; size.words()];
        words[PLAN_APPENDS as usize] = self.appends.len() as u32;
        words[PLAN_ITEMS as usize] = self.items.len() as u32;
        words[PLAN_ROWS as usize] = self.rows as u32;
        put(&mut words, size.appends_at(), &self.appends);
        put(&mut words, size.sequences_at(), &self.sequences);
        put(&mut words, size.items_at(), &self.items);
        put(&mut words, size.tables_at(), &self.tables);
        words
    }
}

fn put<T: Pod>(words: &mut [u32], at: usize, list: &[T]) {
    let list: &[u32] = bytemuck::cast_slice(list);
    words[at..at + list.len()].copy_from_slice(list);
}

/// The first page and the number of pages of each part of the keys that rows from `first` to `last` see. Few
/// rows have parts of a fixed number of pages, counted from the sequence's first. There is at least one part,
/// which may be empty.
fn parts_of(shape: &Shape, mask: Mask, first: usize, last: usize) -> Vec<(usize, usize)> {
    let seen = shape.visible(first, mask).start..shape.visible(last, mask).end.min(shape.keys);
    let pages = seen.start / KEY_TILE..seen.end.div_ceil(KEY_TILE);
    if pages.is_empty() || shape.rows > FEW_ROWS {
        return vec![(pages.start, pages.len())];
    }
    let bound = |part: usize| (part * PART_PAGES).clamp(pages.start, pages.end);
    (pages.start / PART_PAGES..pages.end.div_ceil(PART_PAGES))
        .map(|part| (bound(part), bound(part + 1) - bound(part)))
        .collect()
}

/// Memory for steps of a size: the plan, what parts of keys give, and the log-sum-exp.
#[derive(Debug)]
pub(crate) struct StepMemory {
    tiling: Tiling,
    size: Size,
    plan: Buffer<u32>,
    parts: Buffer<f32>,
    parts_lse: Buffer<f32>,
    counters: Buffer<u32>,
    sinks: Buffer<f32>,
    pub(crate) lse: Buffer<f32>,
}

/// What appends and attends with rows of one format, for outputs of another.
pub(crate) struct StepKernels<T, O> {
    append: Kernel,
    attend: Kernel,
    formats: PhantomData<fn(T) -> O>,
}

impl StepMemory {
    pub(crate) fn new(stream: &Stream, form: &Form, tiling: Tiling, size: Size) -> Result<Self> {
        check_device(tiling, form.shape.dim, stream.device().properties())?;
        let Shape { heads, key_heads, dim, .. } = form.shape;
        let part_rows = size.parts * key_heads * tiling.block_rows();
        // A buffer that nobody reads has one element.
        Ok(Self {
            tiling,
            size,
            plan: stream.alloc_zeros(size.words())?,
            parts: stream.alloc((part_rows * dim).max(1))?,
            parts_lse: stream.alloc(part_rows.max(1))?,
            counters: stream.alloc_zeros((size.counters * key_heads).max(1))?,
            sinks: match &form.sinks {
                Some(sinks) => stream.upload(sinks)?,
                None => stream.alloc(1)?,
            },
            lse: stream.alloc((size.rows * heads).max(1))?,
        })
    }

    pub(crate) fn tiling(&self) -> Tiling {
        self.tiling
    }

    /// Takes a plan for the launches that follow.
    pub(crate) fn take(&mut self, stream: &Stream, plan: &Plan) -> Result<()> {
        self.check(plan)?;
        stream.copy_from_host(&plan.words(&self.size), &mut self.plan)?;
        Ok(())
    }

    /// Whether there is room for a plan.
    pub(crate) fn check(&self, plan: &Plan) -> Result<()> {
        if plan.tiling == self.tiling && self.size.covers(&plan.size()) {
            return Ok(());
        }
        let (has, needs) = (&self.size, plan.size());
        let what = format!(
            "the step needs {} sequences, {} rows and {} pages, its memory has room for {}, {} and {}; make a larger one",
            needs.sequences, needs.rows, needs.tables, has.sequences, has.rows, has.tables
        );
        Err(Error::Cache { what })
    }

    /// The kernels of steps, compiled and loaded.
    pub(crate) fn kernels<T: Element, O: Element>(
        &self,
        device: &Device,
        form: &Form,
        pages: &DevicePages,
    ) -> Result<StepKernels<T, O>> {
        let attend = self.attend_kernel::<T, O>(device, form)?;
        Ok(StepKernels { append: pages.append_kernel::<T>(device)?, attend, formats: PhantomData })
    }

    /// Does the appends of the plan and attends: two launches.
    pub(crate) fn step<T: Element, O: Element>(
        &mut self,
        kernels: &StepKernels<T, O>,
        stream: &Stream,
        form: &Form,
        pages: &mut DevicePages,
        [q, k, v]: [&Buffer<T>; 3],
        o: &mut Buffer<O>,
    ) -> Result<()> {
        let Size { appends, .. } = self.size;
        pages.append(&kernels.append, stream, &self.plan, self.size.appends_at(), appends, [k, v])?;
        self.launch(&kernels.attend, stream, form, pages, q, o)
    }

    /// Attends as the plan says.
    pub(crate) fn attend<T: Element, O: Element>(
        &mut self,
        stream: &Stream,
        form: &Form,
        pages: &DevicePages,
        q: &Buffer<T>,
        o: &mut Buffer<O>,
    ) -> Result<()> {
        if self.size.items == 0 {
            return Ok(());
        }
        let kernel = self.attend_kernel::<T, O>(stream.device(), form)?;
        self.launch(&kernel, stream, form, pages, q, o)
    }

    fn attend_kernel<T: Element, O: Element>(&self, device: &Device, form: &Form) -> Result<Kernel> {
        Ok(device.kernel_of(&cached_module::<T, O>(form, self.tiling), "cached")?)
    }

    fn launch<T: Element, O: Element>(
        &mut self,
        kernel: &Kernel,
        stream: &Stream,
        form: &Form,
        pages: &DevicePages,
        q: &Buffer<T>,
        o: &mut Buffer<O>,
    ) -> Result<()> {
        let grid =
            Grid::new([self.size.items as u32, pages.key_heads as u32, 1], [self.tiling.threads(), 1, 1])
                .shared(self.tiling.shared_bytes(form.shape.dim))
                .early();
        let problem = self.problem(form);
        let Self { plan, parts, parts_lse, counters, sinks, lse, .. } = self;
        let arguments = args![
            q,
            &pages.k,
            &pages.v,
            &pages.k_scales,
            &pages.v_scales,
            &pages.k_marks,
            &pages.v_marks,
            &*sinks,
            &*plan,
            parts,
            parts_lse,
            counters,
            o,
            lse,
            ByValue(&problem)
        ];
        kernel.launch(stream, &grid, &arguments)?;
        Ok(())
    }

    fn problem(&self, form: &Form) -> CacheProblem {
        let at_most = |keys: usize| keys.min(i32::MAX as usize) as i32;
        let (left, right) = match form.mask {
            Mask::Full => (i32::MAX, i32::MAX),
            Mask::Causal => (i32::MAX, 0),
            Mask::Window { left, right } => (at_most(left), at_most(right)),
        };
        let [cap, cap_factor] = cap_of(form);
        CacheProblem {
            heads: form.shape.heads as u32,
            key_heads: form.shape.key_heads as u32,
            left,
            right,
            log2_scale: LOG2_E * form.scale,
            cap,
            cap_factor,
            limit: score_limit(form.shape.dim),
            sequences_at: self.size.sequences_at() as u32,
            items_at: self.size.items_at() as u32,
            tables_at: self.size.tables_at() as u32,
            unused: 0,
        }
    }
}

fn check_device(tiling: Tiling, dim: usize, device: &DeviceProperties) -> Result<()> {
    let (bytes, limit) = (tiling.shared_bytes(dim), device.shared_memory_per_block);
    if bytes <= limit {
        return Ok(());
    }
    Err(Error::Unsupported {
        what: format!("a cache on a device with {limit} bytes of shared memory a block; {bytes} are needed"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_depend_on_the_sequence_alone_and_cover_what_is_seen() {
        for (keys, rows, mask) in [
            (0, 1, Mask::Causal),
            (1, 1, Mask::Full),
            (1025, 1, Mask::Causal),
            (16384, 16, Mask::Causal),
            (16384, 17, Mask::Causal),
            (5000, 4, Mask::Window { left: 1500, right: 0 }),
            (3, 9, Mask::Causal),
        ] {
            let shape = Shape { batch: 1, heads: 1, key_heads: 1, rows, keys, dim: 64, value_dim: 64 };
            let parts = parts_of(&shape, mask, 0, rows - 1);
            let seen = shape.visible(0, mask).start / KEY_TILE..keys.div_ceil(KEY_TILE);
            let covered: usize = parts.iter().map(|&(_, pages)| pages).sum();
            assert_eq!(covered, seen.len(), "{keys} keys, {rows} rows, {mask:?}");
            let mut next = parts[0].0;
            for &(first, pages) in &parts {
                assert_eq!(first, next);
                assert!(rows > FEW_ROWS || first / PART_PAGES == (first + pages.max(1) - 1) / PART_PAGES);
                next = first + pages;
            }
        }
    }

    #[test]
    fn a_size_has_room_for_every_plan_that_it_is_for() {
        let shape = Shape { batch: 1, heads: 12, key_heads: 2, rows: 1, keys: 1, dim: 64, value_dim: 64 };
        for mask in [Mask::Causal, Mask::Window { left: 300, right: 0 }] {
            let form = Form { mask, ..Form::new(shape) };
            for (most_rows, most_keys) in [(1, 5000), (16, 1030), (17, 3000), (32, 5000), (100, 100)] {
                let tiling = Tiling::suited(&form, most_rows).unwrap();
                let size = Size::of(&form, tiling, 3, most_rows, most_keys).unwrap();
                let plan_of = |lengths: [(usize, usize); 3]| {
                    let mut plan = Plan::new(tiling);
                    for (rows, keys) in lengths {
                        let pages: Vec<usize> = (0..keys.div_ceil(KEY_TILE)).collect();
                        plan.attend(&form, &pages, keys, rows);
                    }
                    plan.size()
                };
                for rows in 1..=most_rows {
                    for keys in [rows, most_keys.div_ceil(2).max(rows), most_keys] {
                        let (same, most) = ((rows, keys), (most_rows, most_keys));
                        for needed in [plan_of([same; 3]), plan_of([most, same, most])] {
                            assert!(size.covers(&needed), "{rows} rows over {keys}: {size:?} {needed:?}");
                        }
                    }
                }
            }
        }
    }
}
