//! Muon's direction on a device: Newton–Schulz iterations whose products are of bf16, with sums in f32.
//!
//! ```text
//! X ← X / (|X| + 1e-7), then five times   G = X Xᵀ,   X ← a X + (b G + c G²) X        X no taller than wide
//!                                         G = Xᵀ X,   X ← a X + X (b G + c G²)        X taller than wide
//! ```
//!
//! What is multiplied is rounded to bf16, as everything is that a device multiplies here, and as Muon's
//! author has it (Jordan 2024): the coefficients leave singular values anywhere between 0.7 and 1.2, which is
//! more than 8 bits lose. `X` itself is kept in f32. Products are never split, so the bits are the same under
//! every schedule.

use gatework_gpu::{Buffer, Grid, Slice, Stream, View, ViewMut, args};
use half::bf16;

use super::shared::REDUCE_THREADS;
use super::{Products, Turned, Write, kernels, mixed};
use crate::error::Result;
use crate::optimiser::MUON_ROUNDS;

/// Memory that iterations of matrices of some sides take, one after another.
#[derive(Debug)]
pub(super) struct NewtonSchulz {
    rounded: Buffer<bf16>,
    gram: Buffer<f32>,
    square: Buffer<f32>,
    /// The Gram matrix, and then the polynomial of it.
    factor: Buffer<bf16>,
}

/// Numbers of the largest matrix and of the largest Gram matrix.
fn sizes(sides: impl Iterator<Item = [usize; 2]>) -> [usize; 2] {
    sides.fold([0, 0], |[whole, gram], [rows, columns]| {
        [whole.max(rows * columns), gram.max(rows.min(columns).pow(2))]
    })
}

impl NewtonSchulz {
    /// For matrices of these sides.
    pub(super) fn new(stream: &Stream, sides: impl Iterator<Item = [usize; 2]>) -> Result<Self> {
        let [whole, gram] = sizes(sides);
        Ok(Self {
            rounded: stream.alloc(whole)?,
            gram: stream.alloc(gram)?,
            square: stream.alloc(gram)?,
            factor: stream.alloc(gram)?,
        })
    }

    /// Bytes that it holds.
    pub(super) fn bytes(sides: impl Iterator<Item = [usize; 2]>) -> usize {
        let [whole, gram] = sizes(sides);
        2 * whole + (4 + 4 + 2) * gram
    }

    /// Queues the replacement of `x` of `rows × columns` by `U Vᵀ` of its singular value decomposition
    /// `U S Vᵀ`, nearly.
    pub(super) fn orthogonalise(
        &mut self,
        stream: &Stream,
        products: &Products,
        x: &mut impl ViewMut<f32>,
        [rows, columns]: [usize; 2],
        squared_length: Slice<'_, f64>,
    ) -> Result<()> {
        let (tall, side) = (rows > columns, rows.min(columns));
        let (count, squares) = (rows * columns, side * side);
        let kernel = |name| stream.device().kernel_of(&kernels::muon(), name);
        let (begin, polynomial) = (kernel("begin_iteration")?, kernel("polynomial")?);
        let mut rounded = self.rounded.slice_mut(..count);
        let mut gram = self.gram.slice_mut(..squares);
        let mut square = self.square.slice_mut(..squares);
        let mut factor = self.factor.slice_mut(..squares);
        for round in 0..MUON_ROUNDS {
            let first = u32::from(round == 0);
            let arguments = args![x.view_mut(), rounded.view_mut(), squared_length, first, count as u64];
            begin.launch(stream, &Grid::covering(count, REDUCE_THREADS), &arguments)?;
            let (turned, size) = if tall {
                (Turned::Left, [columns, columns, rows])
            } else {
                (Turned::Right, [rows, rows, columns])
            };
            products.multiply(turned, size, &rounded, &rounded, &mut gram, Write::Over)?;
            mixed::round(stream, &gram, &mut factor)?;
            products.multiply(Turned::Neither, [side; 3], &factor, &factor, &mut square, Write::Over)?;
            let arguments = args![gram.view(), square.view(), factor.view_mut(), squares as u64];
            polynomial.launch(stream, &Grid::covering(squares, REDUCE_THREADS), &arguments)?;
            let size = [rows, columns, side];
            if tall {
                products.multiply(Turned::Neither, size, &rounded, &factor, x, Write::Onto)?;
            } else {
                products.multiply(Turned::Neither, size, &factor, &rounded, x, Write::Onto)?;
            }
        }
        Ok(())
    }
}
