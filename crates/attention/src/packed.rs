//! Sequences of different lengths in one call: packed one after the other, without padding.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use gatework_gpu::Target;
use rayon::prelude::*;

use crate::attention::{Attention, Builder};
use crate::form::Output;
use crate::shape::{Layout, Shape};
use crate::{Element, Error, Result};

/// Where packed sequences begin and end: what other libraries call `cu_seqlens`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lengths {
    /// Query rows before each sequence, and after the last.
    rows: Vec<usize>,
    /// Keys before each sequence, and after the last.
    keys: Vec<usize>,
}

impl Lengths {
    /// From the rows and the keys before each sequence and after the last, as `[0, 5, 5, 12]` for three
    /// sequences of 5, 0 and
    /// 7. A sequence may have no rows, or no keys.
    pub fn new(rows: &[usize], keys: &[usize]) -> Result<Self> {
        for (name, starts) in [("rows", rows), ("keys", keys)] {
            check_starts(name, starts)?;
        }
        if rows.len() != keys.len() {
            let (rows, keys) = (rows.len() - 1, keys.len() - 1);
            return Err(Error::Lengths {
                what: format!("there are rows of {rows} sequences and keys of {keys}"),
            });
        }
        Ok(Self { rows: rows.to_vec(), keys: keys.to_vec() })
    }

    /// As many keys as rows in each sequence.
    pub fn square(starts: &[usize]) -> Result<Self> {
        Self::new(starts, starts)
    }

    /// The number of sequences.
    pub fn sequences(&self) -> usize {
        self.rows.len() - 1
    }

    /// Query rows of all sequences.
    pub fn rows(&self) -> usize {
        self.rows.last().copied().unwrap_or(0)
    }

    /// Keys of all sequences.
    pub fn keys(&self) -> usize {
        self.keys.last().copied().unwrap_or(0)
    }

    fn each(&self) -> impl Iterator<Item = (Range<usize>, Range<usize>)> + '_ {
        let ranges = |starts: &[usize]| starts.windows(2).map(|pair| pair[0]..pair[1]).collect::<Vec<_>>();
        ranges(&self.rows).into_iter().zip(ranges(&self.keys))
    }
}

fn check_starts(name: &str, starts: &[usize]) -> Result<()> {
    let refuse = |what: String| Err(Error::Lengths { what });
    match starts {
        [] => refuse(format!("{name} are empty; without a sequence they are [0]")),
        [0, ..] => match starts.windows(2).position(|pair| pair[0] > pair[1]) {
            Some(at) => refuse(format!(
                "{name} go down from {} to {} after sequence {at}; they must not",
                starts[at],
                starts[at + 1]
            )),
            None => Ok(()),
        },
        [first, ..] => refuse(format!("{name} begin with {first}; they must begin with 0")),
    }
}

/// Attention of packed sequences on one target, over tensors in host memory: queries `[rows, heads, dim]`,
/// keys and values `[keys, key heads, dim]`. Made by [`Builder::build_packed`].
///
/// A row's bits depend on its own sequence alone, as if the sequence were all there is.
#[derive(Debug)]
pub struct PackedAttention {
    heads: usize,
    key_heads: usize,
    dim: usize,
    value_dim: usize,
    lengths: Lengths,
    sinks: Vec<f32>,
    /// One for each sequence; none for those without rows or without keys.
    attentions: Vec<Option<Arc<Attention>>>,
    target: Target,
}

/// A sequence's rows and keys, and what attends them.
type Sequence<'a> = ((Range<usize>, Range<usize>), &'a Option<Arc<Attention>>);
/// A sequence's part of the output, and of the log-sum-exp.
pub(crate) type Part<O> = (Vec<O>, Vec<f32>);

impl Builder {
    /// Checks the combination: an attention of packed sequences. Of the builder's shape, heads and dimension
    /// count, and its layout does not.
    pub fn build_packed(self, lengths: &Lengths, target: &Target) -> Result<PackedAttention> {
        let Shape { heads, key_heads, dim, value_dim, .. } = *self.shape();
        let sinks = (0..heads).map(|head| self.sink(head)).collect();
        // Also checks what there is no sequence for.
        self.clone()
            .reshaped(Shape { batch: 1, heads, key_heads, rows: 1, keys: 1, dim, value_dim })
            .build(&Target::Cpu)?;
        let mut known: HashMap<(usize, usize), Arc<Attention>> = HashMap::new();
        let mut attentions = Vec::with_capacity(lengths.sequences());
        for (rows, keys) in lengths.each() {
            let (rows, keys) = (rows.len(), keys.len());
            if rows == 0 || keys == 0 {
                attentions.push(None);
                continue;
            }
            let attention = match known.get(&(rows, keys)) {
                Some(attention) => attention.clone(),
                None => {
                    let shape = Shape { batch: 1, heads, key_heads, rows, keys, dim, value_dim };
                    let builder = self.clone().reshaped(shape).layout(Layout::RowsFirst);
                    Arc::new(builder.build(target)?)
                }
            };
            known.insert((rows, keys), attention.clone());
            attentions.push(Some(attention));
        }
        let (lengths, target) = (lengths.clone(), target.clone());
        Ok(PackedAttention { heads, key_heads, dim, value_dim, lengths, sinks, attentions, target })
    }
}

impl PackedAttention {
    /// The sequences it was built for.
    pub fn lengths(&self) -> &Lengths {
        &self.lengths
    }

    /// `softmax(scale q k^T + mask) v` of every sequence, in the format of the inputs.
    pub fn forward<T: Element>(&self, q: &[T], k: &[T], v: &[T]) -> Result<Vec<T>> {
        Ok(self.forward_to(q, k, v)?.o)
    }

    /// The same in a format of one's own, with the log-sum-exp of every row, `[heads, rows]`.
    pub fn forward_to<O: Element, T: Element>(&self, q: &[T], k: &[T], v: &[T]) -> Result<Output<O>> {
        let (query, key, value) =
            (self.heads * self.dim, self.key_heads * self.dim, self.key_heads * self.value_dim);
        let (rows, keys) = (self.lengths.rows(), self.lengths.keys());
        let found = [("q", q.len(), rows * query), ("k", k.len(), keys * key), ("v", v.len(), keys * value)];
        for (tensor, found, needed) in found {
            if found != needed {
                return Err(Error::Length { tensor, found, needed });
            }
        }
        let sequences: Vec<Sequence<'_>> = self.lengths.each().zip(&self.attentions).collect();
        let attend = |((rows, keys), attention): &Sequence<'_>| {
            let Some(attention) = attention else {
                return Ok(without_keys(self.sinks.iter().copied(), rows.len(), self.value_dim));
            };
            let queries = &q[rows.start * query..rows.end * query];
            let (k, v) = (&k[keys.start * key..keys.end * key], &v[keys.start * value..keys.end * value]);
            attention.forward_to(queries, k, v).map(|Output { o, lse }| (o, lse))
        };
        // A device has one queue for all of them.
        let parts: Vec<Part<O>> = match self.target {
            Target::Cpu => sequences.par_iter().map(attend).collect::<Result<_>>()?,
            Target::Gpu(_) => sequences.iter().map(attend).collect::<Result<_>>()?,
        };
        Ok(joined(self.heads, &parts))
    }
}

/// What rows that see no key give, of heads with these sinks.
pub(crate) fn without_keys<O: Element>(
    sinks: impl ExactSizeIterator<Item = f32>,
    rows: usize,
    dim: usize,
) -> Part<O> {
    let o = vec![O::from_f32(0.0); rows * sinks.len() * dim];
    (o, sinks.flat_map(|sink| vec![sink; rows]).collect())
}

/// The parts, one after the other; the log-sum-exps head by head.
pub(crate) fn joined<O: Element>(heads: usize, parts: &[Part<O>]) -> Output<O> {
    let o = parts.iter().flat_map(|(o, _)| o.iter().copied()).collect();
    let of_head = |head: usize| {
        parts.iter().flat_map(move |(_, lse)| {
            let rows = lse.len() / heads;
            lse[head * rows..(head + 1) * rows].iter().copied()
        })
    };
    Output { o, lse: (0..heads).flat_map(of_head).collect() }
}
