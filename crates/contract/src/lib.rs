#![doc = include_str!("../README.md")]

mod class;
mod observer;

pub use class::{Class, Classified};
pub use observer::{Notice, Observer, StageGuard};
