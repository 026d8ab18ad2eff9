//! Which sequence has which pages: tables, a free list, and counts of who shares a page.

use std::sync::atomic::{AtomicU64, Ordering};

use super::PAGE_KEYS;
use crate::{Error, Result};

/// A sequence of a [`KvCache`](super::KvCache). A handle of one that was freed is refused, and so is one of another cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sequence {
    cache: u64,
    place: usize,
    generation: u64,
}

/// What a cache holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// Pages that it was made with.
    pub pages: usize,
    /// Pages of no sequence.
    pub free_pages: usize,
    /// Pages of several sequences.
    pub shared_pages: usize,
    /// Sequences that were not freed.
    pub sequences: usize,
    /// Keys of all sequences; shared ones count for each.
    pub keys: usize,
}

/// The pages of one sequence, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    pub(super) pages: Vec<usize>,
    pub(super) keys: usize,
}

/// A place for a sequence.
#[derive(Debug, Default)]
struct Slot {
    /// How many sequences had this place before.
    generation: u64,
    table: Option<Table>,
}

/// What an append writes into, once it has been found that there is room for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// The open page was of several sequences: what it holds must be copied from the first to the second.
    pub(super) copied: Option<(usize, usize)>,
}

/// All pages and all sequences.
#[derive(Debug)]
pub(super) struct Pages {
    cache: u64,
    /// Sequences that have each page.
    owners: Vec<usize>,
    free: Vec<usize>,
    slots: Vec<Slot>,
}

static CACHES: AtomicU64 = AtomicU64::new(0);

impl Pages {
    pub(super) fn new(count: usize) -> Self {
        let cache = CACHES.fetch_add(1, Ordering::Relaxed);
        // The first page is given first.
        Self { cache, owners: vec![0; count], free: (0..count).rev().collect(), slots: Vec::new() }
    }

    /// A new sequence without keys.
    pub(super) fn begin(&mut self) -> Sequence {
        self.insert(Table::default())
    }

    fn insert(&mut self, table: Table) -> Sequence {
        let place = self.slots.iter().position(|slot| slot.table.is_none()).unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        let slot = &mut self.slots[place];
        slot.table = Some(table);
        Sequence { cache: self.cache, place, generation: slot.generation }
    }

    pub(super) fn table(&self, sequence: Sequence) -> Result<&Table> {
        let place = self.place(sequence)?;
        self.slots[place].table.as_ref().ok_or_else(freed)
    }

    /// The sequence's place, if it is one of this cache that was not freed.
    fn place(&self, sequence: Sequence) -> Result<usize> {
        if sequence.cache != self.cache {
            return Err(Error::Cache { what: "the sequence is of another cache; use that one".into() });
        }
        match self.slots.get(sequence.place) {
            Some(slot) if slot.generation == sequence.generation && slot.table.is_some() => {
                Ok(sequence.place)
            }
            _ => Err(freed()),
        }
    }

    fn table_mut(&mut self, sequence: Sequence) -> Result<&mut Table> {
        let place = self.place(sequence)?;
        self.slots[place].table.as_mut().ok_or_else(freed)
    }

    /// Gives the sequence pages for so many more keys, all or none, and makes the page that is written first its own.
    pub(super) fn reserve(&mut self, sequence: Sequence, keys: usize) -> Result<Room> {
        let table = self.table(sequence)?;
        let Some(total) = table.keys.checked_add(keys) else {
            return Err(Error::Cache { what: format!("{keys} more keys are more than a sequence can have") });
        };
        let added = total.div_ceil(PAGE_KEYS) - table.pages.len();
        let open = (keys > 0 && !table.keys.is_multiple_of(PAGE_KEYS)).then_some(table.keys / PAGE_KEYS);
        let copied = open.map(|open| table.pages[open]).filter(|&page| self.owners[page] > 1);
        let needed = added + usize::from(copied.is_some());
        if needed > self.free.len() {
            return Err(Error::CacheFull { needed, free: self.free.len(), pages: self.owners.len() });
        }
        let fresh = self.free.split_off(self.free.len() - added);
        let own = copied.and_then(|page| self.free.pop().map(|own| (page, own)));
        fresh.iter().chain(own.iter().map(|(_, own)| own)).for_each(|&page| self.owners[page] = 1);
        let table = self.table_mut(sequence)?;
        if let (Some(open), Some((_, own))) = (open, own) {
            table.pages[open] = own;
        }
        table.pages.extend(fresh.iter().rev());
        table.keys = total;
        if let Some((page, _)) = own {
            self.owners[page] -= 1;
        }
        Ok(Room { copied: own })
    }

    /// Another sequence with the first `keys` keys of this one: it has the same pages.
    pub(super) fn fork(&mut self, sequence: Sequence, keys: usize) -> Result<Sequence> {
        let table = self.table(sequence)?;
        require_keys(table, keys)?;
        let pages = table.pages[..keys.div_ceil(PAGE_KEYS)].to_vec();
        pages.iter().for_each(|&page| self.owners[page] += 1);
        Ok(self.insert(Table { pages, keys }))
    }

    /// Leaves the first `keys` keys.
    pub(super) fn truncate(&mut self, sequence: Sequence, keys: usize) -> Result<()> {
        let table = self.table_mut(sequence)?;
        require_keys(table, keys)?;
        table.keys = keys;
        let dropped = table.pages.split_off(keys.div_ceil(PAGE_KEYS));
        self.release(&dropped);
        Ok(())
    }

    /// Ends the sequence.
    pub(super) fn end(&mut self, sequence: Sequence) -> Result<()> {
        let place = self.place(sequence)?;
        let slot = &mut self.slots[place];
        slot.generation += 1;
        let dropped = slot.table.take().map(|table| table.pages).unwrap_or_default();
        self.release(&dropped);
        Ok(())
    }

    fn release(&mut self, dropped: &[usize]) {
        for &page in dropped.iter().rev() {
            self.owners[page] -= 1;
            if self.owners[page] == 0 {
                self.free.push(page);
            }
        }
    }

    pub(super) fn statistics(&self) -> Statistics {
        let tables = || self.slots.iter().filter_map(|slot| slot.table.as_ref());
        Statistics {
            pages: self.owners.len(),
            free_pages: self.free.len(),
            shared_pages: self.owners.iter().filter(|&&owners| owners > 1).count(),
            sequences: tables().count(),
            keys: tables().map(|table| table.keys).sum(),
        }
    }
}

fn freed() -> Error {
    Error::Cache { what: "the sequence was freed; begin another".into() }
}

fn require_keys(table: &Table, keys: usize) -> Result<()> {
    if keys <= table.keys {
        return Ok(());
    }
    let has = table.keys;
    Err(Error::Cache { what: format!("the sequence has {has} keys and not {keys}; ask for at most those") })
}
