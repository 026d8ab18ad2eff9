//! The runtime's own kernels, which serve [`Stream`](crate::Stream).

use crate::source::Module;

/// Bytes of the widest element that `Stream::fill` repeats.
pub(crate) const FILL_MAX_BYTES: usize = 64;

crate::modules! {
    /// `x[i] <- pattern`: `fill(u8* x, Pattern pattern, u64 n)` for elements of `ELEMENT_BYTES` bytes.
    FILL = "fill";
    /// `to[i] <- from[indices[i]]`: `gather(const u8* from, const u32* indices, u8* to, u64 from_len, u64 n)`
    /// for elements of `ELEMENT_BYTES` bytes.
    GATHER = "gather";
    /// `to[i] <- x[0][i] ∘ x[1][i] ∘ …`, from left to right: `fold(const ELEMENT* x, ELEMENT* to, u64 rows,
    /// u64 n)` for rows of `n` elements.
    FOLD = "fold";
}

/// Elements of `bytes` bytes, filled.
pub(crate) fn fill(bytes: u32) -> Module {
    FILL.define("ELEMENT_BYTES", bytes)
}

/// Elements of `bytes` bytes, gathered.
pub(crate) fn gather(bytes: u32) -> Module {
    GATHER.define("ELEMENT_BYTES", bytes)
}

/// Rows of elements of that type, folded by the function of that name.
pub(crate) fn fold(element: &'static str, function: &'static str) -> Module {
    FOLD.define("ELEMENT", element).define("OPERATION", function)
}
