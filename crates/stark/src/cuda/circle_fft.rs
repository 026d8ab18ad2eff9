//! Transforms of many columns of one size at once.

use gatework_gpu::{Buffer, ByValue, Grid, args};
use stwo::core::fields::m31::BaseField;
use stwo::core::poly::circle::CircleDomain;
use stwo::prover::backend::Column as _;

use super::one_thread_each;
use super::schedule::{self, Pass};
use super::twiddles::DeviceTwiddles;
use crate::column::DeviceColumn;
use crate::kernels;
use crate::queue::Queue;

/// Which transform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Coefficients to values.
    Forward,
    /// Values to coefficients, divided by the number of points.
    Inverse,
    /// The transpose of the inverse, which takes the monomials at a point to the weights of values there.
    TransposedInverse,
}

/// Threads of a block: more leave no room for a second block on a multiprocessor.
const MOST_THREADS: u32 = 512;
/// Most columns of one launch: what a grid may have in y.
const COLUMNS_PER_LAUNCH: usize = 65_535;

/// Transforms `sources` into `targets`, which have the domain's size and may be the same columns. Sources of a forward
/// transform may be shorter: missing coefficients are zero.
pub(crate) fn transform<'a>(
    queue: &Queue,
    direction: Direction,
    domain: CircleDomain,
    twiddles: &DeviceTwiddles,
    sources: impl IntoIterator<Item = &'a DeviceColumn<BaseField>>,
    source_len: usize,
    targets: impl IntoIterator<Item = &'a DeviceColumn<BaseField>>,
) {
    twiddles.require(queue, domain);
    let size = domain.size();
    assert!(
        source_len.is_power_of_two() && source_len <= size,
        "{source_len} values are not transformed to {size}"
    );
    let addresses_of = |len: usize| {
        move |column: &DeviceColumn<BaseField>| {
            assert!(column.len() == len, "a column of {} values stands for one of {len}", column.len());
            column.address(queue)
        }
    };
    let sources: Vec<u64> = sources.into_iter().map(addresses_of(source_len)).collect();
    let targets: Vec<u64> = targets.into_iter().map(addresses_of(size)).collect();
    assert_eq!(sources.len(), targets.len(), "every column is transformed into one");
    // In place, one table serves as both.
    let sources = (sources != targets).then(|| queue.upload(&sources));
    let targets = queue.upload(&targets);
    let batch = Batch { queue, direction, domain, twiddles, sources, targets, source_len };
    match domain.log_size() {
        0 => unreachable!("a circle domain has two points at least"),
        1 | 2 => batch.run_small(),
        log_size => batch.run(log_size),
    }
}

struct Batch<'a> {
    queue: &'a Queue,
    direction: Direction,
    domain: CircleDomain,
    twiddles: &'a DeviceTwiddles,
    /// None where they are the targets.
    sources: Option<Buffer<u64>>,
    targets: Buffer<u64>,
    source_len: usize,
}

impl Batch<'_> {
    fn sources(&self) -> &Buffer<u64> {
        self.sources.as_ref().unwrap_or(&self.targets)
    }

    fn columns(&self) -> usize {
        self.targets.len()
    }

    fn run(&self, log_size: u32) {
        // Above the length of a short source the upper layers only repeat it; below eight values it is padded instead.
        let repeats = self.source_len >= 8;
        let layers = if repeats { self.source_len.ilog2() } else { log_size };
        self.run_passes(log_size, schedule::passes(layers), repeats);
    }

    fn run_passes(&self, log_size: u32, mut passes: Vec<Pass>, repeats: bool) {
        if self.direction != Direction::Inverse {
            passes.reverse();
        }
        let last = passes.len() - 1;
        for (turn, pass) in passes.iter().enumerate() {
            let (limit, mask) = match (turn, repeats) {
                (0, true) => (u32::MAX, self.source_len as u32 - 1),
                (0, false) => (self.source_len as u32, u32::MAX),
                _ => (u32::MAX, u32::MAX),
            };
            let divides = turn == last && self.direction != Direction::Forward;
            let halvings = if divides { log_size } else { 0 };
            let sources = if turn == 0 { self.sources() } else { &self.targets };
            self.launch(log_size, pass, sources, [limit, mask, halvings]);
        }
    }

    fn launch(&self, log_size: u32, pass: &Pass, sources: &Buffer<u64>, [limit, mask, halvings]: [u32; 3]) {
        let entry = match self.direction {
            Direction::Inverse => "fft_inverse",
            Direction::Forward | Direction::TransposedInverse => "fft_forward",
        };
        let parameters = [
            self.twiddles.log_table(),
            self.twiddles.log_domain(log_size),
            pass.first,
            pass.layers,
            pass.log_tile,
            pass.log_width,
            limit,
            mask,
            halvings,
        ];
        let tiles = 1u32 << (log_size - pass.log_tile);
        let shared_words = (9usize << pass.log_tile) / 8;
        for first in (0..self.columns()).step_by(COLUMNS_PER_LAUNCH) {
            let end = self.columns().min(first + COLUMNS_PER_LAUNCH);
            let grid = Grid::new(
                [tiles, (end - first) as u32, 1],
                [MOST_THREADS.min(1 << (pass.log_tile - 3)), 1, 1],
            )
            .shared((shared_words * size_of::<u32>()) as u32);
            let (sources, targets) = (sources.slice(first..end), self.targets.slice(first..end));
            let arguments = args![sources, targets, self.twiddles.table(self.queue), ByValue(&parameters)];
            self.queue.launch(&kernels::CIRCLE_FFT, entry, &grid, &arguments);
        }
    }

    fn run_small(&self) {
        let first = self.domain.half_coset.initial;
        let twiddle = |coordinate: BaseField| match self.direction {
            Direction::Forward => coordinate.0 << 1,
            Direction::Inverse | Direction::TransposedInverse => coordinate.inverse().0 << 1,
        };
        // On two points x is not used, and may be zero.
        let x = if self.domain.log_size() == 2 { twiddle(first.x) } else { 0 };
        let (inverse, halvings) = match self.direction {
            Direction::Forward => (0u32, 0),
            Direction::Inverse => (1, self.domain.log_size()),
            Direction::TransposedInverse => (0, self.domain.log_size()),
        };
        let columns = self.columns();
        let (log_size, source_len) = (self.domain.log_size(), self.source_len as u32);
        let arguments = args![
            self.sources(),
            &self.targets,
            columns as u32,
            log_size,
            source_len,
            x,
            twiddle(first.y),
            inverse,
            halvings,
        ];
        self.queue.launch(&kernels::CIRCLE_FFT, "fft_small", &one_thread_each(columns), &arguments);
    }
}

#[cfg(test)]
mod tests {
    use gatework_gpu::Device;
    use stwo::core::poly::circle::CanonicCoset;

    use super::super::twiddles::precompute;
    use super::*;

    /// As transforms of 2^23 points and more are cut, with tiles that an emulated device runs quickly.
    #[test]
    fn three_passes_give_what_one_gives() {
        let pass = |first, layers, log_width| Pass { first, layers, log_tile: layers + log_width, log_width };
        let three = vec![pass(0, 4, 0), pass(4, 2, 3), pass(6, 3, 4)];
        let queue = Queue::new(Device::emulated(1).unwrap().stream().unwrap());
        let domain = CanonicCoset::new(9).circle_domain();
        let twiddles = precompute(&queue, domain.half_coset);
        let values: Vec<u32> =
            (0..2 * 512u64).map(|value| (value * value * 1_000_003 % 2_147_483_647) as u32).collect();
        for direction in [Direction::Inverse, Direction::Forward, Direction::TransposedInverse] {
            let table =
                if direction == Direction::Forward { &twiddles.twiddles } else { &twiddles.itwiddles };
            let run = |passes: Option<Vec<Pass>>| {
                let column = |words: &[u32]| DeviceColumn::<BaseField>::from_words(&queue, words);
                let columns: Vec<_> = values.chunks(512).map(column).collect();
                let addresses: Vec<u64> = columns.iter().map(|column| column.address(&queue)).collect();
                let targets = queue.upload(&addresses);
                let batch = Batch {
                    queue: &queue,
                    direction,
                    domain,
                    twiddles: table,
                    sources: None,
                    targets,
                    source_len: 512,
                };
                match passes {
                    Some(passes) => batch.run_passes(9, passes, true),
                    None => batch.run(9),
                }
                columns.iter().map(|column| column.to_cpu()).collect::<Vec<_>>()
            };
            assert!(run(Some(three.clone())) == run(None), "{direction:?}");
        }
    }
}
