//! Work that is not timed: it keeps the device busy while the host queues what is, and empties the cache.

use gatework_gpu::{Buffer, Device, Grid, Kernel, Result, Stream, args};

use crate::kernels;

/// Long enough, on the fastest memory there is, to queue a sample behind it: about 0.1 ms at 5 TB/s.
const BYTES: u64 = 512 << 20;
/// The part of a device's memory that it takes at most.
const PART_OF_MEMORY: u64 = 16;
/// The emulated device comes here in tests alone, and would read for minutes.
const EMULATED_BYTES: u64 = 4096;

const THREADS: u32 = 256;
const BLOCKS: u32 = 1024;
const SHARED_BYTES: u32 = 4 * 8 + 4;

/// Reads more than the level-2 cache holds.
///
/// Reads, because what a fill leaves in the cache is dirty: the next kernel would pay for writing it back.
pub(super) struct Shield {
    kernel: Kernel,
    grid: Grid,
    data: Buffer<f32>,
    partials: Buffer<f32>,
    ticket: Buffer<u32>,
    sum: Buffer<f32>,
}

impl Shield {
    pub(super) fn new(device: &Device, stream: &Stream) -> Result<Self> {
        let len = (bytes(device) / 4) as usize;
        let grid = Grid::new([BLOCKS.min(len.div_ceil(THREADS as usize) as u32), 1, 1], [THREADS, 1, 1]);
        Ok(Self {
            kernel: device.kernel_of(&kernels::REDUCE, "reduce")?,
            grid: grid.shared(SHARED_BYTES),
            data: stream.alloc_zeros(len)?,
            partials: stream.alloc(BLOCKS as usize)?,
            ticket: stream.alloc_zeros(1)?,
            sum: stream.alloc(1)?,
        })
    }

    pub(super) fn queue(&mut self, stream: &Stream) -> Result<()> {
        let Self { kernel, grid, data, partials, ticket, sum } = self;
        let len = data.len() as u64;
        kernel.launch(stream, grid, &args![&*data, partials, ticket, sum, len])
    }
}

fn bytes(device: &Device) -> u64 {
    let properties = device.properties();
    if device.is_emulated() {
        return EMULATED_BYTES;
    }
    BYTES.max(4 * properties.l2_bytes).min(properties.memory_bytes / PART_OF_MEMORY)
}
