//! Products of matrices modulo 2^64.
//!
//! The right factor, a model's weights, is far larger than a cache, the left one is small. So the right one
//! is read once, in blocks of [`BLOCK`] of its rows, which stay in the cache while every row of the left
//! factor passes over them; sums are kept in registers, [`ROWS`] × [`LANES`] at a time. The code is written
//! once and compiled for several instruction sets: 64-bit products are one instruction with AVX-512DQ, and
//! three shorter products with AVX2.

use rayon::prelude::*;

use crate::backend::{Layout, MatmulShape};

/// Rows of the right factor that stay in the cache.
const BLOCK: usize = 64;
/// Rows of the left factor whose sums are in registers together.
const ROWS: usize = 4;
/// Columns of them.
const LANES: usize = 16;
/// Multiplications below which another thread is not worth its start.
const WORTH_A_THREAD: usize = 1 << 18;

/// rows × inner times inner × columns.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    rows: usize,
    inner: usize,
    columns: usize,
}

/// The same for every matrix of a batch.
pub(super) fn accumulate_batch(shape: MatmulShape, layout: Layout, a: &[u64], b: &[u64], sums: &mut [u64]) {
    let MatmulShape { rows, inner, columns, .. } = shape;
    let items = a.chunks(rows * inner).zip(b.chunks(inner * columns)).zip(sums.chunks_mut(rows * columns));
    for ((a, b), sums) in items {
        accumulate(Sizes { rows, inner, columns }, layout, a, b, sums);
    }
}

/// sums += a b modulo 2^64, on all threads of the pool that are worth it.
fn accumulate(sizes: Sizes, layout: Layout, a: &[u64], b: &[u64], sums: &mut [u64]) {
    let Sizes { rows, inner, columns } = sizes;
    if rows == 0 || inner == 0 || columns == 0 {
        return;
    }
    let work = rows.saturating_mul(inner).saturating_mul(columns);
    let threads = (work / WORTH_A_THREAD).clamp(1, rayon::current_num_threads());
    let rows_each = rows.div_ceil(threads).next_multiple_of(ROWS);
    let one = |(a, sums): (&[u64], &mut [u64])| {
        let sizes = Sizes { rows: sums.len() / columns, ..sizes };
        on_this_machine(sizes, layout, a, b, sums);
    };
    if rows_each >= rows {
        return one((a, sums));
    }
    a.par_chunks(rows_each * inner).zip(sums.par_chunks_mut(rows_each * columns)).for_each(one);
}

/// The same on one thread, with the widest instructions that there are.
fn on_this_machine(sizes: Sizes, layout: Layout, a: &[u64], b: &[u64], sums: &mut [u64]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as detected;
        if detected!("avx512f") && detected!("avx512dq") && detected!("avx512vl") {
            // SAFETY: the machine has these instructions.
            return unsafe { with_avx512(sizes, layout, a, b, sums) };
        }
        if detected!("avx2") {
            // SAFETY: the machine has these instructions.
            return unsafe { with_avx2(sizes, layout, a, b, sums) };
        }
    }
    portable(sizes, layout, a, b, sums);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn with_avx512(sizes: Sizes, layout: Layout, a: &[u64], b: &[u64], sums: &mut [u64]) {
    portable(sizes, layout, a, b, sums);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2(sizes: Sizes, layout: Layout, a: &[u64], b: &[u64], sums: &mut [u64]) {
    portable(sizes, layout, a, b, sums);
}

/// For any machine; inlined where more instructions are allowed.
#[inline(always)]
fn portable(sizes: Sizes, layout: Layout, a: &[u64], b: &[u64], sums: &mut [u64]) {
    match layout {
        Layout::Plain => plain(sizes, a, b, sums),
        Layout::Transposed => transposed(sizes, a, b, sums),
    }
}

#[inline(always)]
fn plain(Sizes { inner, columns, .. }: Sizes, a: &[u64], b: &[u64], sums: &mut [u64]) {
    for start in (0..inner).step_by(BLOCK) {
        let block = start..inner.min(start + BLOCK);
        for column in (0..columns).step_by(LANES) {
            let width = LANES.min(columns - column);
            let groups = a.chunks(ROWS * inner).zip(sums.chunks_mut(ROWS * columns));
            for (a, sums) in groups {
                let left = |row: usize| &a[row * inner..][block.clone()];
                let right = &b[block.start * columns..];
                match (width, a.len() / inner) {
                    (LANES, 1) => tile::<1>(std::array::from_fn(left), right, columns, column, sums),
                    (LANES, 2) => tile::<2>(std::array::from_fn(left), right, columns, column, sums),
                    (LANES, 3) => tile::<3>(std::array::from_fn(left), right, columns, column, sums),
                    (LANES, _) => tile::<ROWS>(std::array::from_fn(left), right, columns, column, sums),
                    (_, rows) => {
                        for row in 0..rows {
                            let sums = &mut sums[row * columns..][column..column + width];
                            for (&factor, right) in left(row).iter().zip(right.chunks(columns)) {
                                add_multiple(factor, &right[column..column + width], sums);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// sums[r][column..] += Σ_k left[r][k] b[k][column..], of [`LANES`] columns.
#[inline(always)]
fn tile<const R: usize>(left: [&[u64]; R], b: &[u64], columns: usize, column: usize, sums: &mut [u64]) {
    let mut tile = [[0u64; LANES]; R];
    for k in 0..left[0].len() {
        let right: &[u64; LANES] = b[k * columns + column..].first_chunk().expect("a whole tile");
        for (tile, left) in tile.iter_mut().zip(left) {
            let factor = left[k];
            for (sum, &word) in tile.iter_mut().zip(right) {
                *sum = sum.wrapping_add(factor.wrapping_mul(word));
            }
        }
    }
    for (row, tile) in tile.iter().enumerate() {
        for (sum, &word) in sums[row * columns + column..].iter_mut().zip(tile) {
            *sum = sum.wrapping_add(word);
        }
    }
}

#[inline(always)]
fn add_multiple(factor: u64, words: &[u64], sums: &mut [u64]) {
    for (sum, &word) in sums.iter_mut().zip(words) {
        *sum = sum.wrapping_add(factor.wrapping_mul(word));
    }
}

#[inline(always)]
fn transposed(Sizes { inner, columns, .. }: Sizes, a: &[u64], b: &[u64], sums: &mut [u64]) {
    for (column, right) in b.chunks(inner).enumerate() {
        for (left, sums) in a.chunks(ROWS * inner).zip(sums.chunks_mut(ROWS * columns)) {
            if left.len() == ROWS * inner {
                let rows: [&[u64]; ROWS] = std::array::from_fn(|row| &left[row * inner..(row + 1) * inner]);
                for (row, product) in inner_products(rows, right).into_iter().enumerate() {
                    let sum = &mut sums[row * columns + column];
                    *sum = sum.wrapping_add(product);
                }
            } else {
                for (row, left) in left.chunks(inner).enumerate() {
                    let [product] = inner_products([left], right);
                    let sum = &mut sums[row * columns + column];
                    *sum = sum.wrapping_add(product);
                }
            }
        }
    }
}

/// Σ_k left[r][k] right[k].
#[inline(always)]
fn inner_products<const R: usize>(left: [&[u64]; R], right: &[u64]) -> [u64; R] {
    const WIDTH: usize = 8;
    let mut sums = [[0u64; WIDTH]; R];
    let whole = right.len() / WIDTH * WIDTH;
    for k in (0..whole).step_by(WIDTH) {
        let words: &[u64; WIDTH] = right[k..].first_chunk().expect("a whole chunk");
        for (sums, left) in sums.iter_mut().zip(left) {
            let factors: &[u64; WIDTH] = left[k..].first_chunk().expect("a whole chunk");
            for lane in 0..WIDTH {
                sums[lane] = sums[lane].wrapping_add(factors[lane].wrapping_mul(words[lane]));
            }
        }
    }
    std::array::from_fn(|row| {
        let tail = left[row][whole..].iter().zip(&right[whole..]);
        let tail = tail.fold(0u64, |sum, (&a, &b)| sum.wrapping_add(a.wrapping_mul(b)));
        sums[row].iter().fold(tail, |sum, &lane| sum.wrapping_add(lane))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Product = fn(Sizes, Layout, &[u64], &[u64], &mut [u64]);

    fn words(seed: u64, len: usize) -> Vec<u64> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state ^ (state >> 29)
        };
        (0..len).map(|_| next()).collect()
    }

    fn definition(sizes: Sizes, layout: Layout, a: &[u64], b: &[u64], sums: &mut [u64]) {
        let Sizes { rows, inner, columns } = sizes;
        for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
            for k in 0..inner {
                let right = match layout {
                    Layout::Plain => b[k * columns + column],
                    Layout::Transposed => b[column * inner + k],
                };
                let sum = &mut sums[row * columns + column];
                *sum = sum.wrapping_add(a[row * inner + k].wrapping_mul(right));
            }
        }
    }

    #[test]
    fn every_way_matches_the_definition_at_odd_sizes() {
        let mut ways: Vec<(&str, Product)> = vec![
            ("all threads", accumulate),
            ("this machine", on_this_machine),
            ("portable", |sizes, layout, a, b, sums| portable(sizes, layout, a, b, sums)),
        ];
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the machine has these instructions.
            ways.push(("AVX2", |sizes, layout, a, b, sums| unsafe { with_avx2(sizes, layout, a, b, sums) }));
        }
        let odd = [
            [1, 1, 1],
            [1, 7, 3],
            [3, 65, 17],
            [4, 64, 16],
            [5, 130, 33],
            [9, 1, 40],
            [8, 200, 15],
            [6, 70, 48],
            [7, 70, 48],
            [70, 129, 70],
        ];
        for [rows, inner, columns] in odd {
            let sizes = Sizes { rows, inner, columns };
            let (a, b) = (words(1, rows * inner), words(2, inner * columns));
            for layout in [Layout::Plain, Layout::Transposed] {
                let mut expected = words(3, rows * columns);
                definition(sizes, layout, &a, &b, &mut expected);
                for (name, way) in &ways {
                    let mut sums = words(3, rows * columns);
                    way(sizes, layout, &a, &b, &mut sums);
                    assert!(sums == expected, "{name}, {layout:?}, {sizes:?}");
                }
            }
        }
    }

    #[test]
    fn nothing_is_added_where_there_is_nothing() {
        for (rows, inner, columns) in [(0, 3, 3), (3, 0, 3), (3, 3, 0)] {
            let mut sums = vec![7; rows * columns];
            let (a, b) = (vec![1; rows * inner], vec![1; inner * columns]);
            accumulate(Sizes { rows, inner, columns }, Layout::Plain, &a, &b, &mut sums);
            assert!(sums.iter().all(|&sum| sum == 7));
        }
    }
}
