//! What lies between products of bf16 in a step whose stream and weights are f32.

use gatework_gpu::{Grid, Kernel, Stream, View, ViewMut, args};
use half::bf16;

use super::kernels;
use super::segments::require;
use super::shared::{REDUCE_THREADS, TURN_LINES, TURN_SIDE};
use crate::error::{Error, Result};

fn kernel(stream: &Stream, name: &'static str) -> Result<Kernel> {
    Ok(stream.device().kernel_of(&kernels::mixed(), name)?)
}

/// `to ← bf16(x)`.
pub fn round(stream: &Stream, x: &impl View<f32>, to: &mut impl ViewMut<bf16>) -> Result<()> {
    let count = x.view().len();
    require("to", to.view().len(), count)?;
    let (x, to) = (x.view(), to.view_mut());
    if !x.as_raw().is_multiple_of(16) || !to.view().as_raw().is_multiple_of(8) {
        return Err(Error::shape("what is rounded must begin at a multiple of four numbers"));
    }
    let grid = Grid::covering(count.div_ceil(4), REDUCE_THREADS);
    Ok(kernel(stream, "rounded")?.launch(stream, &grid, &args![x, to, count as u64])?)
}

/// `to ← bf16(x + bias)` of every row.
pub fn round_with_bias(
    stream: &Stream,
    x: &impl View<f32>,
    bias: &impl View<f32>,
    to: &mut impl ViewMut<bf16>,
) -> Result<()> {
    let (x, bias) = (x.view(), bias.view());
    require("to", to.view().len(), x.len())?;
    let grid = Grid::covering(x.len(), REDUCE_THREADS);
    let arguments = args![x, bias, to.view_mut(), x.len() as u64, width(x.len(), bias.len())?];
    Ok(kernel(stream, "round_with_bias")?.launch(stream, &grid, &arguments)?)
}

/// `to ← x + bias` of every row.
pub fn with_bias(
    stream: &Stream,
    x: &impl View<f32>,
    bias: &impl View<f32>,
    to: &mut impl ViewMut<f32>,
) -> Result<()> {
    let (x, bias) = (x.view(), bias.view());
    require("to", to.view().len(), x.len())?;
    let grid = Grid::covering(x.len(), REDUCE_THREADS);
    let arguments = args![x, bias, to.view_mut(), x.len() as u64, width(x.len(), bias.len())?];
    Ok(kernel(stream, "with_bias")?.launch(stream, &grid, &arguments)?)
}

/// `to ← bf16(gelu(x))`.
pub fn round_gelu(stream: &Stream, x: &impl View<f32>, to: &mut impl ViewMut<bf16>) -> Result<()> {
    let x = x.view();
    require("to", to.view().len(), x.len())?;
    let grid = Grid::covering(x.len(), REDUCE_THREADS);
    Ok(kernel(stream, "round_gelu")?.launch(stream, &grid, &args![x, to.view_mut(), x.len() as u64])?)
}

/// `to ← fromᵀ`, where `from` has so many rows and columns.
pub fn turn(
    stream: &Stream,
    [rows, columns]: [usize; 2],
    from: &impl View<bf16>,
    to: &mut impl ViewMut<bf16>,
) -> Result<()> {
    require("from", from.view().len(), rows * columns)?;
    require("to", to.view().len(), rows * columns)?;
    let blocks = [columns, rows].map(|side| side.div_ceil(TURN_SIDE as usize) as u32);
    let shared = TURN_SIDE * (TURN_SIDE + 1) * size_of::<bf16>() as u32;
    let grid = Grid::new([blocks[0], blocks[1], 1], [TURN_SIDE * TURN_LINES, 1, 1]).shared(shared);
    let arguments = args![from.view(), to.view_mut(), rows as u32, columns as u32];
    Ok(kernel(stream, "turn")?.launch(stream, &grid, &arguments)?)
}

/// `average ← keep average + (1 − keep) x`, with the CPU's bits.
pub fn average(
    stream: &Stream,
    average: &mut impl ViewMut<f32>,
    x: &impl View<f32>,
    keep: f32,
) -> Result<()> {
    let x = x.view();
    require("average", average.view().len(), x.len())?;
    let grid = Grid::covering(x.len(), REDUCE_THREADS);
    let arguments = args![average.view_mut(), x, keep, 1.0 - keep, x.len() as u64];
    Ok(kernel(stream, "average")?.launch(stream, &grid, &arguments)?)
}

/// `to ← to + factor x`, with the CPU's bits.
pub fn add_scaled(
    stream: &Stream,
    to: &mut impl ViewMut<f32>,
    x: &impl View<f32>,
    factor: f32,
) -> Result<()> {
    let x = x.view();
    require("to", to.view().len(), x.len())?;
    let grid = Grid::covering(x.len(), REDUCE_THREADS);
    let arguments = args![to.view_mut(), x, factor, x.len() as u64];
    Ok(kernel(stream, "add_scaled")?.launch(stream, &grid, &arguments)?)
}

/// Columns of rows that a bias is of.
fn width(numbers: usize, bias: usize) -> Result<u32> {
    if bias > 0 && numbers.is_multiple_of(bias) && u32::try_from(numbers).is_ok() {
        return Ok(bias as u32);
    }
    Err(Error::shape(format!("{numbers} numbers are no rows of {bias}, or more than 2^32")))
}
