//! Functions of every number of a run: `exp`, `ln`, `σ` and `tanh`.
//!
//! They are made of additions, products, fused multiply-adds, quotients and shifts alone, so that they give
//! the same bits with any instructions and whatever the system's library is. Each is within 4 units in the
//! last place of the true value.

use super::lanes::Instructions;

/// `x ← eˣ`. Below −87.3 it is e^−87.3, above 88 it is e^88.
pub fn exp(x: &mut [f32]) {
    each::<Exp>(x);
}

/// `x ← ln x`. What is not above the least normal number is taken for that, and infinity for 2^128.
pub fn ln(x: &mut [f32]) {
    each::<Ln>(x);
}

/// `x ← 1 / (1 + e^−x)`.
pub fn sigmoid(x: &mut [f32]) {
    each::<Sigmoid>(x);
}

/// `x ← tanh x`.
pub fn tanh(x: &mut [f32]) {
    each::<Tanh>(x);
}

trait Function {
    fn of(x: f32) -> f32;
}

struct Exp;
struct Ln;
struct Sigmoid;
struct Tanh;

impl Function for Exp {
    /// `eˣ = 2ⁿ eʳ` with `n` the integer next to `x / ln 2`, and `eʳ` by a polynomial.
    #[inline(always)]
    fn of(x: f32) -> f32 {
        // Added to a number of less than 2²², this leaves the integer next to it in the lowest bits.
        const SHIFT: f32 = 12_582_912.0;
        const HIGH: f32 = 0.693_359_4;
        const LOW: f32 = -2.121_944_4e-4;
        // A comparison that is false for no number keeps it: `min` and `max` would lose it.
        let bounded = if x < -87.3 { -87.3 } else { x };
        let bounded = if bounded > 88.0 { 88.0 } else { bounded };
        let shifted = bounded.mul_add(std::f32::consts::LOG2_E, SHIFT);
        let n = shifted - SHIFT;
        let r = n.mul_add(-LOW, n.mul_add(-HIGH, bounded));
        let p = 1.987_569_1e-4f32
            .mul_add(r, 1.398_199_9e-3)
            .mul_add(r, 8.333_452e-3)
            .mul_add(r, 4.166_579_6e-2)
            .mul_add(r, 1.666_666_5e-1)
            .mul_add(r, 0.5);
        let power = p.mul_add(r * r, r) + 1.0;
        let exponent = shifted.to_bits().wrapping_sub(SHIFT.to_bits()).wrapping_add(127) << 23;
        power * f32::from_bits(exponent)
    }
}

impl Function for Ln {
    /// `ln x = n ln 2 + 2 artanh(f / (2 + f))` with `x = 2ⁿ (1 + f)` and `1 + f` between √½ and √2.
    #[inline(always)]
    fn of(x: f32) -> f32 {
        // The bits of √½: adding what is missing to those of 1 moves the borders of exponents there.
        const BORDER: u32 = 0x3f35_04f3;
        const HIGH: f32 = 0.693_359_4;
        const LOW: f32 = -2.121_944_4e-4;
        let bounded = if x < f32::MIN_POSITIVE { f32::MIN_POSITIVE } else { x };
        let moved = bounded.to_bits().wrapping_add(0x3f80_0000 - BORDER);
        let n = (moved >> 23) as f32 - 127.0;
        let f = f32::from_bits((moved & 0x007f_ffff) + BORDER) - 1.0;
        let s = f / (2.0 + f);
        let square = s * s;
        let p =
            (1.0f32 / 9.0).mul_add(square, 1.0 / 7.0).mul_add(square, 1.0 / 5.0).mul_add(square, 1.0 / 3.0);
        let twice = 2.0 * s;
        let of_rest = (p * square).mul_add(twice, twice);
        let found = n.mul_add(HIGH, n.mul_add(LOW, of_rest));
        if x.is_nan() { x } else { found }
    }
}

impl Function for Sigmoid {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        1.0 / (1.0 + Exp::of(-x))
    }
}

impl Function for Tanh {
    /// `1 − 2 / (e^2|x| + 1)` with the sign of `x`; near zero, where that loses digits, a polynomial.
    #[inline(always)]
    fn of(x: f32) -> f32 {
        let size = x.abs();
        let square = x * x;
        let p = (-5.704_988_7e-3f32)
            .mul_add(square, 2.063_909e-2)
            .mul_add(square, -5.373_971_5e-2)
            .mul_add(square, 1.333_144_2e-1)
            .mul_add(square, -3.333_328e-1);
        let small = (p * square).mul_add(x, x);
        // From 10 on it is 1.
        let bounded = if size > 10.0 { 10.0 } else { size };
        let large = (1.0 - 2.0 / (Exp::of(2.0 * bounded) + 1.0)).copysign(x);
        if size < 0.625 { small } else { large }
    }
}

fn each<F: Function>(x: &mut [f32]) {
    with::<F>(Instructions::detect(), x);
}

fn with<F: Function>(instructions: Instructions, x: &mut [f32]) {
    match instructions {
        // SAFETY: the instructions were found on this machine.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => unsafe { avx512::<F>(x) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => unsafe { avx2::<F>(x) },
        Instructions::Portable => all::<F>(x),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn avx512<F: Function>(x: &mut [f32]) {
    all::<F>(x);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2<F: Function>(x: &mut [f32]) {
    all::<F>(x);
}

#[inline(always)]
fn all<F: Function>(x: &mut [f32]) {
    x.iter_mut().for_each(|x| *x = F::of(*x));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From −100 to 100, close together near zero.
    fn places() -> Vec<f32> {
        let fine = (0..40_000).map(|i| (i as f32 - 20_000.0) * 1e-4);
        let coarse = (0..40_000).map(|i| (i as f32 - 20_000.0) * 5e-3);
        fine.chain(coarse).chain([0.0, -0.0, 1e-20, -1e-20, 0.625, -0.625, 1e30, -1e30]).collect()
    }

    fn close<F: Function>(name: &str, truth: impl Fn(f64) -> f64) {
        let x = places();
        let mut seen: Option<Vec<u32>> = None;
        for instructions in Instructions::all_here() {
            let mut found = x.clone();
            with::<F>(instructions, &mut found);
            for (x, found) in x.iter().zip(&found) {
                let wanted = truth(f64::from(*x));
                let unit = (wanted.abs() * f64::from(f32::EPSILON)).max(1e-44);
                let off = (f64::from(*found) - wanted).abs() / unit;
                assert!(off <= 4.0, "{name}({x}) = {found}, not {wanted}: {off} units");
            }
            let bits: Vec<u32> = found.iter().map(|x| x.to_bits()).collect();
            assert_eq!(*seen.get_or_insert_with(|| bits.clone()), bits, "{instructions:?}");
            let mut none = [f32::NAN; 3];
            with::<F>(instructions, &mut none);
            assert!(none.iter().all(|x| x.is_nan()), "{name}: no number became one");
        }
    }

    #[test]
    fn functions_are_right_and_the_same_bits_with_all_instructions() {
        close::<Exp>("exp", |x| x.clamp(f64::from(-87.3f32), 88.0).exp());
        close::<Sigmoid>("sigmoid", |x| 1.0 / (1.0 + (-x).clamp(f64::from(-87.3f32), 88.0).exp()));
        close::<Tanh>("tanh", f64::tanh);
        close::<Ln>("ln", |x| x.clamp(f64::from(f32::MIN_POSITIVE), 2f64.powi(128)).ln());
    }
}
