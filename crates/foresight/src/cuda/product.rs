//! Products of matrices of bf16 with sums in f32: by a kernel of our own, or by cuBLASLt.

#[cfg(feature = "blas")]
use gatework_gpu::Buffer;
use gatework_gpu::shared::Code as _;
use gatework_gpu::{ByValue, Grid, Slice, Stream, View, ViewMut, args};
use half::bf16;

use super::kernels;
#[cfg(feature = "blas")]
use super::mixed;
use super::segments::require;
pub(super) use super::shared::ProductPart as Part;
use super::shared::{PRODUCT_THREADS, PRODUCT_TILE, ProductShape};
use crate::error::{Error, Result};

/// Tiles of shared memory, at most: 64 rows of 40 numbers or 32 of 72, for both matrices.
const SHARED_BYTES: u32 = 2 * 64 * 40 * 2;
/// Numbers that are read in one access where all rows begin at multiples of so many.
const GROUP: usize = 8;
/// Matrices of one launch: blocks along the grid's third axis.
pub(super) const MOST_MATRICES: usize = 65_535;

/// Who multiplies. They add up in other orders, so that a run is of one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProductsBy {
    /// The kernel of this crate, on a card and on the emulated device.
    Own,
    /// cuBLASLt, by algorithms that always add in the same order; on a card, with the feature `blas`.
    CublasLt,
}

impl ProductsBy {
    /// The one of that name: `own` or `cublaslt`.
    pub fn named(name: &str) -> Result<Self> {
        match name {
            "own" => Ok(Self::Own),
            "cublaslt" => Ok(Self::CublasLt),
            other => Err(Error::config(format!("'run.products' is '{other}': it is own or cublaslt"))),
        }
    }

    /// Refuses cuBLASLt where this program was built without it.
    pub(crate) fn require(self) -> Result<()> {
        if self == Self::Own || cfg!(feature = "blas") {
            return Ok(());
        }
        Err(Error::config(
            "'run.products' is 'cublaslt', and this program was built without the feature 'blas': build it with that, \
             or use 'own'",
        ))
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::CublasLt => "cublaslt",
        }
    }
}

/// Which of both matrices lies as its transpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turned {
    /// `A B`.
    Neither,
    /// `Aᵀ B`, where `A` has `k` rows of `m` numbers.
    Left,
    /// `A Bᵀ`, where `B` has `n` rows of `k` numbers.
    Right,
}

impl Turned {
    fn sides(self) -> [bool; 2] {
        [self == Self::Left, self == Self::Right]
    }
}

/// What becomes of what the result's memory held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// It is written over, and not read.
    Over,
    /// It is added to.
    Onto,
}

/// Products on one stream.
#[derive(Debug)]
pub struct Products {
    stream: Stream,
    by: By,
}

#[derive(Debug)]
enum By {
    Own,
    #[cfg(feature = "blas")]
    CublasLt {
        blas: gatework_gpu::blas::Blas,
        /// A left matrix, transposed: the library takes it row by row.
        turned: Option<Buffer<bf16>>,
    },
}

impl Products {
    /// Products in the order of `stream`. Fails where cuBLASLt is asked for and cannot be had; nobody steps in
    /// for it.
    pub fn new(stream: &Stream, by: ProductsBy) -> Result<Self> {
        by.require()?;
        let by = match by {
            ProductsBy::Own => By::Own,
            #[cfg(feature = "blas")]
            ProductsBy::CublasLt => {
                By::CublasLt { blas: gatework_gpu::blas::Blas::new(stream)?, turned: None }
            }
            #[cfg(not(feature = "blas"))]
            ProductsBy::CublasLt => By::Own,
        };
        Ok(Self { stream: stream.clone(), by })
    }

    /// Bytes that products hold beside their matrices, if the largest left matrix that lies as its transpose has
    /// so many numbers.
    pub(super) fn bytes(by: ProductsBy, turned: usize) -> usize {
        match by {
            ProductsBy::Own => 0,
            #[cfg(feature = "blas")]
            ProductsBy::CublasLt => gatework_gpu::blas::WORKSPACE + turned * size_of::<bf16>(),
            #[cfg(not(feature = "blas"))]
            ProductsBy::CublasLt => turned * size_of::<bf16>(),
        }
    }

    /// Who multiplies, with the version of what is not this crate's: another one may add up in another order.
    pub fn text(&self) -> String {
        match &self.by {
            By::Own => ProductsBy::Own.name().into(),
            #[cfg(feature = "blas")]
            By::CublasLt { blas, .. } => format!("{} {}", ProductsBy::CublasLt.name(), blas.version()),
        }
    }

    /// Queues `c ← A B`, or `c ← c + A B`, for whole matrices of `m × k` by `k × n`.
    pub fn multiply(
        &mut self,
        turned: Turned,
        [m, n, k]: [usize; 3],
        a: &impl View<bf16>,
        b: &impl View<bf16>,
        c: &mut impl ViewMut<f32>,
        write: Write,
    ) -> Result<()> {
        require("a", a.view().len(), m * k)?;
        require("b", b.view().len(), k * n)?;
        require("c", c.view().len(), m * n)?;
        match &mut self.by {
            By::Own => {
                let [left, right] = turned.sides();
                let rows = |row| Strides { row, outer: 0, inner: 0 };
                let a = (a.view(), rows(if left { m } else { k }));
                let b = (b.view(), rows(if right { k } else { n }));
                batched(&self.stream, turned, Part::Whole, [m, n, k], [1, 1], a, b, (c, rows(n)), write)
            }
            #[cfg(feature = "blas")]
            By::CublasLt { blas, turned: scratch } => {
                use gatework_gpu::blas::{Product, Right};
                let keep = if write == Write::Onto { 1.0 } else { 0.0 };
                let mut product = Product::new(m, n, k).deterministic().scaled(1.0, keep);
                if turned == Turned::Right {
                    product.right = Right::Columns;
                }
                if turned == Turned::Left {
                    // What is too small goes first.
                    let room = match scratch.take().filter(|found| found.len() >= m * k) {
                        Some(found) => found,
                        None => self.stream.alloc(m * k)?,
                    };
                    let room = scratch.insert(room);
                    mixed::turn(&self.stream, [k, m], a, &mut room.slice_mut(..m * k))?;
                    return Ok(blas.multiply(&self.stream, &product, &room.slice(..m * k), b, c)?);
                }
                Ok(blas.multiply(&self.stream, &product, a, b, c)?)
            }
        }
    }
}

/// Where matrices of a batch lie: from one row to the next, and from one matrix to the next of either kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Strides {
    pub(super) row: usize,
    pub(super) outer: usize,
    pub(super) inner: usize,
}

impl Strides {
    fn is_wide(self) -> bool {
        [self.row, self.outer, self.inner].iter().all(|stride| stride.is_multiple_of(GROUP))
    }

    /// One past the last number of `rows` rows of `columns` in the last matrix.
    fn end(self, batch: [usize; 2], [rows, columns]: [usize; 2]) -> usize {
        (batch[0] - 1) * self.outer + (batch[1] - 1) * self.inner + (rows - 1) * self.row + columns
    }
}

/// Queues products of `outer × inner` matrices, by the kernel of this crate.
#[expect(clippy::too_many_arguments, reason = "what a product is made of")]
pub(super) fn batched<C: ViewMut<f32>>(
    stream: &Stream,
    turned: Turned,
    part: Part,
    [m, n, k]: [usize; 3],
    [outer, inner]: [usize; 2],
    (a, a_strides): (Slice<'_, bf16>, Strides),
    (b, b_strides): (Slice<'_, bf16>, Strides),
    (c, c_strides): (&mut C, Strides),
    write: Write,
) -> Result<()> {
    let sizes = [m, n, k, outer, inner, a_strides.row, b_strides.row, c_strides.row];
    let tiles = [n, m].map(|side| side.div_ceil(PRODUCT_TILE as usize));
    if sizes.iter().any(|size| !(1..=1 << 30).contains(size))
        || outer * inner > MOST_MATRICES
        || tiles[1] > MOST_MATRICES
    {
        return Err(Error::shape(format!(
            "{outer} x {inner} products of {m} x {k} by {k} x {n}: a launch takes sides from 1 to 2^30, at most \
             {MOST_MATRICES} matrices and as many tiles of {PRODUCT_TILE} rows"
        )));
    }
    let [left, right] = turned.sides();
    let a_sides = if left { [k, m] } else { [m, k] };
    let b_sides = if right { [n, k] } else { [k, n] };
    let c_len = c.view().len();
    for (name, strides, sides, len) in [
        ("a", a_strides, a_sides, a.len()),
        ("b", b_strides, b_sides, b.len()),
        ("c", c_strides, [m, n], c_len),
    ] {
        let end = strides.end([outer, inner], sides);
        if end > len {
            return Err(Error::shape(format!("'{name}' has {len} numbers where {end} are needed")));
        }
    }
    let wide = a_strides.is_wide()
        && b_strides.is_wide()
        && [a_sides[1], b_sides[1]].iter().all(|side| side.is_multiple_of(GROUP))
        && [a.as_raw(), b.as_raw()].iter().all(|address| address.is_multiple_of(16));
    let shape = ProductShape {
        m: m as u32,
        n: n as u32,
        k: k as u32,
        inner: inner as u32,
        a_row: a_strides.row as u32,
        b_row: b_strides.row as u32,
        c_row: c_strides.row as u32,
        accumulate: u32::from(write == Write::Onto),
        a_outer: a_strides.outer as u64,
        a_inner: a_strides.inner as u64,
        b_outer: b_strides.outer as u64,
        b_inner: b_strides.inner as u64,
        c_outer: c_strides.outer as u64,
        c_inner: c_strides.inner as u64,
        part: part.code(),
        unused: 0,
    };
    let blocks = [tiles[0] as u32, tiles[1] as u32, (outer * inner) as u32];
    let grid = Grid::new(blocks, [PRODUCT_THREADS, 1, 1]).shared(SHARED_BYTES);
    let kernel = stream.device().kernel_of(&kernels::product(turned.sides(), wide), "product")?;
    Ok(kernel.launch(stream, &grid, &args![a, b, c.view_mut(), ByValue(&shape)])?)
}
