//! Sums of rows and columns.

use gatework_gpu::{Grid, args};

use crate::backend::Sums;
use crate::error::Result;
use crate::ring::Ring;

use super::kernels;
use super::queue::Queue;
use super::shared::SUMS_THREADS;
use super::words::{DeviceWords, expect_words};

pub(super) fn sums(queue: &Queue, words: &DeviceWords, sums: Sums<'_>, ring: Ring) -> Result<DeviceWords> {
    let count = sums.count(words.len());
    let mut found = queue.alloc(count)?;
    if count == 0 {
        return Ok(found);
    }
    if let Sums::Columns(columns) = sums {
        let rows = (words.len() / columns) as u64;
        let grid = Grid::covering(count, SUMS_THREADS);
        queue.launch(
            &kernels::SUMS,
            "column_sums",
            &grid,
            &args![words, columns as u64, rows, ring.mask(), &mut found],
        )?;
        return Ok(found);
    }
    // Where rows have one width, their ends are not read.
    let (width, ends) = match sums {
        Sums::Ragged(lengths) => {
            expect_words("sums of rows", words, lengths.iter().sum())?;
            let end = |end: &mut u64, length: &usize| {
                *end += *length as u64;
                Some(*end)
            };
            (0, lengths.iter().scan(0, end).collect())
        }
        Sums::Rows(width) | Sums::Columns(width) => (width as u64, Vec::new()),
    };
    let (ragged, ends) = (u32::from(!ends.is_empty()), queue.upload(&ends)?);
    let grid = Grid::covering(32 * count, SUMS_THREADS);
    queue.launch(
        &kernels::SUMS,
        "row_sums",
        &grid,
        &args![words, &ends, ragged, width, count as u64, ring.mask(), &mut found],
    )?;
    Ok(found)
}
