//! `stark/streaming`: rows of streamed columns that are ahead of others, chunk by chunk, against stwo's index
//! of such rows.

use gatework_lab::{KernelSpec, Work};
use stwo::core::utils::offset_bit_reversed_circle_domain_index;

use super::{Size, Task};
use crate::airs::HostColumn;
use crate::column::DeviceColumn;
use crate::constraints::{Domain, rows_by_chunks};
use crate::kernels;
use crate::pages::Pages;
use crate::queue::Queue;
use crate::streaming::{LOG_LEAST_PAGE, Streaming};

#[derive(Clone, Copy)]
pub(super) struct Streamed;

/// How far ahead rows are read, in rows of the trace.
const OFFSETS: [i32; 3] = [1, -2, 5];

/// A domain of twice the trace's rows, as constraints are evaluated on.
fn domain(column: &HostColumn) -> Domain {
    let log_rows = column.len().ilog2();
    Domain { log_trace: log_rows - 1, log_rows }
}

fn ahead(columns: &[HostColumn], offsets: [i32; 3]) -> Vec<u32> {
    let of = |column: &HostColumn, offset: i32| -> Vec<u32> {
        let Domain { log_trace, log_rows } = domain(column);
        let row = |row| offset_bit_reversed_circle_domain_index(row, log_trace, log_rows, offset as isize);
        (0..column.len()).map(|index| column[row(index)].0).collect()
    };
    columns.iter().flat_map(|column| offsets.into_iter().flat_map(|offset| of(column, offset))).collect()
}

impl Task for Streamed {
    fn name(&self) -> &'static str {
        "stark/streaming"
    }

    fn summary(&self) -> &'static str {
        "rows of streamed columns that are ahead of a chunk's, brought where the chunk's rows are"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        vec![KernelSpec::new(kernels::SHIFTED_ROWS.source()).threads(256).entries(["shift_rows"])]
    }

    fn on_device(&self, columns: &[HostColumn]) -> Vec<u32> {
        let queue = Queue::current();
        let streaming = Streaming::new(0, LOG_LEAST_PAGE);
        let of = |column: &HostColumn| {
            let pages = Pages::with(&queue, bytemuck::cast_slice(column), streaming, |word| word);
            let streamed = DeviceColumn::streamed(&queue, pages);
            OFFSETS.map(|offset| rows_by_chunks(&queue, &streamed, domain(column), offset)).concat()
        };
        columns.iter().flat_map(of).collect()
    }

    fn on_host(&self, columns: &[HostColumn]) -> Vec<u32> {
        ahead(columns, OFFSETS)
    }

    fn mistaken(&self, columns: &[HostColumn]) -> (&'static str, Vec<u32>) {
        ("rows that are behind", ahead(columns, OFFSETS.map(|offset| -offset)))
    }

    /// Two reversals of bits and a step; a row is read and written.
    fn work(&self, Size { log_rows, columns }: Size) -> Work {
        let rows = (OFFSETS.len() * columns) as u64 * (1u64 << log_rows);
        Work { operations: rows * 20, bytes: rows * 8 }
    }
}
