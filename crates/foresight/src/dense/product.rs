//! `C += A B` and `C += A Bᵀ`.

#[cfg(target_arch = "x86_64")]
use super::lanes::{Avx2, Avx512};
use super::lanes::{Instructions, LANES, Portable, Vector};

/// A matrix whose element (i, j) lies at `i row + j column`.
#[derive(Debug, Clone, Copy)]
pub struct Strided<'a> {
    /// Its numbers.
    pub numbers: &'a [f32],
    /// From one row to the next.
    pub row: usize,
    /// From one column to the next.
    pub column: usize,
}

impl<'a> Strided<'a> {
    /// A matrix of `columns` columns, row after row.
    pub fn rows(numbers: &'a [f32], columns: usize) -> Self {
        Self { numbers, row: columns, column: 1 }
    }

    /// The transpose of a matrix that has `columns` columns, row after row.
    pub fn transposed(numbers: &'a [f32], columns: usize) -> Self {
        Self { numbers, row: 1, column: columns }
    }
}

/// `C[i][j] += Σ_p A[i][p] B[p][j]` for `m × k` by `k × n`, with `B` and `C` row after row.
///
/// Each element is one chain of fused multiply-adds over `p`, from zero, added to `C` at the end.
pub fn add_product([m, n, k]: [usize; 3], a: Strided<'_>, b: &[f32], c: &mut [f32]) {
    assert!(b.len() == k * n && c.len() == m * n, "a product of {m}x{k} by {k}x{n}");
    assert!(m == 0 || k == 0 || a.numbers.len() > (m - 1) * a.row + (k - 1) * a.column, "A is too short");
    match Instructions::detect() {
        // SAFETY: the instructions were found on this machine.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => unsafe { product_avx512([m, n, k], a, b, c) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => unsafe { product_avx2([m, n, k], a, b, c) },
        Instructions::Portable => product::<Portable, 4, 1>([m, n, k], a, b, c),
    }
}

/// `C[i][j] += Σ_p A[i][p] B[j][p]` for `m × k` by `n × k`, all row after row.
///
/// Lane `l` of sixteen adds up the `p ≡ l`, and the lanes are added up in halves.
pub fn add_product_transposed([m, n, k]: [usize; 3], a: &[f32], b: &[f32], c: &mut [f32]) {
    assert!(a.len() == m * k && b.len() == n * k && c.len() == m * n, "a product of {m}x{k} by {n}x{k}");
    match Instructions::detect() {
        // SAFETY: the instructions were found on this machine.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => unsafe { transposed_avx512([m, n, k], a, b, c) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => unsafe { transposed_avx2([m, n, k], a, b, c) },
        Instructions::Portable => transposed::<Portable, 2, 2>([m, n, k], a, b, c),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn product_avx512(size: [usize; 3], a: Strided<'_>, b: &[f32], c: &mut [f32]) {
    if size[0] == 1 {
        return row::<Avx512, 16, 4>(size, a, b, c);
    }
    product::<Avx512, 8, 2>(size, a, b, c);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn product_avx2(size: [usize; 3], a: Strided<'_>, b: &[f32], c: &mut [f32]) {
    if size[0] == 1 {
        return row::<Avx2, 4, 2>(size, a, b, c);
    }
    product::<Avx2, 4, 1>(size, a, b, c);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn transposed_avx512(size: [usize; 3], a: &[f32], b: &[f32], c: &mut [f32]) {
    transposed::<Avx512, 4, 4>(size, a, b, c);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn transposed_avx2(size: [usize; 3], a: &[f32], b: &[f32], c: &mut [f32]) {
    transposed::<Avx2, 2, 2>(size, a, b, c);
}

/// Blocks of `ROWS` rows by `COLUMNS` vectors, whose sums stay in registers; how large they are changes no
/// sum.
#[inline(always)]
fn product<V: Vector, const ROWS: usize, const COLUMNS: usize>(
    [m, n, k]: [usize; 3],
    a: Strided<'_>,
    b: &[f32],
    c: &mut [f32],
) {
    let wide = n - n % (COLUMNS * LANES);
    let whole = n - n % LANES;
    for j in (0..wide).step_by(COLUMNS * LANES) {
        rows::<V, ROWS, COLUMNS>([m, n, k], a, &b[j..], n, &mut c[j..], LANES * COLUMNS);
    }
    for j in (wide..whole).step_by(LANES) {
        rows::<V, ROWS, 1>([m, n, k], a, &b[j..], n, &mut c[j..], LANES);
    }
    if whole < n {
        // The last columns, with zeros beside them.
        let mut panel = vec![0.0; k * LANES];
        for (panel, b) in panel.chunks_exact_mut(LANES).zip(b.chunks_exact(n)) {
            panel[..n - whole].copy_from_slice(&b[whole..]);
        }
        rows::<V, ROWS, 1>([m, n, k], a, &panel, LANES, &mut c[whole..], n - whole);
    }
}

/// A product of one row, which is bound by how fast `b` is read: panels are as wide as registers allow, so
/// that rows of `b` are read on and many sums run beside each other. The sums are those of [`product`].
#[inline(always)]
fn row<V: Vector, const WIDE: usize, const NARROW: usize>(
    [_, n, k]: [usize; 3],
    a: Strided<'_>,
    b: &[f32],
    c: &mut [f32],
) {
    let wide = n - n % (WIDE * LANES);
    let narrow = n - n % (NARROW * LANES);
    let whole = n - n % LANES;
    for j in (0..wide).step_by(WIDE * LANES) {
        block::<V, 1, WIDE>(k, a, 0, &b[j..], n, &mut c[j..], n, LANES * WIDE);
    }
    for j in (wide..narrow).step_by(NARROW * LANES) {
        block::<V, 1, NARROW>(k, a, 0, &b[j..], n, &mut c[j..], n, LANES * NARROW);
    }
    for j in (narrow..whole).step_by(LANES) {
        block::<V, 1, 1>(k, a, 0, &b[j..], n, &mut c[j..], n, LANES);
    }
    // The last columns four by four; what there is no column for repeats the last one, and is dropped.
    for j in (whole..n).step_by(4) {
        let columns: [usize; 4] = std::array::from_fn(|i| (j + i).min(n - 1));
        let mut sums = [0.0f32; 4];
        for (p, b) in b.chunks_exact(n).enumerate() {
            let factor = a.numbers[p * a.column];
            for (sum, column) in sums.iter_mut().zip(columns) {
                *sum = factor.mul_add(b[column], *sum);
            }
        }
        c[j..].iter_mut().zip(sums).for_each(|(c, sum)| *c += sum);
    }
}

/// All rows of one panel of columns: `b` has rows at every `stride`, and `width` of its columns count.
#[inline(always)]
fn rows<V: Vector, const ROWS: usize, const COLUMNS: usize>(
    [m, n, k]: [usize; 3],
    a: Strided<'_>,
    b: &[f32],
    stride: usize,
    c: &mut [f32],
    width: usize,
) {
    let whole = m - m % ROWS;
    for i in (0..whole).step_by(ROWS) {
        block::<V, ROWS, COLUMNS>(k, a, i, b, stride, &mut c[i * n..], n, width);
    }
    for i in whole..m {
        block::<V, 1, COLUMNS>(k, a, i, b, stride, &mut c[i * n..], n, width);
    }
}

#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "a block of a product is what it is")]
fn block<V: Vector, const ROWS: usize, const COLUMNS: usize>(
    k: usize,
    a: Strided<'_>,
    first: usize,
    b: &[f32],
    stride: usize,
    c: &mut [f32],
    n: usize,
    width: usize,
) {
    let mut sums = [[V::splat(0.0); COLUMNS]; ROWS];
    let mut at: [usize; ROWS] = std::array::from_fn(|row| (first + row) * a.row);
    // The last row of `b` may end with its panel.
    for b in b.chunks(stride).take(k) {
        let b = &b[..COLUMNS * LANES];
        let columns: [V; COLUMNS] = std::array::from_fn(|j| V::load(&b[j * LANES..]));
        for row in 0..ROWS {
            // SAFETY: `add_product` checked that the last row and column lie within, and both strides only
            // grow.
            let factor = V::splat(unsafe { *a.numbers.get_unchecked(at[row]) });
            at[row] = at[row].wrapping_add(a.column);
            for j in 0..COLUMNS {
                sums[row][j] = factor.mul_add(columns[j], sums[row][j]);
            }
        }
    }
    let mut found = [0.0; LANES];
    for (row, sums) in sums.iter().enumerate() {
        let c = &mut c[row * n..][..width];
        for (sum, c) in sums.iter().zip(c.chunks_mut(LANES)) {
            sum.store(&mut found);
            c.iter_mut().zip(found).for_each(|(c, sum)| *c += sum);
        }
    }
}

#[inline(always)]
fn transposed<V: Vector, const ROWS: usize, const COLUMNS: usize>(
    [m, n, k]: [usize; 3],
    a: &[f32],
    b: &[f32],
    c: &mut [f32],
) {
    let (rows, columns) = (m - m % ROWS, n - n % COLUMNS);
    for i in (0..rows).step_by(ROWS) {
        for j in (0..columns).step_by(COLUMNS) {
            dots::<V, ROWS, COLUMNS>(k, &a[i * k..], &b[j * k..], &mut c[i * n + j..], n);
        }
        for j in columns..n {
            dots::<V, ROWS, 1>(k, &a[i * k..], &b[j * k..], &mut c[i * n + j..], n);
        }
    }
    for i in rows..m {
        for j in 0..n {
            dots::<V, 1, 1>(k, &a[i * k..], &b[j * k..], &mut c[i * n + j..], n);
        }
    }
}

#[inline(always)]
fn dots<V: Vector, const ROWS: usize, const COLUMNS: usize>(
    k: usize,
    a: &[f32],
    b: &[f32],
    c: &mut [f32],
    n: usize,
) {
    let mut sums = [[V::splat(0.0); COLUMNS]; ROWS];
    let whole = k - k % LANES;
    for p in (0..whole).step_by(LANES) {
        let columns: [V; COLUMNS] = std::array::from_fn(|j| V::load(&b[j * k + p..]));
        for row in 0..ROWS {
            let factor = V::load(&a[row * k + p..]);
            for j in 0..COLUMNS {
                sums[row][j] = factor.mul_add(columns[j], sums[row][j]);
            }
        }
    }
    if whole < k {
        let columns: [V; COLUMNS] = std::array::from_fn(|j| V::load_part(&b[j * k + whole..(j + 1) * k]));
        for (row, sums) in sums.iter_mut().enumerate() {
            let factor = V::load_part(&a[row * k + whole..(row + 1) * k]);
            for (sum, column) in sums.iter_mut().zip(columns) {
                *sum = factor.mul_add(column, *sum);
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        for (j, sum) in sums.iter().enumerate() {
            c[row * n + j] += sum.sum();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn numbers(random: &mut Random, n: usize) -> Vec<f32> {
        (0..n).map(|_| random.normal() as f32).collect()
    }

    /// Every instruction set that is here, on sizes with and without tails.
    #[test]
    fn all_instructions_give_the_same_bits_and_match_double_precision() {
        let mut random = Random::new(3, "product");
        for [m, n, k] in [
            [1, 1, 1],
            [1, 2, 40],
            [1, 333, 19],
            [1, 768, 70],
            [7, 10, 25],
            [8, 32, 16],
            [9, 47, 33],
            [16, 200, 64],
            [3, 16, 5],
        ] {
            let (a, b) = (numbers(&mut random, m * k), numbers(&mut random, n * k));
            let start = numbers(&mut random, m * n);
            let mut seen: Option<[Vec<f32>; 3]> = None;
            for instructions in Instructions::all_here() {
                let [mut plain, mut across, mut dots] = [start.clone(), start.clone(), start.clone()];
                let size = [m, n, k];
                let (straight, turned) = (Strided::rows(&a, k), Strided::transposed(&a, m));
                match instructions {
                    Instructions::Portable => {
                        product::<Portable, 4, 1>(size, straight, &b, &mut plain);
                        product::<Portable, 4, 1>(size, turned, &b, &mut across);
                        transposed::<Portable, 2, 2>(size, &a, &b, &mut dots);
                    }
                    // SAFETY: both are here.
                    #[cfg(target_arch = "x86_64")]
                    Instructions::Avx2 => unsafe {
                        product_avx2(size, straight, &b, &mut plain);
                        product_avx2(size, turned, &b, &mut across);
                        transposed_avx2(size, &a, &b, &mut dots);
                    },
                    // SAFETY: as above.
                    #[cfg(target_arch = "x86_64")]
                    Instructions::Avx512 => unsafe {
                        product_avx512(size, straight, &b, &mut plain);
                        product_avx512(size, turned, &b, &mut across);
                        transposed_avx512(size, &a, &b, &mut dots);
                    },
                }
                let wanted = |element: &dyn Fn(usize, usize, usize) -> f64| -> Vec<f64> {
                    let cell = |at: usize| {
                        (0..k).map(|p| element(at / n, at % n, p)).sum::<f64>() + f64::from(start[at])
                    };
                    (0..m * n).map(cell).collect()
                };
                let at = |x: &[f32], i: usize| f64::from(x[i]);
                let close = |got: &[f32], wanted: Vec<f64>| {
                    got.iter().zip(wanted).for_each(|(got, wanted)| {
                        assert!((f64::from(*got) - wanted).abs() < 1e-4, "{got} {wanted} {m}x{n}x{k}");
                    });
                };
                close(&plain, wanted(&|i, j, p| at(&a, i * k + p) * at(&b, p * n + j)));
                close(&across, wanted(&|i, j, p| at(&a, p * m + i) * at(&b, p * n + j)));
                close(&dots, wanted(&|i, j, p| at(&a, i * k + p) * at(&b, j * k + p)));
                let found = [plain, across, dots];
                assert_eq!(*seen.get_or_insert_with(|| found.clone()), found, "{instructions:?} {m}x{n}x{k}");
            }
        }
    }
}
