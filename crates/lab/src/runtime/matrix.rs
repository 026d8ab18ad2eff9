//! Warp-wide matrix instructions: tiles between shared memory and registers, and small products.

use gatework_gpu::{Device, Grid, Kind, Module, args};

use super::number_format::NumberFormat;
use crate::kernels;
use crate::tensor::Tensor;
use crate::{Case, Control, ErrorBudget, Inputs, KernelSpec, Outputs, RunError, Work, Workload, poisoned};

const WARP: u32 = 32;

/// `gpu/matrix`.
pub(super) struct Matrix;

/// What a case checks.
enum Subject {
    Tiles,
    Products { format: NumberFormat, products: usize },
}

fn subject(case: &Case) -> Subject {
    match case.dimensions.get("format") {
        Some(&format) => Subject::Products {
            format: NumberFormat::ALL[format as usize],
            products: case.dimension("products"),
        },
        None => Subject::Tiles,
    }
}

impl Workload for Matrix {
    fn name(&self) -> &str {
        "gpu/matrix"
    }

    fn summary(&self) -> &str {
        "tiles between shared memory and registers, and 16 x 8 products of a warp in five formats"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let tiles =
            KernelSpec::new(kernels::MATRIX_TILES.source()).require("LDSM").require("STSM").threads(WARP);
        let product = |format: NumberFormat| {
            // Hopper multiplies 8-bit floats of a single warp as 16-bit ones.
            let opcode = if format == NumberFormat::S8 { "IMMA" } else { "HMMA" };
            KernelSpec::new(product_module(format).source()).require(opcode).threads(WARP)
        };
        std::iter::once(tiles).chain(NumberFormat::ALL.map(product)).collect()
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let products = match kind {
            Kind::Emulated => 4,
            Kind::Cuda => 1000,
        };
        let product = |(number, format): (usize, NumberFormat)| {
            Case::new(format!("mma-{}", format.tag().to_lowercase()))
                .with("format", number)
                .with("products", products)
        };
        let formats = NumberFormat::ALL.into_iter().enumerate();
        std::iter::once(Case::new("tiles")).chain(formats.map(product)).collect()
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        match subject(case) {
            Subject::Tiles => run_tiles(device, &tiles(seed)),
            Subject::Products { format, products } => {
                let problem = Problem::new(format, products, seed);
                match format {
                    NumberFormat::S8 => run_products(device, &problem, &integers(&problem.c)),
                    _ => run_products(device, &problem, &problem.c),
                }
            }
        }
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        match subject(case) {
            Subject::Tiles => moved_tiles(&tiles(seed), fragments),
            Subject::Products { format, products } => {
                let problem = Problem::new(format, products, seed);
                problem.outputs(problem.product(0..problem.depth(), true))
            }
        }
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let mut controls = vec![Control::zeros(reference), Control::unwritten_tail(reference, 1)];
        match subject(case) {
            Subject::Tiles => {
                let never = |tile: &Tile, _| fragments(tile, false);
                let always = |tile: &Tile, _| fragments(tile, true);
                controls.push(Control::new("transposition is ignored", moved_tiles(&tiles(seed), never)));
                controls.push(Control::new("every tile is transposed", moved_tiles(&tiles(seed), always)));
                controls.push(Control::swapped(reference, "fragments", 1, 4));
            }
            Subject::Products { format, products } => {
                let problem = Problem::new(format, products, seed);
                let depth = problem.depth();
                let wrong = |name, values| Control::new(name, problem.outputs(values));
                controls.push(wrong("the start is lost", problem.product(0..depth, false)));
                controls.push(wrong("the second product is missing", problem.product(0..depth / 2, true)));
                controls.push(Control::swapped(reference, "d", 0, 64));
            }
        }
        controls
    }

    fn work(&self, case: &Case) -> Work {
        match subject(case) {
            Subject::Tiles => Work { operations: 0, bytes: (TILES * 128 * (1 + 3 * MOVES.len())) as u64 },
            Subject::Products { format, products } => {
                let depth = PRODUCT_BYTES / format.bytes();
                let bytes = (16 + 8) * PRODUCT_BYTES + 2 * 4 * 128;
                Work { operations: (products * 2 * 128 * depth) as u64, bytes: (products * bytes) as u64 }
            }
        }
    }
}

/// Tiles of 8 x 8 16-bit elements, row-major.
type Tile = [u16; 64];

const TILES: usize = 4;
/// Bytes of shared memory: four tiles whose rows lie 48 bytes apart.
const TILES_SHARED_BYTES: u32 = 4 * 8 * 48;

/// What each block of the kernel does: how many tiles it moves, and whether it loads them transposed.
const MOVES: [(usize, bool); 6] = [(1, false), (1, true), (2, false), (2, true), (4, false), (4, true)];

fn tiles(seed: u64) -> Vec<Tile> {
    let words = Inputs::new(seed).words(TILES * 64);
    words.chunks_exact(64).map(|words| std::array::from_fn(|at| words[at] as u16)).collect()
}

/// The register of each lane after loading a tile: lane `4 g + t` gets elements `2 t` and `2 t + 1` of row
/// `g`, or of column `g`.
fn fragments(tile: &Tile, transposed: bool) -> [u32; 32] {
    std::array::from_fn(|lane| {
        let (g, t) = (lane / 4, lane % 4);
        let element = |i: usize| u32::from(if transposed { tile[8 * i + g] } else { tile[8 * g + i] });
        element(2 * t) | element(2 * t + 1) << 16
    })
}

fn transposed(tile: &Tile) -> Tile {
    std::array::from_fn(|at| tile[8 * (at % 8) + at / 8])
}

/// Two elements a word, the first in the low half.
fn pack(tile: &Tile) -> Vec<u32> {
    tile.chunks_exact(2).map(|pair| u32::from(pair[0]) | u32::from(pair[1]) << 16).collect()
}

/// Everything the kernel writes, given how a tile becomes registers.
fn moved_tiles(tiles: &[Tile], fragments: impl Fn(&Tile, bool) -> [u32; 32]) -> Outputs {
    let for_each_move = |of: &dyn Fn(&Tile, bool) -> Vec<u32>| -> Vec<u32> {
        let words = |(count, transpose): (usize, bool)| {
            let moved = tiles.iter().take(count).flat_map(move |tile| of(tile, transpose));
            moved.chain(std::iter::repeat_n(0, (TILES - count) * 32)).collect::<Vec<_>>()
        };
        MOVES.into_iter().flat_map(words).collect()
    };
    Outputs::new()
        .with("fragments", for_each_move(&|tile, transpose| fragments(tile, transpose).to_vec()))
        .with("same", for_each_move(&|tile, _| pack(tile)))
        .with("crossed", for_each_move(&|tile, _| pack(&transposed(tile))))
}

fn run_tiles(device: &Device, tiles: &[Tile]) -> Result<Outputs, RunError> {
    let stream = device.stream()?;
    let kernel = device.kernel_of(&kernels::MATRIX_TILES, "matrix_tiles")?;
    let from = stream.upload(&tiles.iter().flat_map(pack).collect::<Vec<_>>())?;
    let words = MOVES.len() * TILES * 32;
    let mut fragments = poisoned::<u32>(&stream, words)?;
    let mut same = poisoned::<u32>(&stream, words)?;
    let mut crossed = poisoned::<u32>(&stream, words)?;
    let grid = Grid::new([MOVES.len() as u32, 1, 1], [WARP, 1, 1]).shared(TILES_SHARED_BYTES);
    kernel.launch(&stream, &grid, &args![&from, &mut fragments, &mut same, &mut crossed])?;
    Ok(Outputs::new()
        .with("fragments", stream.download(&fragments)?)
        .with("same", stream.download(&same)?)
        .with("crossed", stream.download(&crossed)?))
}

/// Bytes of K of one product: two instructions of 32.
const PRODUCT_BYTES: usize = 64;

fn product_module(format: NumberFormat) -> Module {
    kernels::MMA_PRODUCT.define("FORMAT", format.tag())
}

/// Some products: A (16 x K), B transposed (8 x K) and the start (16 x 8) of each, row-major.
struct Problem {
    format: NumberFormat,
    products: usize,
    a: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
}

impl Problem {
    fn new(format: NumberFormat, products: usize, seed: u64) -> Self {
        let mut inputs = Inputs::new(seed);
        let depth = PRODUCT_BYTES / format.bytes();
        let a = format.draw(&mut inputs, products * 16 * depth);
        let b = format.draw(&mut inputs, products * 8 * depth);
        let c = inputs.integers(products * 128, -99..100).into_iter().map(|value| value as f32).collect();
        Self { format, products, a, b, c }
    }

    fn depth(&self) -> usize {
        PRODUCT_BYTES / self.format.bytes()
    }

    /// A B over some of K, plus the start if asked for.
    fn product(&self, k: std::ops::Range<usize>, with_start: bool) -> Vec<f32> {
        let depth = self.depth();
        let element = |at: usize| {
            let (product, row, column) = (at / 128, at / 8 % 16, at % 8);
            let left = &self.a[(product * 16 + row) * depth..][k.clone()];
            let right = &self.b[(product * 8 + column) * depth..][k.clone()];
            let sum: f32 = left.iter().zip(right).map(|(a, b)| a * b).sum();
            if with_start { sum + self.c[at] } else { sum }
        };
        (0..self.products * 128).map(element).collect()
    }

    fn outputs(&self, values: Vec<f32>) -> Outputs {
        match self.format {
            NumberFormat::S8 => Outputs::new().with("d", integers(&values)),
            _ => Outputs::new().with("d", values),
        }
    }
}

fn integers(values: &[f32]) -> Vec<i32> {
    values.iter().map(|&value| value as i32).collect()
}

fn run_products<T: bytemuck::Pod>(
    device: &Device,
    problem: &Problem,
    start: &[T],
) -> Result<Outputs, RunError>
where
    Tensor: From<Vec<T>>,
{
    let stream = device.stream()?;
    let kernel = device.kernel_of(&product_module(problem.format), "mma_product")?;
    let upload = |values: &[f32]| {
        let bytes = problem.format.encode(values);
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
        stream.upload(&bytes.chunks_exact(4).map(word).collect::<Vec<_>>())
    };
    let (a, b, c) = (upload(&problem.a)?, upload(&problem.b)?, stream.upload(start)?);
    let mut d = poisoned::<T>(&stream, start.len())?;
    let grid = Grid::new([problem.products as u32, 1, 1], [WARP, 1, 1]);
    kernel.launch(&stream, &grid, &args![&a, &b, &c, &mut d])?;
    Ok(Outputs::new().with("d", stream.download(&d)?))
}
