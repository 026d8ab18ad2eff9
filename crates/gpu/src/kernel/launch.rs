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
        check_cluster(cluster, grid.blocks, device).or_else(refuse)?;
    }
    Ok(())
}

/// Blocks of a cluster that every device with clusters takes, and that Hopper takes of kernels which ask for
/// it.
const MOST_CLUSTER_BLOCKS: u64 = 16;

fn check_cluster(cluster: [u32; 3], blocks: [u32; 3], device: &DeviceProperties) -> Result<(), String> {
    if device.compute_capability.0 < 9 {
        return Err(format!("a launch of clusters, which {} does not have", device.name));
    }
    if let Some(axis) = (0..3).find(|&axis| cluster[axis] == 0 || !blocks[axis].is_multiple_of(cluster[axis]))
    {
        return Err(format!(
            "clusters of {cluster:?} blocks do not divide the grid of {blocks:?} in {}",
            ["x", "y", "z"][axis]
        ));
    }
    let size = cluster.iter().fold(1u64, |size, &n| size.saturating_mul(u64::from(n)));
    if size > MOST_CLUSTER_BLOCKS {
        return Err(format!("clusters of {cluster:?} = {size} blocks, {MOST_CLUSTER_BLOCKS} at most"));
    }
    Ok(())
}
