//! What can be wrong with a model, a file, a peer, or a circuit on the way.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be described, dealt, served or asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What the evaluation of a circuit failed with.
    #[error(transparent)]
    Fss(gatework_fss::Error),
    /// The range analysis proves nothing for a tensor of a graph, and no clamp of one or more would change
    /// that.
    #[error(
        "nothing proves that '{tensor}', made from {operands}, stays in a ring of {bits} bits: a wider ring, smaller norms or \
         clamped operands would"
    )]
    Unproved {
        /// The tensor.
        tensor: String,
        /// What it is made from.
        operands: String,
        /// The ring's bits.
        bits: u32,
    },
    /// A file that could not be read or written.
    #[error("cannot {doing} '{}': {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A key file, or its ledger, that must not be used.
    #[error("'{}' cannot be used: {what}", path.display())]
    KeyFile {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// No key is left for a text of that length.
    #[error("no unused key is left for a text of {tokens} tokens: have more dealt")]
    NoKeys {
        /// Its length.
        tokens: usize,
    },
    /// More than this machine has room for.
    #[error("{what} need {needed} bytes of memory, and {available} are available")]
    NoRoom {
        /// What does not fit, in the plural.
        what: &'static str,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that there are.
        available: u64,
    },
    /// More than this machine's device has room for, found before a key is used.
    #[error(
        "this takes {needed} bytes of the device's memory at once, and {limit} may be used, of which {promised} are \
         promised to other sessions: use shorter texts, smaller batches or a larger budget"
    )]
    NoDeviceMemory {
        /// Bytes that it needs, weights and keys that are copied ahead included.
        needed: u64,
        /// Bytes that others were promised.
        promised: u64,
        /// Bytes that all may have.
        limit: u64,
    },
    /// More than a disk has room for.
    #[error("the files need {needed} bytes in '{}', where {available} are free", folder.display())]
    NoSpace {
        /// Where they should go.
        folder: PathBuf,
        /// Bytes that they need.
        needed: u64,
        /// Bytes that there are.
        available: u64,
    },
    /// Keys that were used before.
    #[error("section {section} of the keys was used already: a key is used once")]
    Reused {
        /// Which.
        section: usize,
    },
    /// A certificate or a key of TLS that cannot be read.
    #[error("'{}' is no identity: {what}", path.display())]
    Certificate {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// An address of this machine that cannot be listened on.
    #[error("cannot listen on '{address}': {source}")]
    Listen {
        /// As it was given.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// An address that does not answer.
    #[error("'{address}' cannot be reached: {source}")]
    Unreachable {
        /// As it was given.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The two sides do not agree on a secure connection.
    #[error("no secure connection: {what}")]
    Tls {
        /// Why.
        what: String,
    },
    /// A connection that broke.
    #[error("the connection failed: {source}")]
    Socket {
        /// Why.
        source: io::Error,
    },
    /// The peer took too long.
    #[error("the other party did not {doing} within {} s", after.as_secs_f64())]
    Timeout {
        /// What it should have done.
        doing: &'static str,
        /// How long was waited.
        after: Duration,
    },
    /// A message that is longer than any that belongs here.
    #[error("the other party announces a message of {length} bytes, at most {most} belong here")]
    Oversized {
        /// As it says.
        length: u64,
        /// What there may be.
        most: u64,
    },
    /// What the peer says cannot be right.
    #[error("the other party cannot be talked to: {what}")]
    Peer {
        /// Why.
        what: String,
    },
    /// A client more than are served at once.
    #[error("as many clients as it can serve are there already: try again later")]
    Busy,
    /// The peer refused, and said why.
    #[error("the other party refused: {why}")]
    Refused {
        /// In its words.
        why: String,
    },
    /// A checkpoint, a public model, or what belongs to one, that cannot be used.
    #[error("the model cannot be used: {what}")]
    Model {
        /// What is wrong, as a sentence.
        what: String,
    },
    /// Something that a model, a command or a batch asks for and that is not offered.
    #[error("unsupported {gate}: {what}")]
    Unsupported {
        /// The part that was asked for.
        gate: &'static str,
        /// What was asked for, and what there is.
        what: String,
    },
    /// Bytes of a key file that are not what they should be.
    #[error("the key stream is unusable: {what}")]
    Key {
        /// What is wrong, as a sentence.
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
    /// A node of a network, or its result, that is not there when it is needed.
    #[error("the network has no '{node}' where it is read")]
    NoOperand {
        /// Its name.
        node: String,
    },
    /// An inference before the weights were taken.
    #[error("the weights were not taken yet: set up the session first")]
    NoWeights,
}

/// What failed inside an evaluation for a reason of this crate's is that reason again.
impl From<gatework_fss::Error> for Error {
    fn from(error: gatework_fss::Error) -> Self {
        match error {
            gatework_fss::Error::Outside(outside) => match outside.downcast::<Self>() {
                Ok(own) => *own,
                Err(outside) => Self::Fss(gatework_fss::Error::Outside(outside)),
            },
            gatework_fss::Error::Closed => Self::Closed,
            gatework_fss::Error::OutOfStep { what } => Self::OutOfStep { what },
            error => Self::Fss(error),
        }
    }
}

/// Through a channel, a source of keys or a sink for them.
impl From<Error> for gatework_fss::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Fss(error) => error,
            Error::Closed => Self::Closed,
            Error::OutOfStep { what } => Self::OutOfStep { what },
            error => Self::Outside(Box::new(error)),
        }
    }
}
