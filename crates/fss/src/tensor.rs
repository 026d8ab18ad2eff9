//! What flows through a circuit.
//!
//! The same circuit runs in four roles, and a tensor's words mean something else in each:
//!
//! | role | opened ([`Wire`]) | not yet opened ([`Share`]) |
//! |---|---|---|
//! | clear | x | x |
//! | dealer | the mask r | the mask that the opened value will have |
//! | party | x + r, known to both | a share; both add up to x + r |
//! | estimate | nothing, only the length | the same |

use std::fmt;
use std::marker::PhantomData;

use crate::backend::{Sums, Words};
use crate::bound::Bound;
use crate::error::{Error, Result};
use crate::formula::{Places, Tape, View, Word};
use crate::ring::Ring;

/// Marks values that both parties have seen under a mask.
#[derive(Debug, Clone, Copy)]
pub enum Opened {}

/// Marks values that are still shares.
#[derive(Debug, Clone, Copy)]
pub enum Unopened {}

/// Elements of one ring, with a proof of where their values lie. Clones share the words.
pub struct Tensor<State> {
    ring: Ring,
    words: Words,
    bound: Bound,
    state: PhantomData<State>,
}

/// A masked tensor.
pub type Wire = Tensor<Opened>;

/// A shared tensor.
pub type Share = Tensor<Unopened>;

impl<State> Clone for Tensor<State> {
    fn clone(&self) -> Self {
        Self::new(self.ring, self.words.clone(), self.bound)
    }
}

/// Never the words: they may be secret.
impl<State> fmt::Debug for Tensor<State> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({} × {} bits)", self.len(), self.ring.bits())
    }
}

impl<State> Tensor<State> {
    pub(crate) fn new(ring: Ring, words: Words, bound: Bound) -> Self {
        Self { ring, words, bound, state: PhantomData }
    }

    /// Only a length, without words: what an estimate is given.
    pub fn shape(ring: Ring, len: usize, bound: Bound) -> Self {
        Self::new(ring, Words::absent(len), bound)
    }

    /// The ring.
    pub fn ring(&self) -> Ring {
        self.ring
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Where the values lie.
    pub fn bound(&self) -> Bound {
        self.bound
    }

    /// Its words, wherever they are.
    pub fn words(&self) -> &Words {
        &self.words
    }

    pub(crate) fn into_words(self) -> Words {
        self.words
    }

    /// The same values under another bound. Only for the evaluator, which checks it: see `Evaluator::claim`.
    pub(crate) fn with_bound(mut self, bound: Bound) -> Self {
        debug_assert!(bound.fits(self.ring));
        self.bound = bound;
        self
    }

    fn map(
        &self,
        ring: Ring,
        bound: Bound,
        word: impl for<'t> FnOnce(&'t Tape, Word<'t>) -> Word<'t>,
    ) -> Result<Self> {
        let words = self.words.derive(self.len(), ring, |w| word(w, w.read(&self.words)))?;
        Ok(Self::new(ring, words, bound))
    }

    fn zip(
        &self,
        other: &Self,
        gate: &'static str,
        bound: Bound,
        word: impl for<'t> FnOnce(Word<'t>, Word<'t>) -> Word<'t>,
    ) -> Result<Self> {
        self.same_shape(other, gate)?;
        let bound = bound.in_ring(gate, self.ring)?;
        self.map(self.ring, bound, |w, x| word(x, w.read(&other.words)))
    }

    pub(crate) fn same_shape<Other>(&self, other: &Tensor<Other>, gate: &'static str) -> Result<()> {
        if (self.ring, self.len()) == (other.ring, other.len()) {
            return Ok(());
        }
        Err(Error::Shape { gate, what: format!("{self:?} and {other:?}") })
    }

    /// x + y.
    pub fn plus(&self, other: &Self) -> Result<Self> {
        self.zip(other, "a sum", self.bound.plus(&other.bound), |x, y| x + y)
    }

    /// x − y.
    pub fn minus(&self, other: &Self) -> Result<Self> {
        self.zip(other, "a difference", self.bound.plus(&other.bound.negated()), |x, y| x - y)
    }

    /// x − y in the ring, whatever the integers: the result may be any residue.
    pub fn minus_in_ring(&self, other: &Self) -> Result<Self> {
        self.zip(other, "a difference", Bound::unsigned(self.ring), |x, y| x - y)
    }

    /// x ⊕ y of bits.
    pub fn xor(&self, other: &Self) -> Result<Self> {
        if self.ring != Ring::BIT {
            return Err(Error::Shape { gate: "an exclusive or", what: format!("{self:?} is not of bits") });
        }
        self.zip(other, "an exclusive or", Bound::bit(), |x, y| x ^ y)
    }

    /// c x for a public c.
    pub fn times(&self, factor: i64) -> Result<Self> {
        let bound = self.bound.times(&Bound::exactly(i128::from(factor))).in_ring("a multiple", self.ring)?;
        self.map(self.ring, bound, |_, x| x * factor as u64)
    }

    /// x mod 2^k, read as unsigned.
    pub fn low_bits(&self, bits: u32) -> Result<Self> {
        let ring = self.narrower(bits)?;
        let bound = if self.bound.lo() >= 0 && self.bound.fits(ring) && self.bound.hi() < ring.size() {
            self.bound
        } else {
            Bound::unsigned(ring)
        };
        self.reduced(ring, bound)
    }

    /// The same integers in a ring that is just as good for them.
    pub fn narrow(&self, bits: u32) -> Result<Self> {
        let ring = self.narrower(bits)?;
        let bound = self.bound.in_ring("narrowing", ring)?;
        self.reduced(ring, bound)
    }

    /// The residues in a ring that is at most as wide.
    fn reduced(&self, ring: Ring, bound: Bound) -> Result<Self> {
        if ring == self.ring {
            return Ok(self.clone().with_bound(bound));
        }
        self.map(ring, bound, |_, x| x)
    }

    fn narrower(&self, bits: u32) -> Result<Ring> {
        let ring = Ring::new(bits)?;
        if ring > self.ring {
            let what = format!("{self:?} has fewer than {bits} bits: extend it");
            return Err(Error::Shape { gate: "narrowing", what });
        }
        Ok(ring)
    }

    /// Sums of `width` neighbours.
    pub fn row_sums(&self, width: usize) -> Result<Self> {
        if width == 0 || !self.len().is_multiple_of(width) {
            return Err(Error::Shape { gate: "row sums", what: format!("{self:?} in rows of {width}") });
        }
        self.sums(Sums::Rows(width), self.bound.summed(width))
    }

    /// Sums of rows of public lengths, which cover the tensor.
    pub(crate) fn ragged_sums(&self, lengths: &[usize]) -> Result<Self> {
        let elements: usize = lengths.iter().sum();
        if elements != self.len() {
            let what = format!("{self:?} and rows of {elements} elements together");
            return Err(Error::Shape { gate: "row sums", what });
        }
        let longest = lengths.iter().copied().max().unwrap_or(0);
        self.sums(Sums::Ragged(lengths), self.bound.summed(longest).or_zero())
    }

    /// Sums of the columns of rows of `columns`. `bound` is a proof that is tighter than the elements'
    /// intervals give.
    pub fn column_sums(&self, columns: usize, bound: Bound) -> Result<Self> {
        if columns == 0 || !self.len().is_multiple_of(columns) {
            return Err(Error::Shape { gate: "column sums", what: format!("{self:?} in rows of {columns}") });
        }
        self.sums(Sums::Columns(columns), bound)
    }

    fn sums(&self, sums: Sums<'_>, bound: Bound) -> Result<Self> {
        let bound = bound.in_ring("a sum of elements", self.ring)?;
        Ok(Self::new(self.ring, self.words.sums(sums, self.ring)?, bound))
    }

    /// Elements at public places, in their order.
    pub fn gather(&self, places: &Places) -> Result<Self> {
        if places.end() > self.len() {
            let what = format!("{self:?} has no element {}", places.end() - 1);
            return Err(Error::Shape { gate: "gathering", what });
        }
        let bound = if places.some_nowhere() { self.bound.or_zero() } else { self.bound };
        self.viewed(places.len(), View::Places(places.clone()), bound)
    }

    /// `len` elements from `start` on.
    pub fn part(&self, start: usize, len: usize) -> Result<Self> {
        if start.checked_add(len).is_none_or(|end| end > self.len()) {
            let what = format!("{self:?} has no {len} elements from {start} on");
            return Err(Error::Shape { gate: "a part", what });
        }
        if len == self.len() {
            return Ok(self.clone());
        }
        self.viewed(len, View::From(start), self.bound)
    }

    /// Every element `times` times in a row.
    pub fn repeat_each(&self, times: usize) -> Result<Self> {
        let len = repeated(self.len(), times)?;
        self.viewed(len, View::Each(times.max(1)), self.bound)
    }

    /// All elements, `times` times over.
    pub fn repeat_all(&self, times: usize) -> Result<Self> {
        let len = repeated(self.len(), times)?;
        self.viewed(len, View::Cycle(self.len().max(1)), self.bound)
    }

    fn viewed(&self, len: usize, view: View, bound: Bound) -> Result<Self> {
        let words = self.words.derive(len, self.ring, |w| w.read_as(&self.words, view))?;
        Ok(Self::new(self.ring, words, bound.in_ring("gathering", self.ring)?))
    }

    /// One after the other.
    pub fn concat(parts: &[&Self]) -> Result<Self> {
        let Some((first, rest)) = parts.split_first() else {
            return Err(Error::Shape { gate: "concatenation", what: "there is nothing to join".into() });
        };
        if let Some(other) = rest.iter().find(|part| part.ring != first.ring) {
            return Err(Error::Shape { gate: "concatenation", what: format!("{first:?} and {other:?}") });
        }
        let bound = rest.iter().fold(first.bound, |bound, part| bound.hull(&part.bound));
        let words = Words::concat(&parts.iter().map(|part| &part.words).collect::<Vec<_>>())?;
        Ok(Self::new(first.ring, words, bound.in_ring("concatenation", first.ring)?))
    }
}

/// A party's shares of a wire's mask, which products need. In the dealer's role, the mask.
#[derive(Clone)]
pub struct MaskShare {
    ring: Ring,
    words: Words,
}

impl MaskShare {
    pub(crate) fn new(ring: Ring, words: Words) -> Self {
        Self { ring, words }
    }

    /// The ring of the wire.
    pub fn ring(&self) -> Ring {
        self.ring
    }

    /// Elements of the wire.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    pub(crate) fn words(&self) -> &Words {
        &self.words
    }

    /// As a tensor, of which nothing is known but its ring.
    fn residues(&self) -> Wire {
        Wire::new(self.ring, self.words.clone(), Bound::unsigned(self.ring))
    }

    fn of(residues: Wire) -> Self {
        Self { ring: residues.ring, words: residues.words }
    }

    /// The shares of a difference of wires' masks, from those of the wires.
    pub fn minus(&self, other: &Self) -> Result<Self> {
        Ok(Self::of(self.residues().minus_in_ring(&other.residues())?))
    }

    /// Elements at public places, as [`Tensor::gather`].
    pub fn gather(&self, places: &Places) -> Result<Self> {
        Ok(Self::of(self.residues().gather(places)?))
    }

    /// The shares of the masks of sums of `width` neighbours.
    pub(crate) fn row_sums(&self, width: usize) -> Result<Self> {
        let sums = self.words.sums(Sums::Rows(width), self.ring)?;
        Ok(Self { ring: self.ring, words: sums })
    }

    /// Every element `times` times in a row.
    pub fn repeat_each(&self, times: usize) -> Result<Self> {
        Ok(Self::of(self.residues().repeat_each(times)?))
    }

    /// All elements, `times` times over.
    pub fn repeat_all(&self, times: usize) -> Result<Self> {
        Ok(Self::of(self.residues().repeat_all(times)?))
    }
}

/// The most elements that a repetition makes: far above any tensor that is evaluated, far below what cannot
/// be counted.
const MOST_ELEMENTS: usize = 1 << 34;

fn repeated(len: usize, times: usize) -> Result<usize> {
    let what = || format!("{len} elements, {times} times: there may be {MOST_ELEMENTS}");
    let product = len.checked_mul(times).filter(|&product| product <= MOST_ELEMENTS);
    product.ok_or_else(|| Error::Shape { gate: "a repetition", what: what() })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::backend::Backend;
    use crate::cpu::CpuBackend;
    use crate::secret::Secret;

    fn words(words: &[u64]) -> Words {
        let backend: Arc<dyn Backend> = Arc::new(CpuBackend);
        let handle = backend.upload(Secret::new(words.to_vec())).unwrap();
        Words::new(&backend, words.len(), handle)
    }

    #[test]
    fn repetitions_that_cannot_be_counted_are_refused() {
        let ring = Ring::new(8).unwrap();
        let wire = Wire::new(ring, words(&[3, 4]), Bound::unsigned(ring));
        let words_of = |wire: &Wire| wire.words.download().unwrap().to_vec();
        assert_eq!(words_of(&wire.repeat_each(2).unwrap()), [3, 3, 4, 4]);
        assert_eq!(words_of(&wire.repeat_all(2).unwrap()), [3, 4, 3, 4]);
        let mask = MaskShare::new(ring, words(&[3, 4]));
        assert_eq!(words_of(&mask.repeat_each(2).unwrap().residues()), [3, 3, 4, 4]);
        for times in [usize::MAX, 1 << 40] {
            assert!(wire.repeat_each(times).is_err() && wire.repeat_all(times).is_err());
            assert!(mask.repeat_each(times).is_err());
        }
    }
}
