//! Addresses that are handed out once: what is freed is never another buffer, so that a late access is
//! recognised.

use std::ops::Range;
use std::ptr;

/// Addresses reserved at once. They cost nothing until they are used.
const RESERVED: usize = 64 << 30;
/// Bytes that are made usable at once.
const STEP: usize = 1 << 20;
const PAGE: usize = 4096;

/// A run of addresses, used from its start to its end.
#[derive(Debug)]
pub(super) struct Arena {
    base: usize,
    reserved: usize,
    next: usize,
    /// End of what may be read and written.
    usable: usize,
}

impl Arena {
    /// Reserves addresses for `bytes` bytes and more; none if the system has no such run.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        let least = bytes.checked_next_multiple_of(STEP)?;
        let sizes = std::iter::successors(Some(RESERVED.max(least)), |size| {
            (*size > least).then(|| (size / 2).max(least))
        });
        sizes.into_iter().find_map(Self::reserve)
    }

    fn reserve(reserved: usize) -> Option<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, at an address of the system's choice.
        let base = unsafe { libc::mmap(ptr::null_mut(), reserved, libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return None;
        }
        let base = base as usize;
        Some(Self { base, reserved, next: base, usable: base })
    }

    /// The next run of `bytes` bytes that may be read and written, with `guard` bytes on either side that
    /// belong to nobody, at a multiple of `alignment`.
    pub(super) fn take(&mut self, bytes: usize, guard: usize, alignment: usize) -> Option<usize> {
        let start = self.next.checked_add(guard)?.checked_next_multiple_of(alignment)?;
        let end = start.checked_add(bytes)?.checked_add(guard)?;
        if end > self.base + self.reserved {
            return None;
        }
        if end > self.usable {
            let wanted =
                (end - self.usable).next_multiple_of(STEP).min(self.base + self.reserved - self.usable);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: the range lies in this arena's own mapping.
            if unsafe { libc::mprotect(self.usable as *mut libc::c_void, wanted, access) } != 0 {
                return None;
            }
            self.usable += wanted;
        }
        // The guard behind one buffer is the guard before the next.
        self.next = start + bytes;
        Some(start)
    }

    pub(super) fn contains(&self, address: usize) -> bool {
        (self.base..self.base + self.reserved).contains(&address)
    }

    /// Gives the memory back of pages that `bytes` lie in and that are `unused` as a whole; their addresses
    /// stay taken.
    pub(super) fn give_back(&self, bytes: Range<usize>, unused: Range<usize>) {
        let first = (bytes.start / PAGE * PAGE).max(unused.start.next_multiple_of(PAGE));
        let last = bytes.end.next_multiple_of(PAGE).min(unused.end / PAGE * PAGE);
        if first < last && self.contains(first) {
            // SAFETY: the pages lie in this arena, and nothing uses what they hold any more.
            unsafe { libc::madvise(first as *mut libc::c_void, last - first, libc::MADV_DONTNEED) };
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is this arena's own, and its memory is used by nobody any more.
        unsafe { libc::munmap(self.base as *mut libc::c_void, self.reserved) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_handed_out_once() {
        let mut arena = Arena::new(1).unwrap();
        let mut last = 0;
        for bytes in [1, 5000, 0, 3 << 20, 512] {
            let start = arena.take(bytes, 512, 512).unwrap();
            assert!(start.is_multiple_of(512) && start >= last + 512, "{start:#x} after {last:#x}");
            // SAFETY: the arena gave these bytes.
            unsafe { ptr::write_bytes(start as *mut u8, 7, bytes) };
            arena.give_back(start..start + bytes, start..start + bytes);
            // SAFETY: its addresses are still there, and whole pages of it are zeros again.
            let held = unsafe { std::slice::from_raw_parts(start as *const u8, bytes) };
            let pages = start.next_multiple_of(PAGE)..(start + bytes) / PAGE * PAGE;
            for (at, &byte) in held.iter().enumerate().step_by(97) {
                assert_eq!(byte, if pages.contains(&(start + at)) { 0 } else { 7 });
            }
            last = start + bytes;
        }
        assert!(arena.contains(last) && !arena.contains(arena.base - 1));
        assert!(arena.take(usize::MAX - 4096, 512, 512).is_none());
        assert!(arena.take(RESERVED, 512, 512).is_none(), "it has no room for that");
    }
}
