//! The gradient of a pass.

use gatework_gpu::{Buffer, Slice, SliceMut};
use half::bf16;

use super::{Activations, Pass, Weights, top, top_mut};
use crate::cuda::attention::{Attended, attend_back};
use crate::cuda::transformer::{Rows, Sorted};
use crate::cuda::{Products, Turned, Write, mixed};
use crate::error::Result;
use crate::network::transformer::{Affine, Block};

impl Pass {
    /// What [`Self::judge`] found with the gradient that it leaves behind, added to `gradient` for all groups
    /// from number `frozen` on.
    pub(in crate::cuda) fn back(
        &mut self,
        weights: Weights<'_>,
        frozen: usize,
        gradient: &mut Buffer<f32>,
    ) -> Result<()> {
        let sizes = self.sizes();
        let numbers = sizes.stream();
        let norm = self.layout.last_norm.clone();
        let Self { stream, kernels, streams, last, of_normal, delta, .. } = self;
        stream.fill(delta, 0.0)?;
        kernels.normalise_back(
            sizes.rows(),
            &top(&streams[self.layout.blocks.len()], numbers),
            &weights.master.slice(norm.clone()),
            &top(last, 2 * sizes.tokens()),
            &top(of_normal, numbers),
            &mut top_mut(delta, numbers),
            &mut gradient.slice_mut(norm),
        )?;
        for at in (0..self.blocks.len()).rev().take_while(|at| at + 1 >= frozen) {
            let layout = self.layout.blocks[at].clone();
            self.dense_back(weights, at, &layout, gradient)?;
            self.attention_back(weights, at, &layout, gradient)?;
        }
        if frozen == 0 {
            let delta = top(&self.delta, numbers);
            let places: Vec<u32> = (0..sizes.tokens()).map(|row| (row % sizes.context) as u32).collect();
            for (keys, range) in [(&self.tokens, &self.layout.tokens), (&places, &self.layout.places)] {
                let sorted = Sorted::new(&self.stream, keys)?;
                let mut to = gradient.slice_mut(range.clone());
                self.kernels.embed_back(sizes.rows(), &sorted, &delta, &mut to)?;
            }
        }
        Ok(())
    }

    /// Through the dense layers of a block: the stream's gradient is that of their output.
    fn dense_back(
        &mut self,
        weights: Weights<'_>,
        at: usize,
        layout: &Block,
        gradient: &mut Buffer<f32>,
    ) -> Result<()> {
        let sizes = self.sizes();
        let (rows, numbers) = (sizes.rows(), sizes.stream());
        let Block { widens, narrows, second_norm, .. } = layout;
        let Self { stream, products, kernels, blocks, delta, delta_rounded, wide, wide_rounded, .. } = self;
        let before = top(&blocks[at].before, 4 * numbers);
        mixed::round(stream, &top(delta, numbers), &mut top_mut(delta_rounded, numbers))?;
        mixed::round_gelu(stream, &before, &mut top_mut(wide_rounded, 4 * numbers))?;
        let (x, dy) = (top(wide_rounded, 4 * numbers), top(delta_rounded, numbers));
        kernels.bias_back(rows, &dy, &mut gradient.slice_mut(narrows.bias.clone()))?;
        let mut of_wide = top_mut(wide, 4 * numbers);
        affine_back(products, narrows, weights, [x, dy], gradient, &mut of_wide)?;
        let mut of_before = top_mut(wide_rounded, 4 * numbers);
        mixed::gelu_back(stream, &before, &of_wide, &mut of_before)?;
        let wide_rows = Rows { width: 4 * sizes.width, ..rows };
        kernels.bias_back(wide_rows, &of_before, &mut gradient.slice_mut(widens.bias.clone()))?;
        self.normalise_second(weights, at)?;
        let Self { products, kernels, blocks, normal, wide_rounded, of_normal, delta, .. } = self;
        let (x, dy) = (top(normal, numbers), top(wide_rounded, 4 * numbers));
        affine_back(products, widens, weights, [x, dy], gradient, &mut top_mut(of_normal, numbers))?;
        kernels.normalise_back(
            rows,
            &top(&blocks[at].middle, numbers),
            &weights.master.slice(second_norm.clone()),
            &top(&blocks[at].second, 2 * rows.count),
            &top(of_normal, numbers),
            &mut top_mut(delta, numbers),
            &mut gradient.slice_mut(second_norm.clone()),
        )
    }

    /// Through the attention of a block.
    fn attention_back(
        &mut self,
        weights: Weights<'_>,
        at: usize,
        layout: &Block,
        gradient: &mut Buffer<f32>,
    ) -> Result<()> {
        let sizes = self.sizes();
        let (rows, numbers) = (sizes.rows(), sizes.stream());
        let Block { reads, mixes, first_norm, .. } = layout;
        let Self { stream, products, kernels, blocks, delta, delta_rounded, of_normal, normal, .. } = self;
        let Self { dots, wide_rounded, .. } = self;
        let Activations { mixed: read, heads, levels, .. } = &blocks[at];
        let given = top(heads, numbers);
        mixed::round(stream, &top(delta, numbers), &mut top_mut(delta_rounded, numbers))?;
        let dy = top(delta_rounded, numbers);
        kernels.bias_back(rows, &dy, &mut gradient.slice_mut(mixes.bias.clone()))?;
        affine_back(products, mixes, weights, [given, dy], gradient, &mut top_mut(of_normal, numbers))?;
        mixed::round(stream, &top(of_normal, numbers), &mut top_mut(normal, numbers))?;
        let of_heads = sizes.of_heads();
        let attended = Attended {
            read: &top(read, 3 * numbers),
            given: &given,
            of_given: &top(normal, numbers),
            levels: &top(levels, of_heads.places()),
        };
        let mut of_read = top_mut(wide_rounded, 3 * numbers);
        attend_back(stream, of_heads, &attended, &mut top_mut(dots, of_heads.places()), &mut of_read)?;
        let read_rows = Rows { width: 3 * sizes.width, ..rows };
        kernels.bias_back(read_rows, &of_read, &mut gradient.slice_mut(reads.bias.clone()))?;
        self.normalise_first(weights, at)?;
        let Self { products, kernels, blocks, streams, normal, wide_rounded, of_normal, delta, .. } = self;
        let (x, dy) = (top(normal, numbers), top(wide_rounded, 3 * numbers));
        affine_back(products, reads, weights, [x, dy], gradient, &mut top_mut(of_normal, numbers))?;
        kernels.normalise_back(
            rows,
            &top(&streams[at], numbers),
            &weights.master.slice(first_norm.clone()),
            &top(&blocks[at].first, 2 * rows.count),
            &top(of_normal, numbers),
            &mut top_mut(delta, numbers),
            &mut gradient.slice_mut(first_norm.clone()),
        )
    }
}

/// `dW += xᵀ dy`, `dx = dy Wᵀ`.
fn affine_back(
    products: &Products,
    affine: &Affine,
    weights: Weights<'_>,
    [x, dy]: [Slice<'_, bf16>; 2],
    gradient: &mut Buffer<f32>,
    dx: &mut SliceMut<'_, f32>,
) -> Result<()> {
    let [inputs, outputs] = affine.sides;
    let rows = x.len() / inputs;
    let mut of_matrix = gradient.slice_mut(affine.matrix.clone());
    products.multiply(Turned::Left, [inputs, outputs, rows], &x, &dy, &mut of_matrix, Write::Onto)?;
    let matrix = weights.rounded.slice(affine.matrix.clone());
    products.multiply(Turned::Right, [rows, inputs, outputs], &dy, &matrix, dx, Write::Over)
}
