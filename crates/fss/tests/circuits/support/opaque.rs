//! A deliberately awkward backend: words are behind numbers, in the memory of a thread that does what it is
//! asked some time later, and nothing of it can be read but by waiting for it. A device, without one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use gatework_fss::backend::{
    Backend, DealerKeys, Download, Handle, Layout, MatmulShape, Part, PartyKeys, Sums,
};
use gatework_fss::formula::{Formula, Operand};
use gatework_fss::key::{KeySection, KeySink};
use gatework_fss::secret::Secret;
use gatework_fss::table::Table;
use gatework_fss::{CpuBackend, Error, Message, Party, Result, Ring};

/// What the thread keeps: what each number names, or why it could not be made.
type Slab = HashMap<u64, Result<Handle, String>>;

type Job = Box<dyn FnOnce(&mut Slab) + Send>;

/// The queue of the thread, which ends when nobody holds it.
#[derive(Clone)]
struct Queue {
    jobs: Sender<Job>,
    next: Arc<AtomicU64>,
    kept: Arc<AtomicU64>,
}

/// A number. What it names goes when it does.
struct Number {
    number: u64,
    queue: Queue,
}

impl Drop for Number {
    fn drop(&mut self) {
        let (number, kept) = (self.number, self.queue.kept.clone());
        self.queue.later(move |slab| {
            slab.remove(&number);
            kept.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

fn failed(why: impl ToString) -> Error {
    Error::Outside(why.to_string().into())
}

fn number(handle: &Handle) -> Result<u64> {
    handle.get::<Number>().map(|number| number.number).ok_or(Error::OtherBackend)
}

fn get(slab: &Slab, number: u64) -> Result<Handle> {
    match slab.get(&number) {
        Some(Ok(handle)) => Ok(handle.clone()),
        Some(Err(why)) => Err(failed(why)),
        None => Err(failed("that number was let go of")),
    }
}

impl Queue {
    fn later(&self, job: impl FnOnce(&mut Slab) + Send + 'static) {
        self.jobs.send(Box::new(job)).ok();
    }

    /// Numbers for what a job will make.
    fn make_all(
        &self,
        count: usize,
        make: impl FnOnce(&Slab) -> Result<Vec<Handle>> + Send + 'static,
    ) -> Vec<Handle> {
        let first = self.next.fetch_add(count as u64, Ordering::SeqCst);
        self.kept.fetch_add(count as u64, Ordering::SeqCst);
        self.later(move |slab| match make(slab) {
            Ok(made) => slab.extend((first..).zip(made.into_iter().map(Ok))),
            Err(why) => {
                slab.extend((first..first + count as u64).map(|number| (number, Err(why.to_string()))));
            }
        });
        let numbers = first..first + count as u64;
        numbers.map(|number| Handle::new(Number { number, queue: self.clone() })).collect()
    }

    fn make(&self, make: impl FnOnce(&Slab) -> Result<Handle> + Send + 'static) -> Result<Handle> {
        let mut made = self.make_all(1, |slab| Ok(vec![make(slab)?]));
        made.pop().ok_or_else(|| failed("nothing was made"))
    }

    /// Waits for what a job finds.
    fn wait<T: Send + 'static>(&self, find: impl FnOnce(&Slab) -> Result<T> + Send + 'static) -> Result<T> {
        self.start(find).recv().map_err(failed)?
    }

    fn start<T: Send + 'static>(
        &self,
        find: impl FnOnce(&Slab) -> Result<T> + Send + 'static,
    ) -> Receiver<Result<T>> {
        let (found, receiver) = channel();
        self.later(move |slab| {
            found.send(find(slab)).ok();
        });
        receiver
    }
}

/// The backend.
pub struct Opaque(Queue);

impl Opaque {
    pub fn new() -> Self {
        let (jobs, queue) = channel::<Job>();
        thread::spawn(move || {
            let mut slab = Slab::new();
            for job in queue {
                job(&mut slab);
            }
        });
        Self(Queue { jobs, next: Arc::default(), kept: Arc::default() })
    }

    /// Things that it keeps, once all that was asked for is done.
    pub fn kept(&self) -> u64 {
        self.0.wait(|_| Ok(())).unwrap();
        self.0.kept.load(Ordering::SeqCst)
    }
}

impl Backend for Opaque {
    fn name(&self) -> String {
        "another thread".into()
    }

    fn upload(&self, words: Secret<u64>) -> Result<Handle> {
        self.0.make(move |_| CpuBackend.upload(words))
    }

    fn download(&self, words: &Handle) -> Result<Secret<u64>> {
        let words = number(words)?;
        self.0.wait(move |slab| CpuBackend.download(&get(slab, words)?))
    }

    fn compute(&self, formula: &Formula, operands: &[Operand], len: usize) -> Result<Handle> {
        let formula = formula.clone();
        let numbered =
            operands.iter().map(|operand| Ok((number(&operand.words)?, operand.len, operand.view.clone())));
        let numbered = numbered.collect::<Result<Vec<_>>>()?;
        self.0.make(move |slab| {
            let operand = |(words, len, view)| Ok(Operand { words: get(slab, words)?, len, view });
            let operands = numbered.into_iter().map(operand).collect::<Result<Vec<_>>>()?;
            CpuBackend.compute(&formula, &operands, len)
        })
    }

    fn sums(&self, words: &Handle, sums: Sums<'_>, ring: Ring) -> Result<Handle> {
        let words = number(words)?;
        let (width, lengths, columns) = match sums {
            Sums::Rows(width) => (Some(width), None, None),
            Sums::Ragged(lengths) => (None, Some(lengths.to_vec()), None),
            Sums::Columns(columns) => (None, None, Some(columns)),
        };
        self.0.make(move |slab| {
            let sums = match (width, &lengths, columns) {
                (Some(width), _, _) => Sums::Rows(width),
                (_, Some(lengths), _) => Sums::Ragged(lengths),
                (_, _, columns) => Sums::Columns(columns.unwrap_or(1)),
            };
            CpuBackend.sums(&get(slab, words)?, sums, ring)
        })
    }

    fn concat(&self, parts: &[&Handle]) -> Result<Handle> {
        let parts = parts.iter().map(|part| number(part)).collect::<Result<Vec<_>>>()?;
        self.0.make(move |slab| {
            let parts = parts.into_iter().map(|part| get(slab, part)).collect::<Result<Vec<_>>>()?;
            CpuBackend.concat(&parts.iter().collect::<Vec<_>>())
        })
    }

    fn products(
        &self,
        shape: MatmulShape,
        layout: Layout,
        ring: Ring,
        pairs: &[[&Handle; 2]],
        start: Option<Handle>,
    ) -> Result<Handle> {
        let pairs = pairs.iter().map(|[a, b]| Ok([number(a)?, number(b)?])).collect::<Result<Vec<_>>>()?;
        // The number is kept until the job is done.
        let start_number = start.as_ref().map(number).transpose()?;
        self.0.make(move |slab| {
            let found = pairs.into_iter().map(|[a, b]| Ok([get(slab, a)?, get(slab, b)?]));
            let found = found.collect::<Result<Vec<_>>>()?;
            let first = start_number.map(|start| get(slab, start)).transpose()?;
            let pairs: Vec<[&Handle; 2]> = found.iter().map(|[a, b]| [a, b]).collect();
            let product = CpuBackend.products(shape, layout, ring, &pairs, first);
            drop(start);
            product
        })
    }

    fn less_than(&self, keys: &Handle, x: &Handle, shifts: &[u64]) -> Result<Handle> {
        let (keys, x, shifts) = (number(keys)?, number(x)?, shifts.to_vec());
        self.0.make(move |slab| CpuBackend.less_than(&get(slab, keys)?, &get(slab, x)?, &shifts))
    }

    fn lookup(&self, keys: &Handle, x: &Handle, table: &Table) -> Result<Handle> {
        let (keys, x, table) = (number(keys)?, number(x)?, table.clone());
        self.0.make(move |slab| CpuBackend.lookup(&get(slab, keys)?, &get(slab, x)?, &table))
    }

    fn pack(&self, header: &[u8], parts: &[Part]) -> Result<Box<dyn Download>> {
        let (header, parts) = (header.to_vec(), parts.to_vec());
        let packed = self.0.start(move |slab| CpuBackend.pack(&header, &resolved(slab, parts)?)?.take());
        Ok(Box::new(Packed(packed)))
    }

    fn open(&self, parts: Vec<Part>, bytes: &[u8]) -> Result<Vec<Handle>> {
        let bytes = bytes.to_vec();
        let count = parts.len();
        Ok(self.0.make_all(count, move |slab| CpuBackend.open(resolved(slab, parts)?, &bytes)))
    }

    fn party_keys(&self, party: Party, section: KeySection) -> Result<Box<dyn PartyKeys>> {
        let keys = Arc::new(Mutex::new(CpuBackend.party_keys(party, section)?));
        Ok(Box::new(OpaqueParty { keys, queue: self.0.clone() }))
    }

    fn dealer_keys(&self, seeds: [u128; 2], public_key: u128) -> Result<Box<dyn DealerKeys>> {
        let keys = Arc::new(Mutex::new(CpuBackend.dealer_keys(seeds, public_key)?));
        Ok(Box::new(OpaqueDealer { keys, queue: self.0.clone() }))
    }
}

fn resolved(slab: &Slab, parts: Vec<Part>) -> Result<Vec<Part>> {
    let part = |part: Part| {
        let words = part.words.as_ref().map(|words| get(slab, number(words)?)).transpose()?;
        Ok(Part { words, ..part })
    };
    parts.into_iter().map(part).collect()
}

/// A message that is never there before somebody waits for it.
struct Packed(Receiver<Result<Message>>);

impl Download for Packed {
    fn ready(&self) -> bool {
        false
    }

    fn take(self: Box<Self>) -> Result<Message> {
        self.0.recv().map_err(failed)?
    }
}

struct OpaqueParty {
    keys: Arc<Mutex<Box<dyn PartyKeys>>>,
    queue: Queue,
}

impl OpaqueParty {
    fn make(
        &self,
        make: impl FnOnce(&mut dyn PartyKeys) -> Result<Handle> + Send + 'static,
    ) -> Result<Handle> {
        let keys = self.keys.clone();
        self.queue.make(move |_| make(keys.lock().unwrap().as_mut()))
    }

    fn ask(&self, ask: impl FnOnce(&dyn PartyKeys) -> u64 + Send + 'static) -> u64 {
        let keys = self.keys.clone();
        self.queue.wait(move |_| Ok(ask(keys.lock().unwrap().as_ref()))).unwrap()
    }
}

impl PartyKeys for OpaqueParty {
    fn derived(&mut self, len: usize, ring: Ring) -> Result<Handle> {
        self.make(move |keys| keys.derived(len, ring))
    }

    fn derived_alone(&mut self, len: usize, ring: Ring) -> Result<Handle> {
        self.make(move |keys| keys.derived_alone(len, ring))
    }

    fn shares(&mut self, len: usize, ring: Ring) -> Result<Handle> {
        self.make(move |keys| keys.shares(len, ring))
    }

    fn given(&mut self, len: usize, ring: Ring) -> Result<Handle> {
        self.make(move |keys| keys.given(len, ring))
    }

    fn points(&mut self, domain: u32, len: usize) -> Result<Handle> {
        self.make(move |keys| keys.points(domain, len))
    }

    fn used(&self) -> u64 {
        self.ask(|keys| keys.used())
    }

    fn left(&self) -> u64 {
        self.ask(|keys| keys.left())
    }

    fn calls(&self) -> u64 {
        self.ask(|keys| keys.calls())
    }
}

struct OpaqueDealer {
    keys: Arc<Mutex<Box<dyn DealerKeys>>>,
    queue: Queue,
}

impl OpaqueDealer {
    fn make(
        &self,
        make: impl FnOnce(&mut dyn DealerKeys, &Slab) -> Result<Handle> + Send + 'static,
    ) -> Result<Handle> {
        let keys = self.keys.clone();
        self.queue.make(move |slab| make(keys.lock().unwrap().as_mut(), slab))
    }

    fn wait(
        &self,
        make: impl FnOnce(&mut dyn DealerKeys, &Slab) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let keys = self.keys.clone();
        self.queue.wait(move |slab| make(keys.lock().unwrap().as_mut(), slab))
    }
}

impl DealerKeys for OpaqueDealer {
    fn derived(&mut self, len: usize, ring: Ring) -> Result<Handle> {
        self.make(move |keys, _| keys.derived(len, ring))
    }

    fn derived_by(&mut self, party: Party, len: usize, ring: Ring) -> Result<Handle> {
        self.make(move |keys, _| keys.derived_by(party, len, ring))
    }

    fn share(&mut self, values: &Handle, len: usize, ring: Ring) -> Result<()> {
        let values = number(values)?;
        self.wait(move |keys, slab| keys.share(&get(slab, values)?, len, ring))
    }

    fn give(&mut self, party: Party, values: &Handle, len: usize, ring: Ring) -> Result<()> {
        let values = number(values)?;
        self.wait(move |keys, slab| keys.give(party, &get(slab, values)?, len, ring))
    }

    fn points(&mut self, domain: u32, places: &Handle, len: usize) -> Result<Handle> {
        let places = number(places)?;
        self.make(move |keys, slab| keys.points(domain, &get(slab, places)?, len))
    }

    fn write(&mut self, sinks: &mut [&mut dyn KeySink; 2]) -> Result<[u64; 2]> {
        let keys = self.keys.clone();
        let (written, bytes) = self.queue.wait(move |_| {
            let mut bytes = [Secret::<u8>::default(), Secret::default()];
            let [zero, one] = &mut bytes;
            let written = keys.lock().unwrap().write(&mut [zero, one])?;
            Ok((written, bytes))
        })?;
        for (sink, bytes) in sinks.iter_mut().zip(&bytes) {
            sink.write(bytes)?;
        }
        Ok(written)
    }
}
