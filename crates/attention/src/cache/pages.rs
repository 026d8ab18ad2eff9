//! Which sequence has which pages: tables, a free list, and counts of who shares a page.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use super::PAGE_KEYS;
use crate::{Error, Result};

/// Keys of a sequence: as many as one head of any attention.
const MOST_KEYS: usize = i32::MAX as usize / 2;

/// A sequence of a [`KvCache`](super::KvCache). A handle of one that was freed is refused, and so is one of
/// another cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sequence {
    cache: u64,
    place: usize,
    generation: u64,
}

/// How full a cache is.
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

/// What an append writes into: found by [`Pages::rooms`], which changes nothing, and the sequence's once it
/// is [taken](Pages::take).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) sequence: Sequence,
    /// Keys that the sequence has before.
    pub(super) before: usize,
    /// Keys that come.
    pub(super) added: usize,
    /// The open page is of several sequences: what it holds must be copied from the first to the second.
    pub(super) copied: Option<(usize, usize)>,
    /// Pages that follow.
    fresh: Vec<usize>,
}

impl Room {
    /// Keys of the page that is written first which are there already.
    pub(super) fn kept(&self) -> usize {
        self.before % PAGE_KEYS
    }

    /// The sequence's pages once the room is taken.
    pub(super) fn pages_after(&self, table: &Table) -> Vec<usize> {
        let mut pages = table.pages.clone();
        if let (Some((_, own)), Some(open)) = (self.copied, pages.last_mut()) {
            *open = own;
        }
        pages.extend(&self.fresh);
        pages
    }
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

    /// Where so many more keys of each sequence go: all of them, or an error. Nothing is changed. Of
    /// sequences that share an open page the one with the most keys in it may write into it in place, if all
    /// of them are here: it writes behind what the others copy.
    pub(super) fn rooms(&self, wanted: &[(Sequence, usize)]) -> Result<Vec<Room>> {
        let mut seen = HashSet::new();
        let mut rooms = Vec::with_capacity(wanted.len());
        for &(sequence, added) in wanted {
            let before = self.table(sequence)?.keys;
            if !seen.insert(sequence) {
                let what = "the sequence is given twice; append its keys together";
                return Err(Error::Cache { what: what.into() });
            }
            if before.checked_add(added).is_none_or(|keys| keys > MOST_KEYS) {
                return Err(Error::Cache {
                    what: format!(
                        "{added} keys after {before} are more than a sequence can have, {MOST_KEYS}"
                    ),
                });
            }
            rooms.push(Room { sequence, before, added, copied: None, fresh: Vec::new() });
        }
        let mut order: Vec<usize> = (0..rooms.len()).collect();
        order.sort_by_key(|&index| rooms[index].kept());
        let mut free = self.free.iter().rev().copied();
        let mut needed = 0;
        let mut left: HashMap<usize, usize> = HashMap::new();
        for index in order {
            let room = &mut rooms[index];
            let table = self.table(room.sequence)?;
            let open = (room.added > 0 && room.kept() > 0).then(|| table.pages[room.before / PAGE_KEYS]);
            let copied = open.filter(|page| self.owners[*page] - left.get(page).copied().unwrap_or(0) > 1);
            let fresh = (room.before + room.added).div_ceil(PAGE_KEYS) - table.pages.len();
            needed += fresh + usize::from(copied.is_some());
            if let Some(page) = copied {
                *left.entry(page).or_default() += 1;
                room.copied = free.next().map(|own| (page, own));
            }
            room.fresh.extend(free.by_ref().take(fresh));
        }
        if needed > self.free.len() {
            return Err(Error::CacheFull { needed, free: self.free.len(), pages: self.owners.len() });
        }
        Ok(rooms)
    }

    /// Gives sequences the rooms that were found last.
    pub(super) fn take(&mut self, rooms: &[Room]) -> Result<()> {
        // They are the last of the list.
        let taken: usize =
            rooms.iter().map(|room| room.fresh.len() + usize::from(room.copied.is_some())).sum();
        self.free.truncate(self.free.len() - taken);
        for room in rooms {
            let pages = room.pages_after(self.table(room.sequence)?);
            let own = room.copied.map(|(_, own)| own);
            own.iter().chain(&room.fresh).for_each(|&page| self.owners[page] = 1);
            if let Some((page, _)) = room.copied {
                self.owners[page] -= 1;
            }
            *self.table_mut(room.sequence)? = Table { pages, keys: room.before + room.added };
        }
        Ok(())
    }

    /// Tells caches apart.
    pub(super) fn cache(&self) -> u64 {
        self.cache
    }

    /// Whether some sequence has the page.
    pub(super) fn is_used(&self, page: usize) -> bool {
        self.owners[page] > 0
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
