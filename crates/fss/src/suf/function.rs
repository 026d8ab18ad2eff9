//! The description, its validation, and its plain evaluator.

use crate::error::{Error, Result};
use crate::ring::Ring;

/// A statement about x.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Predicate {
    /// x < limit, unsigned.
    Below {
        /// β.
        limit: u64,
    },
    /// x mod 2^bits < limit.
    LowBelow {
        /// f, fewer than the ring has.
        bits: u32,
        /// γ.
        limit: u64,
    },
    /// The top bit of x + shift.
    Msb {
        /// c.
        shift: u64,
    },
}

impl Predicate {
    /// Refuses low bits that the ring does not have, and thresholds beyond them.
    pub(super) fn validate(&self, ring: Ring) -> Result<()> {
        match *self {
            Self::LowBelow { bits, limit } if bits == 0 || bits >= ring.bits() || limit > 1 << bits => {
                let what = format!("a predicate on the low {bits} of {} bits below {limit}", ring.bits());
                Err(Error::Suf { what })
            }
            _ => Ok(()),
        }
    }

    /// Whether it holds for x.
    pub fn holds(&self, ring: Ring, x: u64) -> bool {
        match *self {
            Self::Below { limit } => x < limit,
            Self::LowBelow { bits, limit } => x & (u64::MAX >> (64 - bits.clamp(1, 64))) < limit,
            Self::Msb { shift } => ring.msb(ring.reduce(x.wrapping_add(shift))) == 1,
        }
    }
}

/// A boolean expression over predicates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bool {
    /// A constant.
    Const(bool),
    /// A predicate.
    Is(Predicate),
    /// ¬a.
    Not(Box<Self>),
    /// a ⊕ b.
    Xor(Box<Self>, Box<Self>),
    /// a ∧ b.
    And(Box<Self>, Box<Self>),
    /// a ∨ b.
    Or(Box<Self>, Box<Self>),
}

#[expect(clippy::should_implement_trait, reason = "the operators of expressions, by their usual names")]
impl Bool {
    /// ¬a.
    pub fn not(a: Self) -> Self {
        Self::Not(Box::new(a))
    }

    /// a ⊕ b.
    pub fn xor(a: Self, b: Self) -> Self {
        Self::Xor(Box::new(a), Box::new(b))
    }

    /// a ∧ b.
    pub fn and(a: Self, b: Self) -> Self {
        Self::And(Box::new(a), Box::new(b))
    }

    /// a ∨ b.
    pub fn or(a: Self, b: Self) -> Self {
        Self::Or(Box::new(a), Box::new(b))
    }

    /// Its value, given that of every predicate.
    pub fn evaluate(&self, holds: &dyn Fn(&Predicate) -> bool) -> bool {
        match self {
            Self::Const(value) => *value,
            Self::Is(predicate) => holds(predicate),
            Self::Not(a) => !a.evaluate(holds),
            Self::Xor(a, b) => a.evaluate(holds) ^ b.evaluate(holds),
            Self::And(a, b) => a.evaluate(holds) & b.evaluate(holds),
            Self::Or(a, b) => a.evaluate(holds) | b.evaluate(holds),
        }
    }

    /// Visits every predicate.
    pub(super) fn visit(&self, visit: &mut dyn FnMut(&Predicate)) {
        match self {
            Self::Const(_) => {}
            Self::Is(predicate) => visit(predicate),
            Self::Not(a) => a.visit(visit),
            Self::Xor(a, b) | Self::And(a, b) | Self::Or(a, b) => {
                a.visit(visit);
                b.visit(visit);
            }
        }
    }

    fn depth(&self) -> usize {
        match self {
            Self::Const(_) | Self::Is(_) => 1,
            Self::Not(a) => 1 + a.depth(),
            Self::Xor(a, b) | Self::And(a, b) | Self::Or(a, b) => 1 + a.depth().max(b.depth()),
        }
    }
}

/// Σ_k c_k x^k in the ring, of degree at most 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polynomial {
    coefficients: [u64; 4],
}

impl Polynomial {
    /// From its coefficients, constant first.
    pub fn new<const N: usize>(coefficients: [u64; N]) -> Self {
        const { assert!(N <= 4, "a polynomial has at most four coefficients") };
        let mut all = [0; 4];
        all[..N].copy_from_slice(&coefficients);
        Self { coefficients: all }
    }

    /// All four coefficients.
    pub fn coefficients(&self) -> &[u64; 4] {
        &self.coefficients
    }

    /// The highest power with a coefficient that is not zero.
    pub fn degree(&self) -> usize {
        self.coefficients.iter().rposition(|&coefficient| coefficient != 0).unwrap_or(0)
    }

    /// Its value, modulo 2^64.
    pub fn evaluate(&self, x: u64) -> u64 {
        self.coefficients.iter().rev().fold(0, |sum, &c| sum.wrapping_mul(x).wrapping_add(c))
    }
}

/// What the function is from `start` to the next piece's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The first x.
    pub start: u64,
    /// Arithmetic outputs.
    pub polynomials: Vec<Polynomial>,
    /// Boolean outputs.
    pub bools: Vec<Bool>,
}

/// A validated function on a ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    ring: Ring,
    pieces: Vec<Piece>,
}

/// Expressions nest no deeper: evaluating them recurses.
const DEEPEST: usize = 64;

impl Function {
    /// The function of these pieces, which start at 0 and ascend, and have as many outputs each.
    pub fn new(ring: Ring, pieces: Vec<Piece>) -> Result<Self> {
        let wrong = |what: String| Err(Error::Suf { what });
        let Some(first) = pieces.first() else {
            return wrong("it has no pieces".into());
        };
        if first.start != 0 {
            return wrong(format!("its first piece starts at {}, not at 0", first.start));
        }
        if let Some(pair) = pieces.windows(2).find(|pair| pair[0].start >= pair[1].start) {
            return wrong(format!("a piece at {} follows one at {}", pair[1].start, pair[0].start));
        }
        let outputs = (first.polynomials.len(), first.bools.len());
        if outputs == (0, 0) {
            return wrong("it has no outputs".into());
        }
        for piece in &pieces {
            if piece.start > ring.mask() {
                return wrong(format!(
                    "a piece starts at {}, outside a ring of {} bits",
                    piece.start,
                    ring.bits()
                ));
            }
            if (piece.polynomials.len(), piece.bools.len()) != outputs {
                return wrong(format!("the piece at {} has other outputs than the first", piece.start));
            }
            for expression in &piece.bools {
                if expression.depth() > DEEPEST {
                    return wrong(format!("an expression of the piece at {} nests too deep", piece.start));
                }
                let mut refused = None;
                expression
                    .visit(&mut |predicate| refused = refused.take().or(predicate.validate(ring).err()));
                if let Some(error) = refused {
                    return Err(error);
                }
            }
        }
        Ok(Self { ring, pieces })
    }

    /// The ring.
    pub fn ring(&self) -> Ring {
        self.ring
    }

    /// The pieces.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The piece that holds x.
    pub fn piece_of(&self, x: u64) -> &Piece {
        &self.pieces[self.pieces.partition_point(|piece| piece.start <= x) - 1]
    }

    /// The specification: arithmetic and boolean outputs for x.
    pub fn evaluate(&self, x: u64) -> (Vec<u64>, Vec<bool>) {
        let x = self.ring.reduce(x);
        let piece = self.piece_of(x);
        let words = piece.polynomials.iter().map(|polynomial| self.ring.reduce(polynomial.evaluate(x)));
        let bools = piece.bools.iter().map(|b| b.evaluate(&|predicate| predicate.holds(self.ring, x)));
        (words.collect(), bools.collect())
    }
}
