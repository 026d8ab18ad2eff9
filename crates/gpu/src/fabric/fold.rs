//! Reductions: what is folded, and in which order.

use bytemuck::Pod;

use crate::source::Module;
use crate::{Error, Result, kernels};

/// How two elements become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Their sum: of integers modulo 2ⁿ, of floats rounded to nearest.
    Sum,
    /// The smaller one. Integers only.
    Min,
    /// The larger one. Integers only.
    Max,
    /// Bits in which they differ. Integers only.
    Xor,
}

impl Operation {
    /// The function of `kernels/fold.cuh`.
    pub(super) fn function(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Min => "smaller",
            Self::Max => "larger",
            Self::Xor => "exclusive_or",
        }
    }
}

/// What a reduction computes: an operation over rows, of which every rank has as many.
///
/// Row `j` of rank `r` is row `r * rows + j` of all. Element `i` of the result is the left fold `((x[0][i] ∘
/// x[1][i]) ∘ x[2][i]) ∘ …` over all rows in that order, whatever arrives first and whichever rank computes
/// it. So 8 rows of floats have a sum of the same bits on 8 ranks with a row each, on 4 with two, and on one
/// with eight.
///
/// Where a sum is not a number, the bits of that NaN are those that the processor gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reduction {
    pub(super) operation: Operation,
    pub(super) rows: usize,
}

impl Reduction {
    /// Every rank has one row.
    pub fn new(operation: Operation) -> Self {
        Self { operation, rows: 1 }
    }

    /// Every rank has so many rows, one after another.
    pub fn rows(self, rows: usize) -> Self {
        Self { rows, ..self }
    }

    /// The kernel that folds rows of such elements on a device. What is [prepared](crate::Device::prepare)
    /// keeps no rank waiting for a compiler.
    pub fn module<T: Element>(&self) -> Module {
        kernels::fold(T::NAME, self.operation.function())
    }

    /// Refuses what is not defined; `len` elements in all rows of one rank.
    pub(super) fn check<T: Element>(&self, call: &'static str, len: usize) -> Result<usize> {
        let refuse = |message: String| Err(Error::Length { call, message });
        if !T::EXACT && self.operation != Operation::Sum {
            return refuse(format!("{:?} is for integers, and these are {}", self.operation, T::NAME));
        }
        if self.rows == 0 || !len.is_multiple_of(self.rows) {
            return refuse(format!("{len} elements are not {} whole rows", self.rows));
        }
        Ok(len / self.rows)
    }
}

/// Numbers that ranks can reduce: `u32`, `u64`, `f32` and `f64`.
pub trait Element: Pod + sealed::Sealed {
    /// The name of the type in kernels.
    #[doc(hidden)]
    const NAME: &'static str;
    /// Whether rows may be folded in any order.
    #[doc(hidden)]
    const EXACT: bool;
    #[doc(hidden)]
    fn combine(operation: Operation, left: Self, right: Self) -> Self;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

macro_rules! integers {
    ($($integer:ident)*) => {$(
        impl Element for $integer {
            const NAME: &'static str = stringify!($integer);
            const EXACT: bool = true;
            fn combine(operation: Operation, left: Self, right: Self) -> Self {
                match operation {
                    Operation::Sum => left.wrapping_add(right),
                    Operation::Min => left.min(right),
                    Operation::Max => left.max(right),
                    Operation::Xor => left ^ right,
                }
            }
        }
    )*};
}

macro_rules! floats {
    ($($float:ident)*) => {$(
        impl Element for $float {
            const NAME: &'static str = stringify!($float);
            const EXACT: bool = false;
            fn combine(_: Operation, left: Self, right: Self) -> Self {
                left + right
            }
        }
    )*};
}

integers!(u32 u64);
floats!(f32 f64);

/// Elements that the rank with this number has of `len` elements that are dealt out over all ranks: `(start,
/// len)`. Parts differ by one at most, the first ones being the longer.
pub fn part_of(len: usize, ranks: usize, rank: usize) -> (usize, usize) {
    let ranks = ranks.max(1);
    let (each, more) = (len / ranks, len % ranks);
    (rank * each + rank.min(more), each + usize::from(rank < more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_elements_once_and_evenly() {
        for ranks in 1..10 {
            for len in 0..50 {
                let mut next = 0;
                for rank in 0..ranks {
                    let (start, count) = part_of(len, ranks, rank);
                    assert_eq!(start, next);
                    assert!(count == len / ranks || count == len / ranks + 1);
                    next += count;
                }
                assert_eq!(next, len);
            }
        }
    }

    #[test]
    fn floats_are_summed_and_nothing_else() {
        let refused = Reduction::new(Operation::Max).check::<f32>("reduce", 4).unwrap_err();
        assert_eq!(refused.to_string(), "reduce: Max is for integers, and these are f32");
        assert!(Reduction::new(Operation::Max).check::<u32>("reduce", 4).is_ok());
        assert_eq!(Reduction::new(Operation::Sum).rows(3).check::<f64>("reduce", 12).unwrap(), 4);
        assert!(Reduction::new(Operation::Sum).rows(3).check::<f64>("reduce", 13).is_err());
        assert!(Reduction::new(Operation::Sum).rows(0).check::<f64>("reduce", 0).is_err());
    }
}
