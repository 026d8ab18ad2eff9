//! What is attended to by what.

use std::ops::Range;

use crate::dimensions;
use crate::{Error, Result};

/// Which keys a query row sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mask {
    /// All of them.
    #[default]
    Full,
    /// Row `i` sees keys up to `i + keys - rows`, its own place: the last row sees the last key, whatever the
    /// two lengths.
    Causal,
    /// Row `i` sees its own place, `left` keys before it and `right` after: a sliding window.
    Window {
        /// Keys before the row's own place.
        left: usize,
        /// Keys after it.
        right: usize,
    },
}

impl Mask {
    /// The causal window of `keys` keys: a row's own place and those before it.
    pub fn sliding(keys: usize) -> Result<Self> {
        match keys.checked_sub(1) {
            Some(left) => Ok(Self::Window { left, right: 0 }),
            None => Err(Error::Unsupported {
                what: "a window of 0 keys; a row sees at least its own place".into(),
            }),
        }
    }
}

/// The order of a tensor's dimensions in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// `[batch, heads, rows, dim]`.
    #[default]
    HeadsFirst,
    /// `[batch, rows, heads, dim]`.
    RowsFirst,
}

/// Rows of all heads and batches together: more than any memory holds.
const MOST_ROWS: u64 = 1 << 40;

/// Sizes of one attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Independent problems.
    pub batch: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; each serves `heads / key_heads` query heads.
    pub key_heads: usize,
    /// Query rows of a head.
    pub rows: usize,
    /// Keys of a head.
    pub keys: usize,
    /// Length of a row of queries and keys.
    pub dim: usize,
    /// Length of a row of values, and of the output: as `dim` in most models. Multi-head latent attention
    /// (MLA) has 128 beside 192.
    pub value_dim: usize,
}

/// Elements between neighbours along batch, heads and rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Strides {
    pub(crate) batch: usize,
    pub(crate) head: usize,
    pub(crate) row: usize,
}

impl Layout {
    pub(crate) fn strides(self, heads: usize, rows: usize, dim: usize) -> Strides {
        match self {
            Self::HeadsFirst => Strides { batch: heads * rows * dim, head: rows * dim, row: dim },
            Self::RowsFirst => Strides { batch: heads * rows * dim, head: dim, row: heads * dim },
        }
    }
}

impl Shape {
    /// The same number of heads and the same lengths for queries, keys and values.
    pub fn square(batch: usize, heads: usize, rows: usize, dim: usize) -> Self {
        Self { batch, heads, key_heads: heads, rows, keys: rows, dim, value_dim: dim }
    }

    /// Elements of the queries.
    pub fn query_elements(&self) -> usize {
        self.query_rows() * self.dim
    }

    /// Elements of the keys.
    pub fn key_elements(&self) -> usize {
        self.batch * self.key_heads * self.keys * self.dim
    }

    /// Elements of the values.
    pub fn value_elements(&self) -> usize {
        self.batch * self.key_heads * self.keys * self.value_dim
    }

    /// Elements of the output.
    pub fn output_elements(&self) -> usize {
        self.query_rows() * self.value_dim
    }

    /// Query rows of all heads and batches: elements of the log-sum-exp.
    pub fn query_rows(&self) -> usize {
        self.batch * self.heads * self.rows
    }

    /// The keys that query row `row` sees.
    pub fn visible(&self, row: usize, mask: Mask) -> Range<usize> {
        match mask {
            Mask::Full => 0..self.keys,
            Mask::Causal => 0..(row + 1 + self.keys).saturating_sub(self.rows),
            Mask::Window { left, right } => {
                let place = row + self.keys;
                let end = (place + 1).saturating_add(right).saturating_sub(self.rows).min(self.keys);
                place.saturating_sub(self.rows.saturating_add(left)).min(end)..end
            }
        }
    }

    /// Multiplications and additions of both products; under a mask only those of keys that are seen.
    pub fn operations(&self, mask: Mask) -> f64 {
        let pairs = match mask {
            Mask::Full => self.rows as f64 * self.keys as f64,
            Mask::Causal | Mask::Window { .. } => {
                (0..self.rows).map(|row| self.visible(row, mask).len() as f64).sum()
            }
        };
        2.0 * (self.batch * self.heads * (self.dim + self.value_dim)) as f64 * pairs
    }

    /// Whether tensors of these lengths are the queries, keys and values of this shape.
    pub(crate) fn check_lengths(&self, q: usize, k: usize, v: usize) -> Result<()> {
        let needed = [self.query_elements(), self.key_elements(), self.value_elements()];
        for (tensor, found, needed) in [("q", q, needed[0]), ("k", k, needed[1]), ("v", v, needed[2])] {
            if found != needed {
                return Err(Error::Length { tensor, found, needed });
            }
        }
        Ok(())
    }

    /// Says what no kernel here computes.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::Unsupported { what });
        let Self { batch, heads, key_heads, rows, keys, dim, value_dim } = *self;
        dimensions::check(dim, value_dim)?;
        if [batch, heads, key_heads, rows, keys].contains(&0) {
            return refuse(format!("an empty shape, {self:?}"));
        }
        if key_heads > heads || !heads.is_multiple_of(key_heads) {
            return refuse(format!(
                "{heads} query heads over {key_heads} key heads; the second must divide the first"
            ));
        }
        if rows > i32::MAX as usize / 2 || keys > i32::MAX as usize / 2 || heads > 65535 || batch > 65535 {
            return refuse(format!("sizes beyond 2^30 rows or keys, or 65535 heads or batches: {self:?}"));
        }
        // Also what keeps counts of elements and bytes from wrapping around.
        let rows_of_all = batch as u64 * heads as u64 * rows.max(keys) as u64;
        if rows_of_all > MOST_ROWS {
            return refuse(format!("more than 2^40 rows in all heads and batches together: {self:?}"));
        }
        Ok(())
    }
}
