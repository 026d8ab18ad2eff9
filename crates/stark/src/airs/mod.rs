//! AIRs with traces to prove: for tests, benchmarks and the command line.
//!
//! Each is written once and proved by both backends, so that a proof of one can be compared with that of the
//! other.

mod lookup;
mod plonk;
mod poseidon2;
mod proof;
mod state_machine;
mod wide_fibonacci;

use stwo::core::channel::Channel;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::prover::backend::simd::SimdBackend;
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::CircleEvaluation;
use stwo_constraint_framework::FrameworkEval;

pub use self::lookup::Lookup;
pub use self::plonk::Plonk;
pub use self::poseidon2::{PERMUTATIONS_PER_ROW, Poseidon2};
pub use self::proof::{
    Backend, Input, Proved, ProvesWith, VerifyError, plan, prove, prove_with, require_provable, verify,
    verify_with, verifying_bytes,
};
pub use self::state_machine::StateMachine;
pub use self::wide_fibonacci::WideFibonacci;

/// A column on the host.
pub type HostColumn = Vec<BaseField>;

/// A column of an interaction trace on the host.
pub type SimdColumn = CircleEvaluation<SimdBackend, BaseField, BitReversedOrder>;

/// A statement with a witness: components of one kind, each with its own trace.
pub trait Air: Sync {
    /// The constraints of a component.
    type Eval: FrameworkEval + Send + Sync;

    /// Preprocessed columns, by name.
    fn preprocessed(&self) -> Vec<(String, HostColumn)>;

    /// The logarithms of their lengths, for a plan: without the columns where they are large.
    fn preprocessed_log_sizes(&self) -> Vec<u32> {
        self.preprocessed().iter().map(|(_, column)| column.len().ilog2()).collect()
    }

    /// The trace of each component, in bit-reversed order of its domain.
    fn traces(&self) -> Vec<Vec<HostColumn>>;

    /// What is public about the statement: a verifier takes it in before anything else.
    fn public(&self) -> Vec<u32>;

    /// The components' constraints, with challenges from the channel.
    fn evals(&self, channel: &mut impl Channel) -> Vec<Self::Eval>;

    /// Whether there is an interaction trace.
    fn interacts(&self) -> bool;

    /// The interaction trace of a component by stwo's own generator, and its claimed sum. `preprocessed` are
    /// the columns that it uses, in its order.
    fn simd_interaction(
        &self,
        eval: &Self::Eval,
        preprocessed: &[HostColumn],
        trace: &[HostColumn],
    ) -> (Vec<SimdColumn>, SecureField);

    /// Whether the claimed sums of all components are those of a true statement.
    fn sums_hold(&self, evals: &[Self::Eval], sums: &[SecureField]) -> bool;
}
