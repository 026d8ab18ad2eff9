//! Attention over a cache.

use rayon::prelude::*;

use super::pages::{Sequence, Table};
use super::{KvCache, PAGE_KEYS};
use crate::attention::Builder;
use crate::cpu::{CpuAttention, Rows};
use crate::form::{Form, Output};
use crate::packed::{joined, without_keys};
use crate::shape::{Layout, Shape};
use crate::{Element, Error, Result};
use half::f16;

/// Attention of the last rows of sequences over their cached keys. Made by [`Builder::build_cached`].
///
/// Rows are the sequence's last: under a causal mask the last of them sees the last key. A row's bits depend on its own sequence
/// alone, and not on which pages that has or shares.
#[derive(Debug, Clone)]
pub struct CachedAttention {
    form: Form,
}

impl Builder {
    /// Checks the combination: an attention over caches. Of the builder's shape, heads and dimension count, and its layout does not.
    pub fn build_cached(self) -> Result<CachedAttention> {
        let Shape { heads, key_heads, dim, .. } = *self.shape();
        let shape = Shape { batch: 1, heads, key_heads, rows: 1, keys: 1, dim };
        let form = self.reshaped(shape).layout(Layout::RowsFirst).into_form();
        form.check()?;
        Ok(CachedAttention { form })
    }
}

impl CachedAttention {
    /// `softmax(scale q k^T + mask) v` of queries `[rows, heads, dim]`, as many rows of each sequence as `rows` says, one sequence
    /// after the other, and the log-sum-exp of every row, `[heads, rows]`.
    pub fn forward_to<O: Element, T: Element>(
        &self,
        cache: &KvCache,
        rows: &[(Sequence, usize)],
        q: &[T],
    ) -> Result<Output<O>> {
        let Shape { heads, key_heads, dim, .. } = self.form.shape;
        if (cache.key_heads, cache.dim) != (key_heads, dim) {
            let (of_heads, of_dim) = (cache.key_heads, cache.dim);
            let what = format!(
                "it has {of_heads} key heads of dimension {of_dim}, the attention {key_heads} of {dim}; both must be the same"
            );
            return Err(Error::Cache { what });
        }
        let total = rows.iter().try_fold(0usize, |total, &(_, rows)| total.checked_add(rows));
        let Some(needed) = total.and_then(|total| total.checked_mul(heads * dim)) else {
            return Err(Error::Cache { what: "there are more rows than memory could hold".into() });
        };
        if q.len() != needed {
            return Err(Error::Length { tensor: "q", found: q.len(), needed });
        }
        let tables =
            rows.iter().map(|&(sequence, _)| cache.pages.table(sequence)).collect::<Result<Vec<_>>>()?;
        let mut rest = q;
        let mut work = Vec::with_capacity(rows.len());
        for (&(_, rows), table) in rows.iter().zip(tables) {
            let (queries, after) = rest.split_at(rows * heads * dim);
            work.push((rows, table, queries));
            rest = after;
        }
        let attend =
            |&(rows, table, queries): &(usize, &Table, &[T])| self.attend(cache, table, rows, queries);
        let parts = work.par_iter().map(attend).collect::<Result<Vec<_>>>()?;
        Ok(joined(heads, &parts))
    }

    fn attend<O: Element, T: Element>(
        &self,
        cache: &KvCache,
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
        form.check()?;
        let Output { o, lse } = CpuAttention::new(form).forward_over(q, &Paged { cache, table })?;
        Ok((o, lse))
    }
}

/// The rows of one sequence.
struct Paged<'a> {
    cache: &'a KvCache,
    table: &'a Table,
}

impl Paged<'_> {
    fn at(&self, key_head: usize, key: usize) -> usize {
        self.cache.row(self.table.pages[key / PAGE_KEYS], key_head, key % PAGE_KEYS)
    }
}

impl Rows<f16> for Paged<'_> {
    fn key(&self, key_head: usize, key: usize) -> &[f16] {
        &self.cache.keys[self.at(key_head, key)..][..self.cache.dim]
    }

    fn value(&self, key_head: usize, key: usize) -> &[f16] {
        &self.cache.values[self.at(key_head, key)..][..self.cache.dim]
    }
}
