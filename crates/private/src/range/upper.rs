//! Upper bounds as floating-point numbers that never come out too small.

/// A number that is at least the true one: every operation rounds up.
///
/// Sums, products, quotients and square roots are correctly rounded by IEEE 754, so the next larger number is
/// above the exact result.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(crate) struct Upper(f64);

impl Upper {
    pub(crate) const ZERO: Self = Self(0.0);

    /// An exact number, not negative. What is not a number bounds nothing.
    pub(crate) fn exactly(value: f64) -> Self {
        Self(if value.is_nan() { f64::INFINITY } else { value.max(0.0) })
    }

    /// An integer; those of more than 53 bits are rounded up.
    pub(crate) fn integer(value: i128) -> Self {
        let nearest = value as f64;
        Self::exactly(if (nearest as i128) < value { nearest.next_up() } else { nearest })
    }

    /// 2^exponent.
    pub(crate) fn power(exponent: i32) -> Self {
        Self(2f64.powi(exponent))
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self::exactly((self.0 + other.0).next_up())
    }

    pub(crate) fn times(self, other: Self) -> Self {
        // Nothing is zero times whatever bounds the other factor.
        if self.0 == 0.0 || other.0 == 0.0 {
            return Self::ZERO;
        }
        Self::exactly((self.0 * other.0).next_up())
    }

    /// Over an exact divisor.
    pub(crate) fn over(self, divisor: f64) -> Self {
        Self::exactly((self.0 / divisor).next_up())
    }

    pub(crate) fn root(self) -> Self {
        Self::exactly(self.0.sqrt().next_up())
    }

    pub(crate) fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }

    pub(crate) fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }

    pub(crate) fn value(self) -> f64 {
        self.0
    }

    /// Whether the number, with `fraction` fractional bits, is as an integer below 2^`bits`.
    pub(crate) fn below(self, fraction: u32, bits: u32) -> bool {
        self.0 < 2f64.powi(bits as i32 - fraction as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_rounds_up() {
        let third = Upper::exactly(1.0).over(3.0);
        assert!(third.times(Upper::exactly(3.0)).value() > 1.0);
        let root = Upper::exactly(2.0).root();
        assert!(root.value() > std::f64::consts::SQRT_2 && root.times(root).value() > 2.0);
        let tenth = Upper::exactly(1.0).over(10.0);
        let sum = (0..10).fold(Upper::ZERO, |sum, _| sum.plus(tenth));
        assert!(sum.value() > 1.0);
        for value in [(1i128 << 60) + 1, (1 << 54) + 3, 7, (1 << 90) + 1] {
            assert!(Upper::integer(value).value() as i128 >= value);
        }
    }

    #[test]
    fn what_is_not_a_number_bounds_nothing() {
        assert_eq!(Upper::exactly(f64::NAN).value(), f64::INFINITY);
        assert!(!Upper::exactly(f64::NAN).below(0, 60));
        assert_eq!(Upper::ZERO.times(Upper::exactly(f64::INFINITY)), Upper::ZERO);
    }
}
