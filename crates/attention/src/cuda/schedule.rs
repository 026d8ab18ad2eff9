//! How the attention kernel is run: the knobs, and which values suit a shape.

use gatework_gpu::DeviceProperties;

use crate::Shape;

/// Knobs of attention.cuh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Warpgroups of 64 query rows in a block.
    pub consumers: u32,
    /// Key and value tiles in flight.
    pub stages: u32,
}

impl Schedule {
    /// What suits a shape on a device: as many rows a block as still give every multiprocessor work.
    pub fn suited(shape: &Shape, device: &DeviceProperties) -> Self {
        let blocks = |consumers: usize| shape.batch * shape.heads * shape.rows.div_ceil(64 * consumers);
        let multiprocessors = device.multiprocessors as usize;
        let most = Self::most_consumers(shape.dim) as usize;
        let consumers = (2..=most).rev().find(|&consumers| blocks(consumers) >= multiprocessors).unwrap_or(1);
        Self { consumers: consumers as u32, stages: Self::stages_for(shape.dim) }
    }

    /// Consumers whose accumulators fit into a multiprocessor's registers.
    pub fn most_consumers(dim: usize) -> u32 {
        if dim == 64 { 3 } else { 2 }
    }

    /// Tiles in flight that suit a head dimension: as many as leave room for three consumers.
    pub fn stages_for(dim: usize) -> u32 {
        if dim == 64 { 4 } else { 3 }
    }

    /// Query rows of a block.
    pub fn block_rows(&self) -> usize {
        64 * self.consumers as usize
    }

    /// Threads of a block: its consumers and one warpgroup that copies.
    pub fn threads(&self) -> u32 {
        128 * (self.consumers + 1)
    }

    /// Shared memory of a block: queries, a ring of keys, one of values, and their barriers.
    pub fn shared_bytes(&self, dim: usize) -> u32 {
        let stage = 128 * dim + (dim + 8) * 128;
        (self.consumers as usize * 64 * dim
            + self.stages as usize * stage
            + 8 * (1 + 4 * self.stages as usize)) as u32
    }
}
