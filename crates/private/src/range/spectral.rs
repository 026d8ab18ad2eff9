//! Upper bounds of spectral norms.
//!
//! The least of three, each sound by itself:
//!
//! * ‖W‖₂ ≤ √(‖W‖₁ ‖W‖_∞), the roots of the largest column and row sums of magnitudes;
//! * ‖W‖₂ ≤ ‖W‖_F;
//! * ‖W‖₂^(2^k) = ‖(WᵀW)^(2^(k−1))‖₂ ≤ ‖(WᵀW)^(2^(k−1))‖_F: repeated squaring, which is a power iteration on
//!   all vectors at once and overestimates by at most rank^(1/2^(k+1)).
//!
//! The third is computed with rounded products. A sum of m rounded products is off by at most γ Σ |a b|, γ =
//! m u / (1 − m u) and u = 2^−53, whatever the order; so by ‖A²‖₂ ≤ ‖fl(A²)‖₂ + γ ‖A‖_F² every squaring adds
//! its own rounding error to what it proves. Squares are mirrored, hence exactly symmetric, and scaled by
//! powers of two, hence exactly scaled.

use super::upper::Upper;

/// Squarings of WᵀW.
const SQUARINGS: u32 = 3;

/// Above this width only the two closed forms are used: squarings take time with its cube.
const WIDEST: usize = 1536;

/// An upper bound of ‖W‖₂ for a matrix of `columns` columns, row by row.
pub(crate) fn spectral_norm(entries: &[f64], columns: usize) -> Upper {
    if entries.is_empty() || columns == 0 {
        return Upper::ZERO;
    }
    let closed = schur(entries, columns).min(frobenius(entries));
    if columns.min(entries.len() / columns) > WIDEST {
        return closed;
    }
    closed.min(squared(entries, columns))
}

fn sum_of(terms: impl Iterator<Item = f64>) -> Upper {
    terms.fold(Upper::ZERO, |sum, term| sum.plus(Upper::exactly(term.abs())))
}

/// ‖W‖_F.
pub(super) fn frobenius(entries: &[f64]) -> Upper {
    let squares = entries.iter().map(|&entry| Upper::exactly(entry.abs()));
    squares.fold(Upper::ZERO, |sum, entry| sum.plus(entry.times(entry))).root()
}

/// √(‖W‖₁ ‖W‖_∞).
fn schur(entries: &[f64], columns: usize) -> Upper {
    let rows = entries.chunks(columns).map(|row| sum_of(row.iter().copied()));
    let widest = rows.fold(Upper::ZERO, Upper::max);
    let column = |column: usize| sum_of(entries.iter().skip(column).step_by(columns).copied());
    let tallest = (0..columns).map(column).fold(Upper::ZERO, Upper::max);
    widest.times(tallest).root()
}

/// By squarings of the smaller of WᵀW and WWᵀ.
fn squared(entries: &[f64], columns: usize) -> Upper {
    let rows = entries.len() / columns;
    let largest = entries.iter().fold(0f64, |largest, entry| largest.max(entry.abs()));
    if largest == 0.0 || !largest.is_finite() {
        return Upper::exactly(largest);
    }
    // As rows whose products with each other are the Gram matrix, scaled to magnitudes of at most one.
    let (unit, scale) = power_of_two_above(largest);
    let vectors: Vec<f64> = if rows <= columns {
        entries.iter().map(|entry| entry * unit).collect()
    } else {
        let transposed = (0..columns).flat_map(|column| entries.iter().skip(column).step_by(columns));
        transposed.map(|entry| entry * unit).collect()
    };
    let size = rows.min(columns);
    let gram = products(&vectors, size);
    let error = gamma(rows.max(columns)).times(frobenius(&vectors).times(frobenius(&vectors)));
    let largest_value = symmetric_norm(&gram, size, SQUARINGS).plus(error);
    largest_value.root().times(Upper::exactly(scale))
}

/// A power of two that brings magnitudes up to `largest` down to at most one, and its inverse.
fn power_of_two_above(largest: f64) -> (f64, f64) {
    let mut scale = 1f64;
    while scale < largest {
        scale *= 2.0;
    }
    while scale / 2.0 >= largest {
        scale /= 2.0;
    }
    (1.0 / scale, scale)
}

/// m u / (1 − m u), with room for the additions of what is too small to be normal.
fn gamma(terms: usize) -> Upper {
    let relative = Upper::exactly(terms as f64 + 2.0).times(Upper::power(-53));
    relative.over(1.0 - 2.0 * relative.value()).plus(Upper::power(-300))
}

/// An upper bound of ‖A‖₂ of a symmetric A.
fn symmetric_norm(matrix: &[f64], size: usize, squarings: u32) -> Upper {
    let whole = frobenius(matrix);
    let largest = matrix.iter().fold(0f64, |largest, entry| largest.max(entry.abs()));
    if squarings == 0 || largest == 0.0 || !largest.is_finite() {
        return whole;
    }
    let (unit, scale) = power_of_two_above(largest);
    let scaled: Vec<f64> = matrix.iter().map(|entry| entry * unit).collect();
    let norm = frobenius(&scaled);
    let error = gamma(size).times(norm.times(norm));
    let square = symmetric_norm(&products(&scaled, size), size, squarings - 1).plus(error);
    square.root().times(Upper::exactly(scale)).min(whole)
}

/// V Vᵀ of `size` rows, mirrored.
fn products(vectors: &[f64], size: usize) -> Vec<f64> {
    let width = vectors.len() / size;
    let row = |index: usize| &vectors[index * width..(index + 1) * width];
    let mut all = vec![0.0; size * size];
    for first in 0..size {
        for second in 0..=first {
            // Eight sums side by side, which the compiler keeps in one register.
            let (left, right) = (row(first).chunks_exact(8), row(second).chunks_exact(8));
            let tail: f64 = left.remainder().iter().zip(right.remainder()).map(|(a, b)| a * b).sum();
            let mut sums = [0f64; 8];
            for (a, b) in left.zip(right) {
                for lane in 0..8 {
                    sums[lane] += a[lane] * b[lane];
                }
            }
            let product = sums.iter().sum::<f64>() + tail;
            (all[first * size + second], all[second * size + first]) = (product, product);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::circuit::samples::noise;

    /// A lower bound: ‖W v‖ / ‖v‖ for the vector that a power iteration ends with.
    fn reached(entries: &[f64], columns: usize) -> f64 {
        let mut best = 0f64;
        for start in 0..3 {
            let mut v: Vec<f64> = (0..columns).map(|i| 1.0 + ((i * (start + 2)) as f64).sin()).collect();
            for _ in 0..200 {
                let length = v.iter().map(|x| x * x).sum::<f64>().sqrt();
                if length == 0.0 {
                    break;
                }
                v.iter_mut().for_each(|x| *x /= length);
                let w: Vec<f64> =
                    entries.chunks(columns).map(|row| row.iter().zip(&v).map(|(a, b)| a * b).sum()).collect();
                best = best.max(w.iter().map(|x| x * x).sum::<f64>().sqrt());
                for (column, x) in v.iter_mut().enumerate() {
                    *x = entries.iter().skip(column).step_by(columns).zip(&w).map(|(a, b)| a * b).sum();
                }
            }
        }
        best
    }

    /// What every bound must pass. The margin is that of the lower bound's own rounding.
    fn covers(bound: f64, entries: &[f64], columns: usize) -> bool {
        bound >= reached(entries, columns) * (1.0 - 1e-12)
    }

    fn adversaries() -> Vec<(&'static str, Vec<f64>, usize)> {
        let size = 32;
        let cell = move |function: &dyn Fn(usize, usize) -> f64| -> Vec<f64> {
            (0..size * size).map(|i| function(i / size, i % size)).collect()
        };
        vec![
            ("identity", cell(&|i, j| f64::from(u8::from(i == j))), size),
            ("ones", cell(&|_, _| 1.0), size),
            ("signs of a Hadamard matrix", cell(&|i, j| 1.0 - 2.0 * ((i & j).count_ones() % 2) as f64), size),
            ("rank one", cell(&|i, j| (i as f64 + 1.0) * (j as f64 - 9.5)), size),
            ("one giant entry", cell(&|i, j| if (i, j) == (3, 7) { 1e9 } else { 1e-9 }), size),
            ("tiny", cell(&|i, j| 1e-200 * (i as f64 - j as f64)), size),
            ("shift", cell(&|i, j| f64::from(u8::from((i + 1) % size == j))), size),
            ("wide", (0..5 * 77).map(|i| (i as f64 * 0.7).cos()).collect(), 77),
            ("tall", (0..5 * 77).map(|i| (i as f64 * 0.7).cos()).collect(), 5),
            ("zero", vec![0.0; 12], 4),
            ("single", vec![-3.0], 1),
        ]
    }

    #[test]
    fn adversarial_matrices_stay_below_the_bound() {
        for (name, entries, columns) in adversaries() {
            for (rule, bound) in [
                ("closed forms", schur(&entries, columns).min(frobenius(&entries))),
                ("squarings", squared(&entries, columns)),
                ("all", spectral_norm(&entries, columns)),
            ] {
                assert!(covers(bound.value(), &entries, columns), "{name}, {rule}: {bound:?}");
            }
        }
    }

    #[test]
    fn a_bound_that_is_too_small_is_caught() {
        let too_small = |(_, entries, columns): &(&str, Vec<f64>, usize)| {
            !covers(0.9 * spectral_norm(entries, *columns).value(), entries, *columns)
        };
        let caught = adversaries().iter().filter(|case| too_small(case)).count();
        assert!(
            caught >= 5,
            "of {} matrices only {caught} tell 0.9 of the bound from the bound",
            adversaries().len()
        );
    }

    #[test]
    fn squarings_beat_the_closed_forms_on_noise() {
        let mut draw = noise(3);
        let entries: Vec<f64> = (0..96 * 96).map(|_| draw()).collect();
        let closed = schur(&entries, 96).min(frobenius(&entries)).value();
        let bound = spectral_norm(&entries, 96).value();
        assert!(bound < 0.5 * closed && covers(bound, &entries, 96), "{bound} and {closed}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn random_matrices_stay_below_the_bound(
            columns in 1usize..24,
            rows in 1usize..24,
            seed in any::<u64>(),
            exponent in -20i32..20,
        ) {
            let mut draw = noise(seed);
            let entries: Vec<f64> = (0..rows * columns).map(|_| draw() * 2f64.powi(exponent)).collect();
            prop_assert!(covers(spectral_norm(&entries, columns).value(), &entries, columns));
        }
    }
}
