//! From a description to gates.
//!
//! One packed-compare program: the bits that the boolean outputs need, as cyclic intervals of one point
//! function of n bits, and of one of f bits for each f that occurs. At most one interval-lookup program: the
//! coefficients of all polynomials. Both have shapes that follow from the description alone.
//!
//! An expression over predicates of x, on its piece, is again constant on intervals. So all boolean outputs
//! together are constant on the cells of (interval of x) × (intervals of x mod 2^f); an output that needs no
//! low bits is one exclusive or of interval tests, and costs no round of its own. One that mixes them is a
//! sum of conjunctions, one for each part of x with another pattern.

use std::collections::BTreeSet;

use crate::bound::Bound;
use crate::error::{Error, Result};
use crate::evaluator::{Evaluator, join};
use crate::ops::Payload;
use crate::ring::Ring;
use crate::tensor::{Share, Wire};

use super::function::{Bool, Function, Predicate};

/// A set of residues as cyclic intervals [start, end) of public ends.
type Intervals = Vec<(u64, u64)>;

/// A boolean output: ⊕ of terms A(x) ∧ B(x mod 2^f), where B may be absent.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BoolOutput {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    whole: Intervals,
    low: Option<(u32, Intervals)>,
}

/// A compiled function.
#[derive(Debug, Clone)]
pub struct Program {
    ring: Ring,
    /// Degree of each arithmetic output, the same in every piece.
    degrees: Vec<usize>,
    payloads: Vec<Payload>,
    bools: Vec<BoolOutput>,
}

/// The outputs of a program for a tensor.
pub struct SufOutput {
    /// Arithmetic outputs.
    pub words: Vec<Share>,
    /// Boolean outputs.
    pub bools: Vec<Share>,
}

impl Program {
    /// Compiles a function.
    pub fn compile(function: &Function) -> Result<Self> {
        let ring = function.ring();
        let pieces = function.pieces();
        let arithmetic = pieces[0].polynomials.len();
        let degree =
            |output: usize| pieces.iter().map(|piece| piece.polynomials[output].degree()).max().unwrap_or(0);
        let degrees: Vec<usize> = (0..arithmetic).map(degree).collect();
        let payload = |start: u64| Payload {
            start,
            words: (function.piece_of(start).polynomials.iter().zip(&degrees))
                .flat_map(|(polynomial, &degree)| polynomial.coefficients()[..=degree].to_vec())
                .collect(),
        };
        let mut payloads: Vec<Payload> = pieces.iter().map(|piece| payload(piece.start)).collect();
        // An interval lookup has two intervals at least; a single piece is cut in half.
        if payloads.len() == 1 {
            payloads.push(payload(1 << (ring.bits() - 1)));
        }
        let bools =
            (0..pieces[0].bools.len()).map(|output| compile_bool(function, output)).collect::<Result<_>>()?;
        Ok(Self { ring, degrees, payloads, bools })
    }

    /// Evaluates the function of every element. Three rounds at most before the outputs are opened: the bits
    /// and coefficients, then conjunctions.
    pub async fn apply(&self, evaluator: &Evaluator, x: &Wire) -> Result<SufOutput> {
        if x.ring() != self.ring {
            let what = format!("{x:?} and a function of {} bits", self.ring.bits());
            return Err(Error::Shape { gate: "a compiled function", what });
        }
        let (words, bools) = join(self.arithmetic(evaluator, x), self.booleans(evaluator, x)).await?;
        Ok(SufOutput { words, bools })
    }

    async fn arithmetic(&self, evaluator: &Evaluator, x: &Wire) -> Result<Vec<Share>> {
        if self.degrees.is_empty() {
            return Ok(Vec::new());
        }
        let pieces = evaluator.piecewise(x, &self.payloads, self.ring).await?;
        let mut first = 0;
        let mut outputs = Vec::new();
        for &degree in &self.degrees {
            outputs.push(evaluator.polynomial(&pieces, first, degree, x, Bound::unsigned(self.ring))?);
            first += degree + 1;
        }
        Ok(outputs)
    }

    async fn booleans(&self, evaluator: &Evaluator, x: &Wire) -> Result<Vec<Share>> {
        if self.bools.is_empty() {
            return Ok(Vec::new());
        }
        // One test for each term: its intervals of the whole x, and of each number of low bits.
        let terms: Vec<&Term> = self.bools.iter().flat_map(|output| &output.terms).collect();
        let whole: Vec<&Intervals> = terms.iter().map(|term| &term.whole).collect();
        let wholes = evaluator.unions(x, &whole)?;
        let mut lows: Vec<Option<Share>> = vec![None; terms.len()];
        let widths: BTreeSet<u32> =
            terms.iter().filter_map(|term| term.low.as_ref().map(|low| low.0)).collect();
        for width in widths {
            let of_width = |term: &&Term| term.low.as_ref().is_some_and(|low| low.0 == width);
            let places: Vec<usize> = (0..terms.len()).filter(|&place| of_width(&terms[place])).collect();
            let sets: Vec<&Intervals> =
                places.iter().filter_map(|&place| terms[place].low.as_ref().map(|low| &low.1)).collect();
            for (place, share) in places.iter().zip(evaluator.unions(&x.low_bits(width)?, &sets)?) {
                lows[*place] = Some(share);
            }
        }
        let products = self.conjunctions(evaluator, wholes, lows).await?;
        let mut products = products.into_iter();
        let mut outputs = Vec::new();
        for output in &self.bools {
            let mut sum = evaluator.constant_bits(x.len(), false)?;
            for product in products.by_ref().take(output.terms.len()) {
                sum = sum.xor(&product)?;
            }
            outputs.push(sum);
        }
        Ok(outputs)
    }

    /// A(x) ∧ B(x mod 2^f) of every term that has both, all of them side by side.
    async fn conjunctions(
        &self,
        evaluator: &Evaluator,
        wholes: Vec<Share>,
        lows: Vec<Option<Share>>,
    ) -> Result<Vec<Share>> {
        let mixed: Vec<(&Share, &Share)> = wholes
            .iter()
            .zip(&lows)
            .filter_map(|(whole, low)| low.as_ref().map(|low| (whole, low)))
            .collect();
        if mixed.is_empty() {
            return Ok(wholes);
        }
        let (left, right): (Vec<&Share>, Vec<&Share>) = mixed.into_iter().unzip();
        let (left, right) = (Share::concat(&left)?, Share::concat(&right)?);
        let (left, right) = join(evaluator.open(left), evaluator.open(right)).await?;
        let both = evaluator.and(&left, &right)?;
        let mut taken = 0;
        let mut products = Vec::with_capacity(wholes.len());
        for (whole, low) in wholes.into_iter().zip(lows) {
            if low.is_none() {
                products.push(whole);
                continue;
            }
            products.push(both.part(taken, whole.len())?);
            taken += whole.len();
        }
        Ok(products)
    }
}

/// Where an expression's value as a function of x can change: ends of pieces and of predicates on all of x.
fn cuts_of(function: &Function, output: usize) -> BTreeSet<u64> {
    let ring = function.ring();
    let mut cuts: BTreeSet<u64> = function.pieces().iter().map(|piece| piece.start).collect();
    for piece in function.pieces() {
        piece.bools[output].visit(&mut |predicate| match *predicate {
            Predicate::Below { limit } if limit <= ring.mask() => {
                cuts.insert(limit);
            }
            Predicate::Msb { shift } => {
                let half = 1u64 << (ring.bits() - 1);
                cuts.insert(ring.reduce(half.wrapping_sub(shift)));
                cuts.insert(ring.reduce(shift.wrapping_neg()));
            }
            Predicate::Below { .. } | Predicate::LowBelow { .. } => {}
        });
    }
    cuts
}

fn compile_bool(function: &Function, output: usize) -> Result<BoolOutput> {
    let ring = function.ring();
    let mut widths = BTreeSet::new();
    let mut limits = BTreeSet::from([0u64]);
    for piece in function.pieces() {
        piece.bools[output].visit(&mut |predicate| {
            if let Predicate::LowBelow { bits, limit } = *predicate {
                widths.insert(bits);
                limits.insert(limit);
            }
        });
    }
    if widths.len() > 1 {
        let what = format!(
            "boolean output {output} looks at the low {widths:?} bits; one number of low bits is compiled"
        );
        return Err(Error::Suf { what });
    }
    let width = widths.into_iter().next();
    let starts: Vec<u64> = cuts_of(function, output).into_iter().collect();
    let low_starts: Vec<u64> = match width {
        None => vec![0],
        Some(bits) => limits.into_iter().filter(|&limit| limit < 1 << bits).collect(),
    };
    // On each interval of x, the value for each interval of low bits.
    let pattern = |&start: &u64| -> Vec<bool> {
        let expression: &Bool = &function.piece_of(start).bools[output];
        let value = |&low: &u64| {
            expression.evaluate(&|predicate| match predicate {
                Predicate::LowBelow { limit, .. } => low < *limit,
                other => other.holds(ring, start),
            })
        };
        low_starts.iter().map(value).collect()
    };
    let patterns: Vec<Vec<bool>> = starts.iter().map(pattern).collect();
    // Terms: for each distinct pattern that is not all false, where it holds and what it is.
    let distinct: BTreeSet<&Vec<bool>> = patterns.iter().filter(|pattern| pattern.contains(&true)).collect();
    let term = |pattern: &Vec<bool>| {
        let held: Vec<bool> = patterns.iter().map(|other| other == pattern).collect();
        let low = width.filter(|_| pattern.contains(&false)).map(|bits| (bits, runs(&low_starts, pattern)));
        Term { whole: runs(&starts, &held), low }
    };
    Ok(BoolOutput { terms: distinct.into_iter().map(term).collect() })
}

/// The intervals on which `held` is true, as pairs of ends; the last ends at the first start, around the
/// ring.
fn runs(starts: &[u64], held: &[bool]) -> Intervals {
    let end = |index: usize| starts[(index + 1) % starts.len()];
    (0..starts.len()).filter(|&index| held[index]).map(|index| (starts[index], end(index))).collect()
}
