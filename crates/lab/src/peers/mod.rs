//! Other programs that do the same work, measured in the same run.
//!
//! A peer is a script that speaks JSON lines. It says first who it is:
//! `{"protocol":1,"peer":"PyTorch","versions":{"torch":"2.9.0"},"device":"NVIDIA H200","operations":["saxpy"]}`,
//! or why it cannot work here: `{"protocol":1,"peer":"PyTorch","unavailable":"no module named 'torch'"}`.
//! Then it answers requests until its standard input ends: `{"operation":"saxpy","shape":{"n":1024},"samples":20}` with
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
struct Handshake {
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

/// What it is asked.
#[derive(Debug, Serialize)]
struct Request<'a> {
    operation: &'a str,
    shape: &'a BTreeMap<String, u64>,
    samples: usize,
}

/// What it answers.
#[derive(Debug, Deserialize)]
struct Reply {
    #[serde(default)]
    samples_ns: Vec<f64>,
    error: Option<String>,
}

/// Why a peer was not measured, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotMeasured(pub(crate) String);
