//! `y = x W + b` for rows of a stream, and its gradient.

use super::Affine;
use crate::dense::{Strided, add_product};

impl Affine {
    /// `y = x W + b`.
    pub(super) fn forward(&self, weights: &[f32], x: &[f32], y: &mut [f32]) {
        let [inputs, outputs] = self.sides;
        let bias = &weights[self.bias.clone()];
        y.chunks_exact_mut(outputs).for_each(|row| row.copy_from_slice(bias));
        let size = [x.len() / inputs, outputs, inputs];
        add_product(size, Strided::rows(x, inputs), &weights[self.matrix.clone()], y);
    }

    /// `dW += xᵀ dy`, `db += Σ dy`, `dx = dy Wᵀ`. The product with a transposed matrix has its sums in the
    /// lanes of a vector, where adding up the lanes of short sums costs more than they do: `W` is transposed
    /// into `turned` first, once for all rows.
    pub(super) fn backward(
        &self,
        weights: &[f32],
        x: &[f32],
        dy: &[f32],
        gradient: &mut [f32],
        turned: &mut Vec<f32>,
        dx: &mut [f32],
    ) {
        let [inputs, outputs] = self.sides;
        let rows = x.len() / inputs;
        let matrix = &mut gradient[self.matrix.clone()];
        add_product([inputs, outputs, rows], Strided::transposed(x, inputs), dy, matrix);
        add_rows(dy, &mut gradient[self.bias.clone()]);
        turned.resize(inputs * outputs, 0.0);
        transpose(&weights[self.matrix.clone()], outputs, turned);
        dx.fill(0.0);
        add_product([rows, inputs, outputs], Strided::rows(dy, outputs), turned, dx);
    }
}

/// Adds every row to `sum`.
pub(super) fn add_rows(rows: &[f32], sum: &mut [f32]) {
    for row in rows.chunks_exact(sum.len()) {
        sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
    }
}

/// `to = fromᵀ`, where `from` has so many columns.
pub(super) fn transpose(from: &[f32], columns: usize, to: &mut [f32]) {
    /// Sides of blocks that stay in the cache while both are walked.
    const SIDE: usize = 16;
    let rows = from.len() / columns;
    for top in (0..rows).step_by(SIDE) {
        let bottom = (top + SIDE).min(rows);
        for left in (0..columns).step_by(SIDE) {
            for column in left..(left + SIDE).min(columns) {
                for row in top..bottom {
                    to[column * rows + row] = from[row * columns + column];
                }
            }
        }
    }
}
