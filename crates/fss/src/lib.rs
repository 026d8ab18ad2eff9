#![doc = include_str!("../README.md")]

mod backend;
#[cfg(test)]
mod block;
mod bound;
mod class;
pub mod cost;
pub mod disk;
mod dpf;
mod engine;
mod error;
mod gates;
pub mod graph;
mod key;
#[cfg(test)]
mod leaks;
mod lut;
pub mod model;
pub mod net;
mod ops;
mod party;
mod prg;
mod random;
pub mod range;
pub mod reference;
mod ring;
mod runtime;
mod secret;
pub mod session;
pub mod suf;
mod tally;
mod tensor;
#[cfg(test)]
mod testing;
#[cfg(feature = "lab")]
pub mod workloads;

pub use backend::{Backend, CpuBackend, ResidentKeys};
pub use bound::{Bound, GapProof};
pub use dpf::{PointKeys, TABLE_BITS};
pub use engine::Engine;
pub use error::{Error, Result};
pub use gates::{
    Activation, FloatingTable, LayerNorm, NegativeExponential, Reciprocal, RmsNorm, Rows, Softmax, Tanh,
    clamp, relu, row_maxima,
};
pub use key::{FixedPoint, KeyStream};
pub use lut::{LARGEST_TABLE_BITS, Table};
pub use ops::{Lookup, MatmulShape, Payload, Piecewise, Weights};
pub use party::Party;
pub use prg::{PrgId, TreeHash};
pub use random::Randomness;
pub use ring::{Ring, pack, packed_bytes, unpack};
pub use runtime::{
    Channel, Circuit, Dealt, Inputs, Limits, Local, MemoryChannel, Plan, WireShape, deal, estimate,
    estimate_gate, evaluate, join, join3, run_clear, run_in_process,
};
pub use tally::Cost;
pub use tensor::{MaskShare, Opened, Share, Tensor, Unopened, Wire};
