//! The device's memory that an evaluation takes, counted without a device: every call holds as many bytes as
//! it would there, for as long.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use gatework_gpu::Locked;
use hashbrown::HashMap as FormulaMap;

use crate::backend::{
    Backend, CountedRoom, DealerKeys, Download, Handle, Layout, MatmulShape, MemoryCount, Part, PartyKeys,
    Rehearsal, Sums,
};
use crate::dpf::{self, TABLE_BITS};
use crate::error::{Error, Result};
use crate::formula::{Formula, Operand, View};
use crate::key::{KeySection, stored, table_layout};
use crate::message::Message;
use crate::party::Party;
use crate::ring::{Ring, packed_bytes};
use crate::secret::Secret;
use crate::table::Table;

use super::feed::ring_bytes;
use super::gemm::{self, Product};
use super::queue::Queue;
use super::schedule::{FormulaTier, KeyAhead, Schedule};
use super::shared::Instruction;
use super::words::LimbPlanes;

const WORD: u64 = size_of::<u64>() as u64;

/// A tensor, or keys, of which only the bytes are there.
struct Counted {
    len: usize,
    _words: CountedRoom,
    /// What was made of them for products, in the form that was asked for first.
    planes: OnceLock<(LimbPlanes, CountedRoom)>,
}

/// Keys of point functions.
struct CountedPoints {
    _keys: Vec<CountedRoom>,
}

struct CountingBackend {
    queue: Queue,
    schedule: Schedule,
    memory: MemoryCount,
    programs: Locked<FormulaMap<Formula, CountedRoom>>,
    tables: Copied<u64>,
    places: Copied<u32>,
    /// What the backend has from the start.
    _generator: CountedRoom,
}

/// Copies of public arrays, which are there as long as the host keeps theirs.
struct Copied<T>(Locked<HashMap<usize, CopyOf<T>>>);

/// One of them, with what it is a copy of.
type CopyOf<T> = (Weak<[T]>, CountedRoom);

impl<T> Copied<T> {
    fn note(&self, memory: &MemoryCount, host: &Arc<[T]>) {
        let mut copies = self.0.lock();
        copies.retain(|_, (host, _)| host.strong_count() > 0);
        copies
            .entry(host.as_ptr() as usize)
            .or_insert_with(|| (Arc::downgrade(host), memory.take(size_of_val::<[T]>(host) as u64)));
    }
}

/// A backend that counts what one with this queue and this schedule takes, beside so many bytes for its
/// generator.
pub(super) fn rehearsal(queue: &Queue, schedule: Schedule, generator: u64) -> Rehearsal {
    let memory = MemoryCount::default();
    let backend = CountingBackend {
        queue: queue.clone(),
        schedule,
        memory: memory.clone(),
        programs: Locked::default(),
        tables: Copied(Locked::default()),
        places: Copied(Locked::default()),
        _generator: memory.take(generator),
    };
    Rehearsal { backend: Arc::new(backend), memory }
}

impl CountingBackend {
    fn kept(&self, len: usize) -> Handle {
        let words = self.memory.take(len as u64 * WORD);
        Handle::new(Counted { len, _words: words, planes: OnceLock::new() })
    }
}

fn counted(handle: &Handle) -> Result<&Counted> {
    handle.get().ok_or(Error::OtherBackend)
}

impl Backend for CountingBackend {
    fn name(&self) -> String {
        format!("lengths alone, for {}", self.queue.device().properties().id)
    }

    fn words_ahead(&self) -> Option<usize> {
        Some(self.schedule.words_ahead)
    }

    fn upload(&self, words: Secret<u64>) -> Result<Handle> {
        Ok(self.kept(words.len()))
    }

    fn constants(&self, words: &Arc<[u64]>) -> Result<Handle> {
        self.tables.note(&self.memory, words);
        Ok(self.kept(words.len()))
    }

    fn download(&self, handle: &Handle) -> Result<Secret<u64>> {
        Ok(Secret::new(vec![0; counted(handle)?.len]))
    }

    fn compute(&self, formula: &Formula, operands: &[Operand], len: usize) -> Result<Handle> {
        let made = self.kept(len);
        for operand in operands {
            if let View::Places(places) = &operand.view {
                self.places.note(&self.memory, places.shared());
            }
        }
        if self.schedule.formulas != FormulaTier::Generated {
            let mut programs = self.programs.lock();
            if !programs.contains_key(formula) {
                let bytes = formula.steps().len() * size_of::<Instruction>();
                programs.insert(formula.clone(), self.memory.take(bytes as u64));
            }
        }
        Ok(made)
    }

    fn sums(&self, handle: &Handle, sums: Sums<'_>, _: Ring) -> Result<Handle> {
        Ok(self.kept(sums.count(counted(handle)?.len)))
    }

    fn concat(&self, parts: &[&Handle]) -> Result<Handle> {
        let lengths = parts.iter().map(|part| Ok(counted(part)?.len)).collect::<Result<Vec<_>>>()?;
        Ok(self.kept(lengths.into_iter().sum()))
    }

    fn products(
        &self,
        shape: MatmulShape,
        layout: Layout,
        ring: Ring,
        pairs: &[[&Handle; 2]],
        start: Option<Handle>,
    ) -> Result<Handle> {
        let mut started = start.is_some();
        let sums = match start.map(Handle::try_unwrap::<Counted>) {
            // Nobody else holds them: they are changed where they lie.
            Some(Ok(own)) => Handle::new(own),
            Some(Err(_)) | None => self.kept(shape.product()),
        };
        let product = Product::new(shape, layout, ring)?;
        for [_, b] in pairs {
            if let Some(memory) = gemm::memory(&self.queue, self.schedule.products, product) {
                let _left = self.memory.take(memory.left);
                let right = counted(b)?;
                let mut own = None;
                match right.planes.get() {
                    Some((form, _)) if *form == memory.planes => {}
                    Some(_) => own = Some(self.memory.take(memory.right)),
                    None => {
                        let _ = right.planes.set((memory.planes, self.memory.take(memory.right)));
                    }
                }
                if memory.slices > 1 {
                    let len = shape.product() as u64 * WORD;
                    let _partial = self.memory.take((memory.slices + u64::from(started)) * len);
                    let _sums = self.memory.take(len);
                }
                drop(own);
            }
            started = true;
        }
        Ok(sums)
    }

    fn less_than(&self, _: &Handle, x: &Handle, shifts: &[u64]) -> Result<Handle> {
        Ok(self.kept(shifts.len() * counted(x)?.len))
    }

    fn lookup(&self, _: &Handle, x: &Handle, table: &Table) -> Result<Handle> {
        let sums = self.kept(counted(x)?.len);
        self.tables.note(&self.memory, table.reversed());
        Ok(sums)
    }

    fn pack(&self, header: &[u8], parts: &[Part]) -> Result<Box<dyn Download>> {
        let packed: usize = parts.iter().map(|part| packed_bytes(part.len, part.ring.bits())).sum();
        drop(self.memory.take((header.len() + packed) as u64));
        Ok(Box::new(Nothing))
    }

    fn open(&self, parts: Vec<Part>, _: &[u8]) -> Result<Vec<Handle>> {
        let in_message = parts.iter().filter(|part| part.in_message);
        let packed: usize = in_message.map(|part| packed_bytes(part.len, part.ring.bits())).sum();
        // A short message is read where it is staged.
        let on_device = if packed <= self.schedule.direct { 0 } else { packed };
        let _packed = self.memory.take(on_device as u64);
        let opened = |part: Part| match part.in_message {
            true => Ok(self.kept(part.len)),
            false => part.words.ok_or(Error::Absent),
        };
        parts.into_iter().map(opened).collect()
    }

    fn party_keys(&self, party: Party, section: KeySection) -> Result<Box<dyn PartyKeys>> {
        Ok(Box::new(CountedKeys {
            party,
            memory: self.memory.clone(),
            ahead: self.schedule.keys.shared_by(section.beside()),
            ring: None,
            left: section.length(),
            used: 0,
        }))
    }

    fn dealer_keys(&self, _: [u128; 2], _: u128) -> Result<Box<dyn DealerKeys>> {
        Err(Error::Unsupported { gate: "a rehearsal", what: "it is a party's, not the dealer's".into() })
    }
}

/// A message that nobody reads.
struct Nothing;

impl Download for Nothing {
    fn ready(&self) -> bool {
        true
    }

    fn take(self: Box<Self>) -> Result<Message> {
        Ok(Message::default())
    }
}

/// A section's material, of which only the bytes are there.
struct CountedKeys {
    party: Party,
    memory: MemoryCount,
    ahead: KeyAhead,
    /// Where the material goes through, once some was asked for.
    ring: Option<CountedRoom>,
    left: u64,
    used: u64,
}

impl CountedKeys {
    /// Bytes that a gate reads.
    fn read(&mut self, bytes: u64) {
        if self.ring.is_none() && bytes > 0 {
            self.ring = Some(self.memory.take(ring_bytes(self.ahead, self.used + self.left)));
        }
        (self.used, self.left) = (self.used + bytes, self.left.saturating_sub(bytes));
    }

    fn words(&self, len: usize) -> Handle {
        let words = self.memory.take(len as u64 * WORD);
        Handle::new(Counted { len, _words: words, planes: OnceLock::new() })
    }
}

impl PartyKeys for CountedKeys {
    fn derived(&mut self, len: usize, _: Ring) -> Result<Handle> {
        Ok(self.words(len))
    }

    fn derived_alone(&mut self, len: usize, _: Ring) -> Result<Handle> {
        Ok(self.words(len))
    }

    fn shares(&mut self, len: usize, ring: Ring) -> Result<Handle> {
        let words = self.words(len);
        self.read(packed_bytes(stored(self.party, len), ring.bits()) as u64);
        Ok(words)
    }

    fn given(&mut self, len: usize, ring: Ring) -> Result<Handle> {
        let words = self.words(len);
        self.read(packed_bytes(len, ring.bits()) as u64);
        Ok(words)
    }

    fn points(&mut self, domain: u32, len: usize) -> Result<Handle> {
        let keys = if domain <= TABLE_BITS {
            let (bits, words) = table_layout(domain, len);
            let kept = self.memory.take(words as u64 * WORD);
            self.read(packed_bytes(stored(self.party, words), bits) as u64);
            vec![kept]
        } else {
            let roots = self.memory.take(2 * len as u64 * WORD);
            let bytes = 16 * (dpf::correction_words(domain) * len) as u64;
            self.read(bytes);
            vec![roots, self.memory.take(bytes)]
        };
        Ok(Handle::new(CountedPoints { _keys: keys }))
    }

    fn used(&self) -> u64 {
        self.used
    }

    fn left(&self) -> u64 {
        self.left
    }

    fn calls(&self) -> u64 {
        0
    }
}
