//! The portable header.

use crate::abi::{ABI, ORDER};
use crate::header::Header;
use crate::headers;

/// The portable header, which every kernel may include.
const FILES: &[Header] = &headers![
    "gw/async_copy.cuh",
    "gw/atomic.cuh",
    "gw/bulk.cuh",
    "gw/cluster.cuh",
    "gw/convert.cuh",
    "gw/cuda.cuh",
    "gw/cuda_groups.cuh",
    "gw/cuda_half.cuh",
    "gw/cuda_math.cuh",
    "gw/cuda_pipeline.cuh",
    "gw/cuda_wmma.cuh",
    "gw/debug.cuh",
    "gw/emulated.cuh",
    "gw/gw.cuh",
    "gw/half.cuh",
    "gw/index.cuh",
    "gw/integer.cuh",
    "gw/math.cuh",
    "gw/matrix.cuh",
    "gw/mbarrier.cuh",
    "gw/memory.cuh",
    "gw/swizzle.cuh",
    "gw/sync.cuh",
    "gw/tensor_map.cuh",
    "gw/types.cuh",
    "gw/warp.cuh",
    "gw/wgmma.cuh",
];

/// The text of a file of the portable header, by the path it is included by.
pub(super) fn text(path: &str) -> Option<&'static str> {
    FILES.iter().chain([&ABI, &ORDER]).find(|header| header.path() == path).map(Header::text)
}
