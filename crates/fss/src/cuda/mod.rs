//! The backend on a device of `gatework-gpu`: a CUDA card, or the emulated device.
//!
//! Words stay on the device from gate to gate. One stream computes, and every section of keys has one of its
//! own; events order them, and nothing waits for the device as a whole. Each file launches the kernels of the
//! file of its name in `kernels/`.

mod arithmetic;
mod feed;
mod gemm;
mod generated;
mod kernels;
mod keys;
mod outgoing;
mod packing;
mod points;
mod prg;
#[cfg(feature = "lab")]
mod published;
mod queue;
mod rehearsal;
mod schedule;
mod shared;
#[cfg(feature = "lab")]
pub(crate) mod specs;
mod staging;
mod sums;
#[cfg(test)]
mod tests;
mod words;

use std::sync::Arc;

use gatework_gpu::{Device, Stream};

use crate::backend::{
    Backend, DealerKeys, Download, Handle, Layout, MatmulShape, Part, PartyKeys, Promise, Rehearsal, Sums,
};
use crate::error::Result;
use crate::formula::{Formula, Operand};
use crate::key::KeySection;
use crate::party::Party;
use crate::ring::Ring;
use crate::secret::Secret;
use crate::table::Table;

use arithmetic::Formulas;
use gemm::{Product, Start};
use keys::{DealtSection, ReadSection};
use points::DevicePoints;
use prg::Generator;
#[cfg(feature = "lab")]
pub(crate) use published::Published;
use queue::Queue;
pub use schedule::{AesForm, FormulaTier, KeyAhead, ProductForm, Schedule};
use words::{Copies, keep_words, kept, words, words_to_change};

/// A device: words are its buffers, and a call has queued its work when it returns.
pub struct CudaBackend {
    queue: Queue,
    schedule: Schedule,
    generator: Arc<Generator>,
    formulas: Formulas,
    tables: Copies<u64>,
}

impl CudaBackend {
    /// The backend on a device, with the choices that suit it.
    pub fn new(device: &Device) -> Result<Self> {
        Self::with(device, Schedule::of(device))
    }

    /// The same with choices of one's own.
    pub fn with(device: &Device, schedule: Schedule) -> Result<Self> {
        Self::queued(Queue::new(device)?, schedule)
    }

    /// The same, with kernels on a stream that others may use too.
    pub fn on(stream: Stream, schedule: Schedule) -> Result<Self> {
        Self::queued(Queue::on(stream)?, schedule)
    }

    fn queued(queue: Queue, schedule: Schedule) -> Result<Self> {
        let generator = Arc::new(Generator::new(&queue, schedule.aes)?);
        let formulas = Formulas::new(&queue, schedule.formulas);
        Ok(Self { queue, schedule, generator, formulas, tables: Copies::new() })
    }

    /// Formulas that have a kernel of their own.
    pub fn generated_kernels(&self) -> usize {
        self.formulas.generated_kernels()
    }
}

/// Memory of a device.
struct DevicePromise(gatework_gpu::Promise);

impl Promise for DevicePromise {
    fn resize(&mut self, bytes: u64) -> Result<()> {
        Ok(self.0.resize(bytes)?)
    }

    fn limit(&self) -> u64 {
        self.0.limit()
    }
}

impl Backend for CudaBackend {
    fn name(&self) -> String {
        self.queue.device().properties().id.clone()
    }

    fn settle(&self) -> Result<()> {
        self.formulas.wait();
        self.queue.wiper().wait();
        Ok(())
    }

    fn words_ahead(&self) -> Option<usize> {
        Some(self.schedule.words_ahead)
    }

    fn rehearsal(&self) -> Option<Rehearsal> {
        Some(rehearsal::rehearsal(&self.queue, self.schedule, self.generator.table.bytes()))
    }

    fn promise(&self) -> Option<Box<dyn Promise>> {
        Some(Box::new(DevicePromise(gatework_gpu::Promise::of(self.queue.device()))))
    }

    fn staging_bytes(&self, keys: u64) -> Option<u64> {
        Some(self.queue.staging_bytes(keys))
    }

    fn upload(&self, words: Secret<u64>) -> Result<Handle> {
        Ok(keep_words(&self.queue, self.queue.upload_secret(&words)?))
    }

    fn constants(&self, words: &Arc<[u64]>) -> Result<Handle> {
        let kept = self.tables.of(&self.queue, words)?;
        let mut copy = self.queue.alloc(words.len())?;
        self.queue.stream().copy(&*kept, &mut copy)?;
        Ok(keep_words(&self.queue, copy))
    }

    fn download(&self, handle: &Handle) -> Result<Secret<u64>> {
        Ok(Secret::new(self.queue.stream().download(words(&self.queue, handle)?)?))
    }

    fn compute(&self, formula: &Formula, operands: &[Operand], len: usize) -> Result<Handle> {
        Ok(keep_words(&self.queue, self.formulas.compute(&self.queue, formula, operands, len)?))
    }

    fn sums(&self, handle: &Handle, sums: Sums<'_>, ring: Ring) -> Result<Handle> {
        Ok(keep_words(&self.queue, sums::sums(&self.queue, words(&self.queue, handle)?, sums, ring)?))
    }

    fn concat(&self, parts: &[&Handle]) -> Result<Handle> {
        let parts = parts.iter().map(|part| words(&self.queue, part)).collect::<Result<Vec<_>>>()?;
        let mut all = self.queue.alloc(parts.iter().map(|part| part.len()).sum())?;
        let mut first = 0;
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            self.queue.stream().copy(part, &mut all.slice_mut(first..first + part.len()))?;
            first += part.len();
        }
        Ok(keep_words(&self.queue, all))
    }

    fn products(
        &self,
        shape: MatmulShape,
        layout: Layout,
        ring: Ring,
        pairs: &[[&Handle; 2]],
        start: Option<Handle>,
    ) -> Result<Handle> {
        let (mut sums, mut started) = match start {
            None => (self.queue.alloc(shape.product())?, Start::Zero),
            Some(start) => (words_to_change(&self.queue, start)?, Start::Sums),
        };
        let (form, product) = (self.schedule.products, Product::new(shape, layout, ring)?);
        for [a, b] in pairs {
            let factors = [kept(&self.queue, a)?, kept(&self.queue, b)?];
            gemm::accumulate(&self.queue, form, product, factors, started, &mut sums)?;
            started = Start::Sums;
        }
        if started == Start::Zero {
            self.queue.stream().fill(&mut sums, 0)?;
        }
        Ok(keep_words(&self.queue, sums))
    }

    fn less_than(&self, keys: &Handle, x: &Handle, shifts: &[u64]) -> Result<Handle> {
        let (keys, x) = (kept::<DevicePoints>(&self.queue, keys)?, words(&self.queue, x)?);
        Ok(keep_words(&self.queue, keys.less_than(&self.queue, &self.generator, x, shifts)?))
    }

    fn lookup(&self, keys: &Handle, x: &Handle, table: &Table) -> Result<Handle> {
        let (keys, x) = (kept::<DevicePoints>(&self.queue, keys)?, words(&self.queue, x)?);
        let sums = keys.lookup(&self.queue, &self.generator, &self.schedule, &self.tables, x, table)?;
        Ok(keep_words(&self.queue, sums))
    }

    fn pack(&self, header: &[u8], parts: &[Part]) -> Result<Box<dyn Download>> {
        packing::message(&self.queue, header, parts)
    }

    fn open(&self, parts: Vec<Part>, bytes: &[u8]) -> Result<Vec<Handle>> {
        packing::open(&self.queue, parts, bytes, self.schedule.direct)
    }

    fn party_keys(&self, party: Party, section: KeySection) -> Result<Box<dyn PartyKeys>> {
        let (queue, generator) = (self.queue.clone(), self.generator.clone());
        Ok(Box::new(ReadSection::new(queue, generator, party, section, self.schedule.keys)?))
    }

    fn dealer_keys(&self, seeds: [u128; 2], public_key: u128) -> Result<Box<dyn DealerKeys>> {
        Ok(Box::new(DealtSection::new(self.queue.clone(), self.generator.clone(), seeds, public_key)))
    }
}
