//! Public constants by interval, and polynomials with them.
//!
//! From one point function at r: the unit vector over intervals, e(j) = 1[x ∈ [c_j, c_{j+1})], as differences of neighbouring
//! comparisons. Its signed sums with public constants p(j) give ±p, as in a table lookup, but here the sign depends on x. It is
//! shared for free: with A and B the parties' numbers of ones, A − B = 1 − 2 s, and s = bit 1 of A ⊕ bit 1 of B ⊕ bit 0 of B.
//! ŝ = s ⊕ ρ_s and v̂_k = (1 − 2 s) p_k + a_k are opened in one round.

use crate::bound::Bound;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::ring::Ring;
use crate::runtime::join;
use crate::tensor::{Share, Wire};

use super::bits::{choose, signed_by};

/// Public constants of one interval: where it begins, and its words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// The first value of the interval, which ends where the next begins.
    pub start: u64,
    /// Its words, as many in every interval.
    pub words: Vec<u64>,
}

/// Constants that were looked up by interval.
pub struct Piecewise {
    sign: Wire,
    words: Vec<Wire>,
}

impl Piecewise {
    /// Words of a payload.
    pub fn words(&self) -> usize {
        self.words.len()
    }
}

impl Engine {
    /// The payload of the interval that holds x. Intervals cover the ring: each ends where the next begins, the last at
    /// the first's start. Key: one point function of n bits; a walk for each interval.
    pub async fn piecewise(&self, x: &Wire, pieces: &[Payload], out: Ring) -> Result<Piecewise> {
        const GATE: &str = "an interval lookup";
        let (ring, len) = (x.ring, x.len);
        let words = pieces.first().map_or(0, |piece| piece.words.len());
        let ascending = pieces.windows(2).all(|pair| pair[0].start < pair[1].start);
        let even = pieces.iter().all(|piece| piece.words.len() == words && piece.start <= ring.mask());
        if pieces.len() < 2 || words == 0 || !ascending || !even {
            let what =
                "it takes two or more intervals in ascending order, with as many words each".to_owned();
            return Err(Error::Unsupported { gate: GATE, what });
        }
        let count = pieces.len();
        let keys = self.points(ring.bits(), len, |index| x.words[index])?;
        let below =
            self.less_than(&keys, count, |row, index| x.words[index].wrapping_sub(pieces[row].start))?;
        let fresh_sign = self.free(len, Ring::BIT);
        let fresh = self.free(len * words, out);
        let holds = |value: u64| {
            let after = pieces.partition_point(|piece| piece.start <= value);
            &pieces[(after + count - 1) % count].words
        };
        // A party's e[j]: a bit for every interval of every element.
        let unit = |index: usize, once: u64, piece: usize| {
            let next = (piece + 1) % count;
            let shifted = |piece: usize| ring.reduce(x.words[index].wrapping_sub(pieces[piece].start));
            let wrapped = u64::from(shifted(piece) < shifted(next)) & once;
            below[piece * len + index] ^ below[next * len + index] ^ wrapped
        };
        let sign: Share = self.compute(
            GATE,
            (Ring::BIT, len),
            Bound::bit(),
            |_| 0,
            |index| fresh_sign[index],
            |index, party| {
                let ones = (0..count).fold(0, |ones, piece| ones + unit(index, party.once(1), piece));
                let lowest = choose(party.index() as u64, 0, ones);
                (ones >> 1) ^ lowest ^ fresh_sign[index]
            },
        )?;
        let values: Share = self.compute(
            GATE,
            (out, len * words),
            Bound::unsigned(out),
            |at| holds(x.words[at / words])[at % words],
            |at| fresh[at],
            |at, party| {
                let (index, word) = (at / words, at % words);
                let sum = (0..count).fold(0u64, |sum, piece| {
                    let unit = unit(index, party.once(1), piece);
                    sum.wrapping_add(pieces[piece].words[word] & unit.wrapping_neg())
                });
                fresh[at].wrapping_add(signed_by(party.index() as u64, sum))
            },
        )?;
        let (sign, values) = join(self.open(sign), self.open(values)).await?;
        let word = |word: usize| {
            let places: Vec<usize> = (0..len).map(|index| index * words + word).collect();
            values.gather(&places)
        };
        Ok(Piecewise { sign, words: (0..words).map(word).collect::<Result<_>>()? })
    }

    /// Σ_k p_{first+k} x^k of degree at most 3, in the payload's ring, modulo which x is taken.
    ///
    /// Everything but x̂, v̂ and ŝ is known to the dealer, so the polynomial is one expression of its words and one round:
    /// with ρ = 1 − 2 ρ_s, y = (1 − 2 ŝ) (Σ_{i≤k} C(k,i) v̂_k x̂^i ⟨ρ (−r)^{k−i}⟩ − Σ_i x̂^i ⟨ρ Σ_k C(k,i) a_k (−r)^{k−i}⟩).
    pub(crate) fn polynomial(
        &self,
        pieces: &Piecewise,
        first: usize,
        degree: usize,
        x: &Wire,
        bound: Bound,
    ) -> Result<Share> {
        const GATE: &str = "a polynomial";
        let coefficients = pieces.words.get(first..=first + degree).filter(|_| degree <= 3);
        let Some(coefficients) = coefficients else {
            let what = format!("degree {degree} from word {first} of {}", pieces.words.len());
            return Err(Error::Unsupported { gate: GATE, what });
        };
        let (ring, len) = (coefficients[0].ring, x.len);
        if coefficients[0].len != len || x.ring < ring {
            return Err(Error::Shape { gate: GATE, what: format!("{x:?} and {:?}", coefficients[0]) });
        }
        let negated_power = |index: usize, power: usize| {
            (0..power).fold(1u64, |product, _| product.wrapping_mul(x.words[index].wrapping_neg()))
        };
        let rho = |index: usize, value: u64| signed_by(pieces.sign.words[index], value);
        let constant_of = |index: usize, i: usize| {
            let sum = (i..=degree).fold(0u64, |sum, k| {
                let term = coefficients[k].words[index].wrapping_mul(negated_power(index, k - i));
                sum.wrapping_add(term.wrapping_mul(binomial(k, i)))
            });
            rho(index, sum)
        };
        let powers = (0..=degree)
            .map(|power| self.deal(len, ring, |index| rho(index, negated_power(index, power))))
            .collect::<Result<Vec<_>>>()?;
        let constants = (1..=degree)
            .map(|i| self.deal(len, ring, |index| constant_of(index, i)))
            .collect::<Result<Vec<_>>>()?;
        let fresh = self.free(len, ring);
        let other =
            self.deal(len, ring, |index| fresh[index].wrapping_add(constant_of(index, 0).wrapping_mul(2)))?;
        self.compute(
            GATE,
            (ring, len),
            bound,
            |index| {
                (0..=degree).rev().fold(0u64, |sum, k| {
                    sum.wrapping_mul(x.words[index]).wrapping_add(coefficients[k].words[index])
                })
            },
            |index| fresh[index].wrapping_add(constant_of(index, 0)),
            |index, _| {
                let sum = (0..=degree).rev().fold(0u64, |sum, i| {
                    let terms = (i..=degree).fold(0u64, |terms, k| {
                        let term = coefficients[k].words[index].wrapping_mul(powers[k - i][index]);
                        terms.wrapping_add(term.wrapping_mul(binomial(k, i)))
                    });
                    let constant = if i == 0 { 0 } else { constants[i - 1][index] };
                    sum.wrapping_mul(x.words[index]).wrapping_add(terms.wrapping_sub(constant))
                });
                let sign = pieces.sign.words[index];
                signed_by(sign, sum).wrapping_add(choose(sign, fresh[index], other[index]))
            },
        )
    }
}

/// C(n, k) for n ≤ 3.
fn binomial(n: usize, k: usize) -> u64 {
    const ROWS: [[u64; 4]; 4] = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 2, 1, 0], [1, 3, 3, 1]];
    ROWS[n][k]
}
