//! Copies that have been issued and not carried out, and a thread's groups of them.

use std::collections::VecDeque;

use super::block::CallSite;
use super::clocks::Slot;
use super::operations::{read_word, write_word};
use crate::abi::AtomicOp;

/// One copy that has been issued and not carried out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copy {
    pub(super) to: usize,
    pub(super) from: usize,
    pub(super) bytes: usize,
    /// Bytes that are read; the rest become zeros.
    pub(super) source_bytes: usize,
    /// What is done with the words that are there, if they are not replaced.
    pub(super) reduction: Option<Reduction>,
}

/// An operation of bulk reductions, on words of so many bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reduction {
    pub(super) op: AtomicOp,
    pub(super) bytes: usize,
}

/// A bulk copy in pieces, whole only together.
#[derive(Debug, Clone)]
pub(super) struct Parcel {
    pub(super) pieces: Vec<Copy>,
    /// What its mbarrier counts.
    pub(super) bytes: usize,
    pub(super) sides: Sides,
}

/// Where a bulk copy reads, and what its addresses are multiples of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sides {
    pub(super) from_shared: bool,
    pub(super) alignment: usize,
}

impl Copy {
    pub(super) fn plain(to: usize, from: usize, bytes: usize) -> Self {
        Self { to, from, bytes, source_bytes: bytes, reduction: None }
    }

    pub(super) fn carry_out(&self) {
        let Some(Reduction { op, bytes }) = self.reduction else { return self.replace() };
        for at in (0..self.source_bytes).step_by(bytes) {
            // SAFETY: as in `replace`; both addresses are multiples of the word's size.
            unsafe {
                let to = (self.to + at) as *mut u8;
                let after =
                    op.apply(read_word(to, bytes), read_word((self.from + at) as *const u8, bytes), 0, bytes);
                write_word(to, bytes, after);
            }
        }
    }

    fn replace(&self) {
        // SAFETY: both ranges were checked at the issue, against live buffers and the cluster's shared
        // memory, and both live as long as the copy is in flight.
        unsafe {
            std::ptr::copy(self.from as *const u8, self.to as *mut u8, self.source_bytes);
            std::ptr::write_bytes(
                (self.to + self.source_bytes) as *mut u8,
                0,
                self.bytes - self.source_bytes,
            );
        }
    }
}

/// A thread's groups of one kind of copy. As an agent, its time counts batches of copies that have finished:
/// a batch ends with its group, or where an mbarrier is told to count it.
#[derive(Debug, Default)]
pub(super) struct CopyGroups {
    /// Copies of the group that is being filled, each with its batch.
    pub(super) open: Vec<(u32, Copy)>,
    /// Groups, each with its last batch.
    pub(super) committed: VecDeque<(u32, Vec<(u32, Copy)>)>,
    /// Batches that were closed, and those of them that have finished.
    pub(super) closed: u32,
    pub(super) finished: u32,
    /// Batches whose end an mbarrier waits for.
    pub(super) awaited: u32,
    pub(super) agent: Option<Slot>,
    /// Where the last copy was issued.
    pub(super) site: Option<CallSite>,
    /// Bulk stores finish reading before they finish writing: the agent for the reads, and how many have.
    pub(super) readers: Option<(Slot, u32)>,
}

impl CopyGroups {
    pub(super) fn agent(&self) -> Option<(Slot, u32)> {
        self.agent.map(|agent| (agent, self.finished))
    }

    /// The time of the batch that is being filled.
    pub(super) fn filling(&self) -> u32 {
        self.closed + 1
    }

    pub(super) fn add(&mut self, copy: Copy) {
        self.open.push((self.filling(), copy));
    }

    pub(super) fn commit(&mut self) {
        self.closed += 1;
        let group = std::mem::take(&mut self.open);
        self.committed.push_back((self.closed, group));
    }

    /// Carries out all copies of batches up to `batch`.
    pub(super) fn finish(&mut self, batch: u32) {
        let groups = self.committed.iter_mut().map(|(_, group)| group).chain([&mut self.open]);
        for group in groups {
            group.retain(|(time, copy)| {
                if *time <= batch {
                    copy.carry_out();
                }
                *time > batch
            });
        }
    }

    /// Whether a copy is left that nobody waits for.
    pub(super) fn is_lost(&self, group: &[(u32, Copy)]) -> bool {
        group.iter().any(|(batch, _)| *batch > self.awaited)
    }
}
