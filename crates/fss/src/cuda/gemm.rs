//! Products of matrices: word by word, or in limbs of 8 bits on integer tensor cores.

use gatework_gpu::{Buffer, Grid, SliceMut, View as _, args};

use crate::backend::{Layout, MatmulShape, Sums};
use crate::error::{Error, Result};
use crate::ring::Ring;

use super::kernels;
use super::queue::Queue;
use super::schedule::ProductForm;
use super::shared::{GEMM_DEPTH, GEMM_TILE, LIMB_DEPTH, LIMB_THREADS, LIMB_TILE};
use super::sums::sums as add_up;
use super::words::{DeviceWords, LimbPlanes, TensorWords, expect_words};

/// Whether a kernel adds to what is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// The sums are not written yet.
    Zero,
    /// They are added to.
    Sums,
}

/// Most inner indices of a slice in limbs: 8 limbs times as many products of at most 2^14 stay below 2^31.
const MOST_INNER: u32 = 8192;
/// Fewest, where a product is sliced only to be spread over the device.
const LEAST_INNER: u32 = 2 * LIMB_DEPTH;

/// A product in a ring, with sides that kernels can count.
#[derive(Clone, Copy)]
pub(super) struct Product {
    batch: u32,
    rows: u32,
    inner: u32,
    columns: u32,
    layout: Layout,
    ring: Ring,
}

impl Product {
    pub(super) fn new(shape: MatmulShape, layout: Layout, ring: Ring) -> Result<Self> {
        let wide = |size: usize| {
            let what = || format!("a side of {size}: a device takes sides below 2^31");
            let size = i32::try_from(size).map(|size| size as u32);
            size.map_err(|_| Error::Unsupported { gate: "a matrix product", what: what() })
        };
        let MatmulShape { batch, rows, inner, columns } = shape;
        let (batch, rows, inner, columns) = (wide(batch)?, wide(rows)?, wide(inner)?, wide(columns)?);
        Ok(Self { batch, rows, inner, columns, layout, ring })
    }

    fn in_limbs(&self, form: ProductForm) -> bool {
        match form {
            ProductForm::Words => false,
            ProductForm::Limbs => true,
            ProductForm::LimbsFrom(side) => self.rows.min(self.inner).min(self.columns) as usize >= side,
        }
    }
}

/// sums ← ((0 or sums) + a b) in the ring, for every matrix of a batch.
pub(super) fn accumulate(
    queue: &Queue,
    form: ProductForm,
    product: Product,
    [a, b]: [&TensorWords; 2],
    start: Start,
    sums: &mut DeviceWords,
) -> Result<()> {
    let sides = [product.batch, product.rows, product.inner, product.columns].map(|side| side as usize);
    let [batch, rows, inner, columns] = sides;
    for (words, one) in [(&a.words, rows * inner), (&b.words, inner * columns), (&*sums, rows * columns)] {
        expect_words("a matrix product", words, batch * one)?;
    }
    if sums.is_empty() {
        return Ok(());
    }
    if inner > 0 && product.in_limbs(form) {
        return by_limbs(queue, product, [a, b], start, sums);
    }
    by_words(queue, product, [&a.words, &b.words], start, sums)
}

fn by_words(
    queue: &Queue,
    product: Product,
    [a, b]: [&DeviceWords; 2],
    start: Start,
    sums: &mut DeviceWords,
) -> Result<()> {
    let Product { batch, rows, inner, columns, layout, ring } = product;
    let transposed = u32::from(layout == Layout::Transposed);
    let blocks = [columns.div_ceil(GEMM_TILE), rows.div_ceil(GEMM_TILE), batch];
    let shared = 2 * GEMM_DEPTH * (GEMM_TILE + 1) * size_of::<u64>() as u32;
    let accumulate = u32::from(start == Start::Sums);
    queue.launch(
        &kernels::GEMM,
        "multiply_words",
        &Grid::new(blocks, [256, 1, 1]).shared(shared),
        &args![a, b, rows, inner, columns, transposed, ring.mask(), accumulate, sums],
    )
}

/// What a product in limbs takes beside its result, in bytes.
pub(super) struct ProductMemory {
    /// Digits of the left factor, for as long as it runs.
    pub(super) left: u64,
    /// Digits of the right factor, which stay with its words.
    pub(super) planes: LimbPlanes,
    pub(super) right: u64,
    /// Parts whose sums are added up afterwards.
    pub(super) slices: u64,
}

/// The same for a product in a form; none where words are multiplied.
pub(super) fn memory(queue: &Queue, form: ProductForm, product: Product) -> Option<ProductMemory> {
    let Product { batch, rows, inner, columns, layout, ring } = product;
    if batch == 0 || rows == 0 || columns == 0 || inner == 0 || !product.in_limbs(form) {
        return None;
    }
    let limbs = ring.bits().div_ceil(8);
    let planes = LimbPlanes { limbs, batch, rows: columns, inner, by_inner: layout == Layout::Plain };
    let padded = inner.next_multiple_of(LIMB_DEPTH);
    let digits = |rows: u32| u64::from(batch) * u64::from(limbs) * u64::from(rows) * u64::from(padded);
    let slices = Tiling::of(queue, &product, limbs).slices.into();
    Some(ProductMemory { left: digits(rows), planes, right: digits(columns), slices })
}

fn by_limbs(
    queue: &Queue,
    product: Product,
    [a, b]: [&TensorWords; 2],
    start: Start,
    sums: &mut DeviceWords,
) -> Result<()> {
    let Product { batch, rows, inner, columns, layout, ring } = product;
    let limbs = ring.bits().div_ceil(8);
    let by_inner = layout == Layout::Plain;
    let left = split(queue, &a.words, LimbPlanes { limbs, batch, rows, inner, by_inner: false })?;
    // The right factor may be a model's weights, which every inference multiplies with.
    let right = LimbPlanes { limbs, batch, rows: columns, inner, by_inner };
    let right = b.planes(right, |planes| split(queue, &b.words, planes))?;
    let padded = inner.next_multiple_of(LIMB_DEPTH);
    let Tiling { kernel, grid, each, slices } = Tiling::of(queue, &product, limbs);
    let launch = |accumulate: Start, sums: SliceMut<'_, u64>| {
        let accumulate = u32::from(accumulate == Start::Sums);
        let (left, right) = (left.view().as_bytes(), right.view().as_bytes());
        queue.launch(
            &kernels::LIMBS.define("LIMBS", limbs),
            kernel,
            &grid,
            &args![left, right, rows, columns, padded, each, ring.mask(), accumulate, sums],
        )
    };
    if slices == 1 {
        return launch(start, sums.slice_mut(..));
    }
    // Sums of every slice one after the other, and what they are added to: the sums of their columns are the
    // product.
    let (len, started) = (sums.len(), usize::from(start == Start::Sums));
    let mut partial = queue.alloc::<u64>((slices as usize + started) * len)?;
    launch(Start::Zero, partial.slice_mut(..slices as usize * len))?;
    if start == Start::Sums {
        queue.stream().copy(&*sums, &mut partial.slice_mut(slices as usize * len..))?;
    }
    *sums = add_up(queue, &partial, Sums::Columns(len), ring)?;
    Ok(())
}

/// How a product in limbs is spread over blocks.
struct Tiling {
    kernel: &'static str,
    grid: Grid,
    /// Inner indices of a slice.
    each: u32,
    slices: u32,
}

impl Tiling {
    /// Narrow tiles where wide ones would be two for a multiprocessor at most: they take about as long, and
    /// leave half of a multiprocessor to the kernels of other streams.
    fn of(queue: &Queue, product: &Product, limbs: u32) -> Self {
        let Product { batch, rows, inner, columns, .. } = *product;
        let multiprocessors = u64::from(queue.device().properties().multiprocessors);
        // With 8 limbs the sums of 32 columns would not fit a warp's registers.
        let warp_columns = if limbs == 8 { 16 } else { 32 };
        let tiles = |across: u32| {
            let tiles = [columns.div_ceil(warp_columns * across), rows.div_ceil(LIMB_TILE)];
            (tiles, u64::from(tiles[0]) * u64::from(tiles[1]) * u64::from(batch))
        };
        let wide = tiles(2).1 > 2 * multiprocessors;
        let (kernel, across) = if wide { ("multiply_limbs", 2) } else { ("multiply_narrow", 1) };
        let ([in_x, in_y], in_all) = tiles(across);
        let room = if wide { multiprocessors } else { 2 * multiprocessors };
        let padded = inner.next_multiple_of(LIMB_DEPTH);
        let each = slice_length(room / in_all, padded);
        let slices = padded.div_ceil(each);
        // Two stages of two tiles, whose rows are 16 bytes longer than their digits.
        let shared = 2 * limbs * (LIMB_TILE + warp_columns * across) * (LIMB_DEPTH + 16);
        let grid = Grid::new([in_x, in_y, batch * slices], [LIMB_THREADS * across, 1, 1]).shared(shared);
        Self { kernel, grid, each, slices }
    }
}

/// Inner indices of a slice: few enough for the slices that are wanted, though several steps at least.
fn slice_length(wanted: u64, padded: u32) -> u32 {
    let wanted = wanted.clamp(1, u64::from(padded / LEAST_INNER).max(1)) as u32;
    padded.div_ceil(wanted).next_multiple_of(LIMB_DEPTH).min(MOST_INNER)
}

/// Digits of words, plane by plane, four in a word.
fn split(queue: &Queue, words: &DeviceWords, planes: LimbPlanes) -> Result<Buffer<u32>> {
    let LimbPlanes { limbs, batch, rows, inner, by_inner } = planes;
    let padded = inner.next_multiple_of(LIMB_DEPTH);
    let groups = rows as usize * padded as usize / 4;
    let mut digits = queue.alloc(batch as usize * limbs as usize * groups)?;
    let line = Grid::covering(groups, 256);
    queue.launch(
        &kernels::LIMBS.define("LIMBS", limbs),
        "split_words",
        &Grid::new([line.blocks[0], batch, 1], line.threads),
        &args![words, rows, inner, padded, u32::from(by_inner), &mut digits],
    )?;
    Ok(digits)
}
