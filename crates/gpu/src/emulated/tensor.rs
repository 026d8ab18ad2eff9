//! Number formats of the tensor cores, fragments, and sums of products bit for bit as Hopper makes them.
//!
//! One instruction adds all its products to the accumulator at once. Each term has the exponent of its
//! factors' codes, added up; the largest of a term that is not zero decides where all of them are cut off,
//! towards zero, so many bits below it. What is left is added without rounding and cut off once more for the
//! accumulator (rounded to nearest for f16). Sums that vanish are +0. MMA-Sim (arXiv 2511.10909) describes
//! such models; the workload `gpu/tensor-sums` compares this one with the card.

use crate::abi::Format;

use super::formats::{bf16_to_f32, e4m3_to_f32, e5m2_to_f32, f16_to_f32, f64_to_f16, power_of_two};

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
            Self::E4m3 => E4M3_ELEMENTS[usize::from(bytes[0])].0,
            Self::E5m2 => e5m2_to_f32(bytes[0]),
            Self::S8 => f32::from(bytes[0] as i8),
        }
    }
}

/// All values of e4m3, and their powers: attention decodes millions.
static E4M3_ELEMENTS: std::sync::LazyLock<[(f32, f32); 256]> = std::sync::LazyLock::new(|| {
    std::array::from_fn(|code| {
        let value = e4m3_to_f32(code as u8);
        (value, Adder::Fused(Format::E4m3).power(value))
    })
});

/// How one instruction adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Adder {
    /// A warpgroup's product, or a warp's of 16-bit floats.
    Fused(Format),
    /// A warp's product of 8-bit floats. Hopper has none: it makes two products of f16 out of it, of the
    /// first and of the last two elements of every four, and adds their sum to the accumulator as any two
    /// floats.
    Widened(Format),
}

/// What a NaN of a sum looks like.
const NAN: u32 = 0x7FFF_FFFF;

impl Adder {
    /// The adder of `mma.sync`.
    pub(super) fn of_warp(format: Format) -> Self {
        match format {
            Format::E4m3 | Format::E5m2 => Self::Widened(format),
            Format::F16 | Format::Bf16 | Format::S8 => Self::Fused(format),
        }
    }

    fn format(self) -> Format {
        match self {
            Self::Fused(format) | Self::Widened(format) => format,
        }
    }

    /// The exponent of subnormal numbers.
    fn least_exponent(self) -> i32 {
        match self {
            Self::Fused(Format::E4m3) => -6,
            Self::Fused(Format::Bf16) => -126,
            _ => -14,
        }
    }

    /// Bits that terms keep below the largest exponent.
    fn term_bits(self) -> i32 {
        match self {
            Self::Fused(Format::E4m3 | Format::E5m2) => 13,
            _ => 25,
        }
    }

    /// Bits that an f32 accumulator keeps below its leading one.
    fn sum_bits(self) -> i32 {
        match self {
            Self::Fused(Format::E4m3 | Format::E5m2) => 13,
            _ => 23,
        }
    }

    /// The power of two that an element's exponent stands for; zero for zero, and for what is not finite.
    fn power(self, value: f32) -> f32 {
        if value == 0.0 || !value.is_finite() {
            return 0.0;
        }
        power_of_two(exponent(value).max(self.least_exponent())) as f32
    }

    /// Where element `k` of a row is kept: elements that are added at once lie side by side.
    fn place(self, k: usize) -> usize {
        match self {
            Self::Widened(_) => k % 4 / 2 * 16 + k / 4 * 2 + k % 2,
            Self::Fused(_) => k,
        }
    }

    /// `c + a . b`, on the bits of an accumulator of 32 bits.
    pub(super) fn accumulate(self, c: u32, a: Row<'_>, b: Row<'_>) -> u32 {
        match self {
            Self::Fused(Format::S8) => {
                let products = a.values.iter().zip(b.values).map(|(&a, &b)| a as i32 * b as i32);
                (c as i32).wrapping_add(products.sum()) as u32
            }
            Self::Fused(_) => self.sum(f32::from_bits(c), a, b).to_f32(self.sum_bits()),
            Self::Widened(_) => {
                let first = self.sum(0.0, a.half(0), b.half(0)).to_f32(self.sum_bits());
                let both = self.sum(f32::from_bits(first), a.half(1), b.half(1)).to_f32(self.sum_bits());
                let sum = f32::from_bits(c) + f32::from_bits(both);
                if sum.is_nan() { NAN } else { sum.to_bits() }
            }
        }
    }

    /// Two f16 accumulators of one register, of columns `b[0]` and `b[1]`.
    pub(super) fn accumulate_halves(self, halves: u32, a: Row<'_>, b: [Row<'_>; 2]) -> u32 {
        let [low, high] = [0, 1].map(|half| {
            let start = f16_to_f32((halves >> (16 * half)) as u16);
            u32::from(self.sum(start, a, b[half]).to_f16())
        });
        low | high << 16
    }

    fn sum(self, c: f32, a: Row<'_>, b: Row<'_>) -> Sum {
        if a.special || b.special || !c.is_finite() {
            let products = a.values.iter().zip(b.values).map(|(&a, &b)| f64::from(a) * f64::from(b));
            return Sum::Special(products.sum::<f64>() + f64::from(c));
        }
        match self.format() {
            // Products of two brain floats leave the range of f32.
            Format::Bf16 => self.finite::<f64>(c, a, b),
            _ => self.finite::<f32>(c, a, b),
        }
    }

    fn finite<F: Lane>(self, c: f32, a: Row<'_>, b: Row<'_>) -> Sum {
        let power = F::largest(a.powers, b.powers);
        let of_c = (c != 0.0).then(|| exponent(c).max(-126));
        let largest = power.map(F::exponent).max(of_c);
        let Some(largest) = largest else { return Sum::Finite { steps: 0, unit: 0 } };
        let unit = largest - self.term_bits();
        let products = match power {
            Some(_) => F::cut_products(a.values, b.values, -unit),
            None => 0,
        };
        // Below 2^26: no term is larger than the largest exponent says.
        let start = (f64::from(c) * power_of_two(-unit)) as i64;
        Sum::Finite { steps: i64::from(products) + start, unit }
    }
}

/// A sum before it is brought into the accumulator's format.
enum Sum {
    /// So many steps of two to the power of `unit`.
    Finite { steps: i64, unit: i32 },
    /// An infinity or a NaN took part.
    Special(f64),
}

impl Sum {
    /// Cut off `bits` below the leading one, or below that of the smallest normal number.
    fn to_f32(&self, bits: i32) -> u32 {
        let (steps, unit) = match *self {
            Self::Special(value) if value.is_nan() => return NAN,
            Self::Special(value) => return (value as f32).to_bits(),
            Self::Finite { steps: 0, .. } => return 0,
            Self::Finite { steps, unit } => (steps, unit),
        };
        let sign = u32::from(steps < 0) << 31;
        let magnitude = steps.unsigned_abs();
        let exponent = magnitude.ilog2() as i32 + unit;
        if exponent > 127 {
            return sign | f32::INFINITY.to_bits();
        }
        let exponent = exponent.max(-126);
        let shift = bits - (exponent - unit);
        let mantissa = if shift >= 0 {
            magnitude << shift
        } else {
            magnitude.checked_shr(shift.unsigned_abs()).unwrap_or(0)
        };
        match (mantissa as u32) << (23 - bits) {
            0 => 0,
            // The leading one of a normal number counts the exponent up by itself.
            mantissa => sign | ((((exponent + 126) as u32) << 23) + mantissa),
        }
    }

    /// Rounded to nearest.
    fn to_f16(&self) -> u16 {
        match *self {
            Self::Special(value) => f64_to_f16(value),
            Self::Finite { steps, unit } => f64_to_f16(steps as f64 * power_of_two(unit)),
        }
    }
}

/// The exponent of a number that is not zero, as its bits have it.
fn exponent(value: f32) -> i32 {
    (value.to_bits() >> 23 & 0xFF) as i32 - 127
}

/// Floats that products of one format are exact in.
trait Lane: Copy + PartialOrd {
    /// The largest product of two powers of two, if one is not zero.
    fn largest(a: &[f32], b: &[f32]) -> Option<Self>;
    fn exponent(self) -> i32;
    /// The sum of products times two to the power of `scale`, each cut off to an integer. Each is below 2^27
    /// and there are at most 16, or below 2^15.
    fn cut_products(a: &[f32], b: &[f32], scale: i32) -> i32;
}

/// Lanes that are worked on at once, so that the compiler can use vector registers. Rows are a multiple of 8
/// long.
const LANES: usize = 8;

macro_rules! lane {
    ($float:ty, $bits:ty, $mantissa:literal, $mask:literal, $bias:literal) => {
        impl Lane for $float {
            #[inline(always)]
            fn largest(a: &[f32], b: &[f32]) -> Option<Self> {
                let mut largest = [0 as Self; LANES];
                for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
                    for i in 0..LANES {
                        let power = Self::from(a[i]) * Self::from(b[i]);
                        largest[i] = if power > largest[i] { power } else { largest[i] };
                    }
                }
                let largest = largest.into_iter().fold(0 as Self, Self::max);
                (largest > 0 as Self).then_some(largest)
            }

            fn exponent(self) -> i32 {
                (self.to_bits() >> $mantissa & $mask) as i32 - $bias
            }

            #[inline(always)]
            fn cut_products(a: &[f32], b: &[f32], scale: i32) -> i32 {
                let scale = Self::from_bits(((scale + $bias) as $bits) << $mantissa);
                let mut sums = [0i32; LANES];
                for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
                    for i in 0..LANES {
                        let steps = Self::from(a[i]) * Self::from(b[i]) * scale;
                        // SAFETY: below 2^27, because no product is larger than four times its power of two.
                        sums[i] += unsafe { steps.to_int_unchecked::<i32>() };
                    }
                }
                sums.iter().sum()
            }
        }
    };
}

lane!(f32, u32, 23, 0xFF, 127);
lane!(f64, u64, 52, 0x7FF, 1023);

/// The rows of an operand: of A, or the columns of B.
pub(super) struct Matrix {
    adder: Adder,
    values: Vec<f32>,
    /// Of each element the power of two that its exponent stands for, or zero.
    powers: Vec<f32>,
    /// Rows with an infinity or a NaN.
    special: Vec<bool>,
}

impl Matrix {
    pub(super) fn new(adder: Adder, rows: usize) -> Self {
        let elements = rows * adder.format().depth();
        Self { adder, values: vec![0.0; elements], powers: vec![0.0; elements], special: vec![false; rows] }
    }

    #[inline]
    pub(super) fn set(&mut self, row: usize, k: usize, value: f32) {
        let at = row * self.adder.format().depth() + self.adder.place(k);
        self.values[at] = value;
        self.powers[at] = self.adder.power(value);
        self.special[row] |= !value.is_finite();
    }

    /// The elements from `k` on of a row, from their bytes.
    #[inline]
    pub(super) fn set_run(&mut self, row: usize, k: usize, bytes: &[u8]) {
        let format = self.adder.format();
        if self.adder == Adder::Fused(Format::E4m3) {
            let at = row * format.depth() + k;
            let places = self.values[at..].iter_mut().zip(&mut self.powers[at..]);
            for (&code, (value, power)) in bytes.iter().zip(places) {
                (*value, *power) = E4M3_ELEMENTS[usize::from(code)];
                self.special[row] |= code & 0x7F == 0x7F;
            }
            return;
        }
        for (i, code) in bytes.chunks_exact(format.bytes()).enumerate() {
            self.set(row, k + i, format.decode(code));
        }
    }

    /// Puts a lane's four A registers in their place: 16 rows of a warp.
    pub(super) fn set_fragment(&mut self, lane: usize, registers: &[u32; 4]) {
        let format = self.adder.format();
        for (i, &word) in registers.iter().enumerate() {
            let row = lane / 4 + 8 * (i % 2);
            let k = (i / 2) * format.depth() / 2 + (lane % 4) * format.per_word();
            for (j, value) in format.decode_word(word).enumerate() {
                self.set(row, k + j, value);
            }
        }
    }

    pub(super) fn row(&self, row: usize) -> Row<'_> {
        let depth = self.adder.format().depth();
        let at = row * depth..(row + 1) * depth;
        Row { values: &self.values[at.clone()], powers: &self.powers[at], special: self.special[row] }
    }
}

/// A run of elements that are added at once.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    values: &'a [f32],
    powers: &'a [f32],
    special: bool,
}

impl<'a> Row<'a> {
    fn half(self, half: usize) -> Self {
        let middle = self.values.len() / 2;
        let at = half * middle..(half + 1) * middle;
        Self { values: &self.values[at.clone()], powers: &self.powers[at], ..self }
    }
}
