//! Rounding to a small floating-point format by looking for the nearest of its values.

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};

/// What becomes of a value beyond the largest finite one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overflow {
    /// Infinity, which follows the largest finite value, from half a step beyond that on.
    Infinity,
    /// The largest finite value.
    Saturate,
}

/// How values are rounded: as the hardware does, or wrongly in one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// To nearest, ties to the even code.
    Hardware,
    /// Ties away from zero.
    TiesAway,
    /// Results below the smallest normal value become zero.
    FlushSubnormals,
    /// The code after the largest finite one where the format should saturate, and the other way round.
    OtherOverflow,
}

/// A format of at most 16 bits, as the list of its values.
pub(super) struct SmallFormat {
    /// Values of the codes 0, 1, ... up to the largest finite one; they ascend.
    values: Vec<f64>,
    sign: u32,
    /// The first code that is not subnormal.
    first_normal: u32,
    overflow: Overflow,
    nan: u32,
}

impl SmallFormat {
    pub(super) fn f16() -> Self {
        let decode = |code: u32| f16::from_bits(code as u16).to_f64();
        Self::new(decode, 16, 0x400, Overflow::Infinity, 0x7fff)
    }

    pub(super) fn bf16() -> Self {
        let decode = |code: u32| bf16::from_bits(code as u16).to_f64();
        Self::new(decode, 16, 0x80, Overflow::Infinity, 0x7fff)
    }

    pub(super) fn e4m3() -> Self {
        let decode = |code: u32| f64::from(F8E4M3::from_bits(code as u8).to_f32());
        Self::new(decode, 8, 0x8, Overflow::Saturate, 0x7f)
    }

    pub(super) fn e5m2() -> Self {
        let decode = |code: u32| f64::from(F8E5M2::from_bits(code as u8).to_f32());
        Self::new(decode, 8, 0x4, Overflow::Saturate, 0x7f)
    }

    fn new(decode: impl Fn(u32) -> f64, bits: u32, first_normal: u32, overflow: Overflow, nan: u32) -> Self {
        let values = (0..).map(decode).take_while(|value| value.is_finite()).collect();
        Self { values, sign: 1 << (bits - 1), first_normal, overflow, nan }
    }

    /// The finite values that are not negative, ascending.
    pub(super) fn values(&self) -> &[f64] {
        &self.values
    }

    /// The code of the format's value nearest to `value`. All NaNs become one.
    pub(super) fn round(&self, value: f32, rule: Rule) -> u32 {
        if value.is_nan() {
            return self.nan;
        }
        let magnitude = f64::from(value).abs();
        // The last code whose value is not above; 0 is never above.
        let below = self.values.partition_point(|&other| other <= magnitude) - 1;
        let code = match self.values.get(below + 1) {
            Some(&above) => {
                let (down, up) = (magnitude - self.values[below], above - magnitude);
                let tie_up = rule == Rule::TiesAway || below % 2 == 1;
                below as u32 + u32::from(up < down || (up == down && tie_up))
            }
            None => self.at_the_end(magnitude, rule),
        };
        let flushed = rule == Rule::FlushSubnormals && code < self.first_normal;
        let sign = if value.is_sign_negative() { self.sign } else { 0 };
        if flushed { sign } else { sign | code }
    }

    /// The code of a value that is not below the largest finite one.
    fn at_the_end(&self, magnitude: f64, rule: Rule) -> u32 {
        let last = self.values.len() - 1;
        let half_step = (self.values[last] - self.values[last - 1]) / 2.0;
        let beyond = magnitude >= self.values[last] + half_step;
        let to_infinity = (self.overflow == Overflow::Infinity) != (rule == Rule::OtherOverflow);
        last as u32 + u32::from(beyond && to_infinity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f16_and_bf16_round_as_the_half_crate() {
        let (half, brain) = (SmallFormat::f16(), SmallFormat::bf16());
        for word in (0..=u32::MAX).step_by(65_537 / 5).filter(|&word| !f32::from_bits(word).is_nan()) {
            let value = f32::from_bits(word);
            assert_eq!(
                half.round(value, Rule::Hardware),
                u32::from(f16::from_f32(value).to_bits()),
                "{value:e}"
            );
            assert_eq!(
                brain.round(value, Rule::Hardware),
                u32::from(bf16::from_f32(value).to_bits()),
                "{value:e}"
            );
        }
    }

    #[test]
    fn eight_bit_formats_saturate() {
        let round = |format: &SmallFormat, value| format.round(value, Rule::Hardware);
        let (e4m3, e5m2) = (SmallFormat::e4m3(), SmallFormat::e5m2());
        assert_eq!([448.0, 1e9, f32::INFINITY].map(|value| round(&e4m3, value)), [0x7e; 3]);
        assert_eq!([57344.0, 1e9, f32::INFINITY].map(|value| round(&e5m2, -value)), [0xfb; 3]);
        // 17 lies between 16 and 18, whose code is odd.
        assert_eq!(round(&e4m3, 17.0), 0x58);
        assert_eq!(e4m3.round(17.0, Rule::TiesAway), 0x59);
    }
}
