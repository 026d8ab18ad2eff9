#![doc = include_str!("../README.md")]

pub mod corpus;
mod mutator;
mod target;
mod targets;

pub use mutator::Mutator;
pub use target::{Allowance, Target, Verdict};
pub use targets::TARGETS;

/// Gives bytes to the target of that name, which panics if it finds a bug.
///
/// Panics if there is no such target: then a fuzzer would try nothing.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.unwrap_or_else(|| panic!("there is no target '{name}'")).read)(bytes);
}
