//! Columns that are away, in groups that fit into a window: one in use, the next on its way.

use std::ops::Range;
use std::sync::Arc;

use gatework_gpu::Event;
use stwo::core::fields::m31::BaseField;
use stwo::prover::backend::Column as _;

use crate::column::{DeviceColumn, Finish};
use crate::error::OrRaise as _;
use crate::queue::Queue;
use crate::streaming::Streams;

/// What is wanted of columns.
pub(crate) struct Wanted {
    /// So many rows at least, of columns that have them.
    pub(crate) rows: usize,
    /// Groups start at multiples of so many columns.
    pub(crate) unit: usize,
    /// Bytes that whoever uses a column takes beside it.
    pub(crate) beside: u64,
}

impl Wanted {
    /// All rows of each.
    pub(crate) const WHOLE: Self = Self { rows: usize::MAX, unit: 1, beside: 0 };
}

/// Calls `visit` with all of `columns`, some at a time and in their order, in device memory: with their
/// numbers and handles to read them by. Where none is away there is one call.
///
/// Columns of other devices are brought inside of [`meet`](crate::ranks::meet).
pub(crate) fn by_groups(
    queue: &Queue,
    columns: &[&DeviceColumn<BaseField>],
    wanted: &Wanted,
    mut visit: impl FnMut(Range<usize>, &[DeviceColumn<BaseField>]),
) {
    if !columns.iter().any(|column| column.is_away()) {
        let all: Vec<_> = columns.iter().map(|column| column.alias()).collect();
        return visit(0..columns.len(), &all);
    }
    let streaming = columns.iter().find_map(|column| column.streaming());
    let window = streaming.map_or_else(|| queue.window(), |streaming| streaming.window());
    // Two groups are there at a time.
    let ranges = ranges(columns, wanted, window / 2);
    let mut groups =
        ranges.into_iter().map(|range| (range.clone(), Arriving::of(queue, &columns[range], wanted)));
    let mut next = groups.next();
    while let Some((range, group)) = next {
        next = groups.next();
        visit(range, &group.arrive(queue));
    }
}

/// Groups of no more than `most` bytes, or of one unit.
fn ranges(columns: &[&DeviceColumn<BaseField>], wanted: &Wanted, most: u64) -> Vec<Range<usize>> {
    let bytes = |column: &&DeviceColumn<BaseField>| {
        let words = words_brought(column, wanted.rows).unwrap_or(0);
        (words * size_of::<u32>()) as u64 + wanted.beside
    };
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let mut held = 0;
    for (number, unit) in columns.chunks(wanted.unit).enumerate() {
        let (start, needed) = (number * wanted.unit, unit.iter().map(bytes).sum::<u64>());
        match ranges.last_mut() {
            Some(range) if held + needed <= most => {
                range.end = start + unit.len();
                held += needed;
            }
            _ => {
                ranges.push(start..start + unit.len());
                held = needed;
            }
        }
    }
    ranges
}

/// How many words are brought for the first `rows` of a column that is away.
fn words_brought(column: &DeviceColumn<BaseField>, rows: usize) -> Option<usize> {
    let rows = rows.min(column.len());
    match column.pages() {
        // A transform takes all of a column.
        Some((pages, Some(_))) => Some(pages.len()),
        Some((pages, None)) => Some(pages.words_for(rows)),
        None => column.there().map(|_| rows),
    }
}

/// Columns of a group, some of which are on their way.
struct Arriving {
    columns: Vec<DeviceColumn<BaseField>>,
    /// What is yet to be done with columns by their places.
    finish: Vec<(Arc<dyn Finish>, Vec<usize>)>,
    arrived: Event,
}

impl Arriving {
    fn of(queue: &Queue, columns: &[&DeviceColumn<BaseField>], wanted: &Wanted) -> Self {
        let lens = columns.iter().filter_map(|column| words_brought(column, wanted.rows));
        let mut room = DeviceColumn::batch(queue, lens).into_iter();
        let copies = Streams::of(queue).copies(queue);
        copies.wait(&queue.stream().record().or_raise()).or_raise();
        let mut finish: Vec<(Arc<dyn Finish>, Vec<usize>)> = Vec::new();
        let mut bring = |(place, column): (usize, &&DeviceColumn<BaseField>)| {
            if !column.is_away() {
                return column.alias();
            }
            let Some(mut to) = room.next() else { unreachable!("there is room for each") };
            if let Some(there) = column.there() {
                let rows = there.part(0, to.len());
                queue.pull(&copies, there.queue(), &rows.words(there.queue()), &mut to.words_mut());
            }
            let Some((pages, yet)) = column.pages() else { return to };
            pages.load(&copies, 0, &mut to.words_mut());
            if let Some(yet) = yet {
                match finish.iter_mut().find(|(known, _)| Arc::ptr_eq(known, yet)) {
                    Some((_, places)) => places.push(place),
                    None => finish.push((yet.clone(), vec![place])),
                }
            }
            to
        };
        let columns = columns.iter().enumerate().map(&mut bring).collect();
        Self { columns, finish, arrived: copies.record().or_raise() }
    }

    /// The columns, for whatever is queued from now on.
    fn arrive(self, queue: &Queue) -> Vec<DeviceColumn<BaseField>> {
        queue.stream().wait(&self.arrived).or_raise();
        for (finish, places) in &self.finish {
            let columns: Vec<_> = places.iter().map(|&place| self.columns[place].alias()).collect();
            finish.finish(queue, &columns);
        }
        self.columns
    }
}
