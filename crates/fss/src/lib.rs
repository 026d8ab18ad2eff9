#![doc = include_str!("../README.md")]

pub mod backend;
mod bound;
mod class;
mod cpu;
pub mod cuda;
mod dpf;
mod error;
mod evaluator;
pub mod executor;
pub mod formula;
pub mod gates;
mod handle;
pub mod key;
mod message;
pub mod ops;
mod party;
mod prg;
mod random;
pub mod reference;
pub mod ring;
pub mod secret;
pub mod suf;
pub mod table;
mod tally;
mod target;
mod tensor;
#[cfg(feature = "lab")]
pub mod workloads;

pub use bound::{Bound, GapProof};
pub use cpu::CpuBackend;
pub use cuda::CudaBackend;
pub use error::{Error, Result};
pub use evaluator::Evaluator;
pub use key::KeyStream;
pub use message::Message;
pub use party::Party;
pub use prg::{PrgId, section_key};
pub use random::Randomness;
pub use ring::{FixedPoint, Ring};
pub use tally::Cost;
pub use target::backend_on;
pub use tensor::{MaskShare, Share, Tensor, Wire};
