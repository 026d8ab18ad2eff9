#![doc = include_str!("../README.md")]

mod class;
mod cores;
mod observer;

pub use class::{Class, Classified};
pub use cores::on_all_cores;
pub use observer::{Notice, Observer, StageGuard};
