//! What is run: a named shape, the least work it takes, and why a run may give nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Why a run produced no outputs: the runtime's error, or the workload's own.
pub type RunError = Box<dyn std::error::Error + Send + Sync>;

/// The runtime's error, if that is what an engine's error was made from.
pub(crate) fn runtime_error(error: &RunError) -> Option<&gatework_gpu::Error> {
    let mut found: Option<&(dyn std::error::Error + 'static)> = Some(error.as_ref());
    while let Some(error) = found {
        if let Some(runtime) = error.downcast_ref() {
            return Some(runtime);
        }
        found = error.source();
    }
    None
}

/// The floor of a case: what no kernel can do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Arithmetic operations.
    pub operations: u64,
    /// Bytes moved to and from device memory, each input and output once.
    pub bytes: u64,
}

/// A named shape.
///
/// ```
/// use gatework_lab::Case;
/// let case = Case::new("odd").with("rows", 31).with("columns", 33);
/// assert_eq!(case.dimension("columns"), 33);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// Unique among the workload's cases.
    pub name: String,
    /// Sizes by name.
    pub dimensions: BTreeMap<String, u64>,
}

impl Case {
    /// A case without dimensions.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), dimensions: BTreeMap::new() }
    }

    /// With one more dimension.
    pub fn with(mut self, dimension: &str, size: usize) -> Self {
        self.dimensions.insert(dimension.to_owned(), size as u64);
        self
    }

    /// The size of a dimension. Panics if the case has no such dimension, as indexing a map does.
    pub fn dimension(&self, name: &str) -> usize {
        match self.dimensions.get(name) {
            Some(&size) => size as usize,
            None => panic!("case '{}' has no dimension '{name}'", self.name),
        }
    }
}
