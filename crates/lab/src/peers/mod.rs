//! Other programs that do the same work, measured in the same run.
//!
//! A peer is a script that speaks JSON lines. It says first who it is:
//! `{"protocol":1,"peer":"PyTorch","versions":{"torch":"2.9.0"},"device":"NVIDIA
//! H200","operations":["saxpy"]}`, or why it cannot work here:
//! `{"protocol":1,"peer":"PyTorch","unavailable":"no module named 'torch'"}`. Then it answers requests until
//! its standard input ends: `{"operation":"saxpy","shape":{"n":1024},"samples":20}` with
//! `{"samples_ns":[812.0,…]}`, device times of one run each, or with `{"error":"…"}`.
//!
//! A peer that is missing, stuck or broken is "not measured", with the reason. It never fails a gate.

mod scripts;
mod session;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use scripts::{PeerCommand, installed, installed_for_cpu};
pub use session::PeerSession;

/// The protocol that this program speaks.
const PROTOCOL: u32 = 1;

/// What a peer says first.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Handshake {
    protocol: u32,
    peer: String,
    #[serde(default)]
    versions: BTreeMap<String, String>,
    #[serde(default)]
    device: String,
    #[serde(default)]
    operations: Vec<String>,
    unavailable: Option<String>,
}

impl Handshake {
    /// The handshake of a peer that can be measured.
    pub(crate) fn accepted(self) -> Result<Self, NotMeasured> {
        match self {
            Self { unavailable: Some(why), .. } => Err(NotMeasured(why)),
            Self { protocol, .. } if protocol != PROTOCOL => Err(NotMeasured(format!(
                "it speaks version {protocol} of the protocol and this program version {PROTOCOL}"
            ))),
            handshake => Ok(handshake),
        }
    }
}

/// What it is asked.
#[derive(Debug, Serialize)]
struct Request<'a> {
    operation: &'a str,
    shape: &'a BTreeMap<String, u64>,
    samples: usize,
}

/// What it answers.
#[derive(Debug, Deserialize)]
pub(crate) struct Reply {
    #[serde(default)]
    samples_ns: Vec<f64>,
    error: Option<String>,
}

impl Reply {
    /// As many samples as were asked for, each a time.
    pub(crate) fn samples(self, asked: usize) -> Result<Vec<f64>, NotMeasured> {
        match self {
            Self { error: Some(error), .. } => Err(NotMeasured(error)),
            Self { samples_ns, .. } if samples_ns.len() != asked => Err(NotMeasured(format!(
                "it answered {} samples and was asked for {asked}",
                samples_ns.len()
            ))),
            Self { samples_ns, .. }
                if samples_ns.iter().any(|sample| !(sample.is_finite() && *sample > 0.0)) =>
            {
                Err(NotMeasured("it answered a sample that is no time".into()))
            }
            Self { samples_ns, .. } => Ok(samples_ns),
        }
    }
}

/// Why a peer was not measured, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotMeasured(pub(crate) String);
