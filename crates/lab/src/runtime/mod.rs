//! The workloads of the runtime itself, `gpu/*`: what every engine stands on.

mod async_copy;
mod atomics;
mod cluster;
mod convert;
mod fabric;
mod float;
mod fp8_tile;
mod graph_chain;
mod half_pairs;
mod images;
mod integer;
mod matrix;
mod number_format;
mod operand_image;
mod order;
mod pinned_copy;
mod reduce;
mod rounding;
mod saxpy;
mod streams;
mod tensor_map;
mod tensor_sums;
mod transpose;
mod warp;
mod wgmma;

use crate::Workload;

/// The seed of what benchmarks run on.
const BENCH_SEED: u64 = 0x6761_7465;
/// Random values that large inputs repeat, so that the host need not make a gibibyte of them.
const PATTERN: usize = 1 << 24;
/// The part of a copy's bandwidth that a kernel bound by memory must reach.
const WORTH_OF_COPY: f64 = 0.85;

/// All of them.
pub fn workloads() -> Vec<Box<dyn Workload>> {
    vec![
        Box::new(saxpy::Saxpy),
        Box::new(reduce::Reduce),
        Box::new(transpose::Transpose::default()),
        Box::new(fp8_tile::Fp8Tile),
        Box::new(graph_chain::GraphChain),
        Box::new(pinned_copy::PinnedCopy),
        Box::new(async_copy::AsyncCopy),
        Box::new(cluster::Cluster),
        Box::new(convert::Convert),
        Box::new(fabric::Collectives),
        Box::new(float::Float),
        Box::new(half_pairs::HalfPairs),
        Box::new(images::Images),
        Box::new(integer::Integer),
        Box::new(matrix::Matrix),
        Box::new(order::Order),
        Box::new(streams::Streams),
        Box::new(tensor_map::TensorMaps),
        Box::new(tensor_sums::TensorSums),
        Box::new(warp::Warp),
        Box::new(wgmma::Wgmma),
    ]
}
