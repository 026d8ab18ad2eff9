//! What is multiplied.

use bytemuck::{Pod, Zeroable};

use crate::types::{FactorLayout, MatrixScalar};
use crate::{Error, Result};

/// `c (m x n) <- alpha a (m x k) b (k x n) + beta c`, with `c` row by row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Product {
    /// Rows of `a` and `c`.
    pub m: usize,
    /// Columns of `b` and `c`.
    pub n: usize,
    /// Columns of `a`, rows of `b`.
    pub k: usize,
    /// How `a` lies.
    pub left: Left,
    /// How `b` lies.
    pub right: Right,
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of what `c` held. If it is 0, `c` is not read.
    pub beta: f32,
    /// Which algorithm.
    pub pick: Pick,
}

/// How the left matrix lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Left {
    /// Its `m` rows, one after another. The only way for 8-bit types.
    Rows,
    /// Its `k` columns, one after another, as examples lie where their gradients are added up.
    Columns,
}

/// How the right matrix lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Right {
    /// Its `k` rows, one after another.
    Rows,
    /// Its `n` columns, one after another, as weights of a linear layer lie. The only way for 8-bit types.
    Columns,
}

/// Which algorithm the library's heuristic is asked for. The same product on the same card with the same
/// library gets the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pick {
    /// The one that it thinks is fastest.
    Fastest,
    /// The fastest that does not split sums over `k` between blocks: the order of additions does not depend
    /// on who is first.
    Deterministic,
}

impl Product {
    /// `c <- a b`, with both by rows, by the fastest algorithm.
    pub fn new(m: usize, n: usize, k: usize) -> Self {
        Self { m, n, k, left: Left::Rows, right: Right::Rows, alpha: 1.0, beta: 0.0, pick: Pick::Fastest }
    }

    /// With `a` in columns.
    pub fn left_in_columns(self) -> Self {
        Self { left: Left::Columns, ..self }
    }

    /// With `b` in columns.
    pub fn right_in_columns(self) -> Self {
        Self { right: Right::Columns, ..self }
    }

    /// By an algorithm that always adds in the same order.
    pub fn deterministic(self) -> Self {
        Self { pick: Pick::Deterministic, ..self }
    }

    /// With these factors.
    pub fn scaled(self, alpha: f32, beta: f32) -> Self {
        Self { alpha, beta, ..self }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.m == 0 || self.n == 0
    }

    /// Whether so many elements of `a`, `b` and `c` are those of the product.
    pub(super) fn check(&self, found: [usize; 3]) -> Result<()> {
        const CALL: &str = "Blas::multiply";
        let Self { m, n, k, .. } = *self;
        if [m, n, k].iter().any(|&size| i32::try_from(size).is_err()) || (k == 0 && !self.is_empty()) {
            let message = format!("a product of {m} x {k} by {k} x {n}: sizes are from 1 to 2^31-1");
            return Err(Error::Length { call: CALL, message });
        }
        for ((name, rows, columns), found) in [("a", m, k), ("b", k, n), ("c", m, n)].into_iter().zip(found) {
            if rows.checked_mul(columns) != Some(found) {
                let message = format!("{name} is {rows} x {columns} and was given {found} elements");
                return Err(Error::Length { call: CALL, message });
            }
        }
        Ok(())
    }

    /// Of the left and of the right factor.
    pub(super) fn layouts(&self) -> [FactorLayout; 2] {
        let left = match self.left {
            Left::Rows => FactorLayout::Rows,
            Left::Columns => FactorLayout::Columns,
        };
        let right = match self.right {
            Right::Rows => FactorLayout::Rows,
            Right::Columns => FactorLayout::Columns,
        };
        [left, right]
    }

    pub(super) fn splits_sums(&self) -> bool {
        self.pick == Pick::Fastest
    }
}

/// The same by the definition, in f64: what a product on a card is compared with.
pub fn reference(product: &Product, a: &[f64], b: &[f64], c: &[f64]) -> Result<Vec<f64>> {
    product.check([a.len(), b.len(), c.len()])?;
    let Product { m, n, k, .. } = *product;
    let left = |row: usize, inner: usize| match product.left {
        Left::Rows => a[row * k + inner],
        Left::Columns => a[inner * m + row],
    };
    let right = |row: usize, column: usize| match product.right {
        Right::Rows => b[row * n + column],
        Right::Columns => b[column * k + row],
    };
    let element = |row: usize, column: usize| {
        let sum: f64 = (0..k).map(|inner| left(row, inner) * right(inner, column)).sum();
        let before = if product.beta == 0.0 { 0.0 } else { f64::from(product.beta) * c[row * n + column] };
        f64::from(product.alpha) * sum + before
    };
    Ok((0..m).flat_map(|row| (0..n).map(move |column| (row, column))).map(|(r, c)| element(r, c)).collect())
}

/// An element that cuBLASLt multiplies.
pub trait BlasElement: Pod {
    /// Its type as the device names it.
    const TYPE: MatrixScalar;
}

/// A float of 8 bits, 4 of them exponent and 3 mantissa.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct E4m3(pub u8);

/// A float of 8 bits, 5 of them exponent and 2 mantissa.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct E5m2(pub u8);

macro_rules! elements {
    ($($type:ty => $scalar:ident),* $(,)?) => {$(
        impl BlasElement for $type {
            const TYPE: MatrixScalar = MatrixScalar::$scalar;
        }
    )*};
}

elements! { f32 => F32, half::f16 => F16, half::bf16 => Bf16, E4m3 => E4m3, E5m2 => E5m2 }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_checked_against_lengths() {
        let product = Product::new(2, 4, 3);
        assert!(product.check([6, 12, 8]).is_ok());
        let told = |found| product.check(found).unwrap_err().to_string();
        assert_eq!(told([5, 12, 8]), "Blas::multiply: a is 2 x 3 and was given 5 elements");
        assert_eq!(told([6, 12, 9]), "Blas::multiply: c is 2 x 4 and was given 9 elements");
        assert!(Product::new(2, 4, 0).check([0, 0, 8]).is_err());
        assert!(Product::new(1 << 40, 1, 1).check([1, 1, 1]).is_err());
        assert!(Product::new(0, 4, 3).check([0, 12, 0]).is_ok());
    }

    #[test]
    fn the_reference_takes_either_layout_and_factors() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let product = Product::new(2, 2, 3);
        let rows = reference(&product, &a, &b, &[0.0; 4]).unwrap();
        assert_eq!(rows, [22.0, 28.0, 49.0, 64.0]);
        // The same matrix in columns.
        let columns = [1.0, 3.0, 5.0, 2.0, 4.0, 6.0];
        assert_eq!(reference(&product.right_in_columns(), &a, &columns, &[0.0; 4]).unwrap(), rows);
        let left_columns = [1.0, 4.0, 2.0, 5.0, 3.0, 6.0];
        assert_eq!(reference(&product.left_in_columns(), &left_columns, &b, &[0.0; 4]).unwrap(), rows);
        let scaled = reference(&product.scaled(2.0, 0.5), &a, &b, &[2.0; 4]).unwrap();
        assert_eq!(scaled, [45.0, 57.0, 99.0, 129.0]);
        // What c held does not matter without a factor.
        assert_eq!(reference(&product, &a, &b, &[f64::NAN; 4]).unwrap(), rows);
        assert!(reference(&product, &a, &b[1..], &[0.0; 4]).is_err());
    }

    #[test]
    fn the_emulated_device_refuses_with_a_sentence() {
        let stream = crate::Device::emulated(0).unwrap().stream().unwrap();
        let error = super::super::Blas::new(&stream).unwrap_err();
        assert!(matches!(error, Error::NeedsCard { .. }), "{error}");
        assert_eq!(error.to_string(), "cuBLASLt runs on a card only: open the device 'cuda', not 'emulated'");
    }
}
