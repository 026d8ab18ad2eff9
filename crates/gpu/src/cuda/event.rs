//! Events: marks in the order of a stream.

use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;

use cudarc::driver::sys::{self, CUevent, CUevent_flags, CUresult, CUstream};

use crate::Result;
use crate::cuda::status::{check, check_release, failure};

pub(super) fn create() -> Result<CUevent> {
    let mut event = ptr::null_mut();
    // SAFETY: `event` is written by the call.
    let status = unsafe { sys::cuEventCreate(&mut event, CUevent_flags::CU_EVENT_DEFAULT as u32) };
    check("cuEventCreate", status)?;
    Ok(event)
}

pub(super) fn destroy(event: CUevent) {
    // SAFETY: the safe layer destroys each event once; the driver keeps it until it has happened.
    check_release("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(event) });
}

pub(super) fn record(event: CUevent, stream: CUstream) -> Result<()> {
    // SAFETY: the event and the stream are alive.
    check("cuEventRecord", unsafe { sys::cuEventRecord(event, stream) })
}

pub(super) fn is_complete(event: CUevent) -> Result<bool> {
    // SAFETY: the event is alive.
    match unsafe { sys::cuEventQuery(event) } {
        CUresult::CUDA_SUCCESS => Ok(true),
        CUresult::CUDA_ERROR_NOT_READY => Ok(false),
        status => Err(failure("cuEventQuery", status)),
    }
}

pub(super) fn synchronize(event: CUevent) -> Result<()> {
    // SAFETY: the event is alive.
    check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(event) })
}

/// The time between two events. Those of two streams may have happened in the other order: then it is zero.
pub(super) fn elapsed(start: CUevent, end: CUevent) -> Result<Duration> {
    let mut milliseconds = 0f32;
    // SAFETY: both events are alive and were created with timing; `milliseconds` is written by the call.
    let status = unsafe { elapsed_time()?(&mut milliseconds, start, end) };
    check("cuEventElapsedTime", status)?;
    Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1000.0))
}

type ElapsedTime = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;

/// `cuEventElapsedTime`, in the second form if the driver has it. The bindings know only that one, which came
/// with CUDA 12.8, and would panic on an older driver.
fn elapsed_time() -> Result<ElapsedTime> {
    static FOUND: OnceLock<Option<ElapsedTime>> = OnceLock::new();
    let find = || {
        // SAFETY: an open device means that the library is loaded.
        let library = unsafe { sys::culib() };
        ["cuEventElapsedTime_v2", "cuEventElapsedTime"].iter().find_map(|name| {
            // SAFETY: both forms have this signature.
            unsafe { library.get::<ElapsedTime>(name.as_bytes()) }.ok().map(|symbol| *symbol)
        })
    };
    FOUND.get_or_init(find).ok_or_else(|| failure("cuEventElapsedTime", CUresult::CUDA_ERROR_NOT_FOUND))
}
