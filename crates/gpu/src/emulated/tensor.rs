//! Number formats of the tensor cores, fragments, and products with full FP32 (or 32-bit integer) accumulators.

use crate::abi::Format;

use super::formats::{bf16_to_f32, e4m3_to_f32, e5m2_to_f32, f16_to_f32, f32_to_f16};

impl Format {
    /// Elements of K that one instruction takes: 32 bytes' worth.
    pub(super) fn depth(self) -> usize {
        32 / self.bytes()
    }

    pub(super) fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::E4m3 | Self::E5m2 | Self::S8 => 1,
        }
    }

    pub(super) fn per_word(self) -> usize {
        4 / self.bytes()
    }

    /// Elements of a register, lowest first. Small integers are exact in f32.
    pub(super) fn decode_word(self, word: u32) -> impl Iterator<Item = f32> {
        let bytes = word.to_le_bytes();
        (0..self.per_word()).map(move |i| self.decode(&bytes[i * self.bytes()..]))
    }

    /// The element at the start of `bytes`.
    pub(super) fn decode(self, bytes: &[u8]) -> f32 {
        match self {
            Self::F16 => f16_to_f32(u16::from_le_bytes([bytes[0], bytes[1]])),
            Self::Bf16 => bf16_to_f32(u16::from_le_bytes([bytes[0], bytes[1]])),
            Self::E4m3 => E4M3_VALUES[usize::from(bytes[0])],
            Self::E5m2 => e5m2_to_f32(bytes[0]),
            Self::S8 => f32::from(bytes[0] as i8),
        }
    }
}

/// All values of e4m3: attention decodes millions.
static E4M3_VALUES: std::sync::LazyLock<[f32; 256]> =
    std::sync::LazyLock::new(|| std::array::from_fn(|code| e4m3_to_f32(code as u8)));

/// Puts a lane's four A registers into the 16 x depth matrix of its warp.
pub(super) fn unpack_a(format: Format, lane: usize, registers: &[u32; 4], a: &mut [f32]) {
    let depth = format.depth();
    for (i, &word) in registers.iter().enumerate() {
        let row = lane / 4 + 8 * (i % 2);
        let k = (i / 2) * depth / 2 + (lane % 4) * format.per_word();
        for (j, value) in format.decode_word(word).enumerate() {
            a[row * depth + k + j] = value;
        }
    }
}

/// `c + a . b`, on the bits of an accumulator.
pub(super) fn accumulate(format: Format, c: u32, a: &[f32], b: &[f32]) -> u32 {
    if format == Format::S8 {
        let sum: i32 = a.iter().zip(b).map(|(&a, &b)| a as i32 * b as i32).sum();
        return (c as i32).wrapping_add(sum) as u32;
    }
    (f32::from_bits(c) + dot(a, b)).to_bits()
}

/// Two f16 accumulators of one register: `sum(0, …)` and `sum(1, …)` add to the bits of an f32.
pub(super) fn accumulate_halves(halves: u32, sum: impl Fn(usize, u32) -> u32) -> u32 {
    let [low, high] = [0, 1].map(|half| {
        let start = f16_to_f32((halves >> (16 * half)) as u16);
        u32::from(f32_to_f16(f32::from_bits(sum(half, start.to_bits()))))
    });
    low | high << 16
}

/// Four sums side by side, so that the compiler can use vector registers; `a` and `b` are a multiple of 16 long.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 8];
    for (a, b) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    sums.iter().sum()
}
