//! The workloads of the runtime itself, `gpu/*`: what every engine stands on.

mod fp8_tile;
mod graph_chain;
mod pinned_copy;
mod reduce;
mod saxpy;
mod transpose;

use crate::Workload;

/// All of them.
pub fn workloads() -> Vec<Box<dyn Workload>> {
    vec![
        Box::new(saxpy::Saxpy),
        Box::new(reduce::Reduce),
        Box::new(transpose::Transpose),
        Box::new(fp8_tile::Fp8Tile),
        Box::new(graph_chain::GraphChain),
        Box::new(pinned_copy::PinnedCopy),
    ]
}
