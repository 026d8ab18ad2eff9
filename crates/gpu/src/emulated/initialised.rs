//! Loads of bytes that nobody has written.
//!
//! A load that comes before the write it should follow looks the same at first. So the fault is kept until
//! the launch ends: a missing barrier is found as a race before that. Copies carry the marks of their source
//! along, and only loads into registers count: what a kernel copies and never looks at may be anything. A
//! load counts if none of its bytes is written: the last word of a message, or a vector at the end of a row,
//! may reach beyond what it needs.

use super::access::{Place, Touch};
use super::launch::Launch;
use super::marks::Marks;
use super::memory::RegionState;
use super::transfer::Copy;
use crate::types::FaultKind;

impl Launch {
    /// Marks what is written.
    pub(super) fn mark_written(&mut self, touch: &Touch, place: &Place) {
        if let Some((marks, at)) = self.marks(touch.address, place) {
            marks.set(at, touch.bytes, true);
        }
    }

    /// Keeps the first load of bytes none of which is written.
    pub(super) fn check_written(&mut self, touch: &Touch, place: &Place) {
        let Some((marks, at)) = self.marks(touch.address, place) else { return };
        if marks.has_some(at, touch.bytes) {
            return;
        }
        // Once is enough for a word.
        marks.set(at, touch.bytes, true);
        let what = self.describe(touch.address, touch.bytes);
        let message = format!("reads {what}, which nobody has written");
        let site = self.site_of(touch);
        let fault = self.make_fault(FaultKind::Uninitialised, Some(touch.address), site, message);
        self.unwritten.get_or_insert(fault);
    }

    /// What a copy brings is as written as where it came from.
    pub(super) fn carry_marks(&mut self, copy: &Copy) {
        if copy.reduction.is_some() || copy.source_bytes == 0 {
            return;
        }
        let (from, to) = (self.find(copy.from, copy.source_bytes), self.find(copy.to, copy.bytes));
        let (Some(from), Some(to)) = (from, to) else { return };
        let Some((source, at)) = self.marks(copy.from, &from) else { return };
        if source.has(at, copy.source_bytes) {
            return;
        }
        let written: Vec<bool> = (0..copy.source_bytes).map(|byte| source.has(at + byte, 1)).collect();
        if let Some((target, at)) = self.marks(copy.to, &to) {
            for (byte, written) in written.into_iter().enumerate() {
                target.set(at + byte, 1, written);
            }
        }
    }

    /// The marks of the memory that an address is of, and its place in them.
    fn marks(&mut self, address: usize, place: &Place) -> Option<(&mut Marks, usize)> {
        match *place {
            Place::Shared { block, offset } => Some((&mut self.blocks[block].written, offset)),
            Place::Global => {
                let region = self.region_of(address)?;
                // SAFETY: the memory and its marks outlive the launch, which alone touches them now.
                let marks = unsafe { region.written.as_mut() }?;
                Some((marks, address - region.start))
            }
            Place::Constant => None,
        }
    }

    /// Where bytes lie that were checked before.
    fn find(&mut self, address: usize, bytes: usize) -> Option<Place> {
        let own = self.block().shared.offset(address, bytes).map(|offset| (self.current_block(), offset));
        if let Some((block, offset)) = own.or_else(|| self.of_cluster(address, bytes)) {
            return Some(Place::Shared { block, offset });
        }
        self.region_of(address).filter(|region| region.state == RegionState::Buffer).map(|_| Place::Global)
    }
}
