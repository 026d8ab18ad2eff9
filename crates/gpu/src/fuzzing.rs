//! Entries for fuzzers: each reads what another program made, and returns whether it was accepted.

use crate::cuda::sass::SassReport;
use crate::cuda::{cubin, ptxas};
use crate::types::ptx;

/// A text of PTX from another compiler: its kernels and their parameters.
pub fn ptx(text: &str) -> bool {
    ptx::entries(text).is_ok_and(|entries| !entries.is_empty())
}

/// A cubin of another compiler, of whose kernel `scale` the parameters are read.
pub fn cubin(bytes: &[u8]) -> bool {
    cubin::parameters(bytes, "scale", "scale").is_ok()
}

/// The list of attributes that a cubin has for a kernel.
pub fn kernel_attributes(bytes: &[u8]) -> bool {
    cubin::list(bytes).is_some()
}

/// A listing of `cuobjdump --dump-sass`.
pub fn sass(listing: &str) -> bool {
    !SassReport::parse(listing).kernels.is_empty()
}

/// A log of `ptxas -v`.
pub fn ptxas_log(log: &str) -> bool {
    !ptxas::resources(log).is_empty()
}
