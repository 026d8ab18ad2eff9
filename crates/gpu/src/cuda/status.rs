//! What the driver answers, as the runtime's errors.

use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUresult;

use crate::{Error, Result};

/// An answer other than success is an error that names the call.
pub(super) fn check(call: &'static str, status: CUresult) -> Result<()> {
    match status {
        CUresult::CUDA_SUCCESS => Ok(()),
        _ => Err(failure(call, status)),
    }
}

/// For calls that give something back: there is nobody to return the error to, but it must not go unseen.
pub(super) fn check_release(call: &'static str, status: CUresult) {
    match status {
        // At the end of the process the driver may be gone first, and everything with it.
        CUresult::CUDA_SUCCESS | CUresult::CUDA_ERROR_DEINITIALIZED => {}
        _ => tracing::warn!("{}", failure(call, status)),
    }
}

/// The error for `status`, in the driver's own words.
pub(super) fn failure(call: &'static str, status: CUresult) -> Error {
    let error = DriverError(status);
    let code =
        error.error_name().map_or_else(|_| format!("{status:?}"), |name| name.to_string_lossy().into_owned());
    let message = error.error_string().map_or_else(
        |_| "the driver has no words for it".to_owned(),
        |text| text.to_string_lossy().into_owned(),
    );
    Error::Driver { call, code, message }
}
