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

use crate::secret::Secret;

use crate::bound::Bound;
use crate::error::{Error, Result};
use crate::ring::Ring;

/// Words that are wiped when they go.
pub(crate) type Words = Secret<u64>;

/// Marks values that both parties have seen under a mask.
#[derive(Debug, Clone, Copy)]
pub enum Opened {}

/// Marks values that are still shares.
#[derive(Debug, Clone, Copy)]
pub enum Unopened {}

/// Elements of one ring, with a proof of where their values lie.
pub struct Tensor<State> {
    pub(crate) ring: Ring,
    pub(crate) len: usize,
    /// Empty where only lengths are known.
    pub(crate) words: Words,
    pub(crate) bound: Bound,
    state: PhantomData<State>,
}

/// A masked tensor.
pub type Wire = Tensor<Opened>;

/// A shared tensor.
pub type Share = Tensor<Unopened>;

impl<State> Clone for Tensor<State> {
    fn clone(&self) -> Self {
        Self { words: self.words.clone(), ..self.shape_of(self.ring, self.len, self.bound) }
    }
}

/// Never the words: they may be secret.
impl<State> fmt::Debug for Tensor<State> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({} × {} bits)", self.len, self.ring.bits())
    }
}

impl<State> Tensor<State> {
    pub(crate) fn new(ring: Ring, len: usize, words: Vec<u64>, bound: Bound) -> Self {
        Self::of_words(ring, len, Secret::new(words), bound)
    }

    /// The same of words that are already wiped when they go: nothing is copied.
    pub(crate) fn of_words(ring: Ring, len: usize, words: Words, bound: Bound) -> Self {
        debug_assert!(words.is_empty() || words.len() == len);
        Self { ring, len, words, bound, state: PhantomData }
    }

    fn shape_of(&self, ring: Ring, len: usize, bound: Bound) -> Self {
        Self::new(ring, len, Vec::new(), bound)
    }

    /// The ring.
    pub fn ring(&self) -> Ring {
        self.ring
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the values lie.
    pub fn bound(&self) -> Bound {
        self.bound
    }

    /// The same values under another bound. Only for the engine, which checks it: see `Engine::claim`.
    pub(crate) fn with_bound(mut self, bound: Bound) -> Self {
        debug_assert!(bound.fits(self.ring));
        self.bound = bound;
        self
    }

    fn map(&self, ring: Ring, bound: Bound, word: impl Fn(u64) -> u64) -> Self {
        let words = self.words.iter().map(|&x| ring.reduce(word(x))).collect();
        Self::new(ring, self.len, words, bound)
    }

    fn zip(
        &self,
        other: &Self,
        gate: &'static str,
        bound: Bound,
        word: impl Fn(u64, u64) -> u64,
    ) -> Result<Self> {
        self.same_shape(other, gate)?;
        let bound = bound.in_ring(gate, self.ring)?;
        let pairs = self.words.iter().zip(other.words.iter());
        let words = pairs.map(|(&x, &y)| self.ring.reduce(word(x, y))).collect();
        Ok(Self::new(self.ring, self.len, words, bound))
    }

    pub(crate) fn same_shape<Other>(&self, other: &Tensor<Other>, gate: &'static str) -> Result<()> {
        if (self.ring, self.len) == (other.ring, other.len) {
            return Ok(());
        }
        Err(Error::Shape { gate, what: format!("{self:?} and {other:?}") })
    }

    /// x + y.
    pub fn plus(&self, other: &Self) -> Result<Self> {
        self.zip(other, "a sum", self.bound.plus(&other.bound), u64::wrapping_add)
    }

    /// x − y.
    pub fn minus(&self, other: &Self) -> Result<Self> {
        self.zip(other, "a difference", self.bound.plus(&other.bound.negated()), u64::wrapping_sub)
    }

    /// x − y in the ring, whatever the integers: the result may be any residue.
    pub(crate) fn minus_in_ring(&self, other: &Self) -> Result<Self> {
        self.zip(other, "a difference", Bound::unsigned(self.ring), u64::wrapping_sub)
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
        Ok(self.map(self.ring, bound, |x| x.wrapping_mul(factor as u64)))
    }

    /// x mod 2^k, read as unsigned.
    pub fn low_bits(&self, bits: u32) -> Result<Self> {
        let ring = self.narrower(bits)?;
        let bound = if self.bound.lo() >= 0 && self.bound.fits(ring) && self.bound.hi() < ring.size() {
            self.bound
        } else {
            Bound::unsigned(ring)
        };
        Ok(self.map(ring, bound, |x| x))
    }

    /// The same integers in a ring that is just as good for them.
    pub fn narrow(&self, bits: u32) -> Result<Self> {
        let ring = self.narrower(bits)?;
        let bound = self.bound.in_ring("narrowing", ring)?;
        Ok(self.map(ring, bound, |x| x))
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
        if width == 0 || !self.len.is_multiple_of(width) {
            return Err(Error::Shape { gate: "row sums", what: format!("{self:?} in rows of {width}") });
        }
        let bound = self.bound.summed(width).in_ring("row sums", self.ring)?;
        let sum = |row: &[u64]| self.ring.reduce(row.iter().fold(0, |sum, &x| sum.wrapping_add(x)));
        Ok(Self::new(self.ring, self.len / width, self.words.chunks(width).map(sum).collect(), bound))
    }

    /// Elements at public places, in their order.
    pub fn gather(&self, places: &[usize]) -> Result<Self> {
        if let Some(&place) = places.iter().find(|&&place| place >= self.len) {
            return Err(Error::Shape { gate: "gathering", what: format!("{self:?} has no element {place}") });
        }
        let known = if self.words.is_empty() { &[][..] } else { places };
        let words = known.iter().map(|&place| self.words[place]).collect();
        Ok(Self::new(self.ring, places.len(), words, self.bound))
    }

    /// Every element `times` times in a row.
    pub fn repeat_each(&self, times: usize) -> Result<Self> {
        let len = repeated(self.len, times)?;
        Ok(Self::of_words(self.ring, len, each_repeated(&self.words, times), self.bound))
    }

    /// All elements, `times` times over.
    pub fn repeat_all(&self, times: usize) -> Result<Self> {
        let len = repeated(self.len, times)?;
        Ok(Self::new(self.ring, len, self.words.repeat(times), self.bound))
    }

    /// One after the other.
    pub fn concat(parts: &[&Self]) -> Result<Self> {
        let Some((first, rest)) = parts.split_first() else {
            return Err(Error::Shape { gate: "concatenation", what: "there is nothing to join".into() });
        };
        let mut all = (*first).clone();
        for part in rest {
            if part.ring != all.ring {
                return Err(Error::Shape { gate: "concatenation", what: format!("{all:?} and {part:?}") });
            }
            all.words.extend_from_slice(&part.words);
            all.len += part.len;
            all.bound = all.bound.hull(&part.bound);
        }
        // Where lengths alone are known of one part, no more is known of the whole.
        if all.words.len() != all.len {
            all.words.clear();
        }
        all.bound = all.bound.in_ring("concatenation", all.ring)?;
        Ok(all)
    }
}

/// A party's shares of a wire's mask, which products need. In the dealer's role, the mask.
#[derive(Clone)]
pub struct MaskShare {
    pub(crate) ring: Ring,
    pub(crate) len: usize,
    pub(crate) words: Words,
}

impl MaskShare {
    /// The shares of a difference of wires' masks, from those of the wires.
    pub fn minus(&self, other: &Self) -> Result<Self> {
        if (self.ring, self.len) != (other.ring, other.len) {
            let what = format!("{} and {} elements", self.len, other.len);
            return Err(Error::Shape { gate: "a difference of masks", what });
        }
        let pairs = self.words.iter().zip(other.words.iter());
        let words = pairs.map(|(&x, &y)| self.ring.reduce(x.wrapping_sub(y))).collect();
        Ok(Self { ring: self.ring, len: self.len, words: Secret::new(words) })
    }

    /// Elements at public places, as [`Tensor::gather`].
    pub fn gather(&self, places: &[usize]) -> Result<Self> {
        let wire = Wire::new(self.ring, self.len, self.words.to_vec(), Bound::unsigned(self.ring));
        let Wire { ring, len, words, .. } = wire.gather(places)?;
        Ok(Self { ring, len, words })
    }

    /// Every element `times` times in a row.
    pub fn repeat_each(&self, times: usize) -> Result<Self> {
        let len = repeated(self.len, times)?;
        Ok(Self { ring: self.ring, len, words: each_repeated(&self.words, times) })
    }
}

/// The most elements that a repetition makes: far above any tensor that is evaluated, far below what cannot be counted.
const MOST_ELEMENTS: usize = 1 << 34;

fn repeated(len: usize, times: usize) -> Result<usize> {
    let what = || format!("{len} elements, {times} times: there may be {MOST_ELEMENTS}");
    let product = len.checked_mul(times).filter(|&product| product <= MOST_ELEMENTS);
    product.ok_or_else(|| Error::Shape { gate: "a repetition", what: what() })
}

fn each_repeated(words: &[u64], times: usize) -> Words {
    words.iter().flat_map(|&x| std::iter::repeat_n(x, times)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_that_cannot_be_counted_are_refused() {
        let ring = Ring::new(8).unwrap();
        let wire = Wire::new(ring, 2, vec![3, 4], Bound::unsigned(ring));
        assert_eq!(wire.repeat_each(2).unwrap().words[..], [3, 3, 4, 4]);
        assert_eq!(wire.repeat_all(2).unwrap().words[..], [3, 4, 3, 4]);
        let mask = MaskShare { ring, len: 2, words: Secret::new(vec![3, 4]) };
        assert_eq!(mask.repeat_each(2).unwrap().words[..], [3, 3, 4, 4]);
        for times in [usize::MAX, 1 << 40] {
            assert!(wire.repeat_each(times).is_err() && wire.repeat_all(times).is_err());
            assert!(mask.repeat_each(times).is_err());
        }
    }
}
