//! Steps of a model on a device: rows are appended and attend, in two launches that a graph may hold.

use gatework_gpu::{Buffer, Device, Graph, Stream};

use super::attend::CachedAttention;
use super::open::Writes;
use super::pages::{Room, Sequence};
use super::{DeviceStore, KvCache, Store, elements_of};
use crate::cuda::{Plan, Size, StepMemory, Tiling};
use crate::form::Form;
use crate::{Element, Error, Result};

/// The largest step that there is memory for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepSize {
    /// Sequences of a step.
    pub sequences: usize,
    /// Rows of a sequence, which it appends and attends with.
    pub rows: usize,
    /// Keys of a sequence, once the rows are appended.
    pub keys: usize,
}

/// Memory for steps of one attention over one cache on its device. Made by [`CachedAttention::steps`].
#[derive(Debug)]
pub struct Steps {
    cache: u64,
    /// The memory has room for these heads and holds these sinks.
    form: Form,
    most: StepSize,
    memory: StepMemory,
}

/// A step that was found possible, and changed nothing yet.
struct Prepared {
    rooms: Vec<Room>,
    writes: Writes,
    plan: Plan,
}

/// A step whose two launches are captured. Made by [`CachedAttention::capture`].
pub struct StepGraph {
    attention: CachedAttention,
    steps: Steps,
    graph: Graph,
}

impl Steps {
    /// Log-sum-exp of every row of the last step, `[heads, rows]`, with as many rows as the step had in all;
    /// what follows is not written.
    pub fn lse(&self) -> &Buffer<f32> {
        &self.memory.lse
    }
}

impl CachedAttention {
    /// Memory for steps up to a size over a cache on a device. It serves this attention, and those that were
    /// built alike.
    pub fn steps(&self, cache: &KvCache, stream: &Stream, most: StepSize) -> Result<Steps> {
        self.check_cache(cache)?;
        on_device(cache)?;
        let StepSize { sequences, rows, keys } = most;
        if sequences == 0 || rows == 0 || keys < rows {
            return Err(Error::Unsupported {
                what: format!(
                    "steps of {sequences} sequences of {rows} rows over {keys} keys; each must be at least 1, and keys at least the rows"
                ),
            });
        }
        self.check_rows(rows, keys)?;
        let tiling = Tiling::suited(&self.form, rows)?;
        let size = Size::of(&self.form, tiling, sequences, rows, keys)?;
        let memory = StepMemory::new(stream, &self.form, tiling, size)?;
        Ok(Steps { cache: cache.pages.cache(), form: self.form.clone(), most, memory })
    }

    /// Appends rows to sequences and attends with them, on `stream`, without waiting for it: as many rows of
    /// each sequence as `rows` says, one sequence after the other, in queries `[rows, heads, dim]`, keys and
    /// values `[rows, key heads, dim]`, and in `o`. Buffers may be longer. Keys and values beyond f16 become
    /// infinite.
    ///
    /// What is refused is refused before a page is written: the cache is as it was. Should the driver itself
    /// fail between the two launches, sequences have no new keys, but their open pages may be quantised
    /// together with the refused rows.
    ///
    /// There are two launches; the first step after a cut into a full page has one more.
    pub fn step<T: Element, O: Element>(
        &self,
        stream: &Stream,
        steps: &mut Steps,
        cache: &mut KvCache,
        rows: &[(Sequence, usize)],
        [q, k, v]: [&Buffer<T>; 3],
        o: &mut Buffer<O>,
    ) -> Result<()> {
        let total = elements_of(rows, 1)?;
        self.check_buffers(stream, total, [q, k, v], o)?;
        let prepared = self.prepare(steps, cache, rows)?;
        let store = cache.device_store()?;
        let kernels = steps.memory.kernels(stream.device(), &self.form, &store.pages)?;
        prepared.begin(stream, steps, store)?;
        steps.memory.step(&kernels, stream, &self.form, &mut store.pages, [q, k, v], o)?;
        prepared.finish(cache)
    }

    /// Captures the launches of a step on these buffers, which must be as long as the largest step of
    /// `steps`. Each [`StepGraph::step`] then is a copy of its plan and one launch of the graph.
    pub fn capture<T: Element, O: Element>(
        &self,
        stream: &Stream,
        mut steps: Steps,
        cache: &mut KvCache,
        [q, k, v]: [&Buffer<T>; 3],
        o: &mut Buffer<O>,
    ) -> Result<StepGraph> {
        self.check_buffers(stream, steps.most.sequences * steps.most.rows, [q, k, v], o)?;
        self.check_steps(&steps, cache)?;
        let (store, memory) = (cache.device_store()?, &mut steps.memory);
        let kernels = memory.kernels(stream.device(), &self.form, &store.pages)?;
        let mut refused = None;
        let graph = stream.capture(|stream| {
            let launched = memory.step(&kernels, stream, &self.form, &mut store.pages, [q, k, v], o);
            match launched {
                Err(Error::Gpu(error)) => Err(error),
                Err(error) => {
                    refused = Some(error);
                    Ok(())
                }
                Ok(()) => Ok(()),
            }
        })?;
        match refused {
            Some(error) => Err(error),
            None => Ok(StepGraph { attention: self.clone(), steps, graph }),
        }
    }

    /// Attends once more as the last step did.
    #[cfg(feature = "lab")]
    pub(crate) fn attend_again<T: Element, O: Element>(
        &self,
        stream: &Stream,
        steps: &mut Steps,
        cache: &mut KvCache,
        q: &Buffer<T>,
        o: &mut Buffer<O>,
    ) -> Result<()> {
        self.check_steps(steps, cache)?;
        steps.memory.attend(stream, &self.form, &cache.device_store()?.pages, q, o)
    }

    /// Whether buffers have so many rows and are of the stream's device.
    fn check_buffers<T: Element, O: Element>(
        &self,
        stream: &Stream,
        rows: usize,
        [q, k, v]: [&Buffer<T>; 3],
        o: &Buffer<O>,
    ) -> Result<()> {
        let shape = &self.form.shape;
        let (queries, keys) = (rows * shape.heads * shape.dim, rows * shape.key_heads * shape.dim);
        let lengths =
            [("q", q.len(), queries), ("k", k.len(), keys), ("v", v.len(), keys), ("o", o.len(), queries)];
        for (tensor, found, needed) in lengths {
            if found < needed {
                return Err(Error::Length { tensor, found, needed });
            }
        }
        let home = stream.device();
        for (tensor, device) in [("q", q.device()), ("k", k.device()), ("v", v.device()), ("o", o.device())] {
            if !is_same(home, device) {
                let what =
                    format!("'{tensor}' is on another device than the stream; copy it to the stream's");
                return Err(Error::Cache { what });
            }
        }
        Ok(())
    }

    /// Whether memory for steps is of this attention and of this cache: kernels trust it to have their heads
    /// and sinks.
    fn check_steps(&self, steps: &Steps, cache: &KvCache) -> Result<()> {
        on_device(cache)?;
        let refuse = |what: &str| Err(Error::Cache { what: what.into() });
        if steps.cache != cache.pages.cache() {
            return refuse("the memory for steps is of another cache; make it for this one");
        }
        if steps.form != self.form {
            return refuse(
                "the memory for steps is of an attention with other heads, mask, scale, cap or sinks; make it with this one",
            );
        }
        Ok(())
    }

    /// Finds what a step does.
    fn prepare(&self, steps: &Steps, cache: &KvCache, rows: &[(Sequence, usize)]) -> Result<Prepared> {
        self.check_cache(cache)?;
        self.check_steps(steps, cache)?;
        let Store::Device(store) = &cache.store else { return Err(not_on_a_device()) };
        let rooms = cache.pages.rooms(rows)?;
        let most = steps.most;
        let mut plan = Plan::new(steps.memory.tiling());
        for room in &rooms {
            let keys = room.before + room.added;
            if room.added > most.rows || keys > most.keys {
                let what = format!(
                    "a step of {} rows over {keys} keys; its memory is for {} over {}: make a larger one",
                    room.added, most.rows, most.keys
                );
                return Err(Error::Cache { what });
            }
            let pages = room.pages_after(cache.pages.table(room.sequence)?);
            plan.attend(&self.form, &pages, keys, room.added);
        }
        let writes = store.open.writes(&cache.pages, &rooms)?;
        plan.appends.clone_from(&writes.appends);
        steps.memory.check(&plan)?;
        Ok(Prepared { rooms, writes, plan })
    }
}

impl Prepared {
    /// Queues what comes before the two launches. It writes the plan and places that are free: nothing that
    /// the cache has.
    fn begin(&self, stream: &Stream, steps: &mut Steps, store: &mut DeviceStore) -> Result<()> {
        steps.memory.take(stream, &self.plan)?;
        store.pages.reopen(stream, &self.writes.reopened)
    }

    /// The cache has the rows now.
    fn finish(self, cache: &mut KvCache) -> Result<()> {
        cache.device_store()?.open = self.writes.after;
        cache.pages.take(&self.rooms)
    }
}

impl StepGraph {
    /// As [`CachedAttention::step`], on the buffers that were captured.
    pub fn step(&mut self, stream: &Stream, cache: &mut KvCache, rows: &[(Sequence, usize)]) -> Result<()> {
        let prepared = self.attention.prepare(&self.steps, cache, rows)?;
        prepared.begin(stream, &mut self.steps, cache.device_store()?)?;
        self.graph.launch(stream)?;
        prepared.finish(cache)
    }

    /// The log-sum-exps of the last step: [`Steps::lse`].
    pub fn lse(&self) -> &Buffer<f32> {
        self.steps.lse()
    }

    /// Kernels of the graph.
    pub fn launches(&self) -> usize {
        self.graph.kernels().len()
    }
}

impl KvCache {
    fn device_store(&mut self) -> Result<&mut DeviceStore> {
        match &mut self.store {
            Store::Device(store) => Ok(store),
            Store::Cpu(_) => Err(not_on_a_device()),
        }
    }
}

/// All clones of a device have one budget.
fn is_same(one: &Device, other: &Device) -> bool {
    std::ptr::eq(one.budget(), other.budget())
}

fn on_device(cache: &KvCache) -> Result<()> {
    match &cache.store {
        Store::Device(_) => Ok(()),
        Store::Cpu(_) => Err(not_on_a_device()),
    }
}

fn not_on_a_device() -> Error {
    Error::Unsupported {
        what: "steps over a cache on the CPU; use append_all and forward_to, or a cache on a device".into(),
    }
}
