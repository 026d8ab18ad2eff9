//! Where a party's local work is done.
//!
//! A backend works in stages, so that a GPU can overlap them: keys are uploaded and stay resident, batches are evaluated,
//! and what is opened is packed where it lies. The layouts are those of the key stream, which are made for lanes and
//! threads side by side.

use std::any::Any;

use crate::dpf::PointKeys;
use crate::error::{Error, Result};
use crate::lut::Table;
use crate::prg::TreeHash;
use crate::ring::{Ring, pack, unpack};
use crate::secret::Secret;

/// Keys where a backend evaluates them.
pub trait ResidentKeys: Any + Send {}

/// What evaluates keys.
pub trait Backend: Send + Sync {
    /// Takes keys to where they are evaluated.
    fn upload(&self, keys: PointKeys) -> Result<Box<dyn ResidentKeys>>;

    /// Shares of the bits x < α, all keys' first points, then all keys' second ones.
    fn less_than(&self, keys: &dyn ResidentKeys, points: &[u64]) -> Result<Vec<u64>>;

    /// Σ_j e(j) T((x − j) mod 2^k) for one public point of every key.
    fn lookup(&self, keys: &dyn ResidentKeys, points: &[u64], table: &Table) -> Result<Vec<u64>>;

    /// Packs shares for the peer.
    fn pack(&self, words: &[u64], ring: Ring) -> Result<Vec<u8>>;

    /// Adds the peer's packed shares to the own ones.
    fn open(&self, own: &mut [u64], peer: &[u8], ring: Ring) -> Result<()>;
}

/// The CPU.
pub struct CpuBackend {
    hash: TreeHash,
}

impl CpuBackend {
    /// The backend for keys under a public key.
    pub fn new(hash: TreeHash) -> Self {
        Self { hash }
    }
}

struct HostKeys(PointKeys);

impl ResidentKeys for HostKeys {}

fn host_keys(keys: &dyn ResidentKeys) -> Result<&PointKeys> {
    let keys: &dyn Any = keys;
    let foreign = || Error::Key { what: "its keys were uploaded to another backend".into() };
    keys.downcast_ref::<HostKeys>().map(|keys| &keys.0).ok_or_else(foreign)
}

impl Backend for CpuBackend {
    fn upload(&self, keys: PointKeys) -> Result<Box<dyn ResidentKeys>> {
        Ok(Box::new(HostKeys(keys)))
    }

    fn less_than(&self, keys: &dyn ResidentKeys, points: &[u64]) -> Result<Vec<u64>> {
        Ok(host_keys(keys)?.less_than(&self.hash, points))
    }

    fn lookup(&self, keys: &dyn ResidentKeys, points: &[u64], table: &Table) -> Result<Vec<u64>> {
        Ok(host_keys(keys)?.lookup(&self.hash, points, table))
    }

    fn pack(&self, words: &[u64], ring: Ring) -> Result<Vec<u8>> {
        Ok(pack(words, ring.bits()))
    }

    fn open(&self, own: &mut [u64], peer: &[u8], ring: Ring) -> Result<()> {
        // Both shares together are what only the two parties may see.
        let mut theirs = Secret::with_capacity(own.len());
        unpack(peer, own.len(), ring.bits(), &mut theirs)?;
        for (own, word) in own.iter_mut().zip(theirs.iter()) {
            *own = ring.reduce(own.wrapping_add(*word));
        }
        Ok(())
    }
}
