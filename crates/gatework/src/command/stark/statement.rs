//! What is proved, as options and proof files name it.

use std::num::NonZeroUsize;

use gatework_stark::CudaBackend;
use gatework_stark::airs::{Air, Plonk, Poseidon2, StateMachine, WideFibonacci};
use serde::{Deserialize, Serialize};
use stwo::core::fri::FriConfig;
use stwo::core::pcs::PcsConfig;
use stwo::prover::ComponentProver;
use stwo::prover::backend::simd::SimdBackend;
use stwo_constraint_framework::FrameworkComponent;

use super::cli::{AirChoice, Security, StatementOptions};
use crate::command::ending::Failure;

/// Columns of wide-fibonacci where none are asked for.
const DEFAULT_COLUMNS: usize = 100;

/// An AIR with its size, and the configuration of the proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Statement {
    pub(super) air: AirChoice,
    pub(super) log_rows: u32,
    /// Columns of wide-fibonacci; the other AIRs have as many as they have.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) columns: Option<usize>,
    pub(super) security: Security,
}

/// What is done with an AIR of any kind.
pub(super) trait Visitor {
    type Output;

    fn visit<A: Air>(self, air: &A, config: PcsConfig) -> Self::Output
    where
        FrameworkComponent<A::Eval>: ComponentProver<CudaBackend> + ComponentProver<SimdBackend>;
}

impl Statement {
    pub(super) fn new(options: &StatementOptions, log_rows: u32) -> Result<Self, Failure> {
        let columns = match (options.air, options.columns) {
            (AirChoice::WideFibonacci, columns) => Some(columns.map_or(DEFAULT_COLUMNS, NonZeroUsize::get)),
            (_, None) => None,
            (air, Some(_)) => {
                let air = air.name();
                let why = format!(
                    "--columns is for wide-fibonacci: {air} has as many columns as it has, leave it out"
                );
                return Err(Failure::Input(why));
            }
        };
        Ok(Self { air: options.air, log_rows, columns, security: options.security })
    }

    /// Says what is wrong with it, if anything is: it may come from a file.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let refuse = |why: String| Err(Failure::Input(why));
        // SimdBackend has sixteen rows a vector, and half of the rows of the machine are those of its second counter.
        let least = if self.air == AirChoice::StateMachine { 5 } else { 4 };
        if !(least..=26).contains(&self.log_rows) {
            return refuse(format!("2^{} rows cannot be proved here: 2^{least} to 2^26 can", self.log_rows));
        }
        match (self.air, self.columns) {
            (AirChoice::WideFibonacci, Some(3..=65_535)) => Ok(()),
            (AirChoice::WideFibonacci, columns) => refuse(format!(
                "wide-fibonacci with {} columns cannot be proved: it has 3 to 65535",
                columns.unwrap_or(0)
            )),
            _ => Ok(()),
        }
    }

    pub(super) fn config(&self) -> PcsConfig {
        match self.security {
            Security::Default => PcsConfig::default(),
            Security::Bits96 => {
                PcsConfig { pow_bits: 26, fri_config: FriConfig::new(0, 1, 70, 1), lifting_log_size: None }
            }
        }
    }

    pub(super) fn accept<V: Visitor>(&self, visitor: V) -> V::Output {
        let (log_rows, config) = (self.log_rows, self.config());
        match self.air {
            AirChoice::WideFibonacci => {
                let columns = self.columns.unwrap_or_default();
                visitor.visit(&WideFibonacci { log_rows, columns }, config)
            }
            AirChoice::Plonk => visitor.visit(&Plonk { log_rows }, config),
            AirChoice::StateMachine => visitor.visit(&StateMachine { log_rows }, config),
            AirChoice::Poseidon2 => visitor.visit(&Poseidon2 { log_rows }, config),
        }
    }

    /// As a line of a table has it.
    pub(super) fn text(&self) -> String {
        let air = self.air.name();
        let columns = self.columns.map_or_else(String::new, |columns| format!(" x {columns}"));
        format!("{air} 2^{}{columns}", self.log_rows)
    }
}
