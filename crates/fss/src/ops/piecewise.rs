//! Public constants by interval, and polynomials with them.
//!
//! From one point function at r: the unit vector over intervals, e(j) = 1[x ∈ [c_j, c_{j+1})], as differences
//! of neighbouring comparisons. Its signed sums with public constants p(j) give ±p, as in a table lookup, but
//! here the sign depends on x. It is shared for free: with A and B the parties' numbers of ones, A − B = 1 −
//! 2 s, and s = bit 1 of A ⊕ bit 1 of B ⊕ bit 0 of B. ŝ = s ⊕ ρ_s and v̂_k = (1 − 2 s) p_k + a_k are opened
//! in one round.

use crate::backend::Words;
use crate::bound::Bound;
use crate::error::{Error, Result};
use crate::evaluator::{Evaluator, Role, join};
use crate::formula::{Tape, View, Word};
use crate::party::Party;
use crate::ring::Ring;
use crate::tensor::{Share, Wire};

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

impl Evaluator {
    /// The payload of the interval that holds x. Intervals cover the ring: each ends where the next begins,
    /// the last at the first's start. Key: one point function of n bits; a walk for each interval.
    pub async fn piecewise(&self, x: &Wire, pieces: &[Payload], out: Ring) -> Result<Piecewise> {
        const GATE: &str = "an interval lookup";
        let (ring, len, word) = (x.ring(), x.len(), x.words());
        let words = pieces.first().map_or(0, |piece| piece.words.len());
        let ascending = pieces.windows(2).all(|pair| pair[0].start < pair[1].start);
        let even = pieces.iter().all(|piece| piece.words.len() == words && piece.start <= ring.mask());
        if pieces.len() < 2 || words == 0 || !ascending || !even {
            let what =
                "it takes two or more intervals in ascending order, with as many words each".to_owned();
            return Err(Error::Unsupported { gate: GATE, what });
        }
        let keys = self.points(ring.bits(), x)?;
        let shifts: Vec<u64> = pieces.iter().map(|piece| piece.start.wrapping_neg()).collect();
        let below = self.less_than(&keys, x, &shifts)?;
        let fresh_sign = &self.fresh(len, Ring::BIT)?;
        let fresh = &self.fresh(len * words, out)?;
        let units = &self.unit_vectors(x, pieces, &below)?;
        let sign: Share = self.compute(
            GATE,
            (Ring::BIT, len),
            Bound::bit(),
            |w| w.number(0),
            |w| w.read(fresh_sign),
            |w, party| {
                let ones = units.iter().fold(w.number(0), |ones, unit| ones + w.read(unit));
                let lowest = match party {
                    Party::Zero => w.number(0),
                    Party::One => ones,
                };
                (ones >> 1) ^ lowest ^ w.read(fresh_sign)
            },
        )?;
        // All first words, then all second ones.
        let value = |index: usize| -> Result<Share> {
            let payload = |piece: &Payload| piece.words[index];
            let mask = || View::From(index * len);
            self.compute(
                GATE,
                (out, len),
                Bound::unsigned(out),
                |w| {
                    // Below the first start the ring is in the last interval.
                    let last = w.number(pieces.last().map_or(0, payload));
                    pieces.iter().fold(last, |value, piece| {
                        let before = w.read(word).below(w.number(piece.start));
                        before.choose(w.number(payload(piece)), value)
                    })
                },
                |w| w.read_as(fresh, mask()),
                |w, party| {
                    let sum = units.iter().zip(pieces).fold(w.number(0), |sum, (unit, piece)| {
                        sum + (-w.read(unit) & w.number(payload(piece)))
                    });
                    match party {
                        Party::Zero => w.read_as(fresh, mask()) + sum,
                        Party::One => w.read_as(fresh, mask()) - sum,
                    }
                },
            )
        };
        let values = (0..words).map(value).collect::<Result<Vec<_>>>()?;
        let values = Share::concat(&values.iter().collect::<Vec<_>>())?;
        let (sign, values) = join(self.open(sign), self.open(values)).await?;
        let words = (0..words).map(|word| values.part(word * len, len)).collect::<Result<_>>()?;
        Ok(Piecewise { sign, words })
    }

    /// A party's e(j) for every interval j: 1[x̂ − c_j < r] ⊕ 1[x̂ − c_(j+1) < r] ⊕ 1[x̂ − c_j < x̂ −
    /// c_(j+1)]. Nothing in other roles.
    fn unit_vectors(&self, x: &Wire, pieces: &[Payload], below: &Words) -> Result<Vec<Words>> {
        let Role::Party(party, _) = &self.role else { return Ok(Vec::new()) };
        let (ring, len, word) = (x.ring(), x.len(), x.words());
        let unit = |piece: usize| {
            let ends = [piece, (piece + 1) % pieces.len()];
            self.words(len, Ring::BIT, |w| {
                let [from, to] = ends.map(|end| w.read_as(below, View::From(end * len)));
                let [after, before] = ends.map(|end| (w.read(word) - pieces[end].start).reduce(ring));
                from ^ to ^ after.below(before).once(*party)
            })
        };
        (0..pieces.len()).map(unit).collect()
    }

    /// Σ_k p_{first+k} x^k of degree at most 3, in the payload's ring, modulo which x is taken.
    ///
    /// Everything but x̂, v̂ and ŝ is known to the dealer, so the polynomial is one expression of its words
    /// and one round: with ρ = 1 − 2 ρ_s, y = (1 − 2 ŝ) (Σ_{i≤k} C(k,i) v̂_k x̂^i ⟨ρ (−r)^{k−i}⟩ − Σ_i x̂^i
    /// ⟨ρ Σ_k C(k,i) a_k (−r)^{k−i}⟩).
    pub fn polynomial(
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
        let (ring, len) = (coefficients[0].ring(), x.len());
        if coefficients[0].len() != len || x.ring() < ring {
            return Err(Error::Shape { gate: GATE, what: format!("{x:?} and {:?}", coefficients[0]) });
        }
        let (word, sign) = (x.words(), pieces.sign.words());
        let coefficient = |k: usize| coefficients[k].words();
        let powers = &(0..=degree)
            .map(|power| self.deal(len, ring, |w| w.read(sign).sign(negated_power(w.read(word), power))))
            .collect::<Result<Vec<_>>>()?;
        let constants = &(1..=degree)
            .map(|i| self.deal(len, ring, |w| constant(w, [sign, word], coefficients, i)))
            .collect::<Result<Vec<_>>>()?;
        let fresh = &self.fresh(len, ring)?;
        let other =
            &self.deal(len, ring, |w| w.read(fresh) + constant(w, [sign, word], coefficients, 0) * 2)?;
        self.compute(
            GATE,
            (ring, len),
            bound,
            |w| {
                let zero = w.number(0);
                (0..=degree).rev().fold(zero, |sum, k| sum * w.read(word) + w.read(coefficient(k)))
            },
            |w| w.read(fresh) + constant(w, [sign, word], coefficients, 0),
            |w, _| {
                let sum = (0..=degree).rev().fold(w.number(0), |sum, i| {
                    let terms = (i..=degree).fold(w.number(0), |terms, k| {
                        terms + w.read(coefficient(k)) * w.read(&powers[k - i]) * binomial(k, i)
                    });
                    let constant = if i == 0 { w.number(0) } else { w.read(&constants[i - 1]) };
                    sum * w.read(word) + (terms - constant)
                });
                let [sign, u, other] = w.read_all([sign, fresh, other]);
                sign.sign(sum) + sign.choose(u, other)
            },
        )
    }
}

/// (−x)^power.
fn negated_power(x: Word<'_>, power: usize) -> Word<'_> {
    (0..power).fold(x.number(1), |product, _| product * -x)
}

/// ρ Σ_k C(k,i) a_k (−r)^(k−i), for the dealer, whose words of the coefficients are a_k, of x r, and of the
/// sign ρ_s.
fn constant<'t>(w: &'t Tape, [sign, x]: [&Words; 2], coefficients: &[Wire], i: usize) -> Word<'t> {
    let term = |(k, coefficient): (usize, &Wire)| {
        w.read(coefficient.words()) * negated_power(w.read(x), k - i) * binomial(k, i)
    };
    let terms = coefficients.iter().enumerate().skip(i).map(term);
    w.read(sign).sign(terms.fold(w.number(0), |sum, term| sum + term))
}

/// C(n, k) for n ≤ 3.
fn binomial(n: usize, k: usize) -> u64 {
    const ROWS: [[u64; 4]; 4] = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 2, 1, 0], [1, 3, 3, 1]];
    ROWS[n][k]
}
