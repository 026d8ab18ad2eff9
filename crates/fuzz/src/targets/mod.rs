//! The list.

mod gpu;
mod lab;
mod private;
mod train;

use crate::target::{Allowance, Target, Verdict};

/// Everything that reads bytes from outside; without the feature `command`, all but what only the command
/// reads.
pub const TARGETS: &[Target] = &[
    small("private_key_header", "the beginning of a key file", private::key_header),
    small("private_ledger", "the ledger of a key file", private::ledger),
    small("private_weights", "masked weights that a client has kept", private::weights),
    small("private_message", "a message between client and server", private::message),
    small("private_frames", "what comes on a connection", private::frames),
    small("private_parcels", "parcels on a connection and its lanes, rightly hashed", private::parcels),
    target("private_model", "the public description of a model", private::model, 64, 16 << 20),
    target("private_config", "config.json of a checkpoint", private::config, 64, 4 << 20),
    target("private_safetensors", "model.safetensors of a checkpoint", private::safetensors, 64, 4 << 20),
    target("private_identity", "PEM files with certificates and a key", private::identity, 64, 1 << 20),
    #[cfg(feature = "command")]
    target("stark_proof", "a proof file, of any channel", stark_proof, 64, 4 << 20),
    #[cfg(feature = "command")]
    target("attention_input", "a safetensors file with q, k and v", attention_input, 64, 4 << 20),
    target("lab_records", "a file of records", lab::records, 256, 4 << 20),
    target("lab_document", "a document with tables of records", lab::document, 64, 1 << 20),
    target("lab_cuda_source", "a file of CUDA C++", lab::cuda_source, 256, 1 << 20),
    target(
        "lab_launch_plan",
        "how the kernels of a file are launched, as TOML",
        lab::launch_plan,
        256,
        256 << 10,
    ),
    small("lab_peer", "what a peer says", lab::peer),
    small("lab_profile", "what the profiler prints", lab::profile),
    small("lab_tuning_state", "a search on disk", lab::tuning_state),
    small("gpu_ptx", "PTX of another compiler", gpu::ptx),
    small("gpu_cubin", "a cubin of another compiler", gpu::cubin),
    small("gpu_sass", "a listing of cuobjdump", gpu::sass),
    small("gpu_ptxas", "a log of ptxas", gpu::ptxas),
    small("gpu_device_name", "a device as it is named on the command line", gpu::device_name),
    target("train_config", "a training configuration as TOML", train::config, 256, 256 << 10),
    target("train_setting", "a setting of a training run", train::setting, 512, 256 << 10),
    target("train_curve", "a loss curve as CSV, JSON lines or numbers", train::curve, 256, 1 << 20),
    target("train_checkpoint", "a checkpoint of a training run", train::checkpoint, 64, 4 << 20),
    small("train_episode", "a finished run of a replay folder", train::episode),
    small("train_idx", "images or labels of MNIST", train::idx),
    small("train_tokens", "a file of tokens", train::tokens),
];

const fn target(
    name: &'static str,
    takes: &'static str,
    read: fn(&[u8]) -> Verdict,
    per_byte: usize,
    constant: usize,
) -> Target {
    Target { name, takes, read, allowance: Allowance { per_byte, constant } }
}

/// A target that holds little more than what it reads.
const fn small(name: &'static str, takes: &'static str, read: fn(&[u8]) -> Verdict) -> Target {
    target(name, takes, read, 64, 256 << 10)
}

/// What is no UTF-8 is refused wherever text is read.
fn of_text(bytes: &[u8], read: impl FnOnce(&str) -> bool) -> Verdict {
    std::str::from_utf8(bytes).is_ok_and(read).into()
}

#[cfg(feature = "command")]
fn stark_proof(bytes: &[u8]) -> Verdict {
    gatework::command::fuzzing::stark_proof(bytes).into()
}

#[cfg(feature = "command")]
fn attention_input(bytes: &[u8]) -> Verdict {
    gatework::command::fuzzing::attention_input(bytes).into()
}
