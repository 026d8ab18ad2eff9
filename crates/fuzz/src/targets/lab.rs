//! Records, plans, sources and what other programs say to the lab.

use gatework_lab::check::{Plan, rewrite};
use gatework_lab::fuzzing;

use super::of_text;
use crate::target::Verdict;

pub(super) fn records(bytes: &[u8]) -> Verdict {
    fuzzing::records(bytes).into()
}

pub(super) fn document(bytes: &[u8]) -> Verdict {
    of_text(bytes, fuzzing::document)
}

/// Every line stays where it was, so that faults are told with the file's own lines.
pub(super) fn cuda_source(bytes: &[u8]) -> Verdict {
    of_text(bytes, |text| {
        let Ok(rewritten) = rewrite("file.cu", text, None) else { return false };
        let lines = text.matches('\n').count() + 1;
        let is_inside = |line: u32| (1..=lines).contains(&(line as usize));
        assert!(rewritten.kernels.iter().all(|kernel| is_inside(kernel.line)), "{:?}", rewritten.kernels);
        true
    })
}

pub(super) fn launch_plan(bytes: &[u8]) -> Verdict {
    of_text(bytes, |text| toml::from_str::<Plan>(text).is_ok_and(|plan| fuzzing::launch_plan(&plan)))
}

pub(super) fn peer(bytes: &[u8]) -> Verdict {
    of_text(bytes, fuzzing::peer)
}

pub(super) fn profile(bytes: &[u8]) -> Verdict {
    of_text(bytes, fuzzing::profile)
}

pub(super) fn tuning_state(bytes: &[u8]) -> Verdict {
    fuzzing::tuning_state(bytes).into()
}
