//! Where the f16 rows of open pages are kept on a device: a fixed number of places, which pages have until
//! they are full or free.

use std::collections::HashMap;

use super::PAGE_KEYS;
use super::pages::{Pages, Room};
use crate::shared::{AppendItem, NO_PLACE, ReopenItem};
use crate::{Error, Result};

/// Which page has which place.
#[derive(Debug, Clone)]
pub(super) struct OpenPages {
    places: usize,
    /// Places of pages. That of a page which is free counts as free too.
    of: HashMap<usize, u32>,
    free: Vec<u32>,
}

/// What a device does for appends, and who has which place afterwards.
#[derive(Debug)]
pub(super) struct Writes {
    pub(super) reopened: Vec<ReopenItem>,
    pub(super) appends: Vec<AppendItem>,
    pub(super) after: OpenPages,
}

impl OpenPages {
    pub(super) fn new(places: usize) -> Self {
        Self { places, of: HashMap::new(), free: (0..places as u32).rev().collect() }
    }

    /// What is to be done for rooms, in the order of their rows. Nothing is changed.
    pub(super) fn writes(&self, pages: &Pages, rooms: &[Room]) -> Result<Writes> {
        let mut writes = Writes { reopened: Vec::new(), appends: Vec::new(), after: self.clone() };
        writes.after.reclaim(pages);
        let known = writes.after.of.clone();
        // What is let go of is read by this very launch: nobody else may have it before the next.
        let mut left = Vec::new();
        let mut first_row = 0;
        for room in rooms {
            let table = room.pages_after(pages.table(room.sequence)?);
            let mut row = room.before;
            while row < room.before + room.added {
                let kept = row % PAGE_KEYS;
                let added = (PAGE_KEYS - kept).min(room.before + room.added - row);
                let page = table[row / PAGE_KEYS];
                let source = room.copied.filter(|_| kept > 0).map_or(page, |(source, _)| source);
                let item = AppendItem {
                    page: page as u32,
                    kept: kept as u32,
                    added: added as u32,
                    first_row: (first_row + row - room.before) as u32,
                    from: NO_PLACE,
                    to: NO_PLACE,
                    unused: [0; 2],
                };
                let item = writes.place(item, source, &known, &mut left)?;
                writes.appends.push(item);
                row += added;
            }
            first_row += room.added;
        }
        writes.after.free.extend(left);
        Ok(writes)
    }

    /// Places of pages that no sequence has any more are free.
    fn reclaim(&mut self, pages: &Pages) {
        let free = &mut self.free;
        self.of.retain(|&page, &mut place| {
            let stays = pages.is_used(page);
            if !stays {
                free.push(place);
            }
            stays
        });
    }

    fn take(&mut self) -> Result<u32> {
        let places = self.places;
        self.free.pop().ok_or_else(|| Error::Cache {
            what: format!(
                "{places} pages are open, and it has no room for more; free sequences, or make it with more open pages"
            ),
        })
    }
}

impl Writes {
    /// Finds where the kept rows come from, by the places that were known before, and where the page's rows
    /// stay.
    fn place(
        &mut self,
        item: AppendItem,
        source: usize,
        known: &HashMap<usize, u32>,
        left: &mut Vec<u32>,
    ) -> Result<AppendItem> {
        let page = item.page as usize;
        let before = known.get(&source).copied().filter(|_| item.kept > 0);
        let in_place = if source == page { before } else { None };
        let to = match in_place {
            Some(place) => Some(place),
            None if !item.fills() => Some(self.after.take()?),
            None => None,
        };
        let from = match before {
            Some(place) => Some(place),
            None if item.kept == 0 => None,
            // The page was full, and only its codes are left.
            None => {
                let place = match to {
                    Some(place) => place,
                    None => {
                        let place = self.after.take()?;
                        left.push(place);
                        place
                    }
                };
                self.reopened.push(ReopenItem { page: source as u32, kept: item.kept, to: place, unused: 0 });
                Some(place)
            }
        };
        if item.fills() {
            left.extend(self.after.of.remove(&page));
            return Ok(AppendItem { from: from.unwrap_or(NO_PLACE), ..item });
        }
        self.after.of.extend(to.map(|place| (page, place)));
        Ok(AppendItem { from: from.unwrap_or(NO_PLACE), to: to.unwrap_or(NO_PLACE), ..item })
    }
}
