//! Clocks, temperature and NVLinks through NVML, the management library that comes with the driver. All of it
//! is optional.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use libloading::Library;

use crate::types::{Clocks, NvLinks};

type Device = *mut c_void;
type Init = unsafe extern "C" fn() -> c_int;
type HandleByPciBusId = unsafe extern "C" fn(*const c_char, *mut Device) -> c_int;
type ReadSensor = unsafe extern "C" fn(Device, c_uint, *mut c_uint) -> c_int;

const SUCCESS: c_int = 0;
const CLOCK_SM: c_uint = 1;
const CLOCK_MEMORY: c_uint = 2;
const TEMPERATURE_GPU: c_uint = 0;
/// More than any card has: NVML refuses numbers beyond a card's last.
const MOST_LINKS: c_uint = 32;
const FEATURE_ENABLED: c_uint = 1;
const REMOTE_SWITCH: c_uint = 2;

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Default)]
struct PciInfo {
    bus_id_legacy: [u8; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    device_id: c_uint,
    subsystem_id: c_uint,
    bus_id: [u8; 32],
}

type RemotePci = unsafe extern "C" fn(Device, c_uint, *mut PciInfo) -> c_int;

/// One device as NVML sees it.
pub(super) struct Nvml {
    device: Device,
    clock: ReadSensor,
    temperature: ReadSensor,
    /// Ends what `nvmlInit` began, once a device.
    shutdown: Init,
    /// Keeps the functions above in memory.
    library: Library,
}

// SAFETY: NVML may be called from any thread, and its device handles belong to none.
unsafe impl Send for Nvml {}
// SAFETY: as above.
unsafe impl Sync for Nvml {}

impl Nvml {
    /// The device at that place of the bus; `None` if the library or anything in it is missing.
    pub(super) fn for_device(pci_bus_id: &str) -> Option<Self> {
        let pci_bus_id = CString::new(pci_bus_id).ok()?;
        // SAFETY: NVML's initialisers may run at any time.
        let library = unsafe { Library::new("libnvidia-ml.so.1") }.ok()?;
        // SAFETY: the types are those of nvml.h.
        let (init, shutdown, find, clock, temperature) = unsafe {
            (
                *library.get::<Init>(b"nvmlInit_v2").ok()?,
                *library.get::<Init>(b"nvmlShutdown").ok()?,
                *library.get::<HandleByPciBusId>(b"nvmlDeviceGetHandleByPciBusId_v2").ok()?,
                *library.get::<ReadSensor>(b"nvmlDeviceGetClockInfo").ok()?,
                *library.get::<ReadSensor>(b"nvmlDeviceGetTemperature").ok()?,
            )
        };
        // SAFETY: NVML counts its initialisations; this one is matched by the shutdown at drop.
        if unsafe { init() } != SUCCESS {
            return None;
        }
        let mut nvml = Self { device: ptr::null_mut(), clock, temperature, shutdown, library };
        // SAFETY: the name ends in NUL, and the handle is written by the call.
        let status = unsafe { find(pci_bus_id.as_ptr(), &mut nvml.device) };
        (status == SUCCESS).then_some(nvml)
    }

    pub(super) fn clocks(&self) -> Option<Clocks> {
        Some(Clocks {
            sm_mhz: self.read(self.clock, CLOCK_SM)?,
            memory_mhz: self.read(self.clock, CLOCK_MEMORY)?,
            celsius: self.read(self.temperature, TEMPERATURE_GPU)?,
        })
    }

    /// The NVLinks that are up; `None` where NVML cannot say.
    pub(super) fn links(&self) -> Option<NvLinks> {
        // SAFETY: the types are those of nvml.h, and the library lives as long as this.
        let (state, kind, pci) = unsafe {
            (
                *self.library.get::<ReadSensor>(b"nvmlDeviceGetNvLinkState").ok()?,
                *self.library.get::<ReadSensor>(b"nvmlDeviceGetNvLinkRemoteDeviceType").ok()?,
                *self.library.get::<RemotePci>(b"nvmlDeviceGetNvLinkRemotePciInfo_v2").ok()?,
            )
        };
        let mut links = NvLinks::default();
        for link in (0..MOST_LINKS).filter(|&link| self.read(state, link) == Some(FEATURE_ENABLED)) {
            links.active += 1;
            if self.read(kind, link) == Some(REMOTE_SWITCH) {
                links.to_switches += 1;
                continue;
            }
            let mut info = PciInfo::default();
            // SAFETY: NVML is initialised, the handle is its own, and `info` is written by the call.
            if unsafe { pci(self.device, link, &mut info) } == SUCCESS {
                // As the driver writes it.
                links.remotes.push(format!("{:04x}:{:02x}:{:02x}.0", info.domain, info.bus, info.device));
            }
        }
        Some(links)
    }

    fn read(&self, sensor: ReadSensor, which: c_uint) -> Option<u32> {
        let mut value = 0;
        // SAFETY: NVML is initialised, the handle is its own, and `value` is written by the call.
        let status = unsafe { sensor(self.device, which, &mut value) };
        (status == SUCCESS).then_some(value)
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: matches the initialisation in `for_device`. Whether it succeeds changes nothing.
        let _ = unsafe { (self.shutdown)() };
    }
}
