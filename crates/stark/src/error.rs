//! What can be wrong with a proof, and how a fault of the device leaves traits that cannot return one.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use gatework_gpu::{Class, Classified, Device};
use stwo::prover::ProvingError;

/// The engine's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a proof could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The runtime's error: memory, a compiler, a kernel that was stopped, the driver.
    #[error("{0}")]
    Gpu(#[from] gatework_gpu::Error),
    /// The trace does not satisfy the constraints.
    #[error("the trace does not satisfy the constraints: nothing was proved")]
    ConstraintsNotSatisfied,
    /// More device memory than may be held.
    #[error(
        "the proof needs {needed} bytes of device memory at its peak on {device}, where {free} of {limit} may still be \
         held: {way_out}"
    )]
    TooLarge {
        /// The device that has too little.
        device: String,
        /// Predicted peak there.
        needed: u64,
        /// What may still be asked for.
        free: u64,
        /// The budget in force.
        limit: u64,
        /// What can be done instead.
        way_out: &'static str,
    },
    /// Columns or twiddles of two contexts in one operation.
    #[error(
        "columns or twiddles of two contexts in one operation: bring them to one, columns by way of DeviceColumn::to_cpu"
    )]
    TwoContexts,
    /// Something this backend does not do.
    #[error("unsupported: {what}")]
    Unsupported {
        /// What, and what is supported.
        what: String,
    },
}

impl Error {
    /// A proof that needs more than `free` bytes of `device`.
    pub(crate) fn too_large(device: &Device, needed: u64, free: u64, way_out: &'static str) -> Self {
        let (limit, device) = (device.budget().limit(), device.properties().id.clone());
        Self::TooLarge { device, needed, free, limit, way_out }
    }
}

impl Classified for Error {
    fn class(&self) -> Class {
        match self {
            Self::Gpu(error) => error.class(),
            // A trace that does not satisfy its constraints is no fault of the device, nor is a proof that is
            // too large.
            Self::ConstraintsNotSatisfied
            | Self::TooLarge { .. }
            | Self::TwoContexts
            | Self::Unsupported { .. } => Class::Input,
        }
    }
}

impl From<ProvingError> for Error {
    fn from(error: ProvingError) -> Self {
        match error {
            ProvingError::ConstraintsNotSatisfied => Self::ConstraintsNotSatisfied,
        }
    }
}

/// What unwinds through stwo's traits, which cannot return an error, up to
/// [`Context::scope`](crate::Context::scope).
struct Fault(Error);

/// Leaves a trait's method with an error. Inside of a scope nothing is printed, since the scope returns it;
/// outside nobody would, and it is a panic like any other.
pub(crate) fn raise(error: impl Into<Error>) -> ! {
    let error = error.into();
    if CATCHING.get() {
        resume_unwind(Box::new(Fault(error)))
    }
    panic!("{error} (outside of Context::scope, which would return this as an error)")
}

thread_local! {
    /// Whether this thread is inside of `catch`, or works for a scope that another thread is in.
    static CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Says that this thread does nothing but what scopes ask of it: they catch what it raises.
pub(crate) fn work_inside_of_a_scope() {
    CATCHING.set(true);
}

/// What `body` gives, or the error that it was left with.
pub(crate) fn catch<R>(body: impl FnOnce() -> R) -> Result<R> {
    let before = CATCHING.replace(true);
    let ended = catch_unwind(AssertUnwindSafe(body));
    CATCHING.set(before);
    match ended {
        Ok(value) => Ok(value),
        Err(payload) => match payload.downcast::<Fault>() {
            Ok(fault) => Err(fault.0),
            Err(panic) => resume_unwind(panic),
        },
    }
}

/// `raise` for results.
pub(crate) trait OrRaise<T> {
    /// The value, or the error as a fault.
    fn or_raise(self) -> T;
}

impl<T, E: Into<Error>> OrRaise<T> for std::result::Result<T, E> {
    fn or_raise(self) -> T {
        self.unwrap_or_else(|error| raise(error))
    }
}
