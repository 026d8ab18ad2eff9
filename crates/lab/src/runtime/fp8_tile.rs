//! A product of e4m3 matrices on the tensor cores, fed by bulk copies.

use std::cell::RefCell;
use std::rc::Rc;

use float8::F8E4M3;
use gatework_gpu::{Buffer, Device, Grid, Kind, Stream, args};

use super::BENCH_SEED;
use crate::budget::{ErrorBudget, Format, Rounding};
use crate::kernels::{self, FP8_TILE_SHARED_BYTES};
use crate::measure::Arithmetic;
use crate::{
    Bench, Case, Control, Evidence, Inputs, KernelSpec, Outputs, RunError, Side, Timing, Work, Workload,
    poisoned,
};

/// Rows of a block's tile of A and of B, and columns that one bulk copy brings.
const A_ROWS: usize = 64;
const B_ROWS: usize = 128;
const K_TILE: usize = 128;

/// `gpu/fp8-tile`.
pub(super) struct Fp8Tile;

/// Rows of a benchmark's product that are looked at.
const SEEN_ROWS: usize = 8;

/// An e4m3 matrix, row-major.
struct Matrix {
    columns: usize,
    codes: Vec<u8>,
}

impl Matrix {
    /// Values in [-1, 1], as a quantiser would make them of uniform data.
    fn random(inputs: &mut Inputs, rows: usize, columns: usize) -> Self {
        let values = inputs.uniform(rows * columns, -1.0..1.0);
        Self { columns, codes: values.into_iter().map(|value| F8E4M3::from_f32(value).to_bits()).collect() }
    }

    /// Tiles of `tile_rows` x 128 bytes in the order the kernel loads them, each with the 128-byte swizzle:
    /// the 16-byte chunk `c` of row `r` lies at chunk `c ^ (r % 8)`.
    fn images(&self, tile_rows: usize) -> Vec<u8> {
        let k_tiles = self.columns / K_TILE;
        let mut image = vec![0; self.codes.len()];
        for (index, &code) in self.codes.iter().enumerate() {
            let (row, column) = (index / self.columns, index % self.columns);
            let tile = row / tile_rows * k_tiles + column / K_TILE;
            let (r, chunk, byte) = (row % tile_rows, column % K_TILE / 16, column % 16);
            image[(tile * tile_rows + r) * K_TILE + (chunk ^ (r % 8)) * 16 + byte] = code;
        }
        image
    }

    fn rows(&self) -> impl Iterator<Item = Vec<f64>> {
        let value = |&code: &u8| F8E4M3::from_bits(code).to_f64();
        self.codes.chunks(self.columns).map(move |row| row.iter().map(value).collect())
    }
}

fn grid(m: usize, n: usize) -> Grid {
    Grid::new([(n / B_ROWS) as u32, (m / A_ROWS) as u32, 1], [256, 1, 1]).shared(FP8_TILE_SHARED_BYTES)
}

/// Both operands on a device, as the kernel reads them.
struct Images {
    a: Buffer<u8>,
    b: Buffer<u8>,
}

impl Images {
    fn upload(stream: &Stream, case: &Case, seed: u64) -> Result<Self, RunError> {
        let (a, b) = operands(case, seed);
        Ok(Self { a: stream.upload(&a.images(A_ROWS))?, b: stream.upload(&b.images(B_ROWS))? })
    }

    /// The product, into `c`.
    fn into_side(
        self,
        name: &str,
        stream: &Stream,
        case: &Case,
        c: Rc<RefCell<Buffer<f32>>>,
    ) -> Result<Side, RunError> {
        let (m, n) = (case.dimension("m"), case.dimension("n"));
        let k_tiles = (case.dimension("k") / K_TILE) as u32;
        let kernel = stream.device().kernel_of(&kernels::FP8_TILE, "fp8_tile")?;
        let Self { a, b } = self;
        Ok(Side::new(name, move |stream| {
            kernel.launch(stream, &grid(m, n), &args![&a, &b, &mut *c.borrow_mut(), k_tiles])
        }))
    }
}

fn operands(case: &Case, seed: u64) -> (Matrix, Matrix) {
    let mut inputs = Inputs::new(seed);
    let k = case.dimension("k");
    (Matrix::random(&mut inputs, case.dimension("m"), k), Matrix::random(&mut inputs, case.dimension("n"), k))
}

/// `a b^T` in double precision.
fn product(a: &Matrix, b: &Matrix) -> Vec<f64> {
    let b_rows: Vec<Vec<f64>> = b.rows().collect();
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum();
    a.rows().flat_map(|row| b_rows.iter().map(move |other| dot(&row, other)).collect::<Vec<f64>>()).collect()
}

/// The first row of tiles of the product: as many as the plain product can follow.
fn evidence(budget: ErrorBudget, case: &Case, c: Rc<RefCell<Buffer<f32>>>) -> Evidence {
    let (n, seen) = (case.dimension("n"), c.clone());
    let case = case.clone();
    let mut expected: Option<Vec<f64>> = None;
    Evidence::new(
        budget,
        move |stream| Ok(stream.fill(&mut *c.borrow_mut(), f32::NAN)?),
        move |stream| Ok(Outputs::new().with("c", stream.download(&seen.borrow().slice(..SEEN_ROWS * n))?)),
        move |_| {
            let product = expected.get_or_insert_with(|| {
                let (a, b) = operands(&case, BENCH_SEED);
                let codes = a.codes[..SEEN_ROWS * a.columns].to_vec();
                product(&Matrix { columns: a.columns, codes }, &b)
            });
            Ok(Outputs::new().with("c", product.clone()))
        },
    )
}

impl Workload for Fp8Tile {
    fn name(&self) -> &str {
        "gpu/fp8-tile"
    }

    fn summary(&self) -> &str {
        "c = a b^T for e4m3 matrices: bulk copies, mbarriers, wgmma"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        vec![KernelSpec::new(kernels::FP8_TILE.source()).require("QGMMA").require("UBLKCP").threads(256)]
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let case = |m: usize, n: usize, k: usize| {
            Case::new(format!("{m}x{n}x{k}")).with("m", m).with("n", n).with("k", k)
        };
        // One, as many as there are stages, and one more: each fills and wraps the ring differently.
        let small = [case(64, 128, 128), case(128, 128, 384), case(64, 256, 896)];
        let large = (kind == Kind::Cuda).then(|| [case(1024, 512, 128), case(256, 512, 2048)]);
        small.into_iter().chain(large.into_iter().flatten()).collect()
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let (a, b) = operands(case, seed);
        let (m, n) = (case.dimension("m"), case.dimension("n"));
        let stream = device.stream()?;
        let kernel = device.kernel_of(&kernels::FP8_TILE, "fp8_tile")?;
        let (a_images, b_images) = (stream.upload(&a.images(A_ROWS))?, stream.upload(&b.images(B_ROWS))?);
        let mut c = poisoned::<f32>(&stream, m * n)?;
        let grid = grid(m, n);
        let k_tiles = (case.dimension("k") / K_TILE) as u32;
        kernel.launch(&stream, &grid, &args![&a_images, &b_images, &mut c, k_tiles])?;
        Ok(Outputs::new().with("c", stream.download(&c)?))
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        let (a, b) = operands(case, seed);
        Outputs::new().with("c", product(&a, &b))
    }

    /// Each of the `k / 32` instructions rounds to the accumulator once; values stay within a few standard
    /// deviations of the sum.
    fn budget(&self, case: &Case) -> ErrorBudget {
        let k = case.dimension("k") as f64;
        // Products of two uniform values on [-1, 1] have variance 1/9.
        let output_rms = (k / 9.0).sqrt();
        ErrorBudget::rounding(Rounding {
            format: Format::Fp8Accumulator,
            depth: case.dimension("k") / 32,
            magnitude: 4.0 * output_rms,
            output_rms,
            outputs: case.dimension("m") * case.dimension("n"),
        })
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let (a, b) = operands(case, seed);
        let wrong =
            |name: &str, a: &Matrix, b: &Matrix| Control::new(name, Outputs::new().with("c", product(a, b)));
        let unswizzled = Matrix { columns: b.columns, codes: b.images(B_ROWS) };
        let mut stale = Matrix { columns: a.columns, codes: a.codes.clone() };
        for row in stale.codes.chunks_mut(a.columns) {
            // The last columns multiplied with what was in the stage before them.
            let (kept, last) = row.split_at_mut(a.columns - K_TILE);
            let before = kept.last_chunk::<K_TILE>().copied().unwrap_or([0; K_TILE]);
            last.copy_from_slice(&before);
        }
        vec![
            Control::zeros(reference),
            wrong("b without its swizzle", &a, &unswizzled),
            wrong("a stale stage", &stale, &b),
            Control::one_off(reference, "c", reference_len(reference) - 1, 0.75),
        ]
    }

    fn work(&self, case: &Case) -> Work {
        let (m, n, k) = (case.dimension("m") as u64, case.dimension("n") as u64, case.dimension("k") as u64);
        Work { operations: 2 * m * n * k, bytes: (m + n) * k + 4 * m * n }
    }

    fn bench_cases(&self, kind: Kind) -> Vec<Case> {
        let (m, n, k) = if kind == Kind::Cuda { (4096, 4096, 4096) } else { (64, 128, 128) };
        vec![Case::new(format!("{m}x{n}x{k}")).with("m", m).with("n", n).with("k", k)]
    }

    /// Against itself: the runtime has no other fp8 product, peers have. It shows what the timing can tell
    /// apart, and promises nothing; the promise is against what was recorded.
    fn bench(&self, device: &Device, case: &Case) -> Result<Option<Bench>, RunError> {
        let stream = device.stream()?;
        let len = case.dimension("m") * case.dimension("n");
        let [c, again] =
            [Rc::new(RefCell::new(stream.alloc(len)?)), Rc::new(RefCell::new(stream.alloc(len)?))];
        let evidence = evidence(self.budget(case), case, c.clone());
        let side = |name: &str, c: Rc<RefCell<Buffer<f32>>>| {
            Images::upload(&stream, case, BENCH_SEED)?.into_side(name, &stream, case, c)
        };
        let (candidate, baseline) = (side("fp8-tile", c)?, side("fp8-tile again", again)?);
        stream.synchronize()?;
        let bench = Bench::new(self.work(case), candidate, baseline).timing(Timing::Graph { repeats: 4 });
        let bench = bench.arithmetic(Arithmetic::TensorFp8).peer("fp8-matmul", case);
        Ok(Some(bench.shown_by(evidence).expect_recorded(1.10, "the same kernel on the same card")))
    }
}

fn reference_len(reference: &Outputs) -> usize {
    reference.iter().map(|(_, tensor)| tensor.len()).sum()
}
