//! Which grids a device can launch.

use crate::types::{DeviceProperties, Grid, KernelInfo};
use crate::{Error, Result};

/// Says which limit of the device or of the kernel a grid crosses.
pub(super) fn check(grid: &Grid, kernel: &str, device: &DeviceProperties, info: &KernelInfo) -> Result<()> {
    let refuse = |message: String| Err(Error::Launch { kernel: kernel.to_owned(), message });
    let threads = grid.threads_per_block();
    if threads == 0 || grid.block_count() == 0 {
        return refuse(format!("the grid {:?} x {:?} is empty", grid.blocks, grid.threads));
    }
    if threads > u64::from(info.max_threads) || grid.threads[2] > 64 {
        return refuse(format!(
            "{:?} = {threads} threads a block, {} at most for this kernel (64 in z)",
            grid.threads, info.max_threads
        ));
    }
    if grid.blocks[0] > i32::MAX as u32 || grid.blocks[1] > 65535 || grid.blocks[2] > 65535 {
        return refuse(format!("{:?} blocks, 2^31-1 x 65535 x 65535 at most", grid.blocks));
    }
    if grid.shared_bytes.saturating_add(info.resources.shared_bytes) > device.shared_memory_per_block {
        return refuse(format!(
            "{} bytes of shared memory a block, {} at most on {}",
            grid.shared_bytes, device.shared_memory_per_block, device.name
        ));
    }
    if let Some(cluster) = grid.cluster {
        let size: u64 = cluster.iter().map(|&n| u64::from(n)).product();
        let divides = cluster.iter().zip(grid.blocks).all(|(&c, b)| c > 0 && b % c == 0);
        if size == 0 || size > 8 || !divides {
            return refuse(format!(
                "clusters of {cluster:?} do not divide {:?}, or have over 8 blocks",
                grid.blocks
            ));
        }
    }
    Ok(())
}
