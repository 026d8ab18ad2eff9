//! Columns that are streamed from the host, in groups that fit into their window: one in use, the next on its
//! way.

use std::ops::Range;
use std::sync::Arc;

use gatework_gpu::Event;
use stwo::core::fields::m31::BaseField;

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
/// numbers and handles to read them by. Where none is streamed there is one call.
pub(crate) fn by_groups(
    queue: &Queue,
    columns: &[&DeviceColumn<BaseField>],
    wanted: &Wanted,
    mut visit: impl FnMut(Range<usize>, &[DeviceColumn<BaseField>]),
) {
    let Some(streaming) = columns.iter().find_map(|column| column.streaming()) else {
        let all: Vec<_> = columns.iter().map(|column| column.alias()).collect();
        return visit(0..columns.len(), &all);
    };
    // Two groups are there at a time.
    let ranges = ranges(columns, wanted, streaming.window() / 2);
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
        let brought =
            column.pages().map_or(0, |(pages, _)| words_for(pages.words_for(wanted.rows.min(pages.len()))));
        brought + wanted.beside
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

fn words_for(words: usize) -> u64 {
    (words * size_of::<u32>()) as u64
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
        let streamed = columns.iter().filter_map(|column| column.pages());
        let lens = streamed.map(|(pages, finish)| {
            // A transform takes all of a column.
            let rows = if finish.is_some() { pages.len() } else { wanted.rows.min(pages.len()) };
            pages.words_for(rows)
        });
        let mut room = DeviceColumn::batch(queue, lens).into_iter();
        let copies = Streams::of(queue).copies(queue);
        copies.wait(&queue.stream().record().or_raise()).or_raise();
        let mut finish: Vec<(Arc<dyn Finish>, Vec<usize>)> = Vec::new();
        let mut bring = |(place, column): (usize, &&DeviceColumn<BaseField>)| {
            let Some((pages, yet)) = column.pages() else { return column.alias() };
            let Some(mut to) = room.next() else { unreachable!("there is room for each") };
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
