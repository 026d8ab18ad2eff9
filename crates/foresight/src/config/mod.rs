//! Runs as TOML: every key is known, every value is checked, and an error names both.

mod build;
mod keys;
mod memory;
mod sections;

pub use build::Prepared;
pub use memory::MemoryPlan;
pub use sections::{
    Config, DataKind, DataSection, EngineSection, ModelKind, ModelSection, OptimiserSection, RunSection,
};
