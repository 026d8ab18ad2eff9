//! `ColumnOps`, and reads of many single elements at once.

use gatework_gpu::args;
use stwo::prover::backend::{Column as _, ColumnOps};

use super::one_thread_each;
use crate::backend::CudaBackend;
use crate::column::{DeviceColumn, Element};
use crate::error::OrRaise as _;
use crate::kernels;
use crate::queue::Queue;

impl<T: Element> ColumnOps<T> for CudaBackend {
    type Column = DeviceColumn<T>;

    fn bit_reverse_column(column: &mut DeviceColumn<T>) {
        let len = column.len();
        assert!(len.is_power_of_two(), "a column of {len} elements has no bit-reversed order");
        if len <= 2 {
            return;
        }
        let queue = column.queue().clone();
        let (log_size, grid) = (len.ilog2(), one_thread_each(len));
        let arguments = args![column.words_mut(), log_size, T::WORDS as u32];
        queue.launch(&kernels::COLUMNS, "bit_reverse", &grid, &arguments);
    }
}

/// Elements of many columns, each by its column and its index, in one transfer.
pub(crate) fn gather<T: Element>(queue: &Queue, wanted: &[(&DeviceColumn<T>, usize)]) -> Vec<T> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let address = |&(column, index): &(&DeviceColumn<T>, usize)| {
        assert!(index < column.len(), "element {index} of a column of {}", column.len());
        column.address(queue) + (index * T::WORDS * size_of::<u32>()) as u64
    };
    let addresses = queue.upload(&wanted.iter().map(address).collect::<Vec<u64>>());
    let words = wanted.len() * T::WORDS;
    let mut found = queue.alloc::<u32>(words);
    let arguments = args![&addresses, &mut found, T::WORDS as u32, wanted.len() as u32];
    queue.launch(&kernels::COLUMNS, "collect", &one_thread_each(words), &arguments);
    let words = queue.stream().download(&found).or_raise();
    words.chunks_exact(T::WORDS).map(T::read).collect()
}
