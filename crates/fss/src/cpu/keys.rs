//! Key material of one section on the host: what the dealer writes and what a party reads, in the same order.

use crate::backend::{DealerKeys, Handle, PartyKeys};
use crate::dpf::{self, Form, PointKeys, TABLE_BITS, words_per_table};
use crate::error::{Error, Result};
use crate::key::{KeySection, KeySink, stored, stored_by_zero, table_layout};
use crate::party::Party;
use crate::prg::{Calls, Stream, TreeHash, TreeKeys};
use crate::ring::{Ring, pack_into, packed_bytes, unpack};
use crate::secret::{Secret, SharedBytes};

use super::{HostWords, words};

/// Keys of point functions, with the hash of their trees.
pub(super) struct HostPoints {
    pub(super) points: PointKeys,
    pub(super) hash: TreeHash,
}

/// The roots of a party's trees: derived, with the party's number as lowest bit.
fn roots(stream: &mut Stream, party: Party, count: usize) -> Secret<u128> {
    let mut blocks = Secret::new(stream.blocks(count));
    blocks.iter_mut().for_each(|block| *block = *block & !1 | party.index() as u128);
    blocks
}

/// What the dealer writes.
pub(super) struct DealtSection {
    streams: [Stream; 2],
    /// What has not been taken to where it belongs yet.
    bytes: [Secret<u8>; 2],
    trees: TreeKeys,
}

impl DealtSection {
    /// A section under both parties' seeds.
    pub(super) fn new(seeds: [u128; 2], public_key: u128) -> Self {
        let bytes = [Secret::default(), Secret::default()];
        let streams = seeds.map(|seed| Stream::new(seed, Calls::default()));
        Self { streams, bytes, trees: TreeKeys::new(public_key) }
    }

    fn store(&mut self, party: Party, words: &[u64], bits: u32) {
        let bytes = &mut self.bytes[party.index()];
        bytes.make_room(packed_bytes(words.len(), bits));
        pack_into(words, bits, bytes);
    }

    /// Words that one party derives and the other does not know.
    fn derive(&mut self, party: Party, count: usize, bits: u32) -> HostWords {
        let mut words = HostWords::with_capacity(count);
        self.streams[party.index()].words(count, bits, &mut words);
        words
    }

    /// Additive shares of `values`.
    fn share_words(&mut self, values: &[u64], bits: u32) {
        let (first, second) = values.split_at(stored_by_zero(values.len()));
        for (party, given) in [(Party::Zero, first), (Party::One, second)] {
            let derived = self.derive(party.peer(), given.len(), bits);
            let pairs = given.iter().zip(derived.iter());
            let own: HostWords = Secret::new(pairs.map(|(&value, &word)| value.wrapping_sub(word)).collect());
            self.store(party, &own, bits);
        }
    }

    /// Keys of point functions at `alphas`. Returns party 0's bit at each place: the sign of what lookups
    /// give.
    fn trees(&mut self, domain: u32, alphas: &[u64]) -> HostWords {
        if domain <= TABLE_BITS {
            return self.tables(domain, alphas);
        }
        let roots = Party::BOTH.map(|party| roots(&mut self.streams[party.index()], party, alphas.len()));
        let hash = TreeHash::new(self.trees.next_key(), Calls::default());
        let (mut corrections, signs) = dpf::generate(&hash, domain, roots, alphas);
        corrections.iter_mut().for_each(|word| *word = word.to_le());
        for bytes in &mut self.bytes {
            bytes.make_room(16 * corrections.len());
            bytes.extend_from_slice(bytemuck::cast_slice(&corrections));
        }
        signs
    }

    fn tables(&mut self, domain: u32, alphas: &[u64]) -> HostWords {
        let (bits, words) = table_layout(domain, alphas.len());
        let width = words_per_table(domain);
        // By masks over every word: where the one goes is a secret.
        let unit = |(place, alpha): (usize, u64)| {
            let here = u64::from(alpha >> 6 == place as u64);
            here << (alpha & 63)
        };
        let units = alphas.iter().flat_map(|&alpha| (0..width).map(move |place| (place, alpha)));
        let units: HostWords = Secret::new(units.map(unit).collect());
        let half = stored_by_zero(words);
        // Party 0's vectors: the units ⊕ party 1's words where it stores them, its own words where it derives
        // them.
        let mut zero = HostWords::with_capacity(words);
        let derived_by_one = self.derive(Party::One, half, bits);
        zero.extend(units[..half].iter().zip(derived_by_one.iter()).map(|(unit, word)| unit ^ word));
        self.store(Party::Zero, &zero, bits);
        let derived_by_zero = self.derive(Party::Zero, words - half, bits);
        let one: HostWords = Secret::new(
            units[half..].iter().zip(derived_by_zero.iter()).map(|(unit, word)| unit ^ word).collect(),
        );
        self.store(Party::One, &one, bits);
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

impl DealerKeys for DealtSection {
    fn derived(&mut self, len: usize, ring: Ring) -> Result<Handle> {
        let mut sums = self.derive(Party::Zero, len, ring.bits());
        for (sum, word) in sums.iter_mut().zip(self.derive(Party::One, len, ring.bits()).iter()) {
            *sum = ring.reduce(sum.wrapping_add(*word));
        }
        Ok(Handle::new(sums))
    }

    fn derived_by(&mut self, party: Party, len: usize, ring: Ring) -> Result<Handle> {
        Ok(Handle::new(self.derive(party, len, ring.bits())))
    }

    fn share(&mut self, values: &Handle, _: usize, ring: Ring) -> Result<()> {
        self.share_words(words(values)?, ring.bits());
        Ok(())
    }

    fn give(&mut self, party: Party, values: &Handle, _: usize, ring: Ring) -> Result<()> {
        self.store(party, words(values)?, ring.bits());
        Ok(())
    }

    fn points(&mut self, domain: u32, places: &Handle, _: usize) -> Result<Handle> {
        let mask = u64::MAX >> (64 - domain);
        let places: HostWords = words(places)?.iter().map(|place| place & mask).collect();
        Ok(Handle::new(self.trees(domain, &places)))
    }

    fn write(&mut self, sinks: &mut [&mut dyn KeySink; 2]) -> Result<[u64; 2]> {
        let written = self.bytes.each_ref().map(|bytes| bytes.len() as u64);
        for (bytes, sink) in self.bytes.iter_mut().zip(sinks) {
            sink.write(bytes)?;
            bytes.wipe();
        }
        Ok(written)
    }
}

/// What a party reads.
pub(super) struct ReadSection {
    party: Party,
    stream: Stream,
    trees: TreeKeys,
    calls: Calls,
    section: KeySection,
    used: u64,
}

impl ReadSection {
    /// What a section holds, and what follows from its seed.
    pub(super) fn new(party: Party, section: KeySection) -> Self {
        let calls = Calls::default();
        let trees = TreeKeys::new(section.public_key());
        Self { party, stream: Stream::new(section.seed(), calls.clone()), trees, calls, section, used: 0 }
    }

    fn take(&mut self, count: usize) -> Result<SharedBytes> {
        if count as u64 > self.left() {
            let what = format!("a gate needs {count} more bytes, its section has {} left", self.left());
            return Err(Error::Key { what });
        }
        self.used += count as u64;
        self.section.take(count)
    }

    fn share_words(&mut self, count: usize, bits: u32) -> Result<HostWords> {
        let own = stored(self.party, count);
        let given = self.take(packed_bytes(own, bits))?;
        let mut words = HostWords::with_capacity(count);
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
}

impl PartyKeys for ReadSection {
    fn derived(&mut self, len: usize, ring: Ring) -> Result<Handle> {
        let mut words = HostWords::with_capacity(len);
        self.stream.words(len, ring.bits(), &mut words);
        Ok(Handle::new(words))
    }

    fn derived_alone(&mut self, len: usize, ring: Ring) -> Result<Handle> {
        self.derived(len, ring)
    }

    fn shares(&mut self, len: usize, ring: Ring) -> Result<Handle> {
        Ok(Handle::new(self.share_words(len, ring.bits())?))
    }

    fn given(&mut self, len: usize, ring: Ring) -> Result<Handle> {
        let given = self.take(packed_bytes(len, ring.bits()))?;
        let mut words = HostWords::with_capacity(len);
        unpack(given.as_slice(), len, ring.bits(), &mut words)?;
        Ok(Handle::new(words))
    }

    fn points(&mut self, domain: u32, len: usize) -> Result<Handle> {
        // Tables have no trees, and no key.
        let mut public_key = 0;
        let form = if domain <= TABLE_BITS {
            let (bits, words) = table_layout(domain, len);
            Form::Table(self.share_words(words, bits)?)
        } else {
            public_key = self.trees.next_key();
            let roots = roots(&mut self.stream, self.party, len);
            let corrections = self.take(16 * dpf::correction_words(domain) * len)?;
            Form::Tree { roots, corrections: dpf::Corrections::new(domain, len, corrections) }
        };
        let points = PointKeys { domain, count: len, form };
        Ok(Handle::new(HostPoints { points, hash: TreeHash::new(public_key, self.calls.clone()) }))
    }

    fn settle(&mut self) -> Result<()> {
        match self.used {
            0 => self.section.settle(),
            _ => Ok(()),
        }
    }

    fn used(&self) -> u64 {
        self.used
    }

    fn calls(&self) -> u64 {
        self.calls.count()
    }

    fn left(&self) -> u64 {
        self.section.length() - self.used
    }
}
