//! SUF: a small typed description of fixed-point functions of one variable, and its compilation to gates.
//!
//! A function on Z_2^n is a list of intervals that cover the ring. On each, every arithmetic output is a
//! polynomial of degree at most 3 in the ring, and every boolean output an expression over predicates x < β,
//! x mod 2^f < γ and MSB(x + c).
//!
//! ```
//! use gatework_fss::suf::{Bool, Function, Piece, Polynomial, Predicate};
//! // max(x, 0) and whether x is odd, on 16 bits.
//! let ring = gatework_fss::Ring::new(16)?;
//! let odd = Bool::not(Bool::Is(Predicate::LowBelow { bits: 1, limit: 1 }));
//! let piece = |start, slope| Piece { start, polynomials: vec![Polynomial::new([0, slope])], bools: vec![odd.clone()] };
//! let function = Function::new(ring, vec![piece(0, 1), piece(1 << 15, 0)])?;
//! assert_eq!(function.evaluate(5), (vec![5], vec![true]));
//! assert_eq!(function.evaluate(ring.encode(-4)), (vec![0], vec![false]));
//! # Ok::<(), gatework_fss::Error>(())
//! ```

mod compile;
mod function;
mod rewrite;

pub use compile::{Program, SufOutput};
pub use function::{Bool, Function, Piece, Polynomial, Predicate};
pub use rewrite::{Comparison, Masked, rewrite};
