//! Rows in chunks, for components whose columns are away: a chunk of each column is on the device, the next is
//! on its way.

use std::collections::HashMap;
use std::ops::Range;

use gatework_gpu::{Event, Stream, args};
use stwo::core::fields::m31::BaseField;
use stwo::core::utils::bit_reverse_index;
use stwo::prover::backend::Column as _;

use crate::Error;
use crate::column::DeviceColumn;
use crate::cuda::one_thread_each;
use crate::error::{OrRaise as _, raise};
use crate::kernels;
use crate::queue::Queue;
use crate::shared::ShiftedColumn;
use crate::streaming::{LOG_LARGEST_PAGE, LOG_LEAST_PAGE, Streams};

/// A column that is read, and how many rows of the trace ahead.
#[derive(Clone, Copy)]
pub(crate) struct Read<'a> {
    pub(crate) column: &'a DeviceColumn<BaseField>,
    pub(crate) offset: i32,
}

/// The rows of a domain of which chunks are visited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Domain {
    pub(crate) log_trace: u32,
    pub(crate) log_rows: u32,
}

impl Domain {
    /// The row that is `offset` rows of the trace ahead, as `row_ahead` of `rows.cuh` has it.
    fn row_ahead(self, row: usize, offset: i32) -> usize {
        let rows = 1usize << self.log_rows;
        let natural = bit_reverse_index(row, self.log_rows);
        let in_coset = if natural < rows / 2 { 2 * natural } else { 2 * (rows - 1 - natural) + 1 };
        let step = (offset as isize) << (self.log_rows - self.log_trace);
        let ahead = (in_coset as isize + step).rem_euclid(rows as isize) as usize;
        let there = if ahead.is_multiple_of(2) { ahead / 2 } else { rows - 1 - ahead / 2 };
        bit_reverse_index(there, self.log_rows)
    }
}

/// Some of the rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    pub(crate) first: usize,
    pub(crate) log_rows: u32,
}

impl Chunk {
    /// The address of the chunk's first element in an array of one word a row.
    pub(crate) fn address(&self, of_first_row: u64) -> u64 {
        of_first_row + (self.first * size_of::<u32>()) as u64
    }
}

/// How many rows, as a logarithm, of columns on that domain are visited at a time: those of a page. None if
/// no column is streamed.
pub(crate) fn log_chunk<'a>(
    columns: impl IntoIterator<Item = &'a DeviceColumn<BaseField>>,
    log_rows: u32,
) -> Option<u32> {
    let mut pages =
        columns.into_iter().filter_map(DeviceColumn::streaming).map(|streaming| streaming.log_page());
    let log_page = pages.next()?;
    if pages.any(|other| other != log_page) {
        let what = "columns of a component that are streamed in pages of two sizes: bring them to the device in one setting";
        raise(Error::Unsupported { what: what.into() })
    }
    Some(log_page.min(log_rows))
}

/// How many of 2^`log_rows` rows, as a logarithm, are visited at a time where so many columns are brought, and
/// so many are ahead of a chunk's rows: with the columns of the next chunk they fit into `window` bytes, unless
/// they are very many.
pub(crate) fn log_chunk_within(window: u64, (brought, ahead): (u64, u64), log_rows: u32) -> u32 {
    let words = window / size_of::<u32>() as u64 / (2 * brought + ahead).max(1);
    words.max(1).ilog2().clamp(LOG_LEAST_PAGE, LOG_LARGEST_PAGE).min(log_rows)
}

/// Calls `visit` with one chunk of the domain after the other, of those with these numbers, and the addresses
/// of what each of `reads` has there.
///
/// Columns of other devices are brought inside of [`meet`](crate::ranks::meet).
pub(crate) fn by_chunks(
    queue: &Queue,
    reads: &[Read<'_>],
    domain: Domain,
    log_chunk: u32,
    chunks: Range<usize>,
    mut visit: impl FnMut(Chunk, Vec<u64>),
) {
    let chunk = |number: usize| Chunk { first: number << log_chunk, log_rows: log_chunk };
    let mut arriving = chunks.into_iter().map(|number| Arriving::of(queue, reads, domain, chunk(number)));
    let mut next = arriving.next();
    while let Some(here) = next {
        next = arriving.next();
        queue.stream().wait(&here.arrived).or_raise();
        let (shifted, addresses) = here.shift(queue);
        visit(here.chunk, addresses);
        drop(shifted);
    }
}

/// What is read for a chunk: some of it on its way, and some not yet where the chunk's rows are.
struct Arriving {
    chunk: Chunk,
    domain: Domain,
    /// Where it lies for each read: one address, or those of rows that are ahead.
    reads: Vec<Source>,
    arrived: Event,
    /// What was brought.
    _room: Vec<DeviceColumn<BaseField>>,
}

enum Source {
    Here(u64),
    Ahead { even: u64, odd: u64, offset: i32 },
}

impl Arriving {
    fn of(queue: &Queue, reads: &[Read<'_>], domain: Domain, chunk: Chunk) -> Self {
        let own = chunk.first >> chunk.log_rows;
        // In which chunks the even rows and the odd rows are ahead.
        let ahead = |offset: i32| {
            [0, 1].map(|parity| domain.row_ahead(chunk.first + parity, offset) >> chunk.log_rows)
        };
        // Each chunk of a column is brought once.
        let (mut wanted, mut places) = (Vec::new(), HashMap::new());
        let mut place = |column: &DeviceColumn<BaseField>, number: usize| -> Place {
            let key = (std::ptr::from_ref(column), number);
            if column.is_away() {
                return Place::Brought(*places.entry(key).or_insert_with(|| {
                    let rows = 1 << chunk.log_rows;
                    // Of a column that is longer than the domain a page may be.
                    wanted.push((number, column.pages().map_or(rows, |(pages, _)| pages.words_for(rows))));
                    wanted.len() - 1
                }));
            }
            let of_chunk = Chunk { first: number << chunk.log_rows, ..chunk };
            Place::There(of_chunk.address(column.address(queue)))
        };
        let asked: Vec<_> = reads
            .iter()
            .map(|read| {
                let numbers = if read.offset == 0 { [own; 2] } else { ahead(read.offset) };
                (read, numbers.map(|number| place(read.column, number)))
            })
            .collect();
        let mut room = DeviceColumn::<BaseField>::batch(queue, wanted.iter().map(|&(_, words)| words));
        let copies = Streams::of(queue).copies(queue);
        copies.wait(&queue.stream().record().or_raise()).or_raise();
        let mut is_queued = vec![false; wanted.len()];
        for (read, places) in &asked {
            for place in places {
                if let Place::Brought(place) = *place
                    && !std::mem::replace(&mut is_queued[place], true)
                {
                    bring(queue, &copies, read.column, wanted[place].0, &mut room[place]);
                }
            }
        }
        let address = |place: Place| match place {
            Place::There(address) => address,
            Place::Brought(place) => room[place].address(queue),
        };
        let source = |(read, [even, odd]): (&Read<'_>, [Place; 2])| match read.offset {
            0 => Source::Here(address(even)),
            offset => Source::Ahead { even: address(even), odd: address(odd), offset },
        };
        let reads = asked.into_iter().map(source).collect();
        Self { chunk, domain, reads, arrived: copies.record().or_raise(), _room: room }
    }

    /// Brings rows that are ahead to the chunk's. Gives the memory that they are in, and the address of each
    /// read.
    fn shift(&self, queue: &Queue) -> (Vec<DeviceColumn<BaseField>>, Vec<u64>) {
        let is_ahead = |source: &&Source| matches!(source, Source::Ahead { .. });
        let count = self.reads.iter().filter(is_ahead).count();
        if count == 0 {
            let here = |source: &Source| match *source {
                Source::Here(address) => address,
                Source::Ahead { .. } => unreachable!("there is none"),
            };
            return (Vec::new(), self.reads.iter().map(here).collect());
        }
        let rows = 1usize << self.chunk.log_rows;
        let targets = DeviceColumn::<BaseField>::batch(queue, vec![rows; count]);
        let mut next = targets.iter();
        let mut columns = Vec::with_capacity(count);
        let mut address = |source: &Source| match *source {
            Source::Here(address) => address,
            Source::Ahead { even, odd, offset } => {
                let Some(target) = next.next() else { unreachable!("there is one for each") };
                let target = target.address(queue);
                columns.push(ShiftedColumn { even, odd, target, offset, unused: 0 });
                target
            }
        };
        let addresses = self.reads.iter().map(&mut address).collect();
        let columns = queue.upload(&columns);
        let Domain { log_trace, log_rows } = self.domain;
        // More than a launch may have in y do not occur: an AIR would read that many rows.
        let mut grid = one_thread_each(rows);
        grid.blocks[1] = count as u32;
        let arguments = args![&columns, self.chunk.first as u32, self.chunk.log_rows, log_trace, log_rows];
        queue.launch(&kernels::SHIFTED_ROWS, "shift_rows", &grid, &arguments);
        (targets, addresses)
    }
}

/// Queues copies of the chunk with that number of a column that is away.
fn bring(
    queue: &Queue,
    copies: &Stream,
    column: &DeviceColumn<BaseField>,
    number: usize,
    room: &mut DeviceColumn<BaseField>,
) {
    if let Some((pages, yet)) = column.pages() {
        assert!(yet.is_none(), "coefficients are no rows of a trace");
        pages.load(copies, number, &mut room.words_mut());
    }
    if let Some(there) = column.there() {
        let rows = there.part(number * room.len(), room.len());
        queue.pull(copies, there.queue(), &rows.words(there.queue()), &mut room.words_mut());
    }
}

/// Where a chunk of a column lies.
#[derive(Clone, Copy)]
enum Place {
    /// In device memory.
    There(u64),
    /// Among what is brought.
    Brought(usize),
}

/// What chunks give of a streamed column, one after the other.
#[cfg(feature = "lab")]
pub(crate) fn rows_by_chunks(
    queue: &Queue,
    column: &DeviceColumn<BaseField>,
    domain: Domain,
    offset: i32,
) -> Vec<u32> {
    let Some(log_chunk) = log_chunk([column], domain.log_rows) else {
        unreachable!("the column is streamed")
    };
    rows_in_chunks(queue, column, domain, log_chunk, offset)
}

/// What chunks of 2^`log_chunk` rows give of a column, one after the other.
#[cfg(any(test, feature = "lab"))]
fn rows_in_chunks(
    queue: &Queue,
    column: &DeviceColumn<BaseField>,
    domain: Domain,
    log_chunk: u32,
    offset: i32,
) -> Vec<u32> {
    let mut found = Vec::new();
    let chunks = 0..1 << (domain.log_rows - log_chunk);
    by_chunks(queue, &[Read { column, offset }], domain, log_chunk, chunks, |chunk, addresses| {
        assert_eq!(chunk.first, found.len(), "chunks come in their order");
        let copy = DeviceColumn::<BaseField>::new(queue, 1 << chunk.log_rows);
        // Rows that are none ahead are a copy.
        let (even, odd, target) = (addresses[0], addresses[0], copy.address(queue));
        let columns = queue.upload(&[ShiftedColumn { even, odd, target, offset: 0, unused: 0 }]);
        let arguments = args![&columns, 0u32, chunk.log_rows, chunk.log_rows, chunk.log_rows];
        queue.launch(&kernels::SHIFTED_ROWS, "shift_rows", &one_thread_each(copy.len()), &arguments);
        found.extend(copy.to_cpu().iter().map(|value| value.0));
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Streaming;
    use crate::pages::Pages;
    use gatework_gpu::Device;

    const DOMAINS: [Domain; 4] = [
        Domain { log_trace: 6, log_rows: 6 },
        Domain { log_trace: 6, log_rows: 7 },
        Domain { log_trace: 4, log_rows: 7 },
        Domain { log_trace: 1, log_rows: 2 },
    ];

    /// What chunks give of a column, one of its rows after the other, and of the same column in device
    /// memory.
    fn read(queue: &Queue, values: &[u32], domain: Domain, log_page: u32, offset: i32) -> [Vec<u32>; 2] {
        let streaming = Streaming::new(0, log_page);
        let streamed = DeviceColumn::streamed(queue, Pages::with(queue, values, streaming, |word| word));
        let on_device = DeviceColumn::<BaseField>::from_words(queue, values);
        [&streamed, &on_device]
            .map(|column| rows_in_chunks(queue, column, domain, log_page.min(domain.log_rows), offset))
    }

    #[test]
    fn rows_of_chunks_are_those_of_the_whole_column_at_every_offset() {
        let queue = Queue::new(Device::emulated(6).unwrap().stream().unwrap());
        for domain in DOMAINS {
            let rows = 1u32 << domain.log_rows;
            let values: Vec<u32> = (0..rows).map(|row| 1000 * domain.log_trace + row).collect();
            for (log_page, offset) in [(4, 0), (4, 1), (4, -1), (5, 2), (4, -2), (5, 7), (9, 1), (4, -63)] {
                let ahead = |row| values[domain.row_ahead(row, offset)];
                let expected: Vec<u32> = (0..rows as usize).map(ahead).collect();
                let [streamed, on_device] = read(&queue, &values, domain, log_page, offset);
                assert!(streamed == expected && on_device == expected, "{domain:?}, {offset} ahead");
                // Parts of other devices may be shorter than any page.
                let column = DeviceColumn::<BaseField>::from_words(&queue, &values);
                for log_chunk in 1..domain.log_rows.min(4) {
                    assert_eq!(rows_in_chunks(&queue, &column, domain, log_chunk, offset), expected);
                }
                // A control: other rows are other values.
                assert!(offset % (1 << domain.log_trace) == 0 || expected != values);
            }
        }
    }

    /// Against stwo, which knows domains that are larger than the trace.
    #[test]
    fn rows_ahead_are_those_of_stwo() {
        use stwo::core::utils::offset_bit_reversed_circle_domain_index;

        for domain in DOMAINS.into_iter().filter(|domain| domain.log_rows > domain.log_trace) {
            for (row, offset) in
                (0..1usize << domain.log_rows).flat_map(|row| [-3, -1, 1, 2].map(|offset| (row, offset)))
            {
                let (trace, rows) = (domain.log_trace, domain.log_rows);
                let expected = offset_bit_reversed_circle_domain_index(row, trace, rows, offset);
                assert_eq!(domain.row_ahead(row, offset as i32), expected, "{domain:?}, {offset}");
            }
        }
    }

    #[test]
    fn chunks_and_those_that_follow_fit_into_the_window() {
        assert_eq!(log_chunk_within(256 << 20, (400, 0), 21), 16);
        assert_eq!(log_chunk_within(256 << 20, (400, 0), 12), 12);
        assert_eq!(log_chunk_within(256 << 20, (4, 4), 24), LOG_LARGEST_PAGE);
        assert_eq!(log_chunk_within(0, (400, 0), 21), LOG_LEAST_PAGE);
        assert_eq!(log_chunk_within(0, (0, 0), 2), 2);
    }

    #[test]
    fn pages_of_two_sizes_in_a_component_are_refused() {
        let queue = Queue::new(Device::emulated(6).unwrap().stream().unwrap());
        let column = |log_page| {
            DeviceColumn::streamed(
                &queue,
                Pages::with(&queue, &[1; 64], Streaming::new(0, log_page), |word| word),
            )
        };
        let refused = crate::error::catch(|| log_chunk([&column(4), &column(5)], 6)).unwrap_err();
        assert!(refused.to_string().contains("two sizes"), "{refused}");
        assert_eq!(log_chunk([&column(5), &column(5)], 6), Some(5));
    }
}
