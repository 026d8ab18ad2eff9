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
use crate::shared::{Columns, FullPass, SmallPass};

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

/// Most columns of one launch: what a grid may have in y.
const COLUMNS_PER_LAUNCH: usize = 65_535;

/// Transforms `sources` into `targets`, which have the domain's size and may be the same columns. Sources of
/// a forward transform may be shorter: missing coefficients are zero.
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
    let sources = (sources != targets).then(|| ColumnTable::new(queue, &sources));
    let targets = ColumnTable::new(queue, &targets);
    let batch = Batch { queue, direction, domain, twiddles, sources, targets, source_len };
    match domain.log_size() {
        0 => unreachable!("a circle domain has two points at least"),
        1 | 2 => batch.run_small(),
        log_size => batch.run(log_size),
    }
}

/// Where columns are, with the table of their addresses where one is needed.
struct ColumnTable {
    first: u64,
    /// Bytes from one to the next, all ones where that differs.
    stride: u64,
    /// Addresses, where the stride does not tell.
    table: Option<Buffer<u64>>,
    count: usize,
}

impl ColumnTable {
    /// Columns that were allocated together need no table.
    fn new(queue: &Queue, addresses: &[u64]) -> Self {
        let count = addresses.len();
        let first = addresses.first().copied().unwrap_or(0);
        let stride = addresses.get(1).map_or(0, |second| second.wrapping_sub(first));
        let at = |index: usize| first.wrapping_add(stride.wrapping_mul(index as u64));
        if stride != u64::MAX && addresses.iter().enumerate().all(|(index, &address)| address == at(index)) {
            return Self { first, stride, table: None, count };
        }
        Self { first: 0, stride: u64::MAX, table: Some(queue.upload(addresses)), count }
    }

    /// From the column with that number on, as kernels take them.
    fn starting_at(&self, index: usize) -> Columns {
        let Self { first, stride, .. } = *self;
        match &self.table {
            Some(table) => Columns { first: 0, stride, table: table.slice(index..).as_raw() },
            None => {
                Columns { first: first.wrapping_add(stride.wrapping_mul(index as u64)), stride, table: 0 }
            }
        }
    }
}

struct Batch<'a> {
    queue: &'a Queue,
    direction: Direction,
    domain: CircleDomain,
    twiddles: &'a DeviceTwiddles,
    /// None where they are the targets.
    sources: Option<ColumnTable>,
    targets: ColumnTable,
    source_len: usize,
}

impl Batch<'_> {
    fn sources(&self) -> &ColumnTable {
        self.sources.as_ref().unwrap_or(&self.targets)
    }

    fn columns(&self) -> usize {
        self.targets.count
    }

    fn run(&self, log_size: u32) {
        // Above the length of a short source the upper layers only repeat it; one below eight values is
        // padded.
        let layers = self.source_len.max(8).ilog2();
        self.run_passes(log_size, schedule::passes(layers));
    }

    fn run_passes(&self, log_size: u32, mut passes: Vec<Pass>) {
        let layers: u32 = passes.iter().map(|pass| pass.layers).sum();
        if self.direction != Direction::Inverse {
            passes.reverse();
        }
        let last = passes.len() - 1;
        for (turn, pass) in passes.iter().enumerate() {
            let mask = if turn == 0 { (1u32 << layers) - 1 } else { u32::MAX };
            let factor = if turn == last { self.factor(log_size) } else { 0 };
            let sources = if turn == 0 { self.sources() } else { &self.targets };
            self.launch(log_size, pass, sources, mask, factor);
        }
    }

    /// What results are divided by, as kernels take it.
    fn factor(&self, log_size: u32) -> u32 {
        match self.direction {
            Direction::Forward => 0,
            Direction::Inverse | Direction::TransposedInverse => 1 << (32 - log_size),
        }
    }

    fn launch(&self, log_size: u32, pass: &Pass, sources: &ColumnTable, mask: u32, factor: u32) {
        let inverse = self.direction == Direction::Inverse;
        let (log_tile, first) = (pass.log_tile(), pass.first);
        let (log_table, log_domain) = (self.twiddles.log_table(), self.twiddles.log_domain(log_size));
        for start in (0..self.columns()).step_by(COLUMNS_PER_LAUNCH) {
            let end = self.columns().min(start + COLUMNS_PER_LAUNCH);
            let (sources, targets) = (sources.starting_at(start), self.targets.starting_at(start));
            let blocks = [1u32 << (log_size - log_tile), (end - start) as u32, 1];
            let table = self.twiddles.table(self.queue);
            if pass.is_full() {
                // Nothing is exchanged in a single round.
                let words = if pass.layers > 4 { 33u32 << (log_tile - 5) } else { 0 };
                let grid = Grid::new(blocks, [pass.threads(), 1, 1]).shared(4 * words).early();
                let values = FullPass { log_table, log_domain, first, mask, factor };
                let arguments = args![ByValue(&sources), ByValue(&targets), table, ByValue(&values)];
                let entry = if inverse { "pass_inverse" } else { "pass_forward" };
                self.queue.launch(&pass.module(), entry, &grid, &arguments);
            } else {
                let grid = Grid::new(blocks, [pass.threads(), 1, 1]).shared(4 * (9 << log_tile) / 8).early();
                // Such a pass is the only one.
                let (layers, limit) = (pass.layers, self.source_len as u32);
                let values = SmallPass { log_table, log_domain, layers, mask, limit, factor };
                let arguments = args![ByValue(&sources), ByValue(&targets), table, ByValue(&values)];
                let entry = if inverse { "fft_inverse" } else { "fft_forward" };
                self.queue.launch(&kernels::CIRCLE_FFT, entry, &grid, &arguments);
            }
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
        let inverse = u32::from(self.direction == Direction::Inverse);
        let columns = self.columns();
        let (log_size, source_len) = (self.domain.log_size(), self.source_len as u32);
        let arguments = args![
            ByValue(&self.sources().starting_at(0)),
            ByValue(&self.targets.starting_at(0)),
            columns as u32,
            log_size,
            source_len,
            x,
            twiddle(first.y),
            inverse,
            self.factor(log_size),
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

    /// As transforms of 2^23 points and more are cut, on fewer points.
    #[test]
    fn three_passes_give_what_two_give() {
        const LOG_SIZE: u32 = 15;
        let pass = |first, layers| Pass { first, layers };
        let three = vec![pass(0, 12), pass(12, 2), pass(14, 1)];
        let queue = Queue::new(Device::emulated(1).unwrap().stream().unwrap());
        let domain = CanonicCoset::new(LOG_SIZE).circle_domain();
        let twiddles = precompute(&queue, domain.half_coset);
        let values: Vec<u32> =
            (0..1u64 << LOG_SIZE).map(|value| (value * value * 1_000_003 % 2_147_483_647) as u32).collect();
        for direction in [Direction::Inverse, Direction::Forward, Direction::TransposedInverse] {
            let table =
                if direction == Direction::Forward { &twiddles.twiddles } else { &twiddles.itwiddles };
            let run = |passes: Option<Vec<Pass>>| {
                let column = DeviceColumn::<BaseField>::from_words(&queue, &values);
                let batch = Batch {
                    queue: &queue,
                    direction,
                    domain,
                    twiddles: table,
                    sources: None,
                    targets: ColumnTable::new(&queue, &[column.address(&queue)]),
                    source_len: 1 << LOG_SIZE,
                };
                match passes {
                    Some(passes) => batch.run_passes(LOG_SIZE, passes),
                    None => batch.run(LOG_SIZE),
                }
                column.to_cpu()
            };
            assert!(run(Some(three.clone())) == run(None), "{direction:?}");
        }
    }
}
