//! How a connection shows that it belongs to a link.
//!
//! ```text
//! client                                    server
//!   main: lanes that it wants           →
//!                                       ←   lanes that it may open, a token
//!   lane: token, number, proof          →
//!                                       ←   proof
//! ```
//!
//! Every connection has mutual TLS of its own. A proof is a hash, under a key that follows from what only the
//! two ends of the main connection know, of the lane's number and of what only its own two ends know.

use blake3::Hash;

/// Most lanes of a link.
pub const MOST_LANES: usize = 16;
/// Lanes of a link, if its ends do not say otherwise: each is a busy thread at either end, and a dozen leave
/// room on a machine of sixteen cores that runs both.
pub const LANES: usize = 6;
/// Bytes of the server's answer: lanes, and a token.
pub(super) const ANSWER: usize = 1 + TOKEN;
/// Bytes of a lane's greeting: token, number, and proof.
pub(super) const GREETING: usize = TOKEN + 1 + blake3::OUT_LEN;
const TOKEN: usize = 16;

/// What a client names when it opens a lane.
pub(super) type Token = [u8; TOKEN];

/// Which end of a lane shows that it belongs to the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Client,
    Server,
}

/// What lanes show that they know.
#[derive(Clone)]
pub(super) struct LaneKey([u8; 32]);

impl LaneKey {
    /// The key of a link whose main connection has this binding.
    pub(super) fn new(binding: &[u8; 32]) -> Self {
        Self(blake3::derive_key("gatework-fss 2026 lanes of a link", binding))
    }

    /// Compares in constant time, as every [`Hash`] does.
    pub(super) fn proof(&self, end: End, lane: usize, binding: &[u8; 32]) -> Hash {
        let end: &[u8] = match end {
            End::Client => b"client",
            End::Server => b"server",
        };
        self.hash(end, lane, binding)
    }

    /// What the transcripts of a lane begin with.
    pub(super) fn binding(&self, lane: usize, binding: &[u8; 32]) -> [u8; 32] {
        *self.hash(b"parcel", lane, binding).as_bytes()
    }

    fn hash(&self, what: &[u8], lane: usize, binding: &[u8; 32]) -> Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(what).update(&[lane as u8]).update(binding);
        hasher.finalize()
    }
}

/// A lane's greeting as bytes.
pub(super) fn greeting(token: &Token, lane: usize, proof: &Hash) -> [u8; GREETING] {
    let mut bytes = [0; GREETING];
    bytes[..TOKEN].copy_from_slice(token);
    bytes[TOKEN] = lane as u8;
    bytes[TOKEN + 1..].copy_from_slice(proof.as_bytes());
    bytes
}

/// Token, number and proof of a lane's greeting.
pub(super) fn read_greeting(bytes: &[u8; GREETING]) -> (Token, usize, Hash) {
    let (mut token, mut proof) = ([0; TOKEN], [0; blake3::OUT_LEN]);
    token.copy_from_slice(&bytes[..TOKEN]);
    proof.copy_from_slice(&bytes[TOKEN + 1..]);
    (token, bytes[TOKEN].into(), Hash::from_bytes(proof))
}

/// The server's answer as bytes.
pub(super) fn answer(lanes: usize, token: &Token) -> [u8; ANSWER] {
    let mut bytes = [0; ANSWER];
    bytes[0] = lanes as u8;
    bytes[1..].copy_from_slice(token);
    bytes
}

/// Lanes and token of the server's answer.
pub(super) fn read_answer(bytes: &[u8; ANSWER]) -> (usize, Token) {
    let mut token = [0; TOKEN];
    token.copy_from_slice(&bytes[1..]);
    (bytes[0].into(), token)
}
