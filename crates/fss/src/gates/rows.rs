//! Rows of different lengths.

use crate::error::{Error, Result};
use crate::formula::Places;

/// Rows of public lengths, one after the other without gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    lengths: Vec<usize>,
}

impl Rows {
    /// Rows of these lengths, each at least one.
    pub fn ragged(lengths: Vec<usize>) -> Result<Self> {
        if lengths.is_empty() || lengths.contains(&0) {
            return Err(Error::Shape { gate: "rows", what: "a row without elements".into() });
        }
        Ok(Self { lengths })
    }

    /// `rows` rows of `width`.
    pub fn full(rows: usize, width: usize) -> Result<Self> {
        Self::ragged(vec![width; rows])
    }

    /// The lower triangle of `heads` square matrices: row i has i + 1 elements.
    pub fn causal(heads: usize, rows: usize) -> Result<Self> {
        Self::ragged((0..heads).flat_map(|_| 1..=rows).collect())
    }

    /// Length of each row.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Elements of all rows.
    pub fn elements(&self) -> usize {
        self.lengths.iter().sum()
    }

    /// Elements of the longest row.
    pub fn longest(&self) -> usize {
        self.lengths.iter().copied().max().unwrap_or(0)
    }

    /// The row of each element.
    pub fn row_of(&self) -> Result<Places> {
        Places::of_shape("rows of elements", &self.lengths, || {
            let rows = self.lengths.iter().enumerate();
            Places::new(rows.flat_map(|(row, &length)| std::iter::repeat_n(row, length)))
        })
    }

    /// Where these rows' elements are in a matrix of rows of `width`.
    pub fn places_in(&self, width: usize) -> Result<Places> {
        Places::of_shape("elements in a matrix", &self.and(width), || {
            let rows = self.lengths.iter().enumerate();
            Places::new(rows.flat_map(|(row, &length)| row * width..row * width + length))
        })
    }

    /// The element that is at each place of a matrix of rows of `width`: nowhere behind the end of its row.
    pub fn elements_of(&self, width: usize) -> Result<Places> {
        Places::of_shape("a matrix of elements", &self.and(width), || {
            let mut start = 0;
            let rows = self.lengths.iter().flat_map(|&length| {
                let first = start;
                start += length;
                (0..width).map(move |column| (column < length).then_some(first + column))
            });
            Places::of(rows)
        })
    }

    /// The shape of these rows in a matrix of rows of `width`.
    fn and(&self, width: usize) -> Vec<usize> {
        [&self.lengths[..], &[width]].concat()
    }
}
