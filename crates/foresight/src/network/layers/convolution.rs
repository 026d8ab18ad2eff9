//! Convolutions as matrix products: `im2col`.
//!
//! For one example, `columns` is `(channels kernel²) × (rows' columns')`: row `(c, u, v)` holds pixel `(y +
//! u, x + v)` of channel `c` for every place `(y, x)` of the output. Then the output is `W columns`.

use crate::dense::{Strided, add_product, add_product_transposed};

/// The sizes of a convolution.
#[derive(Debug, Clone, Copy)]
pub(super) struct Convolution {
    pub(super) shape: [usize; 3],
    pub(super) filters: usize,
    pub(super) kernel: usize,
}

impl Convolution {
    fn places(&self) -> [usize; 2] {
        [self.shape[1] + 1 - self.kernel, self.shape[2] + 1 - self.kernel]
    }

    fn depth(&self) -> usize {
        self.shape[0] * self.kernel * self.kernel
    }

    /// Numbers of `columns`.
    pub(super) fn columns(&self) -> usize {
        self.depth() * self.places().iter().product::<usize>()
    }

    /// Examples whose gradients are added up in one product: with few places a product of one is mostly the
    /// sums of lanes at its end.
    pub(super) fn together(&self) -> usize {
        256usize.div_ceil(self.places().iter().product()).min(8)
    }

    /// Calls `visit(pixel, column, width)` for every run of pixels that lies in one row of the image and of
    /// `columns`.
    fn runs(&self, mut visit: impl FnMut(usize, usize, usize)) {
        let [channels, rows, width] = self.shape;
        let [down, across] = self.places();
        let mut column = 0;
        for channel in 0..channels {
            for u in 0..self.kernel {
                for v in 0..self.kernel {
                    for y in 0..down {
                        visit((channel * rows + y + u) * width + v, column, across);
                        column += across;
                    }
                }
            }
        }
    }

    fn unfold(&self, image: &[f32], columns: &mut [f32]) {
        self.runs(|pixel, column, width| {
            columns[column..column + width].copy_from_slice(&image[pixel..pixel + width]);
        });
    }

    /// `out = W columns(image) + b`.
    pub(super) fn forward(
        &self,
        image: &[f32],
        matrix: &[f32],
        bias: &[f32],
        columns: &mut [f32],
        out: &mut [f32],
    ) {
        self.unfold(image, columns);
        let places = self.places().iter().product();
        for (out, &bias) in out.chunks_exact_mut(places).zip(bias) {
            out.fill(bias);
        }
        let depth = self.depth();
        add_product([self.filters, places, depth], Strided::rows(matrix, depth), columns, out);
    }

    /// `dW += Σ dOut columns(image)ᵀ`, `db += Σ dOut` over examples, whose columns lie beside each other in
    /// each row.
    pub(super) fn gradient(
        &self,
        images: &[f32],
        deltas: &[f32],
        [columns, beside]: &mut [Vec<f32>; 2],
        matrix: &mut [f32],
        bias: &mut [f32],
    ) {
        let places: usize = self.places().iter().product();
        let count = deltas.len() / (places * self.filters);
        let wide = count * places;
        columns.resize(self.depth() * wide, 0.0);
        beside.resize(self.filters * wide, 0.0);
        let size = self.shape.iter().product();
        let examples = images.chunks_exact(size).zip(deltas.chunks_exact(places * self.filters));
        for (example, (image, delta)) in examples.enumerate() {
            self.runs(|pixel, column, width| {
                let at = column / places * wide + example * places + column % places;
                columns[at..at + width].copy_from_slice(&image[pixel..pixel + width]);
            });
            for (filter, delta) in delta.chunks_exact(places).enumerate() {
                beside[filter * wide + example * places..][..places].copy_from_slice(delta);
            }
        }
        add_product_transposed([self.filters, self.depth(), wide], beside, columns, matrix);
        for (delta, bias) in beside.chunks_exact(wide).zip(bias) {
            *bias += delta.iter().sum::<f32>();
        }
    }

    /// `dImage = fold(Wᵀ dOut)`, where folding adds every column back to the pixel it came from.
    pub(super) fn backward(&self, matrix: &[f32], delta: &[f32], columns: &mut [f32], image: &mut [f32]) {
        let places = self.places().iter().product();
        let depth = self.depth();
        columns.fill(0.0);
        add_product([depth, places, self.filters], Strided::transposed(matrix, depth), delta, columns);
        image.fill(0.0);
        self.runs(|pixel, column, width| {
            let to = &mut image[pixel..pixel + width];
            to.iter_mut().zip(&columns[column..]).for_each(|(pixel, delta)| *pixel += delta);
        });
    }
}
