//! The least time that the machine allows: memory at the speed of its own copies, arithmetic at its stated
//! peak.

use gatework_gpu::DeviceProperties;
use serde::{Deserialize, Serialize};

use crate::case::Work;

/// Which units do the operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arithmetic {
    /// Single precision on the ordinary units, a fused multiply-add as two.
    F32,
    /// 32-bit integers on the ordinary units, a multiply-add as two.
    Integer32,
    /// Half precision or bf16 on the tensor cores, dense.
    TensorF16,
    /// e4m3 or e5m2 on the tensor cores, dense.
    TensorFp8,
}

/// Operations a clock and multiprocessor.
struct PerClock {
    compute_capability: (u32, u32),
    arithmetic: Arithmetic,
    operations: u32,
}

const fn per_clock(compute_capability: (u32, u32), arithmetic: Arithmetic, operations: u32) -> PerClock {
    PerClock { compute_capability, arithmetic, operations }
}

/// From NVIDIA's architecture papers. A card that is not here has no stated peak.
const PER_CLOCK: [PerClock; 8] = [
    per_clock((9, 0), Arithmetic::F32, 256),
    per_clock((9, 0), Arithmetic::Integer32, 128),
    per_clock((9, 0), Arithmetic::TensorF16, 4096),
    per_clock((9, 0), Arithmetic::TensorFp8, 8192),
    per_clock((8, 9), Arithmetic::F32, 256),
    per_clock((8, 9), Arithmetic::Integer32, 128),
    per_clock((8, 9), Arithmetic::TensorF16, 1024),
    per_clock((8, 9), Arithmetic::TensorFp8, 2048),
];

impl Arithmetic {
    /// Operations a second at the highest clock, where they are known.
    pub fn peak(self, device: &DeviceProperties) -> Option<f64> {
        let found = PER_CLOCK.iter().find(|entry| {
            entry.compute_capability == device.compute_capability && entry.arithmetic == self
        })?;
        let clock = f64::from(device.max_clock_mhz?) * 1e6;
        Some(f64::from(found.operations) * f64::from(device.multiprocessors) * clock)
    }
}

/// The resource that sets the floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Bytes over the bandwidth of a copy.
    Memory,
    /// Operations over the peak.
    Compute,
    /// Bytes from the host over the bandwidth of an upload.
    Link,
}

/// How far a time is from the least the machine allows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Roofline {
    /// The least time.
    pub floor_ns: f64,
    /// The resource that sets it.
    pub bound: Bound,
    /// The median over the floor. Below 1 the work was overstated, or the copy is not the best the memory can
    /// do.
    pub ratio_to_floor: f64,
    /// Stated operations a second, if the floor took them into account.
    pub peak_operations_per_second: Option<f64>,
    /// Bytes a second of a device-to-device copy in the same run.
    pub copy_bytes_per_second: f64,
    /// Bytes a second from page-locked host memory in the same run, if the floor took them into account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_bytes_per_second: Option<f64>,
}

impl Roofline {
    /// Where a median of `median_ns` for `work` stands.
    pub fn new(work: Work, median_ns: f64, copy_bytes_per_second: f64, peak: Option<f64>) -> Option<Self> {
        let memory_ns = 1e9 * work.bytes as f64 / copy_bytes_per_second;
        let compute_ns = peak.map_or(0.0, |peak| 1e9 * work.operations as f64 / peak);
        let floor_ns = memory_ns.max(compute_ns);
        let ratio_to_floor = median_ns / floor_ns;
        ratio_to_floor.is_finite().then_some(Self {
            floor_ns,
            bound: if compute_ns > memory_ns { Bound::Compute } else { Bound::Memory },
            ratio_to_floor,
            peak_operations_per_second: peak,
            copy_bytes_per_second,
            link_bytes_per_second: None,
        })
    }

    /// With `bytes` that must come over a link of `bytes_per_second`, which sets the floor where it takes
    /// longer.
    pub fn over_link(self, bytes: u64, bytes_per_second: f64) -> Self {
        let link_ns = 1e9 * bytes as f64 / bytes_per_second;
        let limited = Self { link_bytes_per_second: Some(bytes_per_second), ..self };
        if link_ns <= self.floor_ns {
            return limited;
        }
        let ratio_to_floor = self.ratio_to_floor * self.floor_ns / link_ns;
        Self { floor_ns: link_ns, bound: Bound::Link, ratio_to_floor, ..limited }
    }
}

#[cfg(test)]
mod tests {
    use gatework_gpu::{Architecture, Kind};

    use super::*;

    fn h200() -> DeviceProperties {
        DeviceProperties {
            kind: Kind::Cuda,
            id: "cuda:0".into(),
            name: "NVIDIA H200".into(),
            compute_capability: (9, 0),
            architecture: Architecture::Sm("sm_90a".into()),
            multiprocessors: 132,
            shared_memory_per_block: 232_448,
            shared_memory_per_multiprocessor: 233_472,
            registers_per_block: 65536,
            l2_bytes: 50 << 20,
            memory_bytes: 141 << 30,
            max_clock_mhz: Some(1980),
            max_memory_clock_mhz: Some(3201),
            memory_bus_bits: Some(6144),
            multi_process_service: false,
            driver: "13.0".into(),
        }
    }

    #[test]
    fn the_peak_of_a_hopper_card_is_the_data_sheets() {
        // The data sheet states 1979 TFLOP/s of dense fp8 at 1830 MHz.
        let at_1830 = DeviceProperties { max_clock_mhz: Some(1830), ..h200() };
        let peak = Arithmetic::TensorFp8.peak(&at_1830).unwrap();
        assert!((peak / 1e12 - 1979.0).abs() < 1.0, "{peak}");
        assert_eq!(Arithmetic::F32.peak(&DeviceProperties { compute_capability: (7, 5), ..h200() }), None);
    }

    #[test]
    fn the_slower_of_memory_and_arithmetic_is_the_floor() {
        let bytes = Work { operations: 10, bytes: 4_000 };
        let roofline = Roofline::new(bytes, 2.0, 4e12, Some(1e12)).unwrap();
        assert_eq!((roofline.bound, roofline.floor_ns, roofline.ratio_to_floor), (Bound::Memory, 1.0, 2.0));
        let operations = Work { operations: 4_000, bytes: 4_000 };
        let roofline = Roofline::new(operations, 8.0, 4e12, Some(1e12)).unwrap();
        assert_eq!((roofline.bound, roofline.floor_ns, roofline.ratio_to_floor), (Bound::Compute, 4.0, 2.0));
    }

    #[test]
    fn no_work_has_no_floor() {
        assert_eq!(Roofline::new(Work { operations: 0, bytes: 0 }, 1.0, 4e12, None), None);
    }

    #[test]
    fn a_link_sets_the_floor_where_it_takes_longer() {
        let work = Work { operations: 0, bytes: 4000 };
        let roofline = Roofline::new(work, 10.0, 4e12, None).unwrap();
        let by_link = roofline.over_link(250, 50e9);
        assert_eq!((by_link.bound, by_link.floor_ns, by_link.ratio_to_floor), (Bound::Link, 5.0, 2.0));
        let by_memory = roofline.over_link(25, 50e9);
        assert_eq!(
            (by_memory.bound, by_memory.floor_ns, by_memory.ratio_to_floor),
            (Bound::Memory, 1.0, 10.0)
        );
    }
}
