//! Constraints of any AIR, from its `FrameworkEval` to kernels.
//!
//! ```text
//!  FrameworkEval
//!       |  record      evaluates it once, on symbols
//!       v
//!     tape ---- its key ----> cache   what an earlier proof prepared is found again
//!       |                                   |
//!       v                                   |
//!     graph     what is computed twice is one node
//!       |                                   |
//!       |-- program   steps in an order with few live values
//!       |      |-- interpret                instructions for one kernel that reads them as data
//!       |      |-- generate, by text        kernels of the AIR's own, as CUDA C++
//!       |             |-- shape, reroll     what repeats on other columns is compiled once
//!       |      |-- adaptive                 the interpreter until the kernels are there
//!       v                                   v
//!   component (quotients of constraints) and logup (interaction traces) launch what is prepared on their inputs,
//!   by chunks of rows where columns are streamed
//! ```

mod adaptive;
mod cache;
mod chunks;
mod component;
mod generate;
mod graph;
mod inputs;
mod interpret;
mod logup;
mod program;
mod record;
mod reroll;
mod shape;
#[cfg(test)]
mod synthetic;
mod tape;
mod text;

pub use self::cache::Tier;
pub(crate) use self::cache::{Workshop, program_bytes};
pub(crate) use self::chunks::log_chunk_within;
#[cfg(feature = "lab")]
pub(crate) use self::chunks::{Domain, rows_by_chunks};
#[cfg(feature = "lab")]
pub(crate) use self::component::denominators;
#[cfg(feature = "lab")]
pub(crate) use self::generate::{compile, unrolled};
pub use self::logup::interaction_trace;
#[cfg(feature = "lab")]
pub(crate) use self::record::record;
#[cfg(feature = "lab")]
pub use self::record::row_operations;
#[cfg(feature = "lab")]
pub(crate) use self::text::THREADS;
