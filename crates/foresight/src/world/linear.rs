//! A dense layer whose parameters lie in a larger array.

use std::ops::Range;

use crate::dense::{Strided, add_product, add_product_transposed};
use crate::random::Random;

/// `y = x W + b` for rows of `x`, with `W` as `inputs × outputs` and then `b` among all parameters of a
/// model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Linear {
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    pub(crate) matrix: Range<usize>,
    pub(crate) bias: Range<usize>,
}

impl Linear {
    /// Takes its place after `at`, which it moves on.
    pub(super) fn place(inputs: usize, outputs: usize, at: &mut usize) -> Self {
        let matrix = *at..*at + inputs * outputs;
        let bias = matrix.end..matrix.end + outputs;
        *at = bias.end;
        Self { inputs, outputs, matrix, bias }
    }

    /// Glorot's uniform numbers, and no bias.
    pub(super) fn initialise(&self, parameters: &mut [f32], random: &mut Random) {
        let bound = (6.0 / (self.inputs + self.outputs) as f64).sqrt();
        for w in &mut parameters[self.matrix.clone()] {
            *w = (bound * (2.0 * random.uniform() - 1.0)) as f32;
        }
    }

    pub(super) fn forward(&self, parameters: &[f32], x: &[f32]) -> Vec<f32> {
        let mut y = Vec::new();
        self.forward_into(parameters, x, &mut y);
        y
    }

    /// The same, in memory that is there already.
    pub(super) fn forward_into(&self, parameters: &[f32], x: &[f32], y: &mut Vec<f32>) {
        let rows = x.len() / self.inputs;
        y.clear();
        (0..rows).for_each(|_| y.extend_from_slice(&parameters[self.bias.clone()]));
        let matrix = &parameters[self.matrix.clone()];
        add_product([rows, self.outputs, self.inputs], Strided::rows(x, self.inputs), matrix, y);
    }

    /// Adds `xᵀ dy` and `Σ dy` to the gradient.
    pub(super) fn gradient(&self, x: &[f32], dy: &[f32], gradient: &mut [f32]) {
        let rows = x.len() / self.inputs;
        let size = [self.inputs, self.outputs, rows];
        add_product(size, Strided::transposed(x, self.inputs), dy, &mut gradient[self.matrix.clone()]);
        let bias = &mut gradient[self.bias.clone()];
        for dy in dy.chunks_exact(self.outputs) {
            bias.iter_mut().zip(dy).for_each(|(bias, dy)| *bias += dy);
        }
    }

    /// `dx = dy Wᵀ`.
    pub(super) fn backward(&self, parameters: &[f32], dy: &[f32]) -> Vec<f32> {
        let rows = dy.len() / self.outputs;
        let mut dx = vec![0.0; rows * self.inputs];
        let matrix = &parameters[self.matrix.clone()];
        add_product_transposed([rows, self.inputs, self.outputs], dy, matrix, &mut dx);
        dx
    }
}
