//! What can be wrong with a circuit, a key stream or a peer.

use crate::party::Party;

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be dealt, evaluated or planned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A ring that is not one of Z_2 to Z_2^64.
    #[error("a ring of {bits} bits: rings have 1 to 64 bits")]
    RingBits {
        /// The width that was asked for.
        bits: u32,
    },
    /// Parameters that no gate here computes.
    #[error("unsupported {gate}: {what}")]
    Unsupported {
        /// The gate.
        gate: &'static str,
        /// What was asked for, and what there is.
        what: String,
    },
    /// Operands whose lengths or rings do not fit together.
    #[error("the operands of {gate} do not fit: {what}")]
    Shape {
        /// The gate.
        gate: &'static str,
        /// Both sizes.
        what: String,
    },
    /// A value may leave its ring, or the gap of a truncation: nothing proves that it does not.
    #[error(
        "{gate} is not proved safe: values between {lo} and {hi} do not fit {room}; clamp, or prove a bound"
    )]
    NotProved {
        /// The gate.
        gate: &'static str,
        /// The least value that is proved.
        lo: i128,
        /// The greatest value that is proved.
        hi: i128,
        /// Where they would have to fit.
        room: String,
    },
    /// The clear evaluator met a value outside the bound that was claimed for it.
    #[error("{gate}: element {index} is {value}, outside its bound of {lo} to {hi}")]
    BoundViolated {
        /// The gate that made the value.
        gate: &'static str,
        /// Which element.
        index: usize,
        /// Its word in the ring.
        value: u64,
        /// The least value that was claimed.
        lo: i128,
        /// The greatest value that was claimed.
        hi: i128,
    },
    /// A key stream that is not what it should be.
    #[error("the key stream is unusable: {what}")]
    Key {
        /// What is wrong, as a sentence.
        what: String,
    },
    /// A key stream of the other party.
    #[error("the key stream is for party {found}, this process is party {expected}")]
    WrongParty {
        /// Whose stream it is.
        found: Party,
        /// Who reads it.
        expected: Party,
    },
    /// Keys that were dealt for another number format.
    #[error("the keys are for {keys}, the circuit has {circuit}")]
    Format {
        /// The keys'.
        keys: String,
        /// The circuit's.
        circuit: String,
    },
    /// An input that was not given, or is not as the circuit declares it.
    #[error("input {index} of {party}: {what}")]
    Input {
        /// Its place among the circuit's inputs.
        index: usize,
        /// Whose it is.
        party: Party,
        /// What is wrong with it.
        what: String,
    },
    /// The peer is gone.
    #[error("the other party closed the channel")]
    Closed,
    /// The peer's message does not belong here: the two parties do not run the same program.
    #[error("the parties are out of step: {what}")]
    OutOfStep {
        /// What was expected and what came.
        what: String,
    },
    /// A task waits, and nothing that was opened could wake it.
    #[error("a task waits although nothing is being opened")]
    Stuck,
    /// What was written, sent or hashed is not what the cost model said.
    #[error("job '{job}' used {found} {unit}, its plan says {planned}")]
    OffPlan {
        /// The job.
        job: String,
        /// Of what.
        unit: &'static str,
        /// What was used.
        found: u64,
        /// What was planned.
        planned: u64,
    },
    /// A function description that makes no sense.
    #[error("the function is not well formed: {what}")]
    Suf {
        /// What is wrong, as a sentence.
        what: String,
    },
    /// The operating system gave no randomness.
    #[error("the operating system gives no random numbers: {0}")]
    Randomness(getrandom::Error),
    /// A gate reads words that its role does not have.
    #[error("a gate reads words that are not here")]
    Absent,
    /// A device failed, or has no room.
    #[error(transparent)]
    Device(#[from] gatework_gpu::Error),
    /// Words or keys that another backend keeps.
    #[error("words or keys of another backend cannot be read here")]
    OtherBackend,
    /// What a channel, a source of keys or a sink for them failed with, which the program brought.
    #[error(transparent)]
    Outside(Box<dyn std::error::Error + Send + Sync>),
}
