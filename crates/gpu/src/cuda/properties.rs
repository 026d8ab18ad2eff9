//! What a CUDA device is, read from the driver without opening the device.

use std::ffi::{CStr, c_char, c_int};

use cudarc::driver::sys::{self, CUdevice, CUdevice_attribute as Attribute};

use crate::Result;
use crate::cuda::driver_version;
use crate::cuda::status::check;
use crate::types::{Architecture, DeviceProperties, Kind};

/// Compute capabilities whose `a` variant has instructions the plain one lacks: `wgmma`, `setmaxnreg`,
/// `tcgen05`.
const ACCELERATED: [(u32, u32); 4] = [(9, 0), (10, 0), (10, 3), (12, 0)];

pub(super) fn read(ordinal: usize, device: CUdevice) -> Result<DeviceProperties> {
    let number = |attribute| attribute_of(device, attribute);
    let known = |attribute| number(attribute).map(|value| Some(value).filter(|&value| value > 0));
    let megahertz = |attribute| known(attribute).map(|kilohertz| kilohertz.map(|kilohertz| kilohertz / 1000));
    let compute_capability = (
        number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    );
    Ok(DeviceProperties {
        kind: Kind::Cuda,
        id: format!("cuda:{ordinal}"),
        name: name(device)?,
        compute_capability,
        architecture: architecture(compute_capability),
        multiprocessors: number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        shared_memory_per_block: number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        shared_memory_per_multiprocessor: number(
            Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
        )?,
        registers_per_block: number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK)?,
        l2_bytes: number(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
        memory_bytes: memory_bytes(device)?,
        max_clock_mhz: megahertz(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
        max_memory_clock_mhz: megahertz(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?,
        memory_bus_bits: known(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?,
        multi_process_service: number(Attribute::CU_DEVICE_ATTRIBUTE_MPS_ENABLED)? != 0,
        driver: driver_version()?,
    })
}

/// Whether the card reads ordinary host memory by itself, page by page, instead of through staging buffers.
pub(super) fn reads_pageable_memory(device: CUdevice) -> Result<bool> {
    Ok(attribute_of(device, Attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)? != 0)
}

/// The card's place on the bus, as `0000:65:00.0`: the one name that NVML knows it by as well.
pub(super) fn pci_bus_id(device: CUdevice) -> Result<String> {
    let mut text = [0; 64];
    // SAFETY: the call writes at most `len` characters, ending in NUL.
    let status = unsafe { sys::cuDeviceGetPCIBusId(text.as_mut_ptr(), text.len() as c_int, device) };
    check("cuDeviceGetPCIBusId", status)?;
    Ok(text_of(&text))
}

fn attribute_of(device: CUdevice, attribute: Attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: `value` is written by the call; `device` came from `cuDeviceGet`.
    check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) })?;
    Ok(value.try_into().unwrap_or(0))
}

fn memory_bytes(device: CUdevice) -> Result<u64> {
    let mut bytes = 0;
    // SAFETY: `bytes` is written by the call; `device` came from `cuDeviceGet`.
    check("cuDeviceTotalMem", unsafe { sys::cuDeviceTotalMem_v2(&mut bytes, device) })?;
    Ok(bytes as u64)
}

fn name(device: CUdevice) -> Result<String> {
    let mut text = [0; 256];
    // SAFETY: the call writes at most `len` characters, ending in NUL.
    let status = unsafe { sys::cuDeviceGetName(text.as_mut_ptr(), text.len() as c_int, device) };
    check("cuDeviceGetName", status)?;
    Ok(text_of(&text))
}

fn text_of(characters: &[c_char]) -> String {
    let bytes: &[u8] = bytemuck::cast_slice(characters);
    CStr::from_bytes_until_nul(bytes)
        .map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned())
}

fn architecture((major, minor): (u32, u32)) -> Architecture {
    let suffix = if ACCELERATED.contains(&(major, minor)) { "a" } else { "" };
    Architecture::Sm(format!("sm_{major}{minor}{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_are_named_as_the_compiler_names_them() {
        let named = |major, minor| architecture((major, minor)).to_string();
        assert_eq!(named(8, 6), "sm_86");
        assert_eq!(named(9, 0), "sm_90a");
        assert_eq!(named(10, 3), "sm_103a");
        assert_eq!(named(12, 0), "sm_120a");
    }

    #[test]
    fn text_ends_at_the_first_nul() {
        let characters = [b'H', b'2', 0, b'x'].map(|byte| byte as c_char);
        assert_eq!(text_of(&characters), "H2");
        assert_eq!(text_of(&[]), "");
    }
}
