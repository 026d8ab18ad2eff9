//! Configurations, data, curves and checkpoints of training.

use gatework_foresight::fuzzing;

use super::of_text;
use crate::target::Verdict;

pub(super) fn config(bytes: &[u8]) -> Verdict {
    of_text(bytes, fuzzing::config)
}

pub(super) fn setting(bytes: &[u8]) -> Verdict {
    of_text(bytes, fuzzing::setting)
}

pub(super) fn curve(bytes: &[u8]) -> Verdict {
    of_text(bytes, fuzzing::curve)
}

pub(super) fn checkpoint(bytes: &[u8]) -> Verdict {
    fuzzing::checkpoint(bytes).into()
}

pub(super) fn episode(bytes: &[u8]) -> Verdict {
    fuzzing::episode(bytes).into()
}

pub(super) fn idx(bytes: &[u8]) -> Verdict {
    fuzzing::idx(bytes).into()
}

pub(super) fn tokens(bytes: &[u8]) -> Verdict {
    fuzzing::tokens(bytes).into()
}
