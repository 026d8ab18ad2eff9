//! Keys and values that stay from call to call, in pages that sequences may share.

mod attend;
mod pages;

use gatework_gpu::Target;
use half::f16;

pub use self::attend::CachedAttention;
use self::pages::Pages;
pub use self::pages::{Sequence, Statistics};
use crate::dimensions::HeadDimension;
use crate::{Element, Error, Result};

/// Keys of a page.
pub const PAGE_KEYS: usize = crate::cuda::KEY_TILE;

/// Pages together have at most so many elements of keys.
const MOST_ELEMENTS: usize = 1 << 40;

/// Keys and values of many sequences, in a fixed number of pages of [`PAGE_KEYS`] keys.
///
/// Sequences grow by [`append`](Self::append), share what they have in common by [`fork`](Self::fork), and are cut by
/// [`truncate`](Self::truncate). A page that several share is copied when one of them writes into it. Numbers are kept in f16.
#[derive(Debug)]
pub struct KvCache {
    key_heads: usize,
    dim: usize,
    pages: Pages,
    /// Of keys and of values, `[page, key head, key, dim]`.
    keys: Vec<f16>,
    values: Vec<f16>,
}

impl KvCache {
    /// A cache of so many pages, whose memory is taken now. Only the CPU has one yet.
    pub fn new(key_heads: usize, dim: usize, pages: usize, target: &Target) -> Result<Self> {
        let refuse = |what: String| Err(Error::Unsupported { what });
        HeadDimension::of(dim)?;
        if let Target::Gpu(_) = target {
            return refuse(format!("a cache on {}; the target must be cpu", target.id()));
        }
        if key_heads == 0 || pages == 0 {
            return refuse(format!(
                "a cache of {pages} pages for {key_heads} key heads; both must be at least 1"
            ));
        }
        let elements =
            [key_heads, PAGE_KEYS, dim].into_iter().try_fold(pages, |all, size| all.checked_mul(size));
        let Some(elements) = elements.filter(|&elements| elements <= MOST_ELEMENTS) else {
            return refuse(format!(
                "{pages} pages of {key_heads} key heads; at most 2^40 elements are supported"
            ));
        };
        Ok(Self {
            key_heads,
            dim,
            pages: Pages::new(pages),
            keys: zeros(elements)?,
            values: zeros(elements)?,
        })
    }

    /// A new sequence without keys.
    pub fn begin(&mut self) -> Sequence {
        self.pages.begin()
    }

    /// Another sequence with the first `keys` keys of this one. It takes no page: both have the same until one writes.
    pub fn fork(&mut self, sequence: Sequence, keys: usize) -> Result<Sequence> {
        self.pages.fork(sequence, keys)
    }

    /// Leaves the first `keys` keys of the sequence.
    pub fn truncate(&mut self, sequence: Sequence, keys: usize) -> Result<()> {
        self.pages.truncate(sequence, keys)
    }

    /// Ends the sequence. Pages that no other one has are free again.
    pub fn free(&mut self, sequence: Sequence) -> Result<()> {
        self.pages.end(sequence)
    }

    /// The number of the sequence's keys.
    pub fn keys(&self, sequence: Sequence) -> Result<usize> {
        Ok(self.pages.table(sequence)?.keys)
    }

    /// How full it is.
    pub fn statistics(&self) -> Statistics {
        self.pages.statistics()
    }

    /// Adds keys and values, `[keys, key heads, dim]`, at the end of the sequence: all of them, or after an error none.
    pub fn append<T: Element>(&mut self, sequence: Sequence, k: &[T], v: &[T]) -> Result<()> {
        let row = self.key_heads * self.dim;
        let rows = k.len().div_ceil(row);
        for (tensor, found) in [("k", k.len()), ("v", v.len())] {
            if found != rows * row {
                return Err(Error::Length { tensor, found, needed: rows * row });
            }
        }
        check_range("k", k)?;
        check_range("v", v)?;
        let first = self.keys(sequence)?;
        if let Some((from, to)) = self.pages.reserve(sequence, rows)?.copied {
            self.copy_page(from, to);
        }
        for (index, (k, v)) in k.chunks(row).zip(v.chunks(row)).enumerate() {
            let page = self.pages.table(sequence)?.pages[(first + index) / PAGE_KEYS];
            for (head, (k, v)) in k.chunks(self.dim).zip(v.chunks(self.dim)).enumerate() {
                let at = self.row(page, head, (first + index) % PAGE_KEYS);
                narrow(k, &mut self.keys[at..][..self.dim]);
                narrow(v, &mut self.values[at..][..self.dim]);
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

/// Numbers that f16 would make infinite are refused: a softmax over them would be wrong.
fn check_range<T: Element>(tensor: &'static str, numbers: &[T]) -> Result<()> {
    let leaves = |x: &&T| x.to_f32().is_finite() && f16::from_f32(x.to_f32()).is_infinite();
    match numbers.iter().find(leaves) {
        None => Ok(()),
        Some(x) => {
            let (x, largest) = (x.to_f32(), f16::MAX);
            Err(Error::Cache {
                what: format!("{tensor} has {x}; the cache keeps f16, whose largest is {largest}"),
            })
        }
    }
}

fn narrow<T: Element>(from: &[T], to: &mut [f16]) {
    from.iter().zip(to).for_each(|(from, to)| *to = f16::from_f32(from.to_f32()));
}
