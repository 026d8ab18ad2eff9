//! Matrices as libraries for cards name them.

/// An element of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MatrixScalar {
    /// 32-bit float.
    F32,
    /// 16-bit float.
    F16,
    /// The upper half of a 32-bit float.
    Bf16,
    /// 8-bit float with 3 bits of mantissa.
    E4m3,
    /// 8-bit float with 2 bits of mantissa.
    E5m2,
}

/// How a factor of a product lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum FactorLayout {
    Rows,
    Columns,
}
