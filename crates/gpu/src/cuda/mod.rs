//! The CUDA device: the driver and NVRTC, both loaded at run time, so that nothing of CUDA is needed to
//! build.

mod address;
#[cfg(feature = "blas")]
pub(crate) mod blas;
#[cfg(feature = "blas")]
mod blas_library;
mod blocks;
mod context;
pub(crate) mod cubin;
mod driver;
mod event;
mod fill;
mod function;
mod graph;
mod link;
pub(crate) mod nccl;
mod nvml;
pub(crate) mod nvrtc;
mod nvrtc_library;
mod peer;
mod pool;
mod properties;
pub(crate) mod ptxas;
pub(crate) mod sass;
mod staging;
mod status;
mod tensor;
pub(crate) mod tools;
mod topology;

use std::ffi::c_int;
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::{self, CUdevice, CUresult};

use crate::cuda::context::Context;
use crate::cuda::driver::CudaDriver;
use crate::cuda::status::{check, failure};
use crate::driver::Driver;
use crate::types::{DeviceListing, Topology};
use crate::{Error, Result};

/// CUDA 12.4, as the driver counts: the first with `cuFuncLoad`, which keeps lazy loading out of launches.
const OLDEST_DRIVER: c_int = 12_040;

/// Opens the CUDA device with that number.
pub(crate) fn open(ordinal: usize) -> Result<Box<dyn Driver>> {
    let count = initialize()?;
    if ordinal >= count {
        return Err(Error::NoSuchOrdinal { ordinal, count });
    }
    Ok(Box::new(CudaDriver::open(ordinal, device(ordinal)?)?))
}

/// All CUDA devices, with what each can address of the others. Opens none of them.
pub(crate) fn list_devices() -> Result<Vec<DeviceListing>> {
    let count = initialize()?;
    let devices = (0..count).map(device).collect::<Result<Vec<_>>>()?;
    (0..count)
        .map(|ordinal| {
            let properties = properties::read(ordinal, devices[ordinal])?;
            Ok(DeviceListing { properties, peers: peers(ordinal, &devices)? })
        })
        .collect()
}

/// How the cards are joined. Opens none of them.
pub(crate) fn topology() -> Result<Topology> {
    let devices = (0..initialize()?).map(device).collect::<Result<Vec<_>>>()?;
    topology::read(&devices)
}

/// One rank of NCCL for each of these, which must be different cards.
pub(crate) fn communicators(drivers: &[&dyn Driver]) -> Result<Vec<nccl::Communicator>> {
    let mut contexts: Vec<Arc<Context>> = Vec::new();
    for driver in drivers {
        let id = &driver.properties().id;
        let Some(card) = driver.as_any().downcast_ref::<CudaDriver>() else {
            return Err(Error::Nccl { reason: format!("{id} is no CUDA device") });
        };
        if contexts.iter().any(|seen| seen.device() == card.context().device()) {
            let reason = format!("it takes one rank a card, and {id} is a second one; use Fabric::over");
            return Err(Error::Nccl { reason });
        }
        contexts.push(card.context().clone());
    }
    nccl::Communicator::of(&contexts)
}

/// The CUDA version that the driver supports, as `13.0`.
pub(crate) fn driver_version() -> Result<String> {
    usable_driver().map(version_text)
}

/// Starts the driver and counts the cards; no card is an error like no driver.
fn initialize() -> Result<usize> {
    usable_driver()?;
    // SAFETY: the library is present; `cuInit` may be called any number of times, from any thread.
    match unsafe { sys::cuInit(0) } {
        CUresult::CUDA_SUCCESS => {}
        CUresult::CUDA_ERROR_NO_DEVICE => return Err(no_card()),
        status => return Err(unusable(&failure("cuInit", status))),
    }
    let mut count = 0;
    // SAFETY: `count` is written by the call.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
    match usize::try_from(count) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(no_card()),
    }
}

/// The driver's version, if the library is there and new enough. `cudarc` panics on a missing library or
/// function, so every way into the driver passes here first.
fn usable_driver() -> Result<c_int> {
    if !library_is_present() {
        let reason = "the driver library libcuda.so.1 was not found; install the NVIDIA driver, or in a container make \
                      the host's driver visible";
        return Err(Error::NoCuda { reason: reason.into() });
    }
    let mut version = 0;
    // SAFETY: the library is present, and `version` is written by the call, which needs no `cuInit`.
    let status = unsafe { sys::cuDriverGetVersion(&mut version) };
    check("cuDriverGetVersion", status).map_err(|error| unusable(&error))?;
    if version < OLDEST_DRIVER {
        let (found, needed) = (version_text(version), version_text(OLDEST_DRIVER));
        let reason =
            format!("the driver supports CUDA {found} and {needed} is needed; update the NVIDIA driver");
        return Err(Error::NoCuda { reason });
    }
    Ok(version)
}

fn library_is_present() -> bool {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: the driver library's initialisers may run at any time; opening it has no other effect.
    *PRESENT.get_or_init(|| unsafe { sys::is_culib_present() })
}

fn device(ordinal: usize) -> Result<CUdevice> {
    let mut device = 0;
    // SAFETY: `device` is written by the call; the ordinal was compared with the number of cards.
    check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, ordinal as c_int) })?;
    Ok(device)
}

fn peers(ordinal: usize, devices: &[CUdevice]) -> Result<Vec<usize>> {
    let mut peers = Vec::new();
    for other in (0..devices.len()).filter(|&other| other != ordinal) {
        if peer::can_access(devices[ordinal], devices[other])? {
            peers.push(other);
        }
    }
    Ok(peers)
}

fn no_card() -> Error {
    let reason = "the driver is installed, but it finds no NVIDIA card; is one fitted, visible in this container, and \
                  not hidden by CUDA_VISIBLE_DEVICES?";
    Error::NoCuda { reason: reason.into() }
}

fn unusable(error: &Error) -> Error {
    Error::NoCuda { reason: format!("the driver cannot be used: {error}") }
}

/// The driver writes 13.0 as 13000 and 12.4 as 12040.
fn version_text(version: c_int) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_people_write_them() {
        assert_eq!(version_text(13_000), "13.0");
        assert_eq!(version_text(OLDEST_DRIVER), "12.4");
    }

    #[test]
    #[ignore = "needs a machine without a CUDA driver"]
    fn a_machine_without_a_driver_gets_a_sentence_and_no_panic() {
        let errors = [open(0).err(), list_devices().err(), driver_version().err()];
        for error in errors {
            let error = error.expect("there is no driver");
            assert!(matches!(error, Error::NoCuda { .. }), "{error}");
            assert!(error.to_string().contains("install the NVIDIA driver"), "{error}");
        }
    }
}
