//! The small number formats, bit for bit as the hardware rounds them: to nearest, ties to even.

/// A floating-point format of at most 16 bits.
struct Format {
    exponent_bits: u32,
    mantissa_bits: u32,
    /// Bits of the largest finite value, without the sign.
    largest: u32,
    /// What becomes of a value beyond the largest: saturated, or this (infinity).
    overflow: Option<u32>,
    nan: u32,
}

const F16: Format =
    Format { exponent_bits: 5, mantissa_bits: 10, largest: 0x7BFF, overflow: Some(0x7C00), nan: 0x7FFF };
const BF16: Format =
    Format { exponent_bits: 8, mantissa_bits: 7, largest: 0x7F7F, overflow: Some(0x7F80), nan: 0x7FFF };
const E4M3: Format = Format { exponent_bits: 4, mantissa_bits: 3, largest: 0x7E, overflow: None, nan: 0x7F };
const E5M2: Format = Format { exponent_bits: 5, mantissa_bits: 2, largest: 0x7B, overflow: None, nan: 0x7F };

/// From here on f64 has integers alone.
const INTEGERS: f64 = (1u64 << 52) as f64;

impl Format {
    fn encode(&self, value: f64) -> u32 {
        let bits = value.to_bits();
        let sign = ((bits >> 63) as u32) << (self.exponent_bits + self.mantissa_bits);
        if value.is_nan() {
            // The hardware answers with one NaN, whatever came in.
            return self.nan;
        }
        let magnitude = value.abs();
        let bias = (1 << (self.exponent_bits - 1)) - 1;
        // The exponent of the unit in the last place: never below that of the subnormals.
        let exponent = ((bits >> 52) & 0x7FF) as i32 - 1023;
        let exponent = exponent.max(1 - bias);
        if magnitude.is_infinite() {
            return sign | self.overflow.unwrap_or(self.largest);
        }
        let unit = exponent - self.mantissa_bits as i32;
        // Below 2^12: adding what has no fraction beside it rounds to nearest, ties to even, as
        // `round_ties_even` does by a call.
        let quotient = magnitude * power_of_two(-unit);
        let steps = (quotient + INTEGERS - INTEGERS) as u64;
        // A carry out of the mantissa runs into the exponent by itself.
        let code = (((exponent + bias - 1) as u64) << self.mantissa_bits) + steps;
        if code > u64::from(self.largest) {
            sign | self.overflow.unwrap_or(self.largest)
        } else {
            sign | code as u32
        }
    }

    fn decode(&self, code: u32) -> f32 {
        let negative = code >> (self.exponent_bits + self.mantissa_bits) & 1 == 1;
        let magnitude = code & ((1 << (self.exponent_bits + self.mantissa_bits)) - 1);
        let sign = if negative { -1.0 } else { 1.0 };
        if magnitude > self.largest {
            return if self.is_infinity(magnitude) {
                sign * f32::INFINITY
            } else {
                f32::from_bits(0x7FFF_FFFF)
            };
        }
        let bias = (1 << (self.exponent_bits - 1)) - 1;
        let exponent = (magnitude >> self.mantissa_bits) as i32;
        let mantissa = magnitude & ((1 << self.mantissa_bits) - 1);
        let steps = if exponent == 0 { mantissa } else { mantissa | 1 << self.mantissa_bits };
        sign * (f64::from(steps) * power_of_two(exponent.max(1) - bias - self.mantissa_bits as i32)) as f32
    }

    fn is_infinity(&self, magnitude: u32) -> bool {
        // e4m3 has no infinity: the code after the largest is its NaN.
        let infinity = ((1 << self.exponent_bits) - 1) << self.mantissa_bits;
        magnitude == infinity && self.largest < infinity
    }
}

/// Two to that power, which a normal f64 holds.
pub(super) fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

pub(super) fn f32_to_f16(x: f32) -> u16 {
    F16.encode(x.into()) as u16
}

pub(super) fn f64_to_f16(x: f64) -> u16 {
    F16.encode(x) as u16
}

pub(super) fn f16_to_f32(x: u16) -> f32 {
    let magnitude = u32::from(x & 0x7FFF);
    // A normal number: the same mantissa, and an exponent with another bias.
    if (0x0400..0x7C00).contains(&magnitude) {
        return f32::from_bits(u32::from(x & 0x8000) << 16 | (magnitude + (112 << 10)) << 13);
    }
    F16.decode(x.into())
}

pub(super) fn f32_to_bf16(x: f32) -> u16 {
    BF16.encode(x.into()) as u16
}

pub(super) fn bf16_to_f32(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

pub(super) fn f32_to_e4m3(x: f32) -> u8 {
    E4M3.encode(x.into()) as u8
}

pub(super) fn e4m3_to_f32(x: u8) -> f32 {
    E4M3.decode(x.into())
}

pub(super) fn f32_to_e5m2(x: f32) -> u8 {
    E5M2.encode(x.into()) as u8
}

pub(super) fn e5m2_to_f32(x: u8) -> f32 {
    E5M2.decode(x.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f16_and_bf16_match_the_half_crate_on_every_input() {
        for code in 0..=u16::MAX {
            let (f16, bf16) = (half::f16::from_bits(code), half::bf16::from_bits(code));
            assert!(f16_to_f32(code) == f16.to_f32() || f16.is_nan(), "{code:04x}");
            for value in [f16.to_f32(), bf16.to_f32(), f16.to_f32() * 1.000_3, bf16.to_f32() * 0.999] {
                if value.is_nan() {
                    assert_eq!((f32_to_f16(value), f32_to_bf16(value)), (0x7FFF, 0x7FFF));
                    continue;
                }
                assert_eq!(f32_to_f16(value), half::f16::from_f32(value).to_bits(), "{value}");
                assert_eq!(f32_to_bf16(value), half::bf16::from_f32(value).to_bits(), "{value}");
            }
        }
    }

    #[test]
    fn fp8_decodes_as_the_float8_crate_and_rounds_to_the_nearest_code() {
        for code in 0..=u8::MAX {
            let (e4m3, e5m2) =
                (float8::F8E4M3::from_bits(code).to_f32(), float8::F8E5M2::from_bits(code).to_f32());
            assert!(e4m3_to_f32(code) == e4m3 || (e4m3.is_nan() && e4m3_to_f32(code).is_nan()), "{code:02x}");
            assert!(e5m2_to_f32(code) == e5m2 || (e5m2.is_nan() && e5m2_to_f32(code).is_nan()), "{code:02x}");
        }
        for code in 0..=u16::MAX {
            let value = bf16_to_f32(code);
            if value.is_nan() {
                continue;
            }
            for (encoded, decode, largest) in [
                (f32_to_e4m3(value), e4m3_to_f32 as fn(u8) -> f32, 448.0f32),
                (f32_to_e5m2(value), e5m2_to_f32 as fn(u8) -> f32, 57344.0),
            ] {
                let got = f64::from(decode(encoded));
                let wanted = f64::from(value.clamp(-largest, largest));
                for neighbour in [encoded.wrapping_sub(1), encoded.wrapping_add(1)] {
                    let other = f64::from(decode(neighbour));
                    assert!(other.is_nan() || (got - wanted).abs() <= (other - wanted).abs(), "{value}");
                }
            }
        }
    }
}
