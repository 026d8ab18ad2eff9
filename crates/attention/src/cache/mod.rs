//! Keys and values that stay from call to call, in pages that sequences may share.

mod attend;
mod host;
mod open;
mod pages;
mod step;

use gatework_gpu::{Stream, Target};
use half::f16;

pub use self::attend::CachedAttention;
use self::host::HostPages;
use self::open::OpenPages;
use self::pages::{Pages, Room};
pub use self::pages::{Sequence, Statistics};
pub use self::step::{StepGraph, StepSize, Steps};
use crate::cuda::DevicePages;
use crate::dimensions::HeadDimension;
use crate::{Element, Error, Result};

/// Keys of a page.
pub const PAGE_KEYS: usize = crate::cuda::KEY_TILE;

/// Pages together have at most so many elements of keys.
const MOST_ELEMENTS: usize = 1 << 40;
/// Pages that may be open on a device, if nothing else is said: more than most servers have sequences at a
/// time.
const OPEN_PAGES: usize = 1024;

/// Keys and values of many sequences, in a fixed number of pages of [`PAGE_KEYS`] keys.
///
/// Sequences grow by [`append`](Self::append), share what they have in common by [`fork`](Self::fork), and
/// are cut by [`truncate`](Self::truncate). A page that several share is copied when one of them writes into
/// it.
///
/// On the CPU numbers are kept in f16. On a device a page is kept in e4m3, with one scale a key head for its
/// keys and one for its values. Beside a page that is not full its rows are kept in f16, and each append
/// quantises the page anew from those; a page that is full is quantised for good. So the same rows give the
/// same bytes, however they come. A page that was full and is cut has only the values of its codes, which the
/// next append into it rounds to f16 and quantises with what comes. Until a cut or shared page is written, it
/// is read as it was quantised with all its keys.
#[derive(Debug)]
pub struct KvCache {
    key_heads: usize,
    dim: usize,
    pages: Pages,
    store: Store,
}

/// Where pages lie.
#[derive(Debug)]
enum Store {
    Cpu(HostPages),
    Device(Box<DeviceStore>),
}

#[derive(Debug)]
struct DeviceStore {
    pages: DevicePages,
    open: OpenPages,
}

impl KvCache {
    /// A cache of so many pages, whose memory is taken now. On a device up to 1024 of them may be open, that
    /// is, partly filled.
    pub fn new(key_heads: usize, dim: usize, pages: usize, target: &Target) -> Result<Self> {
        Self::with_open_pages(key_heads, dim, pages, OPEN_PAGES, target)
    }

    /// A cache of which up to `open` pages may be open on a device: each takes twice the memory of a full one
    /// more. A sequence has one, and for the call in which it fills and the next begins, two. The CPU has no
    /// such limit.
    pub fn with_open_pages(
        key_heads: usize,
        dim: usize,
        pages: usize,
        open: usize,
        target: &Target,
    ) -> Result<Self> {
        let refuse = |what: String| Err(Error::Unsupported { what });
        HeadDimension::cached(dim)?;
        if key_heads == 0 || pages == 0 || open == 0 {
            return refuse(format!(
                "a cache of {pages} pages, {open} of them open, for {key_heads} key heads; all must be at least 1"
            ));
        }
        let elements =
            [key_heads, PAGE_KEYS, dim].into_iter().try_fold(pages, |all, size| all.checked_mul(size));
        if elements.is_none_or(|elements| elements > MOST_ELEMENTS) || pages > u32::MAX as usize {
            return refuse(format!(
                "{pages} pages of {key_heads} key heads; at most 2^40 elements and 2^32 pages are supported"
            ));
        }
        if key_heads > 65535 {
            return refuse(format!("{key_heads} key heads; at most 65535 are supported"));
        }
        let store = match target {
            Target::Cpu => Store::Cpu(HostPages::new(key_heads, dim, pages)?),
            Target::Gpu(device) => {
                let open = open.min(pages);
                let pages = DevicePages::new(&device.stream()?, key_heads, dim, pages, open)?;
                Store::Device(Box::new(DeviceStore { pages, open: OpenPages::new(open) }))
            }
        };
        Ok(Self { key_heads, dim, pages: Pages::new(pages), store })
    }

    /// A new sequence without keys.
    pub fn begin(&mut self) -> Sequence {
        self.pages.begin()
    }

    /// Another sequence with the first `keys` keys of this one. It takes no page: both have the same until
    /// one writes.
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

    /// Adds keys and values, `[keys, key heads, dim]`, at the end of the sequence: all of them, or after an
    /// error none.
    pub fn append<T: Element>(&mut self, sequence: Sequence, k: &[T], v: &[T]) -> Result<()> {
        self.append_all(&[(sequence, k.len().div_ceil(self.key_heads * self.dim))], k, v)
    }

    /// Adds so many keys and values to each of several sequences, one sequence after the other: all of them,
    /// or after an error none.
    pub fn append_all<T: Element>(&mut self, keys: &[(Sequence, usize)], k: &[T], v: &[T]) -> Result<()> {
        let needed = elements_of(keys, self.key_heads * self.dim)?;
        for (tensor, found) in [("k", k.len()), ("v", v.len())] {
            if found != needed {
                return Err(Error::Length { tensor, found, needed });
            }
        }
        check_range("k", k)?;
        check_range("v", v)?;
        let rooms = self.pages.rooms(keys)?;
        match &mut self.store {
            Store::Cpu(host) => host.append(&self.pages, &rooms, k, v)?,
            Store::Device(device) => device.append(&self.pages, &rooms, k, v)?,
        }
        self.pages.take(&rooms)
    }
}

impl DeviceStore {
    /// Writes rows from host memory into rooms, which their sequences do not have yet.
    fn append<T: Element>(&mut self, pages: &Pages, rooms: &[Room], k: &[T], v: &[T]) -> Result<()> {
        let writes = self.open.writes(pages, rooms)?;
        if writes.appends.is_empty() {
            return Ok(());
        }
        let stream: Stream = self.pages.stream().clone();
        let (k, v) = (stream.upload(k)?, stream.upload(v)?);
        self.pages.reopen(&stream, &writes.reopened)?;
        self.pages.append_now(&stream, &writes.appends, [&k, &v])?;
        self.open = writes.after;
        Ok(())
    }
}

/// Elements of so many rows of each sequence.
fn elements_of(rows: &[(Sequence, usize)], row: usize) -> Result<usize> {
    let total = rows.iter().try_fold(0usize, |total, &(_, rows)| total.checked_add(rows));
    let elements = total.and_then(|total| total.checked_mul(row)).filter(|&all| all <= MOST_ELEMENTS);
    elements.ok_or_else(|| Error::Cache { what: "there are more rows than memory could hold".into() })
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

#[cfg(test)]
mod tests {
    use gatework_gpu::Device;

    use super::*;

    /// What a device keeps of a sequence: images and scales of its pages.
    fn bytes(cache: &KvCache, sequence: Sequence) -> Result<Vec<u8>> {
        let Store::Device(store) = &cache.store else { panic!("the cache is on a device") };
        let pages = &cache.pages.table(sequence)?.pages;
        Ok(pages.iter().map(|&page| store.pages.page(page)).collect::<Result<Vec<_>>>()?.concat())
    }

    #[test]
    fn rows_give_the_same_bytes_however_they_come() -> Result<()> {
        let (key_heads, dim, keys) = (2, 64, 2 * PAGE_KEYS + 9);
        let row = key_heads * dim;
        let wave = |step: f32| {
            (0..keys * row).map(|i| (i as f32 * step).sin() * i as f32 * 1e-3).collect::<Vec<f32>>()
        }; // larger from row to row
        let (k, v) = (wave(0.37), wave(0.73));
        let mut cache = KvCache::new(key_heads, dim, 12, &Target::Gpu(Device::emulated(1)?))?;
        let (at_once, one_by_one, shared) = (cache.begin(), cache.begin(), cache.begin());
        cache.append(at_once, &k, &v)?;
        for (k, v) in k.chunks(row).zip(v.chunks(row)) {
            cache.append(one_by_one, k, v)?;
        }
        let half = 100 * row;
        cache.append(shared, &k[..half], &v[..half])?;
        let forked = cache.fork(shared, 70)?;
        cache.append(shared, &k[half..], &v[half..])?;
        cache.append(forked, &k[70 * row..], &v[70 * row..])?;
        let wanted = bytes(&cache, at_once)?;
        assert!(wanted.iter().any(|&byte| byte != 0));
        for (name, sequence) in [("one by one", one_by_one), ("in halves", shared), ("forked", forked)] {
            assert!(bytes(&cache, sequence)? == wanted, "{name}");
        }
        cache.truncate(forked, 200)?;
        cache.append(forked, &k[200 * row..201 * row], &v[200 * row..201 * row])?;
        assert!(bytes(&cache, forked)? != wanted[..bytes(&cache, forked)?.len()], "other rows give others");
        Ok(())
    }
}
