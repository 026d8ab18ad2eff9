//! `AccumulationOps`: sums of columns of QM31.

use gatework_gpu::{ByValue, args};
use num_traits::One as _;
use stwo::core::fields::qm31::SecureField;
use stwo::prover::AccumulationOps;
use stwo::prover::backend::Column as _;
use stwo::prover::secure_column::SecureColumnByCoords;

use super::one_thread_each;
use crate::backend::CudaBackend;
use crate::column::{DeviceColumn, coordinates};
use crate::kernels;

impl AccumulationOps for CudaBackend {
    fn accumulate(column: &mut SecureColumnByCoords<Self>, other: &SecureColumnByCoords<Self>) {
        column.columns.iter_mut().for_each(DeviceColumn::go_alone);
        let queue = column.columns[0].queue();
        let rows = column.columns[0].len();
        assert_eq!(rows, other.columns[0].len(), "columns that are added have one length");
        let [to, from] = [&*column, other].map(|column| coordinates(queue, column));
        let arguments = args![ByValue(&to), ByValue(&from), rows as u64];
        queue.launch(&kernels::ACCUMULATION, "accumulate", &one_thread_each(rows), &arguments);
    }

    /// On the host, where the protocol wants them.
    fn generate_secure_powers(felt: SecureField, n_powers: usize) -> Vec<SecureField> {
        std::iter::successors(Some(SecureField::one()), |&power| Some(power * felt)).take(n_powers).collect()
    }

    fn lift_and_accumulate(columns: Vec<SecureColumnByCoords<Self>>) -> Option<SecureColumnByCoords<Self>> {
        let sum = columns.into_iter().reduce(|shorter, longer| {
            let queue = longer.columns[0].queue();
            let rows = longer.columns[0].len();
            let from_rows = shorter.columns[0].len();
            assert!(
                rows.is_power_of_two() && from_rows.is_power_of_two() && (2..=rows).contains(&from_rows),
                "a column of {from_rows} rows is not lifted to {rows}"
            );
            let shift = rows.ilog2() - from_rows.ilog2();
            let [to, from] = [&longer, &shorter].map(|column| coordinates(queue, column));
            let arguments = args![ByValue(&to), ByValue(&from), shift, rows as u32];
            let grid = one_thread_each(rows);
            queue.launch(&kernels::ACCUMULATION, "accumulate_lifted", &grid, &arguments);
            longer
        });
        // What is done with it next is to interpolate its coordinates.
        sum.map(|mut sum| {
            DeviceColumn::go_together(&mut sum.columns);
            sum
        })
    }
}
