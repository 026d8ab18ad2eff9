//! How much memory a thread holds.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// Counts what each thread holds. What one allocates and another frees counts for both.
struct Counting;

impl Counting {
    fn count(bytes: isize) {
        let held = HELD.get() + bytes;
        HELD.set(held);
        PEAK.set(PEAK.get().max(held));
    }
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size() as isize);
        // SAFETY: as promised to this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size() as isize);
        // SAFETY: as promised to this function.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::count(size as isize - layout.size() as isize);
        // SAFETY: as promised to this function.
        unsafe { System.realloc(place, layout, size) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        Self::count(-(layout.size() as isize));
        // SAFETY: as promised to this function.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// What `body` gives, and the most that this thread held in it beyond what it held before.
pub fn peak_of<R>(body: impl FnOnce() -> R) -> (R, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let value = body();
    (value, (PEAK.get() - before) as usize)
}
