//! The shape of a launch.

use serde::{Deserialize, Serialize};

/// How many blocks of how many threads, with how much shared memory.
///
/// ```
/// use gatework_gpu::Grid;
/// let grid = Grid::covering(1000, 256);
/// assert_eq!(grid.blocks, [4, 1, 1]);
/// let big = Grid::new([8, 8, 1], [256, 1, 1]).shared(100 << 10);
/// assert_eq!(big.shared_bytes, 102_400);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grid {
    /// Blocks in x, y, z.
    pub blocks: [u32; 3],
    /// Threads of a block in x, y, z.
    pub threads: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Blocks of a cluster in x, y, z.
    pub cluster: Option<[u32; 3]>,
    /// Whether all blocks run at once and may synchronise with each other.
    pub cooperative: bool,
    /// Whether it may start before the work before it in the stream is done.
    #[serde(default)]
    pub early: bool,
    /// Whether it shares multiprocessors with kernels of other streams.
    #[serde(default)]
    pub side_by_side: bool,
}

impl Grid {
    /// `blocks` blocks of `threads` threads.
    pub fn new(blocks: [u32; 3], threads: [u32; 3]) -> Self {
        Self {
            blocks,
            threads,
            shared_bytes: 0,
            cluster: None,
            cooperative: false,
            early: false,
            side_by_side: false,
        }
    }

    /// A line of blocks that has at least one thread for each of `items`.
    pub fn covering(items: usize, threads: u32) -> Self {
        let blocks = items.div_ceil(threads.max(1) as usize).max(1);
        // Too many blocks for the device: `check` says so at the launch.
        Self::new([u32::try_from(blocks).unwrap_or(u32::MAX), 1, 1], [threads, 1, 1])
    }

    /// With that much dynamic shared memory a block.
    pub fn shared(self, bytes: u32) -> Self {
        Self { shared_bytes: bytes, ..self }
    }

    /// In clusters of that many blocks, up to 8 in all; 16 where the device has room. They must divide the
    /// grid.
    pub fn cluster(self, blocks: [u32; 3]) -> Self {
        Self { cluster: Some(blocks), ..self }
    }

    /// With all blocks resident at once, so that they may synchronise.
    pub fn cooperative(self) -> Self {
        Self { cooperative: true, ..self }
    }

    /// Started while the work before it in the stream is still running, so that its start costs no time. The
    /// kernel waits for that work by `gw::await_stream()`, in every thread and before it touches device
    /// memory; the emulated device stops one that does not.
    pub fn early(self) -> Self {
        Self { early: true, ..self }
    }

    /// Side by side with kernels of other streams on the same multiprocessors. A multiprocessor's memory is
    /// divided into cache and shared memory, by what its first kernel asks for, and divided anew only when it
    /// is empty: kernels that are to run beside each other all ask for as much shared memory as there is.
    /// Every kernel of those streams should, the small ones too.
    pub fn side_by_side(self) -> Self {
        Self { side_by_side: true, ..self }
    }

    /// Threads of one block.
    pub fn threads_per_block(&self) -> u64 {
        volume(self.threads)
    }

    /// Blocks in all.
    pub fn block_count(&self) -> u64 {
        volume(self.blocks)
    }
}

/// The product, or the largest number where it is larger.
fn volume(extent: [u32; 3]) -> u64 {
    extent.iter().fold(1, |volume: u64, &n| volume.saturating_mul(u64::from(n)))
}
