//! Kernels on the emulated device against plain loops and against the CPU's code.

mod attention;
mod functions;
mod gru;
mod learn;
mod muon;
mod product;
mod rollout;
mod run;
mod statistics;
mod trainee;
mod transformer;
mod update;

use gatework_gpu::{Buffer, Device, Stream};

use crate::random::Random;

/// An emulated device with a schedule of that seed, and a stream on it.
fn stream(seed: u64) -> Stream {
    Device::emulated(seed).and_then(|device| device.stream()).unwrap()
}

fn numbers(random: &mut Random, count: usize) -> Vec<f32> {
    (0..count).map(|_| random.normal() as f32).collect()
}

fn upload(stream: &Stream, numbers: &[f32]) -> Buffer<f32> {
    stream.upload(numbers).unwrap()
}
