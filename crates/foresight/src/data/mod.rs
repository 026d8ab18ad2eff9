//! Examples, what is held back of them, and the order in which they are seen.

mod builtin;
mod examples;
mod idx;
mod order;
mod tokens;

pub use builtin::{digits, xor};
pub use examples::{Examples, Splits};
pub use idx::{mnist, read_images, read_labels};
pub use order::{Order, Place};
pub use tokens::{Part, TokenBatch, Tokens};
