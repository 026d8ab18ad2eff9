//! The seam: where words are kept, and what computes with them.
//!
//! A circuit never sees a word. It holds [`Words`], which lie where their [`Backend`] keeps them, and asks
//! the backend for work on whole tensors: element-wise [`Formula`]s, sums of rows, products of matrices,
//! point functions, packing and opening, key material. A backend with a queue of its own (a stream of a GPU)
//! may return before the work is done. Three calls wait: [`Download::take`], [`Backend::download`] and, if
//! its buffers are full, [`Backend::open`].
//!
//! Results are the same bits on every backend: all of it is arithmetic modulo powers of two.

mod memory;
mod words;

use std::sync::Arc;

use crate::error::Result;
use crate::formula::{Formula, Operand};
use crate::key::{KeySection, KeySink};
use crate::message::Message;
use crate::party::Party;
use crate::ring::Ring;
use crate::secret::Secret;
use crate::table::Table;

pub use crate::handle::Handle;
pub use memory::{CountedRoom, MemoryCount, Promise, Rehearsal};
pub use words::Words;
pub(crate) use words::compute;

/// Which words are added up.
#[derive(Debug, Clone, Copy)]
pub enum Sums<'a> {
    /// Rows of one width.
    Rows(usize),
    /// Rows of these lengths, one after the other.
    Ragged(&'a [usize]),
    /// The columns of rows of this width.
    Columns(usize),
}

impl Sums<'_> {
    /// Sums of `len` words.
    pub fn count(&self, len: usize) -> usize {
        match self {
            Self::Rows(width) => len / width,
            Self::Ragged(lengths) => lengths.len(),
            Self::Columns(columns) => *columns,
        }
    }
}

/// How the right factor of a matrix product lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// inner × columns, row by row.
    Plain,
    /// columns × inner, row by row.
    Transposed,
}

/// rows × inner times inner × columns, row by row; `batch` such products one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatmulShape {
    /// Independent products.
    pub batch: usize,
    /// Rows of the left factor.
    pub rows: usize,
    /// Columns of the left factor, rows of the right one.
    pub inner: usize,
    /// Columns of the right factor.
    pub columns: usize,
}

impl MatmulShape {
    /// Elements of the left factor, if they can be counted.
    pub(crate) fn left(&self) -> Option<usize> {
        self.batch.checked_mul(self.rows)?.checked_mul(self.inner)
    }

    /// Elements of the right factor, if they can be counted.
    pub(crate) fn right(&self) -> Option<usize> {
        self.batch.checked_mul(self.inner)?.checked_mul(self.columns)
    }

    /// Elements of the product.
    pub fn product(&self) -> usize {
        self.batch.saturating_mul(self.rows).saturating_mul(self.columns)
    }
}

/// Words that a party sends or opens: a part of a message.
#[derive(Clone)]
pub struct Part {
    /// The party's own words, if it has any.
    pub words: Option<Handle>,
    /// How many words there are.
    pub len: usize,
    /// The ring, to whose bits they are packed.
    pub ring: Ring,
    /// Whether the message has words for it.
    pub in_message: bool,
}

/// Bytes on their way to the host.
pub trait Download: Send {
    /// Whether taking them would not wait.
    fn ready(&self) -> bool;

    /// Waits for the bytes.
    fn take(self: Box<Self>) -> Result<Message>;
}

/// A party's key material of one section, in the order in which it was dealt.
pub trait PartyKeys: Send {
    /// The next share of a uniform sharing that both parties derive.
    fn derived(&mut self, len: usize, ring: Ring) -> Result<Handle>;

    /// The next words that this party alone derives.
    fn derived_alone(&mut self, len: usize, ring: Ring) -> Result<Handle>;

    /// The next shares of an array that the dealer shared: half of them stored, half derived.
    fn shares(&mut self, len: usize, ring: Ring) -> Result<Handle>;

    /// The next words that the dealer gave to this party alone.
    fn given(&mut self, len: usize, ring: Ring) -> Result<Handle>;

    /// The next keys of `len` point functions over domains of `domain` bits.
    fn points(&mut self, domain: u32, len: usize) -> Result<Handle>;

    /// Brings the material near, as far as there is room, so that reading it waits for no file. Whoever asks
    /// for nothing of it before loses nothing by that.
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    /// Bytes of key material read so far.
    fn used(&self) -> u64;

    /// Bytes of key material not read yet.
    fn left(&self) -> u64;

    /// Calls of the generator, as counted where they are made: for material, and for walks with its keys.
    fn calls(&self) -> u64;
}

/// A section of key material while it is dealt.
pub trait DealerKeys: Send {
    /// The sums of a uniform sharing that both parties derive.
    fn derived(&mut self, len: usize, ring: Ring) -> Result<Handle>;

    /// Words that one party derives and the other does not know.
    fn derived_by(&mut self, party: Party, len: usize, ring: Ring) -> Result<Handle>;

    /// Shares `len` words.
    fn share(&mut self, values: &Handle, len: usize, ring: Ring) -> Result<()>;

    /// Gives `len` words to one party alone.
    fn give(&mut self, party: Party, values: &Handle, len: usize, ring: Ring) -> Result<()>;

    /// Makes keys of point functions at `len` secret places, modulo the domain. Returns party 0's bit at each
    /// place.
    fn points(&mut self, domain: u32, places: &Handle, len: usize) -> Result<Handle>;

    /// Writes what was made to where each party's material goes, or some of it. Returns the bytes that are
    /// written.
    fn write(&mut self, sinks: &mut [&mut dyn KeySink; 2]) -> Result<[u64; 2]>;

    /// Writes what is still on its way there, after the last of them. Returns its bytes.
    fn finish(&mut self, sinks: &mut [&mut dyn KeySink; 2]) -> Result<[u64; 2]> {
        self.write(sinks)
    }
}

/// What keeps words and computes with them.
///
/// Handles belong to the backend that made them; those of another are an error. Words are residues in the low
/// bits, with zeros above, except inside a formula, which ends by reducing its result.
pub trait Backend: Send + Sync {
    /// Where it computes, in words.
    fn name(&self) -> String;

    /// Waits for what is done beside the work, such as compiling kernels and wiping used keys, so that what
    /// follows runs as fast as it can.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Words of key material of all jobs that may be made ready before a gate asks for them, if that is worth
    /// anything.
    fn words_ahead(&self) -> Option<usize> {
        None
    }

    /// A backend that counts the memory that this one would take, and computes nothing. None where words lie
    /// in the host's memory.
    fn rehearsal(&self) -> Option<Rehearsal> {
        None
    }

    /// A promise of none of this backend's memory yet. None where words lie in the host's memory.
    fn promise(&self) -> Option<Box<dyn Promise>> {
        None
    }

    /// Bytes of the host's memory that a copy of keys of so many bytes takes when they are settled. None
    /// where they are read from where they lie.
    fn staging_bytes(&self, _keys: u64) -> Option<u64> {
        None
    }

    /// Takes words from the host.
    fn upload(&self, words: Secret<u64>) -> Result<Handle>;

    /// Words that everybody knows. A backend may keep a copy of them for as long as the array is there.
    fn constants(&self, words: &Arc<[u64]>) -> Result<Handle> {
        self.upload(Secret::new(words.to_vec()))
    }

    /// Brings words to the host, when all that they depend on is done.
    fn download(&self, words: &Handle) -> Result<Secret<u64>>;

    /// `len` words of a formula.
    fn compute(&self, formula: &Formula, operands: &[Operand], len: usize) -> Result<Handle>;

    /// Sums of words modulo the ring.
    fn sums(&self, words: &Handle, sums: Sums<'_>, ring: Ring) -> Result<Handle>;

    /// Words one after the other.
    fn concat(&self, parts: &[&Handle]) -> Result<Handle>;

    /// start + Σ a b over pairs of matrices, in a ring. Of the factors only the residues count, whatever is
    /// above them.
    fn products(
        &self,
        shape: MatmulShape,
        layout: Layout,
        ring: Ring,
        pairs: &[[&Handle; 2]],
        start: Option<Handle>,
    ) -> Result<Handle>;

    /// Shares of the bits 1[(x + shift) mod 2^k < α] for one public x a key of domain 2^k: all keys with the
    /// first shift, then all with the second.
    fn less_than(&self, keys: &Handle, x: &Handle, shifts: &[u64]) -> Result<Handle>;

    /// Σ_j e(j) T((x − j) mod 2^k) modulo 2^64, for one public x a key.
    fn lookup(&self, keys: &Handle, x: &Handle, table: &Table) -> Result<Handle>;

    /// The message that a party sends: a header, and of each part its words packed to the bits of its ring
    /// and filled up to a byte.
    fn pack(&self, header: &[u8], parts: &[Part]) -> Result<Box<dyn Download>>;

    /// What parts become when the peer's packed words are added. `bytes` has words for the parts that are in
    /// the message.
    fn open(&self, parts: Vec<Part>, bytes: &[u8]) -> Result<Vec<Handle>>;

    /// The key material of a section, for the party that evaluates it.
    fn party_keys(&self, party: Party, section: KeySection) -> Result<Box<dyn PartyKeys>>;

    /// A section to be dealt under both parties' seeds. The public keys of its trees are derived from the
    /// section's.
    fn dealer_keys(&self, seeds: [u128; 2], public_key: u128) -> Result<Box<dyn DealerKeys>>;
}
