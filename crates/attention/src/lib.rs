#![doc = include_str!("../README.md")]

mod attention;
#[cfg(feature = "lab")]
pub mod bench;
mod cache;
pub mod cpu;
pub mod cuda;
mod dimensions;
mod element;
mod error;
mod form;
mod kernels;
mod lengths;
mod packed;
pub mod reference;
mod shape;
mod shared;
#[cfg(feature = "lab")]
pub mod workloads;

pub use attention::{Attention, Builder};
pub use cache::{CachedAttention, KvCache, PAGE_KEYS, Sequence, Statistics, StepGraph, StepSize, Steps};
pub use dimensions::{HEAD_DIMENSIONS, HeadDimension};
pub use element::Element;
pub use error::{Error, Result};
pub use form::{Bits, Output};
pub use lengths::Lengths;
pub use packed::PackedAttention;
pub use shape::{Layout, Mask, Shape};
pub use shared::Number;
