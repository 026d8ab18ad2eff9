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
mod message;
mod pair;
mod plan;
mod roles;

pub use deal::{Dealing, deal_files};
pub use pair::Counted;
pub use plan::Traffic;
pub use roles::{Client, KeyStore, Server, Summary};

#[doc(hidden)]
pub mod fuzzing {
    //! The parsers of bytes from outside, for tests that feed them anything.

    use crate::disk::KeyHeader;

    /// The header of a key file.
    pub fn key_header(bytes: &[u8]) -> bool {
        KeyHeader::parse(bytes).is_ok()
    }

    /// A message of the handshake.
    pub fn message(bytes: &[u8]) -> bool {
        super::message::Message::decode(bytes).is_ok()
    }
}
