//! Kernels that are generated for formulas, and the threads that compile them.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle, available_parallelism};

use gatework_gpu::{Device, Kernel, Locked, Source};
use hashbrown::HashMap;

use crate::error::{Error, Result};
use crate::formula::{Formula, Step};

use super::kernels::with_headers;
use super::shared::ViewKind;

/// A formula, and how it reads its operands.
type Key = (Formula, Vec<ViewKind>);

/// What became of a kernel that was asked for.
#[derive(Clone)]
enum Compiled {
    Asked,
    There(Kernel),
    /// Whoever needs it next compiles it again, and has the error.
    Failed,
}

/// By formula, and then by how it reads: mostly in one way.
type Known = Arc<Locked<HashMap<Formula, Vec<(Vec<ViewKind>, Compiled)>>>>;

/// Kernels of one device.
pub(super) struct Generated {
    device: Device,
    known: Known,
    compiler: Locked<Option<Compiler>>,
}

struct Compiler {
    jobs: Sender<(Key, Source)>,
    /// Set when nobody needs what is still to be compiled.
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Generated {
    pub(super) fn new(device: &Device) -> Self {
        Self { device: device.clone(), known: Known::default(), compiler: Locked::default() }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        let there = |(_, compiled): &&(Vec<ViewKind>, Compiled)| matches!(compiled, Compiled::There(_));
        self.known.lock().values().flatten().filter(there).count()
    }

    /// The kernel of a formula, compiled here if it must be.
    pub(super) fn now(&self, formula: &Formula, kinds: &[ViewKind]) -> Result<Kernel> {
        if let Some(Compiled::There(kernel)) = find(&self.known, formula, kinds) {
            return Ok(kernel);
        }
        let kernel = self.device.kernel(&source(formula, kinds))?;
        note(&self.known, (formula.clone(), kinds.to_vec()), Compiled::There(kernel.clone()));
        Ok(kernel)
    }

    /// The kernel of a formula if it is there; if it was never asked for, a thread begins to compile it.
    pub(super) fn if_there(&self, formula: &Formula, kinds: &[ViewKind]) -> Result<Option<Kernel>> {
        match find(&self.known, formula, kinds) {
            Some(Compiled::There(kernel)) => Ok(Some(kernel)),
            Some(Compiled::Asked) => Ok(None),
            Some(Compiled::Failed) => self.now(formula, kinds).map(Some),
            None => {
                let key = (formula.clone(), kinds.to_vec());
                note(&self.known, key.clone(), Compiled::Asked);
                self.ask(key, source(formula, kinds))?;
                Ok(None)
            }
        }
    }

    fn ask(&self, key: Key, source: Source) -> Result<()> {
        let mut compiler = self.compiler.lock();
        let running = match &mut *compiler {
            Some(running) => running,
            none => none.insert(begin(self.device.clone(), self.known.clone())?),
        };
        // Threads take jobs until the sender goes; if all ended before, they panicked, and the next call
        // compiles by itself.
        if let Err(refused) = running.jobs.send((key, source)) {
            note(&self.known, refused.0.0, Compiled::Failed);
            *compiler = None;
        }
        Ok(())
    }

    /// Waits for everything that was asked for.
    pub(super) fn wait(&self) {
        let Some(Compiler { jobs, threads, .. }) = self.compiler.lock().take() else { return };
        drop(jobs);
        // A panic there was printed. What it left uncompiled is compiled by whoever needs it next, who has
        // the error.
        threads.into_iter().for_each(|thread| _ = thread.join());
        for (_, compiled) in self.known.lock().values_mut().flatten() {
            if let Compiled::Asked = compiled {
                *compiled = Compiled::Failed;
            }
        }
    }
}

impl Drop for Generated {
    fn drop(&mut self) {
        if let Some(Compiler { jobs, stop, threads }) = self.compiler.get_mut().take() {
            stop.store(true, Ordering::Relaxed);
            drop(jobs);
            // A panic there was printed, and who drops this cannot do anything about it.
            threads.into_iter().for_each(|thread| _ = thread.join());
        }
    }
}

fn begin(device: Device, known: Known) -> Result<Compiler> {
    let (jobs, queue): (Sender<_>, Receiver<(Key, Source)>) = channel();
    let (queue, stop) = (Arc::new(Locked::new(queue)), Arc::new(AtomicBool::new(false)));
    let work = || {
        let (device, known, queue, stopped) = (device.clone(), known.clone(), queue.clone(), stop.clone());
        move || {
            // The lock is held while one of them waits for a job, and not while it compiles.
            let next = || queue.lock().recv().ok().filter(|_| !stopped.load(Ordering::Relaxed));
            while let Some((key, source)) = next() {
                let compiled = device.kernel(&source).map_or(Compiled::Failed, Compiled::There);
                note(&known, key, compiled);
            }
        }
    };
    // The other cores are the circuit's.
    let count = available_parallelism().map_or(1, |cores| (cores.get() / 2).clamp(1, MOST_COMPILERS));
    let threads = (0..count).map(|_| Builder::new().name("fss-compiler".into()).spawn(work()));
    let threads = threads.collect::<std::io::Result<Vec<_>>>().map_err(|error| Error::Unsupported {
        gate: "a formula",
        what: format!("no thread can be started that compiles it ({error})"),
    })?;
    Ok(Compiler { jobs, stop, threads })
}

/// Most threads that compile.
const MOST_COMPILERS: usize = 8;

fn find(known: &Known, formula: &Formula, kinds: &[ViewKind]) -> Option<Compiled> {
    let known = known.lock();
    known.get(formula)?.iter().find(|(read, _)| read == kinds).map(|(_, compiled)| compiled.clone())
}

fn note(known: &Known, (formula, kinds): Key, compiled: Compiled) {
    let mut known = known.lock();
    let ways = known.entry(formula).or_default();
    match ways.iter_mut().find(|(read, _)| *read == kinds) {
        Some(way) => way.1 = compiled,
        None => ways.push((kinds, compiled)),
    }
}

/// The kernel of a formula: to[i] is its last step over word i of its operands. One thread a word; every
/// operand is read once and every result written once, so memory bounds it.
fn source(formula: &Formula, kinds: &[ViewKind]) -> Source {
    let steps = formula.steps();
    let mut text = String::from(
        "#include \"operands.cuh\"\n\n\
         GW_KERNEL_BOUNDED(formula, ARITHMETIC_THREADS, 1)(Operands operands, u32 n, u64* to) {\n    \
             const u64 at = gw::global_thread();\n    \
             if (at >= n) return;\n    \
             const u32 i = (u32)at;\n",
    );
    for (number, step) in steps.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(text, "    const u64 s{number} = ");
        let _ = match *step {
            Step::Operand(operand) => {
                let reader = match kinds.get(operand as usize) {
                    Some(ViewKind::From) => "from",
                    Some(ViewKind::Each) => "each",
                    Some(ViewKind::Cycle) => "cycle",
                    Some(ViewKind::Places) => "places",
                    Some(ViewKind::Whole) | None => "whole",
                };
                writeln!(text, "operands::{reader}(operands.at[{operand}], i);")
            }
            Step::Constant(word) => writeln!(text, "{word}ull;"),
            Step::Add(a, b) => writeln!(text, "s{a} + s{b};"),
            Step::Subtract(a, b) => writeln!(text, "s{a} - s{b};"),
            Step::Multiply(a, b) => writeln!(text, "s{a} * s{b};"),
            Step::Xor(a, b) => writeln!(text, "s{a} ^ s{b};"),
            Step::And(a, b) => writeln!(text, "s{a} & s{b};"),
            Step::ShiftLeft(a, by) => writeln!(text, "s{a} << {by};"),
            Step::ShiftRight(a, by) => writeln!(text, "s{a} >> {by};"),
            Step::Below(a, b) => writeln!(text, "s{a} < s{b};"),
        };
    }
    let _ = writeln!(text, "    to[i] = s{};\n}}", steps.len().saturating_sub(1));
    with_headers(Source::new("formula", text))
}
