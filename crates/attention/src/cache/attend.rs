//! Attention over a cache.

use rayon::prelude::*;

use super::host::{HostPages, Paged};
use super::pages::{Sequence, Table};
use super::{KvCache, Store, elements_of};
use crate::attention::Builder;
use crate::cpu::CpuAttention;
use crate::cuda::{DevicePages, Plan, Rotation, StepMemory, Tiling};
use crate::form::{Form, Output};
use crate::packed::{joined, without_keys};
use crate::shape::{Layout, Shape};
use crate::{Element, Error, Result};

/// Attention of the last rows of sequences over their cached keys. Made by [`Builder::build_cached`].
///
/// Rows are the sequence's last: under a causal mask the last of them sees the last key. A row's bits depend
/// on its own sequence alone (on a device, on all rows that it attends with), and not on other sequences of
/// the call or on which pages it has.
#[derive(Debug, Clone)]
pub struct CachedAttention {
    pub(super) form: Form,
}

impl Builder {
    /// Checks the combination: an attention over caches. Of the builder's shape, heads and dimension count,
    /// and its layout does not. A cache keeps keys as they are: there is no rotation.
    pub fn build_cached(self) -> Result<CachedAttention> {
        if self.rotated() == Rotation::Hadamard {
            let what = "a rotation of cached keys; leave it at Rotation::None".into();
            return Err(Error::Unsupported { what });
        }
        let Shape { heads, key_heads, dim, value_dim, .. } = *self.shape();
        if value_dim != dim {
            return Err(Error::Unsupported {
                what: format!(
                    "a cache with keys of {dim} and values of {value_dim}; values must be as long as keys"
                ),
            });
        }
        let shape = Shape { batch: 1, heads, key_heads, rows: 1, keys: 1, dim, value_dim };
        let form = self.reshaped(shape).layout(Layout::RowsFirst).into_form();
        form.check()?;
        Ok(CachedAttention { form })
    }
}

impl CachedAttention {
    /// `softmax(scale q k^T + mask) v` of queries `[rows, heads, dim]`, as many rows of each sequence as
    /// `rows` says, one sequence after the other, and the log-sum-exp of every row, `[heads, rows]`.
    pub fn forward_to<O: Element, T: Element>(
        &self,
        cache: &KvCache,
        rows: &[(Sequence, usize)],
        q: &[T],
    ) -> Result<Output<O>> {
        self.check_cache(cache)?;
        let needed = elements_of(rows, self.form.shape.heads * self.form.shape.dim)?;
        if q.len() != needed {
            return Err(Error::Length { tensor: "q", found: q.len(), needed });
        }
        let tables = self.tables(cache, rows)?;
        match &cache.store {
            Store::Cpu(pages) => self.forward_on_cpu(pages, &tables, q),
            Store::Device(device) => self.forward_on_device(&device.pages, &tables, q),
        }
    }

    /// The tables of sequences, with as many rows as they have, if all of it fits together.
    fn tables<'a>(&self, cache: &'a KvCache, rows: &[(Sequence, usize)]) -> Result<Vec<(usize, &'a Table)>> {
        let tables = rows.iter().map(|&(sequence, rows)| {
            let table = cache.pages.table(sequence)?;
            self.check_rows(rows, table.keys)?;
            Ok((rows, table))
        });
        tables.collect()
    }

    pub(super) fn check_cache(&self, cache: &KvCache) -> Result<()> {
        let Shape { key_heads, dim, .. } = self.form.shape;
        if (cache.key_heads, cache.dim) == (key_heads, dim) {
            return Ok(());
        }
        let (of_heads, of_dim) = (cache.key_heads, cache.dim);
        let what = format!(
            "it has {of_heads} key heads of dimension {of_dim}, the attention {key_heads} of {dim}; both must be the same"
        );
        Err(Error::Cache { what })
    }

    /// Whether so many rows over so many keys can be computed.
    pub(super) fn check_rows(&self, rows: usize, keys: usize) -> Result<()> {
        let shape = Shape { rows: rows.max(1), keys: keys.max(1), ..self.form.shape };
        shape.check()
    }

    fn forward_on_cpu<O: Element, T: Element>(
        &self,
        pages: &HostPages,
        tables: &[(usize, &Table)],
        q: &[T],
    ) -> Result<Output<O>> {
        let Shape { heads, dim, .. } = self.form.shape;
        let mut rest = q;
        let mut work = Vec::with_capacity(tables.len());
        for &(rows, table) in tables {
            let (queries, after) = rest.split_at(rows * heads * dim);
            work.push((rows, table, queries));
            rest = after;
        }
        let attend =
            |&(rows, table, queries): &(usize, &Table, &[T])| self.attend(pages, table, rows, queries);
        let parts = work.par_iter().map(attend).collect::<Result<Vec<_>>>()?;
        Ok(joined(heads, &parts))
    }

    fn attend<O: Element, T: Element>(
        &self,
        pages: &HostPages,
        table: &Table,
        rows: usize,
        q: &[T],
    ) -> Result<(Vec<O>, Vec<f32>)> {
        let sinks = || (0..self.form.shape.heads).map(|head| self.form.sink(head));
        if rows == 0 || table.keys == 0 {
            return Ok(without_keys(sinks(), rows, self.form.shape.dim));
        }
        let shape = Shape { rows, keys: table.keys, ..self.form.shape };
        let form = Form { shape, ..self.form.clone() };
        let Output { o, lse } = CpuAttention::new(form).forward_over(q, &Paged { pages, table })?;
        Ok((o, lse))
    }

    fn forward_on_device<O: Element, T: Element>(
        &self,
        pages: &DevicePages,
        tables: &[(usize, &Table)],
        q: &[T],
    ) -> Result<Output<O>> {
        if q.is_empty() {
            return Ok(Output { o: Vec::new(), lse: Vec::new() });
        }
        let most = tables.iter().map(|&(rows, _)| rows).max().unwrap_or(0);
        let mut plan = Plan::new(Tiling::suited(&self.form, most)?);
        for &(rows, table) in tables {
            plan.attend(&self.form, &table.pages, table.keys, rows);
        }
        let stream = pages.stream();
        let mut memory = StepMemory::new(stream, &self.form, Tiling::suited(&self.form, most)?, plan.size())?;
        memory.take(stream, &plan)?;
        let q = stream.upload(q)?;
        let mut o = stream.alloc(q.len())?;
        memory.attend(stream, &self.form, pages, &q, &mut o)?;
        Ok(Output { o: stream.download(&o)?, lse: stream.download(&memory.lse)? })
    }
}
