//! What is proved, as options and proof files name it.

use std::num::NonZeroUsize;

use clap::{Args, ValueEnum};
use gatework_stark::CudaBackend;
use gatework_stark::airs::{Air, Plonk, Poseidon2, ProvesWith, StateMachine, WideFibonacci};
use gatework_stark::floor::Hash;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stwo::core::channel::MerkleChannel;
use stwo::core::fri::FriConfig;
use stwo::core::pcs::PcsConfig;
use stwo::core::vcs_lifted::blake2_merkle::{Blake2sM31MerkleChannel, Blake2sMerkleChannel};
use stwo::core::vcs_lifted::poseidon252_merkle::Poseidon252MerkleChannel;
use stwo::prover::backend::simd::SimdBackend;

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

/// A choice as it is typed.
fn name_of(choice: impl ValueEnum) -> String {
    choice.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
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

/// What the transcript and the trees of a proof are hashed by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ChannelChoice {
    /// Blake2s
    #[default]
    Blake2s,
    /// Blake2s, with digests of elements of M31
    #[value(name = "blake2s-m31")]
    #[serde(rename = "blake2s-m31")]
    Blake2sM31,
    /// Poseidon on elements of Starknet's field, for recursive verification
    Poseidon252,
}

impl ChannelChoice {
    /// What floors are counted with.
    pub(super) fn hash(self) -> Hash {
        match self {
            Self::Blake2s | Self::Blake2sM31 => Hash::Blake2s,
            Self::Poseidon252 => Hash::Poseidon252,
        }
    }

    /// A kind of rows of records: of another channel than the default one they are a kind of their own, so
    /// that no table takes them for the others.
    pub(super) fn kind(self, of: &str) -> String {
        if self.is_default() { of.to_owned() } else { format!("{}-{of}", name_of(self)) }
    }

    /// As files had it before there was a choice: they say nothing.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Debug, Args)]
pub(crate) struct StatementOptions {
    /// The statement (AIR) to prove
    #[arg(long, value_enum, default_value = "wide-fibonacci", value_name = "AIR")]
    pub(super) air: AirChoice,
    /// Number of columns of wide-fibonacci [default: 100]; other AIRs have a fixed number
    #[arg(long, value_name = "N")]
    pub(super) columns: Option<NonZeroUsize>,
    /// The security level
    #[arg(long, value_enum, default_value = "default", value_name = "SECURITY")]
    pub(super) security: Security,
    /// The hash function of the channel and the Merkle trees
    #[arg(long, value_enum, default_value = "blake2s", value_name = "CHANNEL")]
    pub(super) channel: ChannelChoice,
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
    #[serde(skip_serializing_if = "ChannelChoice::is_default", default)]
    pub(super) channel: ChannelChoice,
}

/// What is done with an AIR of any kind, and any channel.
pub(super) trait Visitor {
    type Output;

    fn visit<A: Air, MC: MerkleChannel>(self, air: &A, config: PcsConfig) -> Self::Output
    where
        SimdBackend: ProvesWith<MC>,
        CudaBackend: ProvesWith<MC>,
        MC::H: Serialize + DeserializeOwned;
}

impl Statement {
    pub(super) fn new(options: &StatementOptions, log_rows: u32) -> Result<Self, Failure> {
        let columns = match (options.air, options.columns) {
            (AirChoice::WideFibonacci, columns) => Some(columns.map_or(DEFAULT_COLUMNS, NonZeroUsize::get)),
            (_, None) => None,
            (air, Some(_)) => {
                let air = name_of(air);
                let why = format!(
                    "--columns is for wide-fibonacci: {air} has a fixed number of columns, leave --columns out"
                );
                return Err(Failure::input(why));
            }
        };
        Ok(Self { air: options.air, log_rows, columns, security: options.security, channel: options.channel })
    }

    /// Says what is wrong with it, if anything is: it may come from a file.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let refuse = |why: String| Err(Failure::input(why));
        // SimdBackend has sixteen rows a vector, and half of the rows of the machine are those of its second
        // counter.
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
        match self.channel {
            ChannelChoice::Blake2s => self.accept_with::<V, Blake2sMerkleChannel>(visitor),
            ChannelChoice::Blake2sM31 => self.accept_with::<V, Blake2sM31MerkleChannel>(visitor),
            ChannelChoice::Poseidon252 => self.accept_with::<V, Poseidon252MerkleChannel>(visitor),
        }
    }

    fn accept_with<V: Visitor, MC: MerkleChannel>(&self, visitor: V) -> V::Output
    where
        SimdBackend: ProvesWith<MC>,
        CudaBackend: ProvesWith<MC>,
        MC::H: Serialize + DeserializeOwned,
    {
        let (log_rows, config) = (self.log_rows, self.config());
        match self.air {
            AirChoice::WideFibonacci => {
                let columns = self.columns.unwrap_or_default();
                visitor.visit::<_, MC>(&WideFibonacci { log_rows, columns }, config)
            }
            AirChoice::Plonk => visitor.visit::<_, MC>(&Plonk { log_rows }, config),
            AirChoice::StateMachine => visitor.visit::<_, MC>(&StateMachine { log_rows }, config),
            AirChoice::Poseidon2 => visitor.visit::<_, MC>(&Poseidon2 { log_rows }, config),
        }
    }

    /// As a line of a table has it.
    pub(super) fn text(&self) -> String {
        let air = name_of(self.air);
        let columns = self.columns.map_or_else(String::new, |columns| format!(" x {columns}"));
        let channel = if self.channel.is_default() { "" } else { &format!(", {}", name_of(self.channel)) };
        format!("{air} 2^{}{columns}{channel}", self.log_rows)
    }
}
