//! Products of masked values.

use crate::backend::{Layout, MatmulShape, Sums, Words};
use crate::bound::Bound;
use crate::error::{Error, Result};
use crate::evaluator::{Evaluator, Role};
use crate::party::Party;
use crate::ring::Ring;
use crate::tensor::{MaskShare, Share, Wire};

pub(super) fn expect_mask(x: &Wire, mask: &MaskShare, gate: &'static str) -> Result<()> {
    if (x.ring(), x.len()) == (mask.ring(), mask.len()) {
        return Ok(());
    }
    Err(Error::Shape { gate, what: format!("{x:?} and shares of {} masks", mask.len()) })
}

impl Evaluator {
    /// x y elementwise: x̂ ŷ − x̂ ⟨r_y⟩ − ŷ ⟨r_x⟩ + u.
    pub fn product(&self, x: &Wire, x_mask: &MaskShare, y: &Wire, y_mask: &MaskShare) -> Result<Share> {
        self.product_within(x, x_mask, y, y_mask, x.bound().times(&y.bound()))
    }

    /// The same with a tighter proof than the factors' intervals give.
    pub fn product_within(
        &self,
        x: &Wire,
        x_mask: &MaskShare,
        y: &Wire,
        y_mask: &MaskShare,
        bound: Bound,
    ) -> Result<Share> {
        const GATE: &str = "a product";
        x.same_shape(y, GATE)?;
        expect_mask(x, x_mask, GATE)?;
        expect_mask(y, y_mask, GATE)?;
        let (ring, len) = (x.ring(), x.len());
        let (x, y, x_mask, y_mask) = (x.words(), y.words(), x_mask.words(), y_mask.words());
        let fresh = &self.fresh(len, ring)?;
        self.compute(
            GATE,
            (ring, len),
            bound,
            |w| w.read(x) * w.read(y),
            |w| w.read(fresh) - w.read(x) * w.read(y),
            |w, party| {
                let [x, y, x_mask, y_mask, u] = w.read_all([x, y, x_mask, y_mask, fresh]);
                (x * y).once(party) - (x * y_mask + y * x_mask) + u
            },
        )
    }

    /// Σ x² over rows of `width`: Σ (x̂² − 2 x̂ ⟨r⟩) + u. One word is opened a row. `bound` is a tighter
    /// proof of the sums, if there is one.
    pub fn square_sums(
        &self,
        x: &Wire,
        mask: &MaskShare,
        width: usize,
        bound: Option<Bound>,
    ) -> Result<Share> {
        const GATE: &str = "a sum of squares";
        expect_mask(x, mask, GATE)?;
        if width == 0 || !x.len().is_multiple_of(width) {
            return Err(Error::Shape { gate: GATE, what: format!("{x:?} in rows of {width}") });
        }
        let (ring, rows) = (x.ring(), x.len() / width);
        let fresh = &self.fresh(rows, ring)?;
        let sums = &self.square_terms(x, mask, width)?;
        self.compute(
            GATE,
            (ring, rows),
            bound.unwrap_or_else(|| x.bound().squared().summed(width)),
            |w| w.read(sums),
            |w| w.read(fresh) + w.read(sums),
            |w, _| w.read(fresh) + w.read(sums),
        )
    }

    /// Σ (x̂² − 2 x̂ ⟨r⟩) over rows of `width`, under the mask −Σ r².
    pub(super) fn square_terms(&self, x: &Wire, mask: &MaskShare, width: usize) -> Result<Words> {
        let (ring, word, mask) = (x.ring(), x.words(), mask.words());
        // Terms may be any residue; what is proved is their sums.
        let terms: Wire = self.compute(
            "a sum of squares",
            (ring, x.len()),
            Bound::unsigned(ring),
            |w| w.read(word) * w.read(word),
            |w| -(w.read(word) * w.read(word)),
            |w, party| {
                let [x, mask] = w.read_all([word, mask]);
                (x * x).once(party) - x * mask * 2
            },
        )?;
        terms.words().sums(Sums::Rows(width), ring)
    }

    /// X W: X̂ Ŵ − X̂ ⟨R_w⟩ − ⟨R_x⟩ Ŵ + U. One word is opened for each element of the product, whatever the
    /// inner length.
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
        let bound = x.bound().times(&w.bound()).summed(shape.inner);
        self.matmul_within(x, x_mask, w, w_mask, shape, bound)
    }

    /// The same with a tighter proof than the factors' intervals give.
    pub fn matmul_within(
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
    pub fn matmul_transposed(
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
        let fits = (Some(x.len()), Some(w.len())) == (shape.left(), shape.right()) && x.ring() == w.ring();
        // A product over nothing would be as large as one likes.
        if !fits || x.is_empty() || w.is_empty() {
            return Err(Error::Shape { gate: GATE, what: format!("{x:?} and {w:?} for {shape:?}") });
        }
        let (ring, len) = (x.ring(), shape.product());
        let fresh = self.fresh(len, ring)?;
        let (x, w) = (x.words(), w.words());
        // In clear X W, for the dealer U − R_x R_w, for a party its share.
        let words = &match &self.role {
            Role::Clear => self.matrix_products(shape, layout, ring, &[[x, w]], None)?,
            Role::Dealer(_) => {
                let negated = self.words(x.len(), Ring::WORD, |tape| -tape.read(x))?;
                self.matrix_products(shape, layout, ring, &[[&negated, w]], Some(fresh))?
            }
            Role::Party(party, _) => {
                let [first, second] = self.left_factors(*party, x, x_mask.words())?;
                self.matrix_products(
                    shape,
                    layout,
                    ring,
                    &[[&first, w], [&second, w_mask.words()]],
                    Some(fresh),
                )?
            }
            Role::Estimate | Role::Scout(..) => fresh,
        };
        self.compute(GATE, (ring, len), bound, |w| w.read(words), |w| w.read(words), |w, _| w.read(words))
    }

    /// The small factor takes the public product along, so that the weights are read where they lie: with A =
    /// X̂ − [R_x] for party 0 and −[R_x] for party 1 the share is A Ŵ − X̂ [R_w] + U. A and −X̂.
    fn left_factors(&self, party: Party, x: &Words, mask: &Words) -> Result<[Words; 2]> {
        let first = self.words(x.len(), Ring::WORD, |w| w.read(x).once(party) - w.read(mask))?;
        let second = self.words(x.len(), Ring::WORD, |w| -w.read(x))?;
        Ok([first, second])
    }
}
