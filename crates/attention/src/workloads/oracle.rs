//! The plain oracle on all cores: a case's inputs, and attention in double precision over the values of their
//! codes.

use std::ops::Range;

use gatework_lab::Inputs;
use half::f16;
use rayon::prelude::*;

use super::codes;
use crate::reference::{self, Scores};
use crate::{Mask, Shape};

/// Queries, keys and values, in f16.
#[derive(Clone)]
pub(super) struct Operands {
    pub(super) q: Vec<f16>,
    pub(super) k: Vec<f16>,
    pub(super) v: Vec<f16>,
}

impl Operands {
    pub(super) fn new(shape: &Shape, seed: u64) -> Self {
        let mut inputs = Inputs::new(seed);
        let mut normal = |count: usize| inputs.normal(count).into_iter().map(f16::from_f32).collect();
        Self {
            q: normal(shape.query_elements()),
            k: normal(shape.key_elements()),
            v: normal(shape.value_elements()),
        }
    }

    /// Attention in double precision on what the quantiser makes of these: what the kernel is given.
    pub(super) fn attend(&self, shape: &Shape, scores: &Scores<'_>) -> Vec<f64> {
        let [q, k, v] = codes::values(shape, [&self.q, &self.k, &self.v]);
        let parts: Vec<Part> = parts_of(shape, scores.mask);
        let attended = parts.into_par_iter().map(|part| part.attend(shape, scores, &q, &k, &v));
        attended.collect::<Vec<Vec<f64>>>().concat()
    }
}

/// Some rows of one head: what one core attends, with the arithmetic of the whole.
struct Part {
    batch: usize,
    head: usize,
    rows: Range<usize>,
}

/// Rows that one core attends at a time: few, because the longest sums have few rows.
const PART_ROWS: usize = 1;

/// The parts of a shape, in the order of their rows.
fn parts_of(shape: &Shape, mask: Mask) -> Vec<Part> {
    // Under a mask a part sees the keys up to those of its last row; where rows see no key at all, or keys
    // after their place, a head stays whole.
    let is_split = match mask {
        Mask::Full => true,
        Mask::Causal | Mask::Window { right: 0, .. } => shape.rows <= shape.keys,
        Mask::Window { .. } => false,
    };
    let step = if is_split { PART_ROWS } else { shape.rows };
    let mut parts = Vec::new();
    for (batch, head) in (0..shape.batch).flat_map(|batch| (0..shape.heads).map(move |head| (batch, head))) {
        let starts = (0..shape.rows).step_by(step);
        parts.extend(starts.map(|start| Part { batch, head, rows: start..(start + step).min(shape.rows) }));
    }
    parts
}

impl Part {
    fn attend(&self, shape: &Shape, scores: &Scores<'_>, q: &[f64], k: &[f64], v: &[f64]) -> Vec<f64> {
        let Shape { heads, key_heads, rows, keys, dim, value_dim, .. } = *shape;
        let unseen = if scores.mask == Mask::Full { 0 } else { rows - self.rows.end };
        let part = Shape {
            batch: 1,
            heads: 1,
            key_heads: 1,
            rows: self.rows.len(),
            keys: keys - unseen.min(keys),
            dim,
            value_dim,
        };
        let sinks = scores.sinks.get(self.head..self.head + 1).unwrap_or_default();
        let query = ((self.batch * heads + self.head) * rows + self.rows.start) * dim;
        let first = (self.batch * key_heads + self.head / (heads / key_heads)) * keys;
        let seen = |length: usize| first * length..(first + part.keys) * length;
        let (q, k, v) = (&q[query..query + part.rows * dim], &k[seen(dim)], &v[seen(value_dim)]);
        reference::attention_of(&part, &Scores { sinks, ..*scores }, q, k, v).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oracle_on_all_cores_is_the_oracle() {
        for (rows, keys) in [(40, 40), (33, 70), (70, 33), (1, 100)] {
            for mask in [
                Mask::Full,
                Mask::Causal,
                Mask::Window { left: 9, right: 0 },
                Mask::Window { left: 9, right: 3 },
            ] {
                let shape = Shape { batch: 2, heads: 4, key_heads: 2, rows, keys, dim: 64, value_dim: 48 };
                let mut inputs = Inputs::new(3);
                let mut normal =
                    |count: usize| -> Vec<f64> { inputs.normal(count).into_iter().map(f64::from).collect() };
                let (q, k) = (normal(shape.query_elements()), normal(shape.key_elements()));
                let v = normal(shape.value_elements());
                let scores =
                    Scores { mask, scale: 0.125, soft_cap: Some(3.0), sinks: &[0.0, 1.0, -1.0, 2.0] };
                let whole = reference::attention_of(&shape, &scores, &q, &k, &v).0;
                let parts = parts_of(&shape, mask).into_iter();
                let parts: Vec<f64> =
                    parts.flat_map(|part| part.attend(&shape, &scores, &q, &k, &v)).collect();
                assert_eq!(parts, whole, "{rows} over {keys}, {mask:?}");
            }
        }
    }
}
