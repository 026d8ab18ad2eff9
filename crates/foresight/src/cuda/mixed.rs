//! What lies between products of bf16 in a step whose stream and weights are f32.

use gatework_gpu::{Grid, Kernel, Slice, Stream, View, ViewMut, args};
use half::bf16;

use super::kernels;
use super::segments::require;
use super::shared::REDUCE_THREADS;
use crate::error::{Error, Result};

fn kernel(stream: &Stream, name: &'static str) -> Result<Kernel> {
    Ok(stream.device().kernel_of(&kernels::mixed(), name)?)
}

/// A thread for every four numbers.
fn by_fours(count: usize) -> Grid {
    Grid::covering(count.div_ceil(4), REDUCE_THREADS)
}

/// Refuses lists whose first number is not at a multiple of four.
fn require_fours(addresses: &[(u64, usize)]) -> Result<()> {
    if addresses.iter().all(|(address, bytes)| address.is_multiple_of(4 * *bytes as u64)) {
        return Ok(());
    }
    Err(Error::shape("what is read by fours must begin at a multiple of four numbers"))
}

fn single(x: &Slice<'_, f32>) -> (u64, usize) {
    (x.as_raw(), size_of::<f32>())
}

fn half(x: &Slice<'_, bf16>) -> (u64, usize) {
    (x.as_raw(), size_of::<bf16>())
}

/// `to ← bf16(x)`.
pub fn round(stream: &Stream, x: &impl View<f32>, to: &mut impl ViewMut<bf16>) -> Result<()> {
    let (x, to) = (x.view(), to.view_mut());
    require("to", to.view().len(), x.len())?;
    require_fours(&[single(&x), half(&to.view())])?;
    Ok(kernel(stream, "rounded")?.launch(stream, &by_fours(x.len()), &args![x, to, x.len() as u64])?)
}

/// `to ← bf16(x + bias)` of every row.
pub fn round_with_bias(
    stream: &Stream,
    x: &impl View<f32>,
    bias: &impl View<f32>,
    to: &mut impl ViewMut<bf16>,
) -> Result<()> {
    let (x, bias, to) = (x.view(), bias.view(), to.view_mut());
    require("to", to.view().len(), x.len())?;
    require_fours(&[single(&x), half(&to.view())])?;
    let arguments = args![x, bias, to, x.len() as u64, width(x.len(), bias.len())?];
    Ok(kernel(stream, "round_with_bias")?.launch(stream, &by_fours(x.len()), &arguments)?)
}

/// `to ← x + bias` of every row.
pub fn with_bias(
    stream: &Stream,
    x: &impl View<f32>,
    bias: &impl View<f32>,
    to: &mut impl ViewMut<f32>,
) -> Result<()> {
    let (x, bias, to) = (x.view(), bias.view(), to.view_mut());
    require("to", to.view().len(), x.len())?;
    require_fours(&[single(&x), single(&to.view())])?;
    let arguments = args![x, bias, to, x.len() as u64, width(x.len(), bias.len())?];
    Ok(kernel(stream, "with_bias")?.launch(stream, &by_fours(x.len()), &arguments)?)
}

/// `x ← x + bias` of every row, and `to ← bf16(gelu(x))`, in GPT-2's form.
pub fn bias_gelu(
    stream: &Stream,
    x: &mut impl ViewMut<f32>,
    bias: &impl View<f32>,
    to: &mut impl ViewMut<bf16>,
) -> Result<()> {
    let (x, bias, to) = (x.view_mut(), bias.view(), to.view_mut());
    let count = x.view().len();
    require("to", to.view().len(), count)?;
    require_fours(&[single(&x.view()), half(&to.view())])?;
    let arguments = args![x, bias, to, count as u64, width(count, bias.len())?];
    Ok(kernel(stream, "bias_gelu")?.launch(stream, &by_fours(count), &arguments)?)
}

/// `to ← bf16(gelu(x))`.
pub fn round_gelu(stream: &Stream, x: &impl View<f32>, to: &mut impl ViewMut<bf16>) -> Result<()> {
    let (x, to) = (x.view(), to.view_mut());
    require("to", to.view().len(), x.len())?;
    require_fours(&[single(&x), half(&to.view())])?;
    Ok(kernel(stream, "round_gelu")?.launch(stream, &by_fours(x.len()), &args![x, to, x.len() as u64])?)
}

/// `to ← bf16(d · gelu'(x))`.
pub fn gelu_back(
    stream: &Stream,
    x: &impl View<f32>,
    d: &impl View<f32>,
    to: &mut impl ViewMut<bf16>,
) -> Result<()> {
    let (x, d, to) = (x.view(), d.view(), to.view_mut());
    require("d", d.len(), x.len())?;
    require("to", to.view().len(), x.len())?;
    require_fours(&[single(&x), single(&d), half(&to.view())])?;
    Ok(kernel(stream, "gelu_back")?.launch(stream, &by_fours(x.len()), &args![x, d, to, x.len() as u64])?)
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
