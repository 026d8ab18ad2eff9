//! What the emulated device reports when a kernel breaks a rule.

use serde::Serialize;

/// A place in a kernel's source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Site {
    /// The file as it was included.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Which rule was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FaultKind {
    /// An access outside every buffer and the block's shared memory, or beyond an array of the thread's own.
    OutOfBounds,
    /// An access to memory that was freed.
    FreedMemory,
    /// An address that is no multiple of what the access needs.
    Misaligned,
    /// Two accesses to the same bytes, one a write, with nothing that orders them.
    Race,
    /// A load of bytes that nobody has written.
    Uninitialised,
    /// No thread can go on.
    Deadlock,
    /// Threads of a block or a warp met at different calls, or some never came.
    Divergence,
    /// The machine has no room for the launch's threads.
    Exhausted,
    /// A barrier, copy or matrix instruction used against its protocol.
    Protocol,
    /// An integer divided by zero.
    DivisionByZero,
    /// A shift by the width or more, or a float that is no integer's: the language leaves the result open,
    /// and the card gives another than the host.
    OutOfRange,
    /// A signed integer overflows: the language leaves the result open.
    Overflow,
    /// The launch runs for longer than it may.
    TimeLimit,
    /// Calls nested deeper than a thread's stack.
    StackOverflow,
    /// The kernel stopped itself: it was given what it does not know.
    Trap,
    /// The kernel's `GW_ASSERT` does not hold.
    Assertion,
}

/// A kernel that the emulated device stopped. The process goes on; the stream's later work was not run.
#[derive(Debug, Clone, Serialize)]
pub struct Fault {
    /// Which rule.
    pub kind: FaultKind,
    /// The kernel; empty for a copy, a fill or a release of memory, which the message names.
    pub kernel: String,
    /// The block, where one thread is to blame.
    pub block: [u32; 3],
    /// The thread, where one is to blame.
    pub thread: Option<[u32; 3]>,
    /// The address, where there is one.
    pub address: Option<u64>,
    /// Where in the source, where it is known.
    pub site: Option<Site>,
    /// The fault, in words.
    pub message: String,
    /// The seed that repeats the run: `GATEWORK_EMULATOR_SEED`.
    pub seed: u64,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.kernel.is_empty() {
            return write!(f, "{} (repeat with GATEWORK_EMULATOR_SEED={})", self.message, self.seed);
        }
        write!(f, "kernel '{}' was stopped", self.kernel)?;
        if let Some(site) = &self.site {
            write!(f, " at {site}")?;
        }
        write!(f, ": block {:?}", self.block)?;
        if let Some(thread) = self.thread {
            write!(f, ", thread {thread:?}")?;
        }
        write!(f, ": {} (repeat with GATEWORK_EMULATOR_SEED={})", self.message, self.seed)
    }
}

impl std::error::Error for Fault {}
