//! Examples, what is held back of them, and the order in which they are seen.

mod all;
mod builtin;
mod examples;
mod idx;
mod order;
mod text;
mod tokens;

pub use all::Data;
pub use builtin::{digits, rust_slice, xor};
pub use examples::{Examples, Splits};
pub use idx::{mnist, read_images, read_labels};
pub use order::{Order, Place};
pub use text::{Cut, Text, Windows};
pub use tokens::{Part, Tokens};
