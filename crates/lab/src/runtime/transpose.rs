//! `out[c][r] <- in[r][c]`.

use gatework_gpu::{Device, Grid, Kind, args, kernels};

use crate::{Case, Control, ErrorBudget, Inputs, KernelSpec, Outputs, RunError, Work, Workload, poisoned};

/// Side of the square that one block moves, and the rows of threads that move it.
const TILE: u32 = 32;
const BLOCK_ROWS: u32 = 8;

/// `gpu/transpose`.
pub(super) struct Transpose;

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
fn with_stale_tile(input: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let mut output = transposed(input, rows, columns);
    let last_start = |size: usize| (size - 1) / TILE as usize * TILE as usize;
    let (row_start, column_start) = (last_start(rows), last_start(columns));
    for row in row_start..rows {
        for column in column_start..columns {
            output[column * rows + row] = input[(row - row_start) * columns + column - column_start];
        }
    }
    output
}

impl Workload for Transpose {
    fn name(&self) -> &str {
        "gpu/transpose"
    }

    fn summary(&self) -> &str {
        "the transpose of an f32 matrix, tile by tile through shared memory"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let spec = KernelSpec::new(kernels::transpose());
        vec![spec.require("LDS").require("STS").threads(TILE * BLOCK_ROWS)]
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let shapes: &[(usize, usize)] = match kind {
            Kind::Emulated => &[(1, 1), (1, 1000), (31, 33), (33, 31), (64, 64), (97, 130)],
            Kind::Cuda => &[(1, 1), (1, 1_000_003), (31, 33), (33, 31), (64, 64), (1001, 4099), (4096, 4096)],
        };
        let case = |&(rows, columns): &(usize, usize)| {
            Case::new(format!("{rows}x{columns}")).with("rows", rows).with("columns", columns)
        };
        shapes.iter().map(case).collect()
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let (rows, columns) = shape(case);
        let stream = device.stream()?;
        let transpose = device.kernel(&kernels::transpose())?;
        let from = stream.upload(&input(case, seed))?;
        let mut to = poisoned::<f32>(&stream, rows * columns)?;
        let tiles = |size: usize| (size as u32).div_ceil(TILE);
        let grid =
            Grid::new([tiles(columns), tiles(rows), 1], [TILE, BLOCK_ROWS, 1]).shared(TILE * (TILE + 1) * 4);
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
        if rows.max(columns) > TILE as usize {
            let stale = with_stale_tile(&input, rows, columns);
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
}
