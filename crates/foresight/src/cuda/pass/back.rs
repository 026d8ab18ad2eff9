//! The gradient of a pass.

use gatework_gpu::{Buffer, Slice, SliceMut, View};
use half::bf16;

use super::{Pass, Weights, top, top_mut};
use crate::cuda::product::{Part, batched};
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
        let wide_rows = Rows { width: 4 * sizes.width, ..rows };
        let mut of_wide = top_mut(wide, 4 * numbers);
        kernels.bias_back(rows, &top(delta, numbers), &mut gradient.slice_mut(narrows.bias.clone()))?;
        let (x, dy) = (top(wide_rounded, 4 * numbers), top(delta_rounded, numbers));
        affine_back(products, narrows, weights, [x, dy], gradient, &mut of_wide)?;
        kernels.gelu_back(&before, &mut of_wide)?;
        kernels.bias_back(wide_rows, &of_wide, &mut gradient.slice_mut(widens.bias.clone()))?;
        mixed::round(stream, &of_wide, &mut top_mut(wide_rounded, 4 * numbers))?;
        self.normalise_second(weights, at)?;
        let Self { products, kernels, blocks, normal_rounded, wide_rounded, of_normal, delta, .. } = self;
        let (x, dy) = (top(normal_rounded, numbers), top(wide_rounded, 4 * numbers));
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
        let Self {
            stream, products, kernels, blocks, delta, delta_rounded, of_normal, normal_rounded, ..
        } = self;
        mixed::round(stream, &top(delta, numbers), &mut top_mut(delta_rounded, numbers))?;
        kernels.bias_back(rows, &top(delta, numbers), &mut gradient.slice_mut(mixes.bias.clone()))?;
        let (x, dy) = (top(&blocks[at].heads, numbers), top(delta_rounded, numbers));
        affine_back(products, mixes, weights, [x, dy], gradient, &mut top_mut(of_normal, numbers))?;
        mixed::round(stream, &top(of_normal, numbers), &mut top_mut(normal_rounded, numbers))?;
        self.attend(at)?;
        self.heads_back(at)?;
        let Self { stream, kernels, wide, wide_rounded, .. } = self;
        let read_rows = Rows { width: 3 * sizes.width, ..rows };
        let of_read = top(wide, 3 * numbers);
        kernels.bias_back(read_rows, &of_read, &mut gradient.slice_mut(reads.bias.clone()))?;
        mixed::round(stream, &of_read, &mut top_mut(wide_rounded, 3 * numbers))?;
        self.normalise_first(weights, at)?;
        let Self {
            products, kernels, blocks, streams, normal_rounded, wide_rounded, of_normal, delta, ..
        } = self;
        let (x, dy) = (top(normal_rounded, numbers), top(wide_rounded, 3 * numbers));
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

    /// From the gradient `do` of what heads gave, rounded, to that of queries, keys and values in `wide`:
    /// `ds = p (do vᵀ − Σ p do vᵀ) / √d`, `dq = ds k`, `dk = dsᵀ q`, `dv = pᵀ do`.
    fn heads_back(&mut self, at: usize) -> Result<()> {
        let sizes = self.sizes();
        let (context, width, batch) = (sizes.context, sizes.width, sizes.batch());
        let Self { stream, kernels, blocks, scores, shares, of_scores, of_scores_rounded, .. } = self;
        let (read, beside, square) = (&blocks[at].mixed, sizes.of_heads(3), sizes.of_squares());
        let of_heads = (self.normal_rounded.view(), sizes.of_heads(1));
        let kind = |kind: usize| (read.slice(kind * width..), beside);
        let to = (&mut *of_scores, square);
        let size = [context, context, sizes.head_width()];
        batched(stream, Turned::Right, Part::Below, size, batch, of_heads, kind(2), to, Write::Over)?;
        let mut squares = top_mut(of_scores, sizes.squares());
        let p = top(scores, sizes.squares());
        kernels.attend_back(sizes.windows * sizes.heads, context, &p, &mut squares, sizes.scale())?;
        mixed::round(stream, &squares, &mut top_mut(of_scores_rounded, sizes.squares()))?;
        let [ds, p] = [&*of_scores_rounded, &*shares].map(|list| (list.view(), square));
        let size = [context, sizes.head_width(), context];
        for (number, (turned, part, left, right)) in [
            (Turned::Neither, Part::Rows, ds, kind(1)),
            (Turned::Left, Part::Columns, ds, kind(0)),
            (Turned::Left, Part::Columns, p, of_heads),
        ]
        .into_iter()
        .enumerate()
        {
            let mut to = self.wide.slice_mut(number * width..);
            batched(stream, turned, part, size, batch, left, right, (&mut to, beside), Write::Over)?;
        }
        Ok(())
    }
}

/// `dW += xᵀ dy`, `dx = dy Wᵀ`.
fn affine_back(
    products: &mut Products,
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
