//! Circuits as tasks that yield on opens, and what carries the opens.

mod alone;
mod channel;
mod circuit;
mod deal;
mod evaluate;
mod in_process;
mod open_keys;
mod plan;
mod rehearse;
mod script;
mod stages;

pub use crate::evaluator::{join, join3};
pub use alone::{WireShape, estimate, estimate_gate, rehearse, run_clear};
pub use channel::{Channel, MemoryChannel};
pub use circuit::{Circuit, Inputs, Local};
pub use deal::{Dealer, Dealt, deal, deal_on};
pub use evaluate::{Evaluated, MESSAGE_HEADER, evaluate, evaluate_with};
pub use in_process::{run_in_process, run_in_process_on};
pub use open_keys::OpenKeys;
pub use plan::{Limits, Plan};
pub use rehearse::rehearse_on;
pub use script::Script;
pub use stages::{Moment, Stages};
