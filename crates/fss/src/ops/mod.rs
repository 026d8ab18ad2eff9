//! The primitive gates: what every other gate is made of.
//!
//! Each is a method of [`Evaluator`](crate::Evaluator) that says, once for all roles, which key material it
//! takes, what it opens, and what a word is in clear, under its mask, and as a share. In their descriptions
//! x̂ = x + r is the opened input, r its mask, ⟨v⟩ a sharing of v that the dealer made, and u a fresh mask
//! that costs no key bytes.

mod bits;
mod boundary;
mod largest;
mod leading;
mod lookup;
mod multiply;
mod piecewise;
mod quotient;
mod truncate;

pub use boundary::Weights;
pub(crate) use largest::{GROUP, OTHERS};
pub use leading::Leading;
pub use lookup::Lookup;
pub use piecewise::{Payload, Piecewise};
pub use quotient::Quotient;
