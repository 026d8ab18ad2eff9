//! The workloads of the runtime itself, `gpu/*`: what every engine stands on.

mod async_copy;
mod atomics;
mod convert;
mod float;
mod fp8_tile;
mod graph_chain;
mod integer;
mod matrix;
mod number_format;
mod operand_image;
mod pinned_copy;
mod reduce;
mod rounding;
mod saxpy;
mod transpose;
mod warp;
mod wgmma;

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
        Box::new(async_copy::AsyncCopy),
        Box::new(convert::Convert),
        Box::new(float::Float),
        Box::new(integer::Integer),
        Box::new(matrix::Matrix),
        Box::new(warp::Warp),
        Box::new(wgmma::Wgmma),
    ]
}
