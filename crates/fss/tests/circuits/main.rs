//! Circuits in all roles: two parties give what the clear evaluator gives, for exactly what the cost model
//! says.

mod backends;
mod block;
mod gates;
mod leaks;
mod ops;
mod suf;
mod support;
