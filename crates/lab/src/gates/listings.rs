//! The machine instructions of compiled kernels, each listed once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use gatework_gpu::{Binary, Result, SassReport, disassemble};

/// What a disassembler said of binaries, by their hash: it takes longer to start than most gates take.
#[derive(Debug, Default)]
pub(super) struct Listings(Mutex<HashMap<String, SassReport>>);

impl Listings {
    /// The instructions of `binary`. Several may be listed at once.
    pub(super) fn of(&self, binary: &Binary) -> Result<SassReport> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(report) = known().get(&binary.hash) {
            return Ok(report.clone());
        }
        let report = disassemble(binary)?;
        known().insert(binary.hash.clone(), report.clone());
        Ok(report)
    }
}
