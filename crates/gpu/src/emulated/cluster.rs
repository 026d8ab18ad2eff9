//! Which blocks of a grid are one thread-block cluster.

use super::clocks::Address;
use crate::abi::Scope;
use crate::types::Grid;

/// How far an atomic reaches: a [`Scope`] in a byte, of which shadow memory keeps many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    Block,
    Cluster,
    /// And the system, of which one device is seen here.
    Device,
}

impl From<Scope> for Reach {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Block => Self::Block,
            Scope::Cluster => Self::Cluster,
            Scope::Device | Scope::System => Self::Device,
        }
    }
}

/// How the blocks of a grid fall into clusters. A grid without has clusters of one block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clusters {
    blocks: [u32; 3],
    shape: [u32; 3],
}

impl Clusters {
    pub(super) fn new(grid: &Grid) -> Self {
        Self { blocks: grid.blocks, shape: grid.cluster.unwrap_or([1; 3]) }
    }

    /// Blocks of one cluster.
    pub(super) fn size(&self) -> usize {
        self.shape.iter().map(|&n| n as usize).product()
    }

    /// Clusters in x, y, z.
    pub(super) fn extent(&self) -> [u32; 3] {
        std::array::from_fn(|axis| self.blocks[axis] / self.shape[axis])
    }

    /// The cluster of a block, by its index.
    pub(super) fn index(&self, block: [u32; 3]) -> [u32; 3] {
        std::array::from_fn(|axis| block[axis] / self.shape[axis])
    }

    /// The cluster of a block, by its number.
    pub(super) fn of(&self, block: u32) -> u32 {
        if self.shape == [1; 3] {
            return block;
        }
        let [x, y, z] = self.index(unravel(u64::from(block), self.blocks));
        let [wide, high, _] = self.extent();
        x + wide * (y + high * z)
    }

    /// Where the threads of a block are.
    pub(super) fn address(&self, block: u32) -> Address {
        Address { block, cluster: self.of(block) }
    }

    /// The numbers of a cluster's blocks, by rank.
    pub(super) fn members(&self, cluster: u64) -> impl Iterator<Item = u64> + use<> {
        let Self { blocks, shape } = *self;
        let at = unravel(cluster, self.extent());
        (0..self.size() as u64).map(move |rank| {
            let inside = unravel(rank, shape);
            let [x, y, z] = std::array::from_fn(|axis| u64::from(at[axis] * shape[axis] + inside[axis]));
            x + u64::from(blocks[0]) * (y + u64::from(blocks[1]) * z)
        })
    }

    /// Whether an access that reaches so far from one of the blocks is for the other too.
    pub(super) fn includes(&self, reach: Reach, one: u32, other: u32) -> bool {
        match reach {
            Reach::Block => one == other,
            Reach::Cluster => self.of(one) == self.of(other),
            Reach::Device => true,
        }
    }
}

/// The index of item `number` in an extent, x first.
pub(super) fn unravel(number: u64, extent: [u32; 3]) -> [u32; 3] {
    let (x, y) = (u64::from(extent[0]), u64::from(extent[1]));
    [(number % x) as u32, (number / x % y) as u32, (number / x / y) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_threads_are_numbered_x_first() {
        assert_eq!(unravel(0, [3, 2, 2]), [0, 0, 0]);
        assert_eq!(unravel(4, [3, 2, 2]), [1, 1, 0]);
        assert_eq!(unravel(11, [3, 2, 2]), [2, 1, 1]);
    }

    #[test]
    fn every_block_is_in_one_cluster_at_its_rank() {
        let clusters = Clusters::new(&Grid::new([4, 6, 2], [32, 1, 1]).cluster([2, 3, 1]));
        assert_eq!((clusters.size(), clusters.extent()), (6, [2, 2, 2]));
        let mut seen = vec![false; 48];
        for cluster in 0..8 {
            for (rank, block) in clusters.members(cluster).enumerate() {
                assert_eq!(u64::from(clusters.of(block as u32)), cluster);
                let index = unravel(block, [4, 6, 2]);
                assert_eq!(rank as u32, index[0] % 2 + 2 * (index[1] % 3));
                assert!(!std::mem::replace(&mut seen[block as usize], true));
            }
        }
        assert!(seen.into_iter().all(|seen| seen));
    }
}
