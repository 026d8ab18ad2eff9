//! Products of matrices.

use gatework_gpu::{Grid, args};

use crate::backend::{Layout, MatmulShape};
use crate::error::{Error, Result};

use super::kernels;
use super::queue::Queue;
use super::shared::{GEMM_DEPTH, GEMM_TILE};
use super::words::DeviceWords;

/// Whether a kernel adds to what is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// The sums are not written yet.
    Zero,
    /// They are added to.
    Sums,
}

/// sums ← (0 or sums) + a b modulo 2^64, for every matrix of a batch.
pub(super) fn accumulate(
    queue: &Queue,
    shape: MatmulShape,
    layout: Layout,
    a: &DeviceWords,
    b: &DeviceWords,
    start: Start,
    sums: &mut DeviceWords,
) -> Result<()> {
    let wide = |size: usize| {
        let what = || format!("a side of {size}: a device takes sides below 2^31");
        i32::try_from(size)
            .map(|size| size as u32)
            .map_err(|_| Error::Unsupported { gate: "a matrix product", what: what() })
    };
    let (rows, inner, columns) = (wide(shape.rows)?, wide(shape.inner)?, wide(shape.columns)?);
    if sums.is_empty() {
        return Ok(());
    }
    let transposed = u32::from(layout == Layout::Transposed);
    let blocks = [columns.div_ceil(GEMM_TILE), rows.div_ceil(GEMM_TILE), wide(shape.batch)?];
    let shared = 2 * GEMM_DEPTH * (GEMM_TILE + 1) * size_of::<u64>() as u32;
    queue.launch(
        &kernels::GEMM,
        "multiply_words",
        &Grid::new(blocks, [256, 1, 1]).shared(shared),
        &args![a, b, rows, inner, columns, transposed, u32::from(start == Start::Sums), sums],
    )
}
