//! Sizes of page-locked blocks.

/// The smallest block that a pool hands out.
pub(crate) const SMALLEST_CLASS: u64 = 4096;

/// Bytes of the block that a request is served by, unless no machine has as many.
pub(crate) fn class_of(bytes: u64) -> Option<u64> {
    bytes.max(SMALLEST_CLASS).checked_next_power_of_two()
}
