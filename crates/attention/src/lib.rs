#![doc = include_str!("../README.md")]

mod attention;
#[cfg(feature = "lab")]
pub mod bench;
pub mod cpu;
pub mod cuda;
mod element;
mod error;
pub mod reference;
mod shape;
#[cfg(feature = "lab")]
pub mod workloads;

pub use attention::{Attention, Output, Place};
pub use element::Element;
pub use error::{Error, Result};
pub use shape::{Layout, Mask, Shape};
