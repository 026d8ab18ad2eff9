//! What was said on a connection, in one direction.

use blake3::Hasher;

/// Bytes of the transcript's hash behind a parcel.
pub(crate) const HASH: usize = 16;

/// A chain of BLAKE3 hashes over all parcels so far, which begins with what only the two ends of a connection
/// know.
pub(super) struct Transcript {
    key: [u8; 32],
    hasher: Hasher,
}

impl Transcript {
    pub(super) fn new(binding: &[u8; 32], direction: &str) -> Self {
        let mut hasher = Hasher::new_derive_key("gatework-fss transcript");
        hasher.update(binding).update(direction.as_bytes());
        Self::keyed(*hasher.finalize().as_bytes())
    }

    fn keyed(key: [u8; 32]) -> Self {
        Self { key, hasher: Hasher::new_keyed(&key) }
    }

    /// More of the parcel that is under way. Hashing is quickest in whole powers of two, so the head of a
    /// parcel comes last.
    pub(super) fn add(&mut self, body: &[u8]) {
        self.hasher.update(body);
    }

    /// The hash behind the parcel that is complete.
    pub(super) fn end(&mut self, head: u64) -> [u8; HASH] {
        let next = *self.hasher.update(&head.to_le_bytes()).finalize().as_bytes();
        *self = Self::keyed(next);
        let mut half = [0; HASH];
        half.copy_from_slice(&self.key[..HASH]);
        half
    }
}
