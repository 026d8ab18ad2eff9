//! Pages in the memory of the CPU, in f16.

use half::f16;

use super::PAGE_KEYS;
use super::pages::{Pages, Room, Table};
use crate::cpu::Rows;
use crate::{Element, Error, Result};

/// Of keys and of values, `[page, key head, key, dim]`.
#[derive(Debug)]
pub(super) struct HostPages {
    key_heads: usize,
    dim: usize,
    keys: Vec<f16>,
    values: Vec<f16>,
}

impl HostPages {
    pub(super) fn new(key_heads: usize, dim: usize, pages: usize) -> Result<Self> {
        let elements = pages * key_heads * PAGE_KEYS * dim;
        Ok(Self { key_heads, dim, keys: zeros(elements)?, values: zeros(elements)? })
    }

    /// Writes rows into rooms, which their sequences do not have yet.
    pub(super) fn append<T: Element>(
        &mut self,
        pages: &Pages,
        rooms: &[Room],
        k: &[T],
        v: &[T],
    ) -> Result<()> {
        let row = self.key_heads * self.dim;
        let (mut k, mut v) = (k.chunks(row), v.chunks(row));
        // Copies first: what one sequence writes in place, others may copy.
        for (from, to) in rooms.iter().filter_map(|room| room.copied) {
            self.copy_page(from, to);
        }
        for room in rooms {
            let table = room.pages_after(pages.table(room.sequence)?);
            for (index, (k, v)) in k.by_ref().zip(v.by_ref()).take(room.added).enumerate() {
                let key = room.before + index;
                for (head, (k, v)) in k.chunks(self.dim).zip(v.chunks(self.dim)).enumerate() {
                    let at = self.row(table[key / PAGE_KEYS], head, key % PAGE_KEYS);
                    narrow(k, &mut self.keys[at..][..self.dim]);
                    narrow(v, &mut self.values[at..][..self.dim]);
                }
            }
        }
        Ok(())
    }

    fn copy_page(&mut self, from: usize, to: usize) {
        let size = self.key_heads * PAGE_KEYS * self.dim;
        for tensor in [&mut self.keys, &mut self.values] {
            tensor.copy_within(from * size..(from + 1) * size, to * size);
        }
    }

    /// Where the row of a page's key begins.
    fn row(&self, page: usize, key_head: usize, key: usize) -> usize {
        ((page * self.key_heads + key_head) * PAGE_KEYS + key) * self.dim
    }
}

/// The rows of one sequence.
pub(super) struct Paged<'a> {
    pub(super) pages: &'a HostPages,
    pub(super) table: &'a Table,
}

impl Paged<'_> {
    fn at(&self, key_head: usize, key: usize) -> usize {
        self.pages.row(self.table.pages[key / PAGE_KEYS], key_head, key % PAGE_KEYS)
    }
}

impl Rows<f16> for Paged<'_> {
    fn key(&self, key_head: usize, key: usize) -> &[f16] {
        &self.pages.keys[self.at(key_head, key)..][..self.pages.dim]
    }

    fn value(&self, key_head: usize, key: usize) -> &[f16] {
        &self.pages.values[self.at(key_head, key)..][..self.pages.dim]
    }
}

/// Memory of zeros, or an error that says how much there was to be.
fn zeros(elements: usize) -> Result<Vec<f16>> {
    let mut memory = Vec::new();
    if memory.try_reserve_exact(elements).is_err() {
        let bytes = 2 * elements;
        return Err(Error::Cache {
            what: format!("no memory for {bytes} bytes of keys or values; take fewer pages"),
        });
    }
    memory.resize(elements, f16::ZERO);
    Ok(memory)
}

fn narrow<T: Element>(from: &[T], to: &mut [f16]) {
    from.iter().zip(to).for_each(|(from, to)| *to = f16::from_f32(from.to_f32()));
}
