//! What is proved, as options and proof files name it.

use std::num::NonZeroUsize;

use clap::{Args, ValueEnum};
use gatework_stark::airs::{Air, Plonk, Poseidon2, StateMachine, WideFibonacci};
use serde::{Deserialize, Serialize};
use stwo::core::fri::FriConfig;
use stwo::core::pcs::PcsConfig;

use crate::command::ending::Failure;

/// The AIRs that the command knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum AirChoice {
    /// Rows of Fibonacci sequences of squares
    WideFibonacci,
    /// A circuit of additions and multiplications with LogUp wires
    Plonk,
    /// A machine with two counters, a component each
    StateMachine,
    /// Poseidon2 permutations, eight a row
    Poseidon2,
}

impl AirChoice {
    /// As it is typed.
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// How hard it is to prove something false.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(super) enum Security {
    /// stwo's default, for tests: 3 queries, 10 bits of work
    #[serde(rename = "default")]
    Default,
    /// 70 queries, 26 bits of work
    #[serde(rename = "96")]
    #[value(name = "96")]
    Bits96,
}

#[derive(Debug, Args)]
pub(crate) struct StatementOptions {
    /// What to prove
    #[arg(long, value_enum, default_value = "wide-fibonacci", value_name = "AIR")]
    pub(super) air: AirChoice,
    /// Columns of wide-fibonacci, 100 if not given; the other AIRs have a fixed number
    #[arg(long, value_name = "N")]
    pub(super) columns: Option<NonZeroUsize>,
    /// With which security
    #[arg(long, value_enum, default_value = "default", value_name = "SECURITY")]
    pub(super) security: Security,
}

/// Columns of wide-fibonacci where none are asked for.
const DEFAULT_COLUMNS: usize = 100;

/// An AIR with its size, and the configuration of the proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Statement {
    pub(super) air: AirChoice,
    pub(super) log_rows: u32,
    /// Columns of wide-fibonacci; the other AIRs have a fixed number.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) columns: Option<usize>,
    pub(super) security: Security,
}

/// What is done with an AIR of any kind.
pub(super) trait Visitor {
    type Output;

    fn visit<A: Air>(self, air: &A, config: PcsConfig) -> Self::Output;
}

impl Statement {
    pub(super) fn new(options: &StatementOptions, log_rows: u32) -> Result<Self, Failure> {
        let columns = match (options.air, options.columns) {
            (AirChoice::WideFibonacci, columns) => Some(columns.map_or(DEFAULT_COLUMNS, NonZeroUsize::get)),
            (_, None) => None,
            (air, Some(_)) => {
                let air = air.name();
                let why = format!(
                    "--columns is for wide-fibonacci: {air} has a fixed number of columns, leave --columns out"
                );
                return Err(Failure::input(why));
            }
        };
        Ok(Self { air: options.air, log_rows, columns, security: options.security })
    }

    /// Says what is wrong with it, if anything is: it may come from a file.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let refuse = |why: String| Err(Failure::input(why));
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
