//! Inputs and oracles that several test files share.
#![allow(dead_code, reason = "every test file uses its own part")]

use gatework_gpu::{Device, Error, FaultKind, Grid, Kernel, Result, Source, Stream};

/// An emulated device with that schedule, and a stream of it.
pub fn emulated(seed: u64) -> (Device, Stream) {
    let device = Device::emulated(seed).unwrap();
    let stream = device.stream().unwrap();
    (device, stream)
}

/// The kernel of [`CHAIN`].
pub fn chain(device: &Device) -> Kernel {
    device.kernel(&Source::new("chain", CHAIN)).unwrap()
}

/// Whether the emulated device stopped it because nothing orders two uses of memory.
pub fn is_race<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::Fault(fault)) if fault.kind == FaultKind::Race)
}

/// One block of 64 threads.
pub fn grid() -> Grid {
    Grid::new([1, 1, 1], [64, 1, 1])
}

/// What [`CHAIN`] makes of a word.
pub fn step(x: u32, step: u32) -> u32 {
    x.wrapping_mul(1_664_525).wrapping_add(step)
}

/// Deterministic numbers in (-1, 1).
pub fn numbers(seed: u64, len: usize) -> Vec<f32> {
    words(seed, len).into_iter().map(|word| (word >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}

/// Deterministic words.
pub fn words(seed: u64, len: usize) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32
    };
    (0..len).map(|_| next()).collect()
}

/// `x[i] <- 1664525 x[i] + step`: the order of steps shows.
pub const CHAIN: &str = r#"
    #include "gw/gw.cuh"
    GW_KERNEL(chain)(u32* x, u32 step, u32 n) {
        const u32 i = (u32)gw::global_thread();
        if (i < n) x[i] = 1664525u * x[i] + step;
    }
"#;

/// `y <- a x + y`, elementwise.
pub const SAXPY: &str = r#"
    #include "gw/gw.cuh"
    GW_KERNEL(saxpy)(const f32* x, f32* y, f32 a, u64 n) {
        const u64 i = gw::global_thread();
        if (i < n) y[i] = a * x[i] + y[i];
    }
"#;
