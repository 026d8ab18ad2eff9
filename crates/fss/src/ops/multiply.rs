//! Products of masked values.

use crate::bound::Bound;
use crate::engine::{Engine, Role};
use crate::error::{Error, Result};
use crate::party::Party;
use crate::tensor::{MaskShare, Share, Wire, Words};

use super::gemm::{self, Layout, Sizes};

/// rows × inner times inner × columns, row by row; `batch` such products one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatmulShape {
    /// Independent products.
    pub batch: usize,
    /// Rows of the left factor.
    pub rows: usize,
    /// Columns of the left factor, rows of the right one.
    pub inner: usize,
    /// Columns of the right factor.
    pub columns: usize,
}

impl MatmulShape {
    /// None if it has more elements than can be counted.
    fn left(&self) -> Option<usize> {
        self.batch.checked_mul(self.rows)?.checked_mul(self.inner)
    }

    fn right(&self) -> Option<usize> {
        self.batch.checked_mul(self.inner)?.checked_mul(self.columns)
    }

    /// Elements of the product.
    pub fn product(&self) -> usize {
        self.batch.saturating_mul(self.rows).saturating_mul(self.columns)
    }

    /// a b modulo 2^64, added to `sums`.
    fn accumulate(&self, layout: Layout, a: &[u64], b: &[u64], sums: &mut [u64]) {
        let Self { rows, inner, columns, .. } = *self;
        let items =
            a.chunks(rows * inner).zip(b.chunks(inner * columns)).zip(sums.chunks_mut(rows * columns));
        let one = |((a, b), sums): ((&[u64], &[u64]), &mut [u64])| {
            gemm::accumulate(Sizes { rows, inner, columns }, layout, a, b, sums);
        };
        items.for_each(one);
    }

    fn multiply(&self, layout: Layout, a: &[u64], b: &[u64]) -> Words {
        let mut sums = Words::new(vec![0; self.product()]);
        if !a.is_empty() && !b.is_empty() {
            self.accumulate(layout, a, b, &mut sums);
        }
        sums
    }
}

fn expect_mask(x: &Wire, mask: &MaskShare, gate: &'static str) -> Result<()> {
    if (x.ring, x.len) == (mask.ring, mask.len) {
        return Ok(());
    }
    Err(Error::Shape { gate, what: format!("{x:?} and shares of {} masks", mask.len) })
}

impl Engine {
    /// x y elementwise: x̂ ŷ − x̂ ⟨r_y⟩ − ŷ ⟨r_x⟩ + u.
    pub fn product(&self, x: &Wire, x_mask: &MaskShare, y: &Wire, y_mask: &MaskShare) -> Result<Share> {
        const GATE: &str = "a product";
        x.same_shape(y, GATE)?;
        expect_mask(x, x_mask, GATE)?;
        expect_mask(y, y_mask, GATE)?;
        let (a, b) = (&x.words, &y.words);
        let fresh = self.free(x.len, x.ring);
        self.compute(
            GATE,
            (x.ring, x.len),
            x.bound.times(&y.bound),
            |index| a[index].wrapping_mul(b[index]),
            |index| fresh[index].wrapping_sub(a[index].wrapping_mul(b[index])),
            |index, party| {
                let crossed = (a[index].wrapping_mul(y_mask.words[index]))
                    .wrapping_add(b[index].wrapping_mul(x_mask.words[index]));
                party.once(a[index].wrapping_mul(b[index])).wrapping_sub(crossed).wrapping_add(fresh[index])
            },
        )
    }

    /// Σ x² over rows of `width`: Σ (x̂² − 2 x̂ ⟨r⟩) + u. One word is opened a row. `bound` is a tighter proof of the sums, if
    /// there is one.
    pub(crate) fn square_sums(
        &self,
        x: &Wire,
        mask: &MaskShare,
        width: usize,
        bound: Option<Bound>,
    ) -> Result<Share> {
        const GATE: &str = "a sum of squares";
        expect_mask(x, mask, GATE)?;
        if width == 0 || !x.len.is_multiple_of(width) {
            return Err(Error::Shape { gate: GATE, what: format!("{x:?} in rows of {width}") });
        }
        let rows = x.len / width;
        let fresh = self.free(rows, x.ring);
        let sum = |row: usize, term: &dyn Fn(usize) -> u64| {
            (row * width..(row + 1) * width).fold(0u64, |sum, index| sum.wrapping_add(term(index)))
        };
        let square = |index: usize| x.words[index].wrapping_mul(x.words[index]);
        self.compute(
            GATE,
            (x.ring, rows),
            bound.unwrap_or_else(|| x.bound.squared().summed(width)),
            |row| sum(row, &square),
            |row| fresh[row].wrapping_sub(sum(row, &square)),
            |row, party| {
                let term = |index: usize| {
                    let crossed = x.words[index].wrapping_mul(mask.words[index]);
                    party.once(square(index)).wrapping_sub(crossed.wrapping_mul(2))
                };
                fresh[row].wrapping_add(sum(row, &term))
            },
        )
    }

    /// X W: X̂ Ŵ − X̂ ⟨R_w⟩ − ⟨R_x⟩ Ŵ + U. One word is opened for each element of the product, whatever the inner length.
    ///
    /// If the factors' intervals do not prove that the product stays in the ring, it is an error.
    pub fn matmul(
        &self,
        x: &Wire,
        x_mask: &MaskShare,
        w: &Wire,
        w_mask: &MaskShare,
        shape: MatmulShape,
    ) -> Result<Share> {
        let bound = x.bound.times(&w.bound).summed(shape.inner);
        self.matmul_within(x, x_mask, w, w_mask, shape, bound)
    }

    /// The same with a tighter proof than the factors' intervals give.
    pub(crate) fn matmul_within(
        &self,
        x: &Wire,
        x_mask: &MaskShare,
        w: &Wire,
        w_mask: &MaskShare,
        shape: MatmulShape,
        bound: Bound,
    ) -> Result<Share> {
        self.matrix_product([(x, x_mask), (w, w_mask)], shape, Layout::Plain, bound)
    }

    /// X Wᵀ, where W lies as columns × inner.
    pub(crate) fn matmul_transposed(
        &self,
        x: &Wire,
        x_mask: &MaskShare,
        w: &Wire,
        w_mask: &MaskShare,
        shape: MatmulShape,
        bound: Bound,
    ) -> Result<Share> {
        self.matrix_product([(x, x_mask), (w, w_mask)], shape, Layout::Transposed, bound)
    }

    fn matrix_product(
        &self,
        [(x, x_mask), (w, w_mask)]: [(&Wire, &MaskShare); 2],
        shape: MatmulShape,
        layout: Layout,
        bound: Bound,
    ) -> Result<Share> {
        const GATE: &str = "a matrix product";
        expect_mask(x, x_mask, GATE)?;
        expect_mask(w, w_mask, GATE)?;
        let fits = (Some(x.len), Some(w.len)) == (shape.left(), shape.right()) && x.ring == w.ring;
        // A product over nothing would be as large as one likes.
        if !fits || x.is_empty() || w.is_empty() {
            return Err(Error::Shape { gate: GATE, what: format!("{x:?} and {w:?} for {shape:?}") });
        }
        let fresh = self.free(shape.product(), x.ring);
        // The small factor takes the public product along, so that the weights are read where they lie: with A = X̂ − [R_x] for party 0
        // and −[R_x] for party 1 the share is A Ŵ − X̂ [R_w] + U.
        let shares = |party: Party| {
            let pairs = x.words.iter().zip(x_mask.words.iter());
            let first: Words = pairs.map(|(&word, &mask)| party.once(word).wrapping_sub(mask)).collect();
            let second: Words = x.words.iter().map(|word| word.wrapping_neg()).collect();
            let mut sums = fresh.clone();
            shape.accumulate(layout, &first, &w.words, &mut sums);
            shape.accumulate(layout, &second, &w_mask.words, &mut sums);
            sums
        };
        let words = match &self.role {
            Role::Clear | Role::Dealer(_) => shape.multiply(layout, &x.words, &w.words),
            Role::Party(party) => shares(party.party),
            Role::Estimate => Words::default(),
        };
        self.compute(
            GATE,
            (x.ring, shape.product()),
            bound,
            |index| words[index],
            |index| fresh[index].wrapping_sub(words[index]),
            |index, _| words[index],
        )
    }
}
