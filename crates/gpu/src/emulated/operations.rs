//! What the codes of kernels compute: atomics, conversions, pairs of halves.

use super::formats;
use crate::abi::{AtomicOp, Conversion, Format, HalfPairOp, WgmmaCall};
use crate::shared::Code as _;

impl AtomicOp {
    pub(super) fn reads(self) -> bool {
        self != Self::Store
    }

    pub(super) fn writes(self) -> bool {
        self != Self::Load
    }

    /// Whether the hardware does it on another block's shared memory.
    pub(super) fn reaches_other_blocks(self, bytes: usize) -> bool {
        match self {
            Self::Load | Self::Store | Self::Cas => true,
            Self::AddF32 | Self::AddF64 | Self::AddF16Pair | Self::AddBf16Pair => false,
            _ => bytes == 4,
        }
    }

    /// The value after, from the value before.
    pub(super) fn apply(self, before: u64, value: u64, compare: u64, bytes: usize) -> u64 {
        let signed = |x: u64| if bytes == 4 { i64::from(x as u32 as i32) } else { x as i64 };
        let float = |x: u64| f32::from_bits(x as u32);
        let after = match self {
            Self::Load => before,
            Self::Store | Self::Exchange => value,
            Self::Cas if before == compare => value,
            Self::Cas => before,
            Self::Add => before.wrapping_add(value),
            Self::MinU => before.min(value),
            Self::MaxU => before.max(value),
            Self::MinS if signed(value) < signed(before) => value,
            Self::MaxS if signed(value) > signed(before) => value,
            Self::MinS | Self::MaxS => before,
            Self::And => before & value,
            Self::Or => before | value,
            Self::Xor => before ^ value,
            Self::AddF32 => u64::from((float(before) + float(value)).to_bits()),
            Self::AddF64 => (f64::from_bits(before) + f64::from_bits(value)).to_bits(),
            Self::AddF16Pair => each_half(before, value, |a, b| HalfPairOp::Add.apply(a, b, 0)),
            // The sum in f32 has over twice the bits: rounded once more it is rounded right.
            Self::AddBf16Pair => each_half(before, value, |a, b| {
                formats::f32_to_bf16(formats::bf16_to_f32(a) + formats::bf16_to_f32(b))
            }),
            Self::Inc if before >= value => 0,
            Self::Inc => before + 1,
            Self::Dec if before == 0 || before > value => value,
            Self::Dec => before - 1,
        };
        if bytes == 4 { after & 0xFFFF_FFFF } else { after }
    }
}

/// `f` on the low halves and on the high halves of two words.
fn each_half(a: u64, b: u64, f: impl Fn(u16, u16) -> u16) -> u64 {
    let half = |at: u32| u64::from(f((a >> at) as u16, (b >> at) as u16)) << at;
    half(0) | half(16)
}

impl Conversion {
    pub(super) fn apply(self, bits: u32) -> u32 {
        let (float, half, byte) = (f32::from_bits(bits), bits as u16, bits as u8);
        match self {
            Self::F32ToF16 => formats::f32_to_f16(float).into(),
            Self::F16ToF32 => formats::f16_to_f32(half).to_bits(),
            Self::F32ToBf16 => formats::f32_to_bf16(float).into(),
            Self::Bf16ToF32 => formats::bf16_to_f32(half).to_bits(),
            Self::F32ToE4m3 => formats::f32_to_e4m3(float).into(),
            Self::F32ToE5m2 => formats::f32_to_e5m2(float).into(),
            Self::E4m3ToF16 => formats::f32_to_f16(formats::e4m3_to_f32(byte)).into(),
            Self::E5m2ToF16 => formats::f32_to_f16(formats::e5m2_to_f32(byte)).into(),
            Self::F16ToE4m3 => formats::f32_to_e4m3(formats::f16_to_f32(half)).into(),
            Self::F16ToE5m2 => formats::f32_to_e5m2(formats::f16_to_f32(half)).into(),
        }
    }
}

impl HalfPairOp {
    pub(super) fn apply(self, a: u16, b: u16, c: u16) -> u16 {
        let value = |bits| f64::from(formats::f16_to_f32(bits));
        let (a, b, c) = (value(a), value(b), value(c));
        // Products of two f16 are exact in f64, and so are their sums but for sizes that differ by over 2^31.
        let exact = match self {
            Self::Add => a + b,
            Self::Multiply => a * b,
            Self::Fma => a * b + c,
            Self::FmaRelu => (a * b + c).max(0.0),
            Self::Maximum => a.max(b),
        };
        formats::f64_to_f16(exact)
    }
}

impl WgmmaCall {
    /// 32-bit registers that hold a lane's accumulators.
    pub(super) fn registers(&self) -> usize {
        if self.half_accumulators != 0 { self.n as usize / 4 } else { self.n as usize / 2 }
    }

    /// The format, whose code was checked when the call came.
    pub(super) fn format(&self) -> Format {
        Format::from_code(self.format).unwrap_or_else(|| unreachable!("wgmma checks the code"))
    }

    /// Whether two lanes issue the same instruction; registers are each lane's own.
    pub(super) fn same_instruction(&self, other: &Self) -> bool {
        let fields = |call: &Self| {
            (
                (call.format, call.n, call.a_in_registers, call.accumulate),
                (call.transpose_a, call.transpose_b, call.half_accumulators),
                (call.a_descriptor, call.b_descriptor),
            )
        };
        fields(self) == fields(other)
    }
}

/// # Safety
/// `pointer` is valid and aligned for `bytes`, 4 or 8.
pub(super) unsafe fn read_word(pointer: *const u8, bytes: usize) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { if bytes == 4 { u64::from(pointer.cast::<u32>().read()) } else { pointer.cast::<u64>().read() } }
}

/// # Safety
/// `pointer` is valid and aligned for `bytes`, 4 or 8.
pub(super) unsafe fn write_word(pointer: *mut u8, bytes: usize, value: u64) {
    // SAFETY: as the caller promises.
    unsafe {
        if bytes == 4 {
            pointer.cast::<u32>().write(value as u32);
        } else {
            pointer.cast::<u64>().write(value);
        }
    }
}
