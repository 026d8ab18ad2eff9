//! Values of polynomials at points outside of their domain.

use gatework_gpu::{Buffer, ByValue, Grid, args};
use stwo::core::circle::CirclePoint;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::poly::circle::CircleDomain;
use stwo::prover::backend::Column as _;
use stwo::prover::secure_column::SecureColumnByCoords;

use super::circle_fft::{Direction, transform};
use super::groups::{Wanted, by_groups};
use super::twiddles::DeviceTwiddles;
use super::{THREADS, flat_words, one_thread_each};
use crate::backend::CudaBackend;
use crate::column::{DeviceColumn, coordinates, secure_column, table};
use crate::element::Element as _;
use crate::error::OrRaise as _;
use crate::kernels;
use crate::queue::Queue;
use crate::shared::{DOT_ROWS, LOG_RUN};

/// Columns that a block does it for, fewer where there would be few blocks.
const DOT_COLUMNS: usize = 32;
/// Blocks that fill a large GPU.
const DOT_BLOCKS: usize = 264;

/// The monomials of 2^`log_size` coefficients at `point`.
pub(crate) fn monomials(
    queue: &Queue,
    log_size: u32,
    point: CirclePoint<SecureField>,
) -> SecureColumnByCoords<CudaBackend> {
    let mut factors = vec![point.y];
    let doublings = std::iter::successors(Some(point.x), |&x| Some(CirclePoint::double_x(x)));
    factors.extend(doublings.take(log_size.saturating_sub(1) as usize));
    let factors = queue.upload(&flat_words(&factors));
    let basis = secure_column(queue, 1 << log_size);
    let runs = 1usize << log_size.saturating_sub(LOG_RUN);
    let arguments =
        args![factors.slice(..).cast::<[u32; 4]>(), log_size, ByValue(&coordinates(queue, &basis))];
    queue.launch(&kernels::OODS, "monomials", &one_thread_each(runs), &arguments);
    basis
}

/// What the values of a polynomial of `domain.size()` coefficients on `domain` are multiplied with to give,
/// in sum, its value at `point`: the transposed inverse transform of the monomials.
pub(crate) fn weights(
    queue: &Queue,
    domain: CircleDomain,
    inverses: &DeviceTwiddles,
    point: CirclePoint<SecureField>,
) -> SecureColumnByCoords<CudaBackend> {
    let basis = monomials(queue, domain.log_size(), point);
    let direction = Direction::TransposedInverse;
    transform(queue, direction, domain, inverses, &basis.columns, domain.size(), &basis.columns);
    basis
}

/// Sums on their way.
pub(crate) struct Products {
    queue: Queue,
    /// Of some columns each.
    values: Vec<Buffer<[u32; 4]>>,
}

impl Products {
    /// Waits for them.
    pub(crate) fn read(self) -> Vec<SecureField> {
        let values = self.values.iter().map(|values| self.queue.stream().download(values).or_raise());
        values.flatten().map(|words| SecureField::read(&words)).collect()
    }
}

/// The sums of weight times value over the first `rows` rows of each column, where `rows` is the number of
/// weights.
pub(crate) fn dot_products<'a>(
    queue: &Queue,
    columns: impl IntoIterator<Item = &'a DeviceColumn<BaseField>>,
    weights: &SecureColumnByCoords<CudaBackend>,
) -> Products {
    let rows = weights.columns[0].len();
    let long_enough = columns.into_iter().inspect(|column| {
        assert!(column.len() >= rows, "{rows} weights are not those of {} values", column.len());
    });
    let columns: Vec<_> = long_enough.collect();
    let mut values = Vec::new();
    by_groups(queue, &columns, &Wanted { rows, ..Wanted::WHOLE }, |_, arrived| {
        values.extend(dot_products_of(queue, arrived, weights));
    });
    Products { queue: queue.clone(), values }
}

/// The same of columns in device memory.
fn dot_products_of(
    queue: &Queue,
    columns: &[DeviceColumn<BaseField>],
    weights: &SecureColumnByCoords<CudaBackend>,
) -> Option<Buffer<[u32; 4]>> {
    let (rows, count) = (weights.columns[0].len(), columns.len());
    if count == 0 {
        return None;
    }
    let columns = table(queue, columns);
    let blocks = rows.div_ceil((DOT_ROWS * THREADS) as usize);
    let mut partials = queue.alloc::<[u32; 4]>(count * blocks);
    let group = (count * blocks).div_ceil(DOT_BLOCKS).clamp(1, DOT_COLUMNS);
    let grid = Grid::new([blocks as u32, count.div_ceil(group) as u32, 1], [THREADS, 1, 1])
        .shared(group as u32 * THREADS / 32 * 16);
    let weights = coordinates(queue, weights);
    let arguments =
        args![&columns, count as u32, group as u32, ByValue(&weights), rows as u64, &mut partials];
    queue.launch(&kernels::OODS, "dot_products", &grid, &arguments);
    let mut values = queue.alloc::<[u32; 4]>(count);
    let grid = Grid::new([count as u32, 1, 1], [32, 1, 1]);
    queue.launch(&kernels::OODS, "dot_totals", &grid, &args![&partials, blocks as u32, &mut values]);
    Some(values)
}

/// Weights by coordinates as a column of QM31.
pub(super) fn interleave(
    queue: &Queue,
    weights: &SecureColumnByCoords<CudaBackend>,
) -> DeviceColumn<SecureField> {
    let rows = weights.columns[0].len();
    let mut column = DeviceColumn::<SecureField>::new(queue, rows);
    let arguments = args![ByValue(&coordinates(queue, weights)), column.quads_mut(), rows as u64];
    queue.launch(&kernels::OODS, "interleave", &one_thread_each(rows), &arguments);
    column
}

/// The sum of weight times value.
pub(super) fn dot_interleaved(
    values: &DeviceColumn<BaseField>,
    weights: &DeviceColumn<SecureField>,
) -> SecureField {
    let queue = values.queue();
    let (values, rows) = (values.brought(), values.len());
    assert_eq!(weights.len(), rows, "every value has a weight");
    let mut value = queue.alloc::<[u32; 4]>(1);
    let grid = Grid::new([1, 1, 1], [THREADS, 1, 1]).shared(THREADS / 32 * 16);
    let arguments = args![values.words(queue), weights.quads(queue), rows as u64, &mut value];
    queue.launch(&kernels::OODS, "dot_interleaved", &grid, &arguments);
    SecureField::read(&queue.stream().download(&value).or_raise()[0])
}
