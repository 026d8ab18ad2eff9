//! Key material of one section on the device: what the dealer writes and what a party reads, in the same
//! order.

use std::sync::Arc;

use bytemuck::Zeroable as _;
use gatework_gpu::{Buffer, View as _};

use crate::backend::{DealerKeys, Handle, PartyKeys, Sums};
use crate::dpf::{self, TABLE_BITS};
use crate::error::Result;
use crate::key::{KeySection, KeySink, stored, stored_by_zero, table_layout};
use crate::party::Party;
use crate::prg::{Calls, TreeKeys};
use crate::ring::Ring;

use super::feed::KeyFeed;
use super::outgoing::{Material, Outgoing, UnderWay};
use super::packing::{Packed, pack};
use super::points::{DevicePoints, Form, generate_tables, generate_trees};
use super::prg::{DeviceStream, Generator};
use super::queue::Queue;
use super::schedule::KeyAhead;
use super::shared::RoundKeys;
use super::sums::sums;
use super::words::{DeviceWords, keep, keep_words, words};

/// What the dealer writes.
pub(super) struct DealtSection {
    queue: Queue,
    generator: Arc<Generator>,
    streams: [DeviceStream; 2],
    trees: TreeKeys,
    /// What has not been taken to where it belongs yet.
    outgoing: Vec<Outgoing>,
    under_way: UnderWay,
}

impl DealtSection {
    /// A section under both parties' seeds.
    pub(super) fn new(queue: Queue, generator: Arc<Generator>, seeds: [u128; 2], public_key: u128) -> Self {
        let streams = seeds.map(|seed| DeviceStream::new(&generator, seed, Calls::default()));
        let (trees, under_way) = (TreeKeys::new(public_key), UnderWay::new(queue.clone()));
        Self { queue, generator, streams, trees, outgoing: Vec::new(), under_way }
    }

    /// Packs bytes that a party alone gets.
    fn store(&mut self, party: Party, part: Packed<'_>) -> Result<()> {
        let bytes = Material::Packed(pack(&self.queue, 0, &[part])?);
        self.outgoing.push(Outgoing { parties: Party::BOTH.map(|other| other == party), bytes });
        Ok(())
    }

    /// Words that one party derives and the other does not know.
    fn derive(&mut self, party: Party, count: usize, bits: u32) -> Result<DeviceWords> {
        let mut words = self.queue.alloc(count)?;
        self.streams[party.index()].words(&self.queue, &self.generator, bits, words.slice_mut(..))?;
        Ok(words)
    }

    fn trees(&mut self, domain: u32, places: &DeviceWords) -> Result<DeviceWords> {
        let mut root = |party: Party| {
            self.streams[party.index()].roots(&self.queue, &self.generator, party, places.len())
        };
        let (zero, one) = (root(Party::Zero)?, root(Party::One)?);
        let (roots, hash) = ([&zero, &one], self.generator.keys(self.trees.next_key()));
        let (corrections, signs) =
            generate_trees(&self.queue, &self.generator, &hash, domain, roots, places)?;
        self.outgoing.push(Outgoing { parties: [true; 2], bytes: Material::Words(corrections) });
        Ok(signs)
    }

    fn tables(&mut self, domain: u32, places: &DeviceWords) -> Result<DeviceWords> {
        let (bits, words) = table_layout(domain, places.len());
        let half = stored_by_zero(words);
        let by_one = self.derive(Party::One, half, bits)?;
        let by_zero = self.derive(Party::Zero, words - half, bits)?;
        let [zero, one, signs] =
            generate_tables(&self.queue, &self.generator, domain, [&by_zero, &by_one], places)?;
        self.store(Party::Zero, Packed { words: zero.slice(..half), minus: None, bits })?;
        self.store(Party::One, Packed { words: one.view(), minus: None, bits })?;
        Ok(signs)
    }
}

impl DealerKeys for DealtSection {
    fn derived(&mut self, len: usize, ring: Ring) -> Result<Handle> {
        // Party 0's words, then party 1's: their sums are those of columns.
        let mut both = self.queue.alloc(2 * len)?;
        for (party, stream) in self.streams.iter_mut().enumerate() {
            let words = both.slice_mut(party * len..(party + 1) * len);
            stream.words(&self.queue, &self.generator, ring.bits(), words)?;
        }
        Ok(keep_words(&self.queue, sums(&self.queue, &both, Sums::Columns(len), ring)?))
    }

    fn derived_by(&mut self, party: Party, len: usize, ring: Ring) -> Result<Handle> {
        let words = self.derive(party, len, ring.bits())?;
        Ok(keep_words(&self.queue, words))
    }

    fn share(&mut self, values: &Handle, len: usize, ring: Ring) -> Result<()> {
        let queue = self.queue.clone();
        let values = words(&queue, values)?;
        let half = stored_by_zero(len);
        for (party, given) in [(Party::Zero, 0..half), (Party::One, half..len)] {
            let derived = self.derive(party.peer(), given.len(), ring.bits())?;
            let (words, minus) = (values.slice(given), Some(derived.view()));
            self.store(party, Packed { words, minus, bits: ring.bits() })?;
        }
        Ok(())
    }

    fn give(&mut self, party: Party, values: &Handle, len: usize, ring: Ring) -> Result<()> {
        let queue = self.queue.clone();
        let words = words(&queue, values)?.slice(..len);
        self.store(party, Packed { words, minus: None, bits: ring.bits() })
    }

    fn points(&mut self, domain: u32, places: &Handle, _: usize) -> Result<Handle> {
        let queue = self.queue.clone();
        let places = words(&queue, places)?;
        let signs = match domain <= TABLE_BITS {
            true => self.tables(domain, places)?,
            false => self.trees(domain, places)?,
        };
        Ok(keep_words(&queue, signs))
    }

    fn write(&mut self, sinks: &mut [&mut dyn KeySink; 2]) -> Result<[u64; 2]> {
        self.under_way.send(std::mem::take(&mut self.outgoing), sinks)
    }

    fn finish(&mut self, sinks: &mut [&mut dyn KeySink; 2]) -> Result<[u64; 2]> {
        self.under_way.finish(sinks)
    }
}

/// What a party reads.
pub(super) struct ReadSection {
    party: Party,
    queue: Queue,
    generator: Arc<Generator>,
    stream: DeviceStream,
    trees: TreeKeys,
    calls: Calls,
    feed: KeyFeed,
}

impl ReadSection {
    /// What a section holds, and what follows from its seed.
    pub(super) fn new(
        queue: Queue,
        generator: Arc<Generator>,
        party: Party,
        section: KeySection,
        ahead: KeyAhead,
    ) -> Result<Self> {
        let calls = Calls::default();
        let stream = DeviceStream::new(&generator, section.seed(), calls.clone());
        let (trees, ahead) = (TreeKeys::new(section.public_key()), ahead.shared_by(section.beside()));
        Ok(Self { party, queue, generator, stream, trees, calls, feed: KeyFeed::new(section, ahead) })
    }

    /// Packed words from the section, into a part of a buffer that was made for them.
    fn given_into(
        &mut self,
        words: &mut Buffer<u64>,
        range: std::ops::Range<usize>,
        bits: u32,
    ) -> Result<()> {
        // SAFETY: the buffer is borrowed to be written, and nothing is queued for it but in this queue's
        // order.
        unsafe { self.feed.unpack(&self.queue, words.slice(range), bits) }
    }

    fn share_words(&mut self, count: usize, bits: u32) -> Result<DeviceWords> {
        let own = stored(self.party, count);
        let mut words = self.queue.alloc(count)?;
        let (given, derived) = match self.party {
            Party::Zero => (0..own, own..count),
            Party::One => (count - own..count, 0..count - own),
        };
        self.given_into(&mut words, given, bits)?;
        self.stream.words(&self.queue, &self.generator, bits, words.slice_mut(derived))?;
        Ok(words)
    }
}

impl PartyKeys for ReadSection {
    fn derived(&mut self, len: usize, ring: Ring) -> Result<Handle> {
        let mut words = self.queue.alloc(len)?;
        self.stream.words(&self.queue, &self.generator, ring.bits(), words.slice_mut(..))?;
        Ok(keep_words(&self.queue, words))
    }

    fn derived_alone(&mut self, len: usize, ring: Ring) -> Result<Handle> {
        self.derived(len, ring)
    }

    fn shares(&mut self, len: usize, ring: Ring) -> Result<Handle> {
        let words = self.share_words(len, ring.bits())?;
        Ok(keep_words(&self.queue, words))
    }

    fn given(&mut self, len: usize, ring: Ring) -> Result<Handle> {
        let mut words = self.queue.alloc(len)?;
        self.given_into(&mut words, 0..len, ring.bits())?;
        Ok(keep_words(&self.queue, words))
    }

    fn points(&mut self, domain: u32, len: usize) -> Result<Handle> {
        // Tables have no trees, and no key.
        let mut hash = RoundKeys::zeroed();
        let form = if domain <= TABLE_BITS {
            let (bits, words) = table_layout(domain, len);
            Form::Table(self.share_words(words, bits)?)
        } else {
            hash = self.generator.keys(self.trees.next_key());
            let roots = self.stream.roots(&self.queue, &self.generator, self.party, len)?;
            let words = 2 * dpf::correction_words(domain) * len;
            let mut corrections = self.queue.alloc(words)?;
            self.given_into(&mut corrections, 0..words, u64::BITS)?;
            Form::Tree { roots, corrections }
        };
        let points = DevicePoints { domain, count: len, form, hash, calls: self.calls.clone() };
        Ok(keep(&self.queue, points))
    }

    fn settle(&mut self) -> Result<()> {
        self.feed.settle(&self.queue)
    }

    fn used(&self) -> u64 {
        self.feed.used()
    }

    fn left(&self) -> u64 {
        self.feed.left()
    }

    fn calls(&self) -> u64 {
        self.calls.count()
    }
}
