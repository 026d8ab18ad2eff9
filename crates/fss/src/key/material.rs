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
    pub(crate) bytes: [Secret<u8>; 2],
    hash: TreeHash,
}

impl DealtSection {
    /// Section `index`, appended to both parties' bytes.
    pub(crate) fn new(seeds: [u128; 2], public_key: u128, index: u64, bytes: [Secret<u8>; 2]) -> Self {
        Self {
            streams: seeds.map(|seed| Stream::new(Stream::section_seed(seed, index))),
            bytes,
            hash: TreeHash::new(public_key),
        }
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
        let mut words = Words::default();
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
            pack_into(&own, bits, &mut self.bytes[party.index()]);
        }
    }

    /// Words for one party only.
    pub(crate) fn give(&mut self, party: Party, values: &[u64], bits: u32) {
        pack_into(values, bits, &mut self.bytes[party.index()]);
    }

    /// Keys of point functions at `alphas`. Returns party 0's bit at each place: the sign of what lookups give.
    pub(crate) fn points(&mut self, domain: u32, alphas: &[u64]) -> Words {
        if domain <= TABLE_BITS {
            return self.tables(domain, alphas);
        }
        let roots = Party::BOTH.map(|party| roots(&mut self.streams[party.index()], party, alphas.len()));
        let (mut corrections, signs) = dpf::generate(&self.hash, domain, roots, alphas);
        corrections.iter_mut().for_each(|word| *word = word.to_le());
        self.bytes.iter_mut().for_each(|bytes| bytes.extend_from_slice(bytemuck::cast_slice(&corrections)));
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
        let mut zero = Words::default();
        let derived_by_one = self.free_for(Party::One, half, bits);
        zero.extend(units[..half].iter().zip(derived_by_one.iter()).map(|(unit, word)| unit ^ word));
        pack_into(&zero, bits, &mut self.bytes[0]);
        let derived_by_zero = self.free_for(Party::Zero, words - half, bits);
        let one: Words = Secret::new(
            units[half..].iter().zip(derived_by_zero.iter()).map(|(unit, word)| unit ^ word).collect(),
        );
        pack_into(&one, bits, &mut self.bytes[1]);
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

/// What a party reads.
pub(crate) struct ReadSection {
    party: Party,
    stream: Stream,
    bytes: SharedBytes,
    at: usize,
}

impl ReadSection {
    pub(crate) fn new(party: Party, seed: u128, index: u64, bytes: SharedBytes) -> Self {
        let stream = Stream::new(Stream::section_seed(seed, index));
        Self { party, stream, bytes, at: 0 }
    }

    /// Bytes read so far.
    pub(crate) fn used(&self) -> usize {
        self.at
    }

    /// Bytes not read yet.
    pub(crate) fn left(&self) -> usize {
        self.bytes.as_slice().len() - self.at
    }

    fn take(&mut self, count: usize) -> Result<&[u8]> {
        if count > self.left() {
            let what = format!("a gate needs {count} more bytes, its section has {} left", self.left());
            return Err(Error::Key { what });
        }
        self.at += count;
        Ok(&self.bytes.as_slice()[self.at - count..self.at])
    }

    pub(crate) fn free(&mut self, count: usize, bits: u32) -> Words {
        let mut words = Words::default();
        self.stream.words(count, bits, &mut words);
        words
    }

    /// This party's shares of an array.
    pub(crate) fn share(&mut self, count: usize, bits: u32) -> Result<Words> {
        let own = stored(self.party, count);
        let mut words = Words::default();
        match self.party {
            Party::Zero => {
                unpack(self.take(packed_bytes(own, bits))?, own, bits, &mut words)?;
                self.stream.words(count - own, bits, &mut words);
            }
            Party::One => {
                self.stream.words(count - own, bits, &mut words);
                unpack(self.take(packed_bytes(own, bits))?, own, bits, &mut words)?;
            }
        }
        Ok(words)
    }

    /// Words for this party only.
    pub(crate) fn given(&mut self, count: usize, bits: u32) -> Result<Words> {
        let mut words = Words::default();
        unpack(self.take(packed_bytes(count, bits))?, count, bits, &mut words)?;
        Ok(words)
    }

    pub(crate) fn points(&mut self, domain: u32, count: usize) -> Result<PointKeys> {
        if domain <= TABLE_BITS {
            let (bits, words) = table_layout(domain, count);
            return Ok(PointKeys { domain, count, form: Form::Table(self.share(words, bits)?) });
        }
        let roots = roots(&mut self.stream, self.party, count);
        let length = 16 * dpf::correction_words(domain) * count;
        self.take(length)?;
        let corrections = dpf::Corrections::new(domain, count, self.bytes.part(self.at - length, length));
        Ok(PointKeys { domain, count, form: Form::Tree { roots, corrections } })
    }
}
