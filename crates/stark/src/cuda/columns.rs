//! `ColumnOps`, and reads of many single elements at once.

use gatework_gpu::args;
use stwo::prover::backend::{Column as _, ColumnOps};

use super::one_thread_each;
use crate::backend::CudaBackend;
use crate::column::DeviceColumn;
use crate::element::Element;
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
        column.come_to_stay();
        let queue = column.queue().clone();
        let (log_size, grid) = (len.ilog2(), one_thread_each(len));
        let arguments = args![column.words_mut(), log_size, T::WORDS as u32];
        queue.launch(&kernels::COLUMNS, "bit_reverse", &grid, &arguments);
    }
}

/// Runs of words of the device, all of one length, that are read together.
pub(crate) struct Runs {
    addresses: Vec<u64>,
    words: usize,
}

impl Runs {
    /// Runs of as many words as an element has, to be read on `queue`.
    pub(crate) fn of<T: Element>(queue: &Queue, wanted: &[(&DeviceColumn<T>, usize)]) -> Self {
        let address = |&(column, index): &(&DeviceColumn<T>, usize)| {
            assert!(index < column.len(), "element {index} of a column of {}", column.len());
            column.address(queue) + (index * T::WORDS * size_of::<u32>()) as u64
        };
        Self { addresses: wanted.iter().map(address).collect(), words: T::WORDS }
    }

    fn len(&self) -> usize {
        self.addresses.len() * self.words
    }
}

/// The words of all runs, one after the other, in one transfer.
pub(crate) fn gather<const N: usize>(queue: &Queue, runs: [Runs; N]) -> [Vec<u32>; N] {
    let len = runs.iter().map(Runs::len).sum();
    if len == 0 {
        return runs.map(|_| Vec::new());
    }
    let addresses = queue.upload(&runs.iter().flat_map(|runs| &runs.addresses).copied().collect::<Vec<_>>());
    let mut found = queue.alloc::<u32>(len);
    let (mut first_run, mut first_word) = (0, 0);
    for runs in runs.iter().filter(|runs| runs.len() > 0) {
        let (end_run, end_word) = (first_run + runs.addresses.len(), first_word + runs.len());
        let from = addresses.slice(first_run..end_run);
        let mut to = found.slice_mut(first_word..end_word);
        let arguments = args![from, to.slice_mut(..), runs.words as u32, runs.addresses.len() as u32];
        queue.launch(&kernels::COLUMNS, "collect", &one_thread_each(runs.len()), &arguments);
        (first_run, first_word) = (end_run, end_word);
    }
    let mut words = queue.stream().download(&found).or_raise().into_iter();
    runs.map(|runs| words.by_ref().take(runs.len()).collect())
}
