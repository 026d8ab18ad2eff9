//! Three roles on three machines: a dealer who hands out key files, a server with a model's weights, a client
//! with a text.
//!
//! ```text
//! client                                          server
//!   Hello: keys, model, ledger, proof     →
//!                                         ←   Hello, or a refusal
//!   SetUp                                 →
//!                                         ←   Ready
//!   ...                the weights under their masks                  ...
//!   Infer: sections                       →
//!                                         ←   Ready: its ledger says that they are used, and is on disk
//!   (the client's ledger too)
//!   ...                          the gates                            ...
//!   Infer again, or Done                  →
//! ```
//!
//! A client that has kept the masked weights of this deal sends SetUpAgain: the server masks them once more,
//! and sends nothing.
//!
//! A client that wants an answer as soon as it has a text sends Hold instead of Infer, before it has one:
//! both sides read the keys of these sections into memory, and Begin starts the gates.
//!
//! A proof is a hash under the pairing secret, which only the two key files hold, of the greeting and of a
//! value that only the two ends of this TLS connection know. Ledgers are compared before anything else: what
//! either of them has as used is used.

mod deal;
mod device_plan;
mod foresee;
mod lengths;
mod local;
mod loopback;
pub(crate) mod message;
mod pair;
mod parties;
mod parts;
mod summary;
#[cfg(test)]
mod tests;
mod traffic;

pub use deal::{DealPlan, deal_files};
pub use foresee::{DeviceBytes, foresee_device};
pub use local::LocalKeys;
pub use loopback::Loopback;
pub use parties::{Client, KeyStore, Prepared, Server};
pub use parts::PartTime;
pub use summary::{Counted, Summary};
pub use traffic::{Predicted, Traffic, predict};
