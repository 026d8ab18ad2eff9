//! Key material of one section: what the dealer writes and what a party reads, in the same order.
//!
//! Shares are uniform, so a party can derive them from its seed instead of storing them. A sharing that the dealer may
//! choose freely (a fresh mask) costs no key bytes at all. One whose sum is given costs one correction: of every array,
//! party 0 stores the first half and derives the second, party 1 the other way round, so that both streams are equally
//! long and half of what they would be.

use crate::secret::Secret;

use super::SharedBytes;
use crate::dpf::{self, Form, PointKeys, TABLE_BITS, words_per_table};
use crate::error::{Error, Result};
use crate::party::Party;
use crate::prg::{Stream, TreeHash};
use crate::ring::{pack_into, packed_bytes, unpack};
use crate::tensor::Words;

/// Elements of an array that party 0 stores.
fn stored_by_zero(count: usize) -> usize {
    count / 2
}

/// Elements that a party stores.
pub(crate) fn stored(party: Party, count: usize) -> usize {
    match party {
        Party::Zero => stored_by_zero(count),
        Party::One => count - stored_by_zero(count),
    }
}

/// Key bytes and derived blocks of one array, for a party.
pub(crate) fn share_cost(party: Party, count: usize, bits: u32) -> (u64, u64) {
    let own = stored(party, count);
    (packed_bytes(own, bits) as u64, Stream::blocks_for(count - own, bits))
}

/// Bits of one word of a truth table, and words of `count` tables.
fn table_layout(domain: u32, count: usize) -> (u32, usize) {
    ((1 << domain.min(6)) as u32, count * words_per_table(domain))
}

/// Key bytes and derived blocks of point keys, for a party.
pub(crate) fn point_cost(party: Party, domain: u32, count: usize) -> (u64, u64) {
    if domain <= TABLE_BITS {
        let (bits, words) = table_layout(domain, count);
        return share_cost(party, words, bits);
    }
    (16 * (dpf::correction_words(domain) * count) as u64, count as u64)
}

/// The roots of a party's trees: derived, with the party's number as lowest bit.
fn roots(stream: &mut Stream, party: Party, count: usize) -> Secret<u128> {
    let mut blocks = Secret::new(stream.blocks(count));
    blocks.iter_mut().for_each(|block| *block = *block & !1 | party.index() as u128);
    blocks
}

/// What the dealer writes.
pub(crate) struct DealtSection {
    streams: [Stream; 2],
    /// What has not been taken to where it belongs yet.
    pub(crate) bytes: [Secret<u8>; 2],
    hash: TreeHash,
}

impl DealtSection {
    /// A section under both parties' seeds.
    pub(crate) fn new(seeds: [u128; 2], public_key: u128) -> Self {
        let bytes = [Secret::default(), Secret::default()];
        Self { streams: seeds.map(Stream::new), bytes, hash: TreeHash::new(public_key) }
    }

    fn write(&mut self, party: Party, words: &[u64], bits: u32) {
        let bytes = &mut self.bytes[party.index()];
        bytes.make_room(packed_bytes(words.len(), bits));
        pack_into(words, bits, bytes);
    }

    /// A uniform sharing of nothing in particular; its sums.
    pub(crate) fn free(&mut self, count: usize, bits: u32) -> Words {
        let mut sums = self.free_for(Party::Zero, count, bits);
        for (sum, word) in sums.iter_mut().zip(self.free_for(Party::One, count, bits).iter()) {
            *sum = sum.wrapping_add(*word);
        }
        sums
    }

    /// Words that one party derives and the other does not know.
    pub(crate) fn free_for(&mut self, party: Party, count: usize, bits: u32) -> Words {
        let mut words = Words::with_capacity(count);
        self.streams[party.index()].words(count, bits, &mut words);
        words
    }

    /// Additive shares of `values`.
    pub(crate) fn share(&mut self, values: &[u64], bits: u32) {
        let (first, second) = values.split_at(stored_by_zero(values.len()));
        for (party, given) in [(Party::Zero, first), (Party::One, second)] {
            let derived = self.free_for(party.peer(), given.len(), bits);
            let pairs = given.iter().zip(derived.iter());
            let own: Words = Secret::new(pairs.map(|(&value, &word)| value.wrapping_sub(word)).collect());
            self.write(party, &own, bits);
        }
    }

    /// Words for one party only.
    pub(crate) fn give(&mut self, party: Party, values: &[u64], bits: u32) {
        self.write(party, values, bits);
    }

    /// Keys of point functions at `alphas`. Returns party 0's bit at each place: the sign of what lookups give.
    pub(crate) fn points(&mut self, domain: u32, alphas: &[u64]) -> Words {
        if domain <= TABLE_BITS {
            return self.tables(domain, alphas);
        }
        let roots = Party::BOTH.map(|party| roots(&mut self.streams[party.index()], party, alphas.len()));
        let (mut corrections, signs) = dpf::generate(&self.hash, domain, roots, alphas);
        corrections.iter_mut().for_each(|word| *word = word.to_le());
        for bytes in &mut self.bytes {
            bytes.make_room(16 * corrections.len());
            bytes.extend_from_slice(bytemuck::cast_slice(&corrections));
        }
        signs
    }

    fn tables(&mut self, domain: u32, alphas: &[u64]) -> Words {
        let (bits, words) = table_layout(domain, alphas.len());
        let width = words_per_table(domain);
        // By masks over every word: where the one goes is a secret.
        let unit = |(place, alpha): (usize, u64)| {
            let here = u64::from(alpha >> 6 == place as u64);
            here << (alpha & 63)
        };
        let units = alphas.iter().flat_map(|&alpha| (0..width).map(move |place| (place, alpha)));
        let units: Words = Secret::new(units.map(unit).collect());
        let half = stored_by_zero(words);
        // Party 0's vectors: the units ⊕ party 1's words where it stores them, its own words where it derives them.
        let mut zero = Words::with_capacity(words);
        let derived_by_one = self.free_for(Party::One, half, bits);
        zero.extend(units[..half].iter().zip(derived_by_one.iter()).map(|(unit, word)| unit ^ word));
        self.write(Party::Zero, &zero, bits);
        let derived_by_zero = self.free_for(Party::Zero, words - half, bits);
        let one: Words = Secret::new(
            units[half..].iter().zip(derived_by_zero.iter()).map(|(unit, word)| unit ^ word).collect(),
        );
        self.write(Party::One, &one, bits);
        zero.extend_from_slice(&derived_by_zero);
        let sign = |(key, _): (usize, &u64)| {
            let vector = &zero[key * width..(key + 1) * width];
            let unit = &units[key * width..(key + 1) * width];
            let hit = vector.iter().zip(unit).fold(0, |hit, (word, unit)| hit | (word & unit));
            u64::from(hit.count_ones()) & 1
        };
        Secret::new(alphas.iter().enumerate().map(sign).collect())
    }
}

/// Where a party's key material comes from, in the order in which it was dealt.
pub(crate) trait Material: Send + Sync {
    /// The next `count` bytes, all of which exist.
    fn take(&mut self, count: usize) -> Result<SharedBytes>;
}

/// What a party reads.
pub(crate) struct ReadSection {
    party: Party,
    stream: Stream,
    material: Box<dyn Material>,
    length: u64,
    used: u64,
}

impl ReadSection {
    /// `length` bytes of material, and what follows from the seed.
    pub(crate) fn new(party: Party, seed: u128, length: u64, material: Box<dyn Material>) -> Self {
        Self { party, stream: Stream::new(seed), material, length, used: 0 }
    }

    /// Bytes read so far.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Bytes not read yet.
    pub(crate) fn left(&self) -> u64 {
        self.length - self.used
    }

    fn take(&mut self, count: usize) -> Result<SharedBytes> {
        if count as u64 > self.left() {
            let what = format!("a gate needs {count} more bytes, its section has {} left", self.left());
            return Err(Error::Key { what });
        }
        self.used += count as u64;
        self.material.take(count)
    }

    pub(crate) fn free(&mut self, count: usize, bits: u32) -> Words {
        let mut words = Words::with_capacity(count);
        self.stream.words(count, bits, &mut words);
        words
    }

    /// This party's shares of an array.
    pub(crate) fn share(&mut self, count: usize, bits: u32) -> Result<Words> {
        let own = stored(self.party, count);
        let given = self.take(packed_bytes(own, bits))?;
        let mut words = Words::with_capacity(count);
        match self.party {
            Party::Zero => {
                unpack(given.as_slice(), own, bits, &mut words)?;
                self.stream.words(count - own, bits, &mut words);
            }
            Party::One => {
                self.stream.words(count - own, bits, &mut words);
                unpack(given.as_slice(), own, bits, &mut words)?;
            }
        }
        Ok(words)
    }

    /// Words for this party only.
    pub(crate) fn given(&mut self, count: usize, bits: u32) -> Result<Words> {
        let given = self.take(packed_bytes(count, bits))?;
        let mut words = Words::with_capacity(count);
        unpack(given.as_slice(), count, bits, &mut words)?;
        Ok(words)
    }

    pub(crate) fn points(&mut self, domain: u32, count: usize) -> Result<PointKeys> {
        if domain <= TABLE_BITS {
            let (bits, words) = table_layout(domain, count);
            return Ok(PointKeys { domain, count, form: Form::Table(self.share(words, bits)?) });
        }
        let roots = roots(&mut self.stream, self.party, count);
        let corrections = self.take(16 * dpf::correction_words(domain) * count)?;
        let corrections = dpf::Corrections::new(domain, count, corrections);
        Ok(PointKeys { domain, count, form: Form::Tree { roots, corrections } })
    }
}
