//! Three roles on three machines: a dealer who hands out key files, a server with a model's weights, a client with a text.
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
//! A proof is a hash under the pairing secret, which only the two key files hold, of the greeting and of a value that only the two ends of
//! this TLS connection know. Ledgers are compared before anything else: what either of them has as used is used.

mod deal;
#[cfg(test)]
mod fuzz;
mod message;
mod pair;
mod plan;
#[cfg(test)]
mod processes;
mod roles;
#[cfg(test)]
mod small;
#[cfg(test)]
mod tests;

pub use deal::{Dealing, deal_files};
pub use pair::{Counted, Rounds};
pub use plan::{Predicted, Traffic, predict};
pub use roles::{Client, KeyStore, Server, Summary};
