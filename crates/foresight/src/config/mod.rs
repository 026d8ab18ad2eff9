//! Runs as TOML: every key is known, every value is checked, and an error names both.

mod build;
mod keys;
mod sections;

pub use build::{MemoryPlan, Prepared};
pub use sections::{
    Config, DataKind, DataSection, EngineSection, ModelKind, ModelSection, OptimiserSection, RunSection,
};
