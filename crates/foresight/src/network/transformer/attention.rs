//! Causal attention of one head over one window, in tiles, and its gradient.
//!
//! Row `i` of a window has `o_i = Σ_{j ≤ i} p_ij v_j` with `p_ij = e^(s_ij − l_i)`, `s_ij = q_i k_j / √width`
//! and `l_i = ln Σ_{j ≤ i} e^s_ij`. The forward pass leaves `l`; the backward pass computes `p` anew from it,
//! tile by tile, so that nothing of the size of all pairs is kept.

use super::dense::transpose;
use crate::dense::{Strided, add_product, exp, ln};

/// Rows and columns of a tile.
const TILE: usize = 64;

/// Where a head's numbers are in the rows of a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    /// Which head.
    pub(super) head: usize,
    /// Numbers of a head.
    pub(super) width: usize,
    /// Numbers of the stream: rows of queries, keys and values have three times as many.
    pub(super) stream: usize,
}

/// Memory for one head of one window.
#[derive(Debug, Clone, Default)]
pub(super) struct Scratch {
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    /// Keys, and values, tile after tile, each transposed.
    keys_across: Vec<f32>,
    values_across: Vec<f32>,
    /// What is computed: outputs going forward, their gradients going back.
    outputs: Vec<f32>,
    /// Tiles of a row of tiles.
    scores: Vec<f32>,
    deltas: Vec<f32>,
    /// Of queries, keys and values.
    gradients: [Vec<f32>; 3],
}

impl Scratch {
    /// Numbers that it holds for windows of so many tokens.
    pub(super) fn numbers(width: usize, tokens: usize) -> usize {
        tokens * (9 * width + TILE) + TILE * TILE
    }
}

impl Head {
    /// Copies this head's part out of rows that are `wide`, from number `from` of the head's own on.
    fn gather(self, rows: &[f32], wide: usize, from: usize, to: &mut Vec<f32>) {
        to.clear();
        let at = from + self.head * self.width;
        rows.chunks_exact(wide).for_each(|row| to.extend(&row[at..at + self.width]));
    }

    fn scatter(self, from: &[f32], wide: usize, at: usize, rows: &mut [f32]) {
        let at = at + self.head * self.width;
        for (row, from) in rows.chunks_exact_mut(wide).zip(from.chunks_exact(self.width)) {
            row[at..at + self.width].copy_from_slice(from);
        }
    }

    fn read(self, mixed: &[f32], scratch: &mut Scratch) {
        let Self { width, stream, .. } = self;
        self.gather(mixed, 3 * stream, 0, &mut scratch.queries);
        self.gather(mixed, 3 * stream, stream, &mut scratch.keys);
        self.gather(mixed, 3 * stream, 2 * stream, &mut scratch.values);
        let scale = self.scale();
        scratch.queries.iter_mut().for_each(|q| *q *= scale);
        across(&scratch.keys, width, &mut scratch.keys_across);
    }

    fn scale(self) -> f32 {
        1.0 / (self.width as f32).sqrt()
    }

    /// From the rows of queries, keys and values of a window to this head's part of the rows of `out`, and
    /// `l` of every row.
    pub(super) fn forward(self, mixed: &[f32], out: &mut [f32], logs: &mut [f32], scratch: &mut Scratch) {
        let (width, tokens) = (self.width, logs.len());
        self.read(mixed, scratch);
        let Scratch { queries, values, keys_across, outputs, scores, .. } = scratch;
        outputs.clear();
        outputs.resize(tokens * width, 0.0);
        for top in (0..tokens).step_by(TILE) {
            let rows = TILE.min(tokens - top);
            let end = top + rows;
            scores.clear();
            scores.resize(rows * end, 0.0);
            let mut highest = [f32::NEG_INFINITY; TILE];
            for left in (0..end).step_by(TILE) {
                let columns = TILE.min(end - left);
                let tile = &mut scores[rows * left..][..rows * columns];
                let queries = Strided::rows(&queries[top * width..], width);
                add_product(
                    [rows, columns, width],
                    queries,
                    &keys_across[left * width..][..columns * width],
                    tile,
                );
                for (row, (scores, highest)) in tile.chunks_exact(columns).zip(&mut highest).enumerate() {
                    let seen = seen(top + row, left, columns);
                    *highest = scores[..seen].iter().fold(*highest, |top, &s| if s > top { s } else { top });
                }
            }
            let mut sums = [0.0f32; TILE];
            for left in (0..end).step_by(TILE) {
                let columns = TILE.min(end - left);
                let tile = &mut scores[rows * left..][..rows * columns];
                for (row, scores) in tile.chunks_exact_mut(columns).enumerate() {
                    let (scores, future) = scores.split_at_mut(seen(top + row, left, columns));
                    scores.iter_mut().for_each(|s| *s -= highest[row]);
                    exp(scores);
                    sums[row] += scores.iter().sum::<f32>();
                    future.fill(0.0);
                }
                let values = &values[left * width..][..columns * width];
                let out = &mut outputs[top * width..end * width];
                add_product([rows, width, columns], Strided::rows(tile, columns), values, out);
            }
            for (out, sum) in outputs[top * width..end * width].chunks_exact_mut(width).zip(&sums) {
                out.iter_mut().for_each(|out| *out /= sum);
            }
            let logs = &mut logs[top..end];
            logs.copy_from_slice(&sums[..rows]);
            ln(logs);
            logs.iter_mut().zip(highest).for_each(|(log, highest)| *log += highest);
        }
        self.scatter(outputs, self.stream, 0, out);
    }

    /// From the gradient of this head's part of the rows of `out` to those of its queries, keys and values:
    /// with `D_i = Σ dO_i O_i`, `dV = pᵀ dO`, `dp = dO Vᵀ`, `ds = p (dp − D)`, `dQ = ds K / √width`, `dK =
    /// dsᵀ Q / √width`.
    pub(super) fn backward(
        self,
        mixed: &[f32],
        [out, of_out]: [&[f32]; 2],
        logs: &[f32],
        of_mixed: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let (width, stream, tokens) = (self.width, self.stream, logs.len());
        self.read(mixed, scratch);
        across(&scratch.values, width, &mut scratch.values_across);
        self.gather(of_out, stream, 0, &mut scratch.outputs);
        let Scratch { queries, keys, keys_across, values_across, outputs, scores, deltas, gradients, .. } =
            scratch;
        gradients.iter_mut().for_each(|gradient| {
            gradient.clear();
            gradient.resize(tokens * width, 0.0);
        });
        let [of_queries, of_keys, of_values] = gradients;
        for top in (0..tokens).step_by(TILE) {
            let rows = TILE.min(tokens - top);
            let end = top + rows;
            let mut shares = [0.0f32; TILE];
            let at = self.head * width;
            for (row, share) in shares.iter_mut().enumerate().take(rows) {
                let out = &out[(top + row) * stream + at..][..width];
                let of_out = &outputs[(top + row) * width..][..width];
                *share = out.iter().zip(of_out).map(|(out, d)| out * d).sum();
            }
            let row_queries = &queries[top * width..end * width];
            let row_outputs = &outputs[top * width..end * width];
            for left in (0..end).step_by(TILE) {
                let columns = TILE.min(end - left);
                let here = left * width..(left + columns) * width;
                scores.clear();
                scores.resize(rows * columns, 0.0);
                let size = [rows, columns, width];
                add_product(size, Strided::rows(row_queries, width), &keys_across[here.clone()], scores);
                for (row, scores) in scores.chunks_exact_mut(columns).enumerate() {
                    let (scores, future) = scores.split_at_mut(seen(top + row, left, columns));
                    scores.iter_mut().for_each(|s| *s -= logs[top + row]);
                    exp(scores);
                    future.fill(0.0);
                }
                let turned = Strided::transposed(scores, columns);
                add_product([columns, width, rows], turned, row_outputs, &mut of_values[here.clone()]);
                deltas.clear();
                deltas.resize(rows * columns, 0.0);
                add_product(size, Strided::rows(row_outputs, width), &values_across[here.clone()], deltas);
                let both = deltas.chunks_exact_mut(columns).zip(scores.chunks_exact(columns));
                for ((deltas, scores), share) in both.zip(shares) {
                    deltas.iter_mut().zip(scores).for_each(|(d, p)| *d = p * (*d - share));
                }
                let across = Strided::rows(deltas, columns);
                let of_queries = &mut of_queries[top * width..end * width];
                add_product([rows, width, columns], across, &keys[here.clone()], of_queries);
                let turned = Strided::transposed(deltas, columns);
                add_product([columns, width, rows], turned, row_queries, &mut of_keys[here]);
            }
        }
        // The queries that keys met were scaled already.
        let scale = self.scale();
        of_queries.iter_mut().for_each(|d| *d *= scale);
        self.scatter(of_queries, 3 * stream, 0, of_mixed);
        self.scatter(of_keys, 3 * stream, stream, of_mixed);
        self.scatter(of_values, 3 * stream, 2 * stream, of_mixed);
    }
}

/// How many columns of a tile from `left` on row `row` may see.
fn seen(row: usize, left: usize, columns: usize) -> usize {
    columns.min(row + 1 - left)
}

/// Tiles of rows, each transposed.
fn across(rows: &[f32], width: usize, to: &mut Vec<f32>) {
    to.clear();
    to.resize(rows.len(), 0.0);
    for (tile, to) in rows.chunks(TILE * width).zip(to.chunks_mut(TILE * width)) {
        transpose(tile, width, to);
    }
}
