//! `out[c][r] <- in[r][c]`.

use std::cell::RefCell;
use std::rc::Rc;

use gatework_gpu::{Buffer, Device, Grid, Kind, Module, args};

use super::{BENCH_SEED, PATTERN, WORTH_OF_COPY};
use crate::kernels;
use crate::tune::{Configuration, Space, Tunable};
use crate::{
    Bench, Case, Control, ErrorBudget, Evidence, Inputs, KernelSpec, Outputs, RunError, Side, Timing, Work,
    Workload, ends, poisoned, read_ends, repeated,
};

/// `gpu/transpose`.
#[derive(Default)]
pub(super) struct Transpose {
    tiles: Tiles,
}

/// How the matrix is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tiles {
    /// Side of the square that one block moves.
    side: u32,
    /// Rows of threads that move it, each with four neighbours.
    block_rows: u32,
}

impl Default for Tiles {
    fn default() -> Self {
        Self { side: 64, block_rows: 16 }
    }
}

impl Tiles {
    fn of(configuration: &Configuration) -> Self {
        let size = |knob: &str| configuration.integer(knob) as u32;
        Self { side: size("TILE"), block_rows: size("BLOCK_ROWS") }
    }

    fn configuration(self) -> Configuration {
        let Self { side, block_rows } = self;
        Configuration::default().with("TILE", i64::from(side)).with("BLOCK_ROWS", i64::from(block_rows))
    }

    fn module(self) -> Module {
        kernels::TRANSPOSE.define("TILE", self.side).define("BLOCK_ROWS", self.block_rows)
    }

    fn grid(self, rows: usize, columns: usize) -> Grid {
        let tiles = |size: usize| (size as u32).div_ceil(self.side);
        let grid = Grid::new([tiles(columns), tiles(rows), 1], [self.side / 4, self.block_rows, 1]);
        grid.shared(self.side * (self.side + 1) * 4)
    }
}

fn matrix(rows: usize, columns: usize) -> Case {
    Case::new(format!("{rows}x{columns}")).with("rows", rows).with("columns", columns)
}

fn shape(case: &Case) -> (usize, usize) {
    (case.dimension("rows"), case.dimension("columns"))
}

fn input(case: &Case, seed: u64) -> Vec<f32> {
    let (rows, columns) = shape(case);
    Inputs::new(seed).normal(rows * columns)
}

fn transposed(input: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|column| (0..rows).map(move |row| input[row * columns + column])).collect()
}

/// The right answer, but for the last tile, which still holds what the first one left in shared memory.
fn with_stale_tile(input: &[f32], rows: usize, columns: usize, side: usize) -> Vec<f32> {
    let mut output = transposed(input, rows, columns);
    let last_start = |size: usize| (size - 1) / side * side;
    let (row_start, column_start) = (last_start(rows), last_start(columns));
    for row in row_start..rows {
        for column in column_start..columns {
            output[column * rows + row] = input[(row - row_start) * columns + column - column_start];
        }
    }
    output
}

/// The first and the last elements of the transpose of a pattern that repeats.
fn evidence(pattern: Vec<f32>, (rows, columns): (usize, usize), to: Rc<RefCell<Buffer<f32>>>) -> Evidence {
    let seen = to.clone();
    Evidence::new(
        ErrorBudget::Exact,
        move |stream| Ok(stream.fill(&mut *to.borrow_mut(), f32::NAN)?),
        move |stream| Ok(Outputs::new().with("out", read_ends(stream, &seen.borrow())?)),
        move |_| {
            let from = |index: usize| index % rows * columns + index / rows;
            let out = ends(rows * columns).map(|index| pattern[from(index) % pattern.len()]);
            Ok(Outputs::new().with("out", out.collect::<Vec<f32>>()))
        },
    )
}

impl Workload for Transpose {
    fn name(&self) -> &str {
        "gpu/transpose"
    }

    fn summary(&self) -> &str {
        "the transpose of an f32 matrix, tile by tile through shared memory"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let spec = KernelSpec::new(self.tiles.module().source());
        vec![spec.require("LDS").require("STS").threads(self.tiles.side / 4 * self.tiles.block_rows)]
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let shapes: &[(usize, usize)] = match kind {
            Kind::Emulated => &[(1, 1), (1, 1000), (31, 33), (33, 31), (64, 64), (97, 130), (68, 132)],
            Kind::Cuda => {
                &[(1, 1), (1, 1_000_003), (31, 33), (33, 31), (64, 64), (68, 132), (1001, 4099), (4096, 4096)]
            }
        };
        shapes.iter().map(|&(rows, columns)| matrix(rows, columns)).collect()
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let (rows, columns) = shape(case);
        let stream = device.stream()?;
        let transpose = device.kernel_of(&self.tiles.module(), "transpose")?;
        let from = stream.upload(&input(case, seed))?;
        let mut to = poisoned::<f32>(&stream, rows * columns)?;
        let grid = self.tiles.grid(rows, columns);
        transpose.launch(&stream, &grid, &args![&from, &mut to, rows as u32, columns as u32])?;
        Ok(Outputs::new().with("out", stream.download(&to)?))
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        let (rows, columns) = shape(case);
        Outputs::new().with("out", transposed(&input(case, seed), rows, columns))
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let (rows, columns) = shape(case);
        let input = input(case, seed);
        let mut controls = vec![
            Control::zeros(reference),
            Control::unwritten_tail(reference, 1),
            Control::one_off(reference, "out", rows * columns / 2, 1.0),
        ];
        if rows * columns > 1 {
            controls.push(Control::swapped(reference, "out", 0, rows * columns - 1));
        }
        let side = self.tiles.side as usize;
        if rows.max(columns) > side {
            let stale = with_stale_tile(&input, rows, columns, side);
            controls.push(Control::new("a stale tile", Outputs::new().with("out", stale)));
        }
        // A single row or column lies in memory as its transpose does.
        if rows > 1 && columns > 1 {
            controls.push(Control::new("not transposed", Outputs::new().with("out", input)));
        }
        controls
    }

    fn work(&self, case: &Case) -> Work {
        let (rows, columns) = shape(case);
        Work { operations: 0, bytes: 2 * 4 * (rows * columns) as u64 }
    }

    fn bench_cases(&self, kind: Kind) -> Vec<Case> {
        // 1 GiB in and 1 GiB out.
        let side = if kind == Kind::Cuda { 16384 } else { 64 };
        vec![matrix(side, side)]
    }

    fn bench(&self, device: &Device, case: &Case) -> Result<Option<Bench>, RunError> {
        let (rows, columns) = shape(case);
        let len = rows * columns;
        let stream = device.stream()?;
        let mut inputs = Inputs::new(BENCH_SEED);
        let pattern = inputs.normal(len.min(PATTERN));
        let from = repeated(&stream, &pattern, len)?;
        let to = Rc::new(RefCell::new(stream.alloc::<f32>(len)?));
        let source = repeated(&stream, &inputs.normal(len.min(PATTERN)), len)?;
        let mut copied = stream.alloc::<f32>(len)?;
        let transpose = device.kernel_of(&self.tiles.module(), "transpose")?;
        let grid = self.tiles.grid(rows, columns);
        stream.synchronize()?;
        let evidence = evidence(pattern, (rows, columns), to.clone());
        let candidate = Side::new("transpose", move |stream| {
            let to = &mut *to.borrow_mut();
            transpose.launch(stream, &grid, &args![&from, to, rows as u32, columns as u32])
        });
        let baseline = Side::new("device-to-device copy", move |stream| stream.copy(&source, &mut copied));
        let bench = Bench::new(self.work(case), candidate, baseline).timing(Timing::Graph { repeats: 1 });
        let bench = bench.cold().shown_by(evidence);
        Ok(Some(
            bench.expect_at_most(1.0 / WORTH_OF_COPY, "85 % of the copy's bandwidth").peer("transpose", case),
        ))
    }

    fn tunable(&self) -> Option<&dyn Tunable> {
        Some(self)
    }
}

impl Tunable for Transpose {
    fn space(&self) -> Space {
        Space::new()
            .micro("TILE", [32, 64, 96])
            .micro("BLOCK_ROWS", [4, 8, 16, 32])
            .constraint("32 to 1024 threads", |found| {
                (32..=1024).contains(&(found.integer("TILE") / 4 * found.integer("BLOCK_ROWS")))
            })
            .constraint("whole passes over a tile", |found| {
                found.integer("TILE") % found.integer("BLOCK_ROWS") == 0
            })
    }

    fn default_configuration(&self) -> Configuration {
        Tiles::default().configuration()
    }

    fn configured(&self, configuration: &Configuration) -> Box<dyn Workload> {
        Box::new(Self { tiles: Tiles::of(configuration) })
    }

    fn training_cases(&self, kind: Kind) -> Vec<Case> {
        if kind == Kind::Cuda { vec![matrix(8192, 8192), matrix(4096, 12288)] } else { vec![matrix(64, 64)] }
    }

    fn held_out_cases(&self, kind: Kind) -> Vec<Case> {
        if kind == Kind::Cuda {
            vec![matrix(10240, 7168), matrix(6000, 10007)]
        } else {
            vec![matrix(97, 130)]
        }
    }
}
