//! Tasks that yield on opens, and what carries the opens.

mod channel;
mod join;
mod mailbox;
mod plan;
mod session;

pub use channel::{Channel, MemoryChannel};
pub use join::{join, join3};
pub(crate) use mailbox::{Mailbox, Request};
pub use plan::{Limits, Plan};
pub use session::{
    Circuit, Dealt, Inputs, Local, WireShape, deal, estimate, estimate_gate, evaluate, run_clear,
    run_in_process,
};
pub(crate) use session::{Dealer, KeySink, MESSAGE_HEADER, rehearse};
