//! Products of matrices of bf16 with sums in f32: by a kernel of our own, or by cuBLASLt.

use gatework_gpu::{ByValue, Grid, Stream, View, ViewMut, args};
use half::bf16;

use super::kernels;
use super::segments::require;
use super::shared::{PRODUCT_STAGES, ProductShape};
use crate::error::{Error, Result};

/// Sides of a block's tile: the larger where there is one for every multiprocessor.
const TILES: [usize; 2] = [64, 128];
/// Numbers that are read in one access where all rows begin at multiples of so many.
const GROUP: usize = 8;
/// Numbers along `k` of a step.
const DEPTH: usize = 32;
/// Tiles of rows of one launch: blocks along the grid's second axis.
const MOST_TILES: usize = 65_535;

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
    CublasLt(gatework_gpu::blas::Blas),
}

impl Products {
    /// Products in the order of `stream`. Fails where cuBLASLt is asked for and cannot be had; nobody steps in
    /// for it.
    pub fn new(stream: &Stream, by: ProductsBy) -> Result<Self> {
        by.require()?;
        let by = match by {
            ProductsBy::Own => By::Own,
            #[cfg(feature = "blas")]
            ProductsBy::CublasLt => By::CublasLt(gatework_gpu::blas::Blas::new(stream)?),
            #[cfg(not(feature = "blas"))]
            ProductsBy::CublasLt => By::Own,
        };
        Ok(Self { stream: stream.clone(), by })
    }

    /// Bytes that products hold beside their matrices.
    pub(super) fn bytes(by: ProductsBy) -> usize {
        match by {
            #[cfg(feature = "blas")]
            ProductsBy::CublasLt => gatework_gpu::blas::WORKSPACE,
            _ => 0,
        }
    }

    /// Who multiplies, with the version of what is not this crate's: another one may add up in another order.
    pub fn text(&self) -> String {
        match &self.by {
            By::Own => ProductsBy::Own.name().into(),
            #[cfg(feature = "blas")]
            By::CublasLt(blas) => format!("{} {}", ProductsBy::CublasLt.name(), blas.version()),
        }
    }

    /// Queues `c ← A B`, or `c ← c + A B`, for whole matrices of `m × k` by `k × n`.
    pub fn multiply(
        &self,
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
        match &self.by {
            By::Own => own(&self.stream, turned, [m, n, k], a, b, c, write),
            #[cfg(feature = "blas")]
            By::CublasLt(blas) => {
                use gatework_gpu::blas::{Left, Product, Right};
                let keep = if write == Write::Onto { 1.0 } else { 0.0 };
                let mut product = Product::new(m, n, k).deterministic().scaled(1.0, keep);
                match turned {
                    Turned::Neither => {}
                    Turned::Left => product.left = Left::Columns,
                    Turned::Right => product.right = Right::Columns,
                }
                Ok(blas.multiply(&self.stream, &product, a, b, c)?)
            }
        }
    }
}

/// By the kernel of this crate.
fn own(
    stream: &Stream,
    turned: Turned,
    [m, n, k]: [usize; 3],
    a: &impl View<bf16>,
    b: &impl View<bf16>,
    c: &mut impl ViewMut<f32>,
    write: Write,
) -> Result<()> {
    let tiles = |tile: usize| [n, m].map(|side| side.div_ceil(tile));
    let [small, large] = TILES;
    let enough = stream.device().properties().multiprocessors as usize;
    let tile = if tiles(large).iter().product::<usize>() >= enough { large } else { small };
    let [across, down] = tiles(tile);
    if [m, n, k].iter().any(|size| !(1..=1 << 30).contains(size)) || down > MOST_TILES {
        return Err(Error::shape(format!(
            "a product of {m} x {k} by {k} x {n}: a launch takes sides from 1 to 2^30, and at most {MOST_TILES} tiles of \
             {tile} rows"
        )));
    }
    let [left, right] = turned.sides();
    let rows = [if left { m } else { k }, if right { k } else { n }];
    let (a, b) = (a.view(), b.view());
    let wide = rows.iter().all(|row| row.is_multiple_of(GROUP))
        && [a.as_raw(), b.as_raw()].iter().all(|address| address.is_multiple_of(16));
    let accumulate = u32::from(write == Write::Onto);
    let shape = ProductShape { m: m as u32, n: n as u32, k: k as u32, accumulate };
    // A tile of both: as many numbers as it has, and a group more in each row.
    let row = |turned: bool| if turned { tile } else { DEPTH };
    let numbers = |row: usize| tile * DEPTH / row * (row + GROUP);
    let shared = PRODUCT_STAGES as usize * (numbers(row(left)) + numbers(row(!right))) * size_of::<bf16>();
    let grid = Grid::new([across as u32, down as u32, 1], [2 * tile as u32, 1, 1]).shared(shared as u32);
    let kernel = stream.device().kernel_of(&kernels::product([left, right], wide, tile as u32), "product")?;
    Ok(kernel.launch(stream, &grid, &args![a, b, c.view_mut(), ByValue(&shape)])?)
}
