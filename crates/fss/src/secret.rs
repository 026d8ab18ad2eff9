//! Buffers that are wiped when they go.

use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use rayon::iter::{IndexedParallelIterator as _, ParallelIterator as _};
use rayon::slice::{ParallelSlice as _, ParallelSliceMut as _};

/// Values that one core appends.
const SHARE: usize = 1 << 20;
/// Bytes from which on a buffer has large pages, and bytes of such a page.
const LARGE: usize = 64 << 20;
const LARGE_PAGE: usize = 2 << 20;
/// Bytes that one core copies.
const COPIED: usize = 512 << 10;

/// A vector whose whole allocation is overwritten before it is freed.
#[derive(Clone, Default)]
pub struct Secret<T: Copy + Default>(Vec<T>);

impl<T: Copy + Default> Secret<T> {
    /// Values that are wiped when they go.
    pub fn new(values: Vec<T>) -> Self {
        Self(values)
    }

    /// Room for that many values.
    pub fn with_capacity(capacity: usize) -> Self {
        let values = Vec::with_capacity(capacity);
        in_large_pages(&values);
        Self(values)
    }

    /// Makes room for `more` values. What a vector leaves behind when it moves is wiped, which
    /// [`Vec::reserve`] would not do.
    pub fn make_room(&mut self, more: usize) {
        let needed = self.0.len().saturating_add(more);
        if needed <= self.0.capacity() {
            return;
        }
        let mut larger = Vec::with_capacity(needed.max(2 * self.0.capacity()));
        larger.extend_from_slice(&self.0);
        wipe(&mut std::mem::replace(&mut self.0, larger));
    }

    /// Appends values, many of them on all cores: the pages of a large buffer are made when they are written
    /// first.
    pub fn append(&mut self, values: &[T])
    where
        T: Send + Sync,
    {
        self.make_room(values.len());
        if values.len() <= SHARE {
            return self.0.extend_from_slice(values);
        }
        let room = self.0.spare_capacity_mut()[..values.len()].par_chunks_mut(SHARE);
        room.zip(values.par_chunks(SHARE)).for_each(|(to, from)| {
            to.iter_mut().zip(from).for_each(|(to, from)| _ = to.write(*from));
        });
        // SAFETY: there is room for as many, and each was written above.
        unsafe { self.0.set_len(self.0.len() + values.len()) };
    }

    /// Forgets all values and keeps the allocation.
    pub fn wipe(&mut self) {
        wipe(&mut self.0);
        self.0.clear();
    }
}

impl<T: Copy + Default> Drop for Secret<T> {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

/// Asks the system for large pages where a vector is large: its small ones are made one by one when they are
/// written first.
fn in_large_pages<T>(values: &Vec<T>) {
    #[cfg(target_os = "linux")]
    if values.capacity() * size_of::<T>() >= LARGE {
        let start = (values.as_ptr() as usize).next_multiple_of(LARGE_PAGE);
        let end = values.as_ptr() as usize + values.capacity() * size_of::<T>();
        // SAFETY: these pages belong to the vector alone, and what they hold does not change. A system that
        // declines loses nothing.
        unsafe {
            libc::madvise(start as *mut _, (end - start) / LARGE_PAGE * LARGE_PAGE, libc::MADV_HUGEPAGE)
        };
    }
}

/// Overwrites all that a vector has room for. The barrier keeps the stores, which nothing reads.
fn wipe<T: Copy + Default>(values: &mut Vec<T>) {
    let capacity = values.capacity();
    values.clear();
    values.resize(capacity, T::default());
    zeroize::optimization_barrier(values.as_slice());
}

impl<T: Copy + Default> Deref for Secret<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T: Copy + Default> DerefMut for Secret<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

impl<T: Copy + Default> FromIterator<T> for Secret<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

/// Copies as many bytes, many of them on all cores.
pub(crate) fn copy_on_all_cores(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "as many bytes as there is room for");
    if to.len() <= 4 * COPIED {
        return to.copy_from_slice(from);
    }
    let shares = to.par_chunks_mut(COPIED).zip(from.par_chunks(COPIED));
    shares.for_each(|(to, from)| to.copy_from_slice(from));
}

/// Bytes of stack that an evaluation uses, at most.
const STACK: usize = 256 << 10;

/// Does something with secrets, and overwrites the stack that it used.
///
/// A compiler copies what it likes to the stack: a seed in an argument, round keys in a loop. What is
/// returned must hold none itself.
pub fn scrubbed<T>(work: impl FnOnce() -> T) -> T {
    let done = below(work);
    scrub();
    done
}

/// In frames of its own, whatever else is inlined.
#[inline(never)]
fn below<T>(work: impl FnOnce() -> T) -> T {
    std::hint::black_box(work())
}

#[inline(never)]
fn scrub() {
    let stack = [0u8; STACK];
    zeroize::optimization_barrier(&stack);
}

/// Memory that holds key material, and wipes it when it goes.
pub(crate) trait Held: Send + Sync {
    fn bytes(&self) -> &[u8];
}

impl Held for Secret<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// A part of some key material, which stays where it is: gates read their correction words from it.
#[derive(Clone)]
pub struct SharedBytes {
    bytes: Arc<dyn Held>,
    range: Range<usize>,
}

impl SharedBytes {
    /// All of some key material.
    pub fn new(bytes: Secret<u8>) -> Self {
        Self::held(bytes)
    }

    /// The same, wherever it lies.
    pub(crate) fn held(bytes: impl Held + 'static) -> Self {
        Self { range: 0..bytes.bytes().len(), bytes: Arc::new(bytes) }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes.bytes()[self.range.clone()]
    }

    /// Takes the next `count` bytes, all of which exist.
    pub fn take_front(&mut self, count: usize) -> Self {
        let taken = self.part(0, count);
        self.range.start += count;
        taken
    }

    /// `count` bytes from `start` on, all of which exist.
    pub fn part(&self, start: usize, count: usize) -> Self {
        let start = self.range.start + start;
        debug_assert!(start + count <= self.range.end);
        Self { bytes: self.bytes.clone(), range: start..start + count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wiping_covers_the_whole_allocation() {
        let mut values = vec![7u64; 100];
        values.truncate(10);
        let (capacity, place) = (values.capacity(), values.as_ptr());
        wipe(&mut values);
        assert_eq!(
            (values.len(), values.as_ptr()),
            (capacity, place),
            "it must not move to another allocation"
        );
        assert!(values.iter().all(|&value| value == 0));
    }

    #[test]
    fn growing_keeps_what_is_there() {
        let mut secret = Secret::with_capacity(2);
        for value in 0..100u64 {
            secret.make_room(1);
            let place = secret.as_ptr();
            secret.push(value);
            assert_eq!(secret.as_ptr(), place, "there was room");
        }
        assert_eq!(*secret, (0..100).collect::<Vec<_>>());
        secret.wipe();
        assert!(secret.is_empty() && secret.capacity() >= 100);
    }
}
