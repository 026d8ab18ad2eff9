#![doc = include_str!("../README.md")]

pub mod cpu;
pub mod cuda;
mod element;
mod error;
pub mod reference;
mod shape;
#[cfg(feature = "lab")]
pub mod workloads;

pub use cuda::Attention;
pub use element::Element;
pub use error::{Error, Result};
pub use shape::{Layout, Mask, Shape};
