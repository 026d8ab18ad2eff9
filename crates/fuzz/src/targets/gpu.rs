//! What other compilers and tools hand to the runtime.

use gatework_gpu::{DeviceChoice, fuzzing};

use super::of_text;
use crate::target::Verdict;

pub(super) fn ptx(bytes: &[u8]) -> Verdict {
    of_text(bytes, fuzzing::ptx)
}

/// A cubin, or only the attributes of one of its kernels.
pub(super) fn cubin(bytes: &[u8]) -> Verdict {
    let [whole, attributes] = [fuzzing::cubin(bytes), fuzzing::kernel_attributes(bytes)];
    (whole || attributes && !bytes.is_empty()).into()
}

pub(super) fn sass(bytes: &[u8]) -> Verdict {
    of_text(bytes, fuzzing::sass)
}

pub(super) fn ptxas(bytes: &[u8]) -> Verdict {
    of_text(bytes, fuzzing::ptxas_log)
}

/// What is accepted is written as it is read.
pub(super) fn device_name(bytes: &[u8]) -> Verdict {
    of_text(bytes, |text| {
        let Ok(choice) = text.parse::<DeviceChoice>() else { return false };
        assert_eq!(choice.to_string().parse().ok(), Some(choice), "{text}");
        true
    })
}
