//! Key files, messages and models of private inference.

use gatework_private::fuzzing;

use crate::target::Verdict;

/// Checkpoints of one layer, whose configurations and weights are the corpus of two targets.
const CHECKPOINTS: [(&[u8], &[u8]); 2] = [
    (
        include_bytes!("../../corpus/private_config/seeds/bert.json"),
        include_bytes!("../../corpus/private_safetensors/seeds/bert.safetensors"),
    ),
    (
        include_bytes!("../../corpus/private_config/seeds/gpt2.json"),
        include_bytes!("../../corpus/private_safetensors/seeds/gpt2.safetensors"),
    ),
];

pub(super) fn key_header(bytes: &[u8]) -> Verdict {
    fuzzing::key_header(bytes).into()
}

pub(super) fn ledger(bytes: &[u8]) -> Verdict {
    fuzzing::ledger(bytes).into()
}

pub(super) fn weights(bytes: &[u8]) -> Verdict {
    fuzzing::kept_weights(bytes).into()
}

pub(super) fn message(bytes: &[u8]) -> Verdict {
    fuzzing::message(bytes).into()
}

pub(super) fn frames(bytes: &[u8]) -> Verdict {
    fuzzing::frames(bytes).into()
}

pub(super) fn parcels(bytes: &[u8]) -> Verdict {
    fuzzing::parcels(bytes).into()
}

pub(super) fn model(bytes: &[u8]) -> Verdict {
    fuzzing::public_model(bytes).into()
}

pub(super) fn config(bytes: &[u8]) -> Verdict {
    CHECKPOINTS.map(|(_, weights)| fuzzing::checkpoint(bytes, weights)).contains(&true).into()
}

pub(super) fn safetensors(bytes: &[u8]) -> Verdict {
    CHECKPOINTS.map(|(config, _)| fuzzing::checkpoint(config, bytes)).contains(&true).into()
}

pub(super) fn identity(bytes: &[u8]) -> Verdict {
    fuzzing::identity(bytes).into()
}
