//! Matrix products, functions and reductions in f32.
//!
//! Every sum is added up in an order that depends on the shapes alone, and every multiply-add is fused:
//! results are the same bits for any number of threads and any width of vector registers.

mod function;
mod lanes;
mod product;
mod reduce;

pub use function::{exp, ln, sigmoid, tanh};
pub use product::{Strided, add_product, add_product_transposed};
pub use reduce::{dot, norm, squares, sum};
