//! A section that is read while it is used.
//!
//! Threads read its chunks ahead and verify them; whoever uses the section takes them in order, and what was
//! taken is punched out of the file, some chunks at a time. A chunk that is damaged is an error when it would
//! be used, not before.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use gatework_fss::key::Material;
use gatework_fss::secret::{Secret, SharedBytes};
use zeroize::Zeroizing;

use crate::error::{Error, Result};

use super::erase::punch;
use super::{CHUNK, HASH, SEED, altered, chunk_hash, failed, stored_bytes};

/// Bytes that all sections of an evaluation read ahead together, and the fewest chunks of one.
const AHEAD: usize = 256 << 20;
const LEAST_AHEAD: usize = 4;
/// Threads that read for all sections of an evaluation together.
const MOST_THREADS: usize = 8;
/// A section of fewer chunks is read by whoever uses it, and so is one of more sections than this.
const LEAST_CHUNKS: u32 = 4;
const MOST_READ_AHEAD: usize = 64;

/// Chunks that are erased together: a file system lets one erase at a time.
const ERASED: u32 = 32;

/// Where a section lies, and what its chunks are verified with.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) path: Arc<Path>,
    pub(super) file: Arc<File>,
    pub(super) chunk_key: Arc<Zeroizing<[u8; 32]>>,
    pub(super) section: u32,
    pub(super) start: u64,
    /// Bytes of key material.
    pub(super) length: u64,
}

/// Whether reading a section uses it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Again,
    Once,
}

impl Place {
    fn bytes(&self) -> u64 {
        self.length + SEED as u64
    }

    fn chunks(&self) -> u32 {
        self.bytes().div_ceil(CHUNK as u64) as u32
    }

    fn offset(&self, chunk: u32) -> u64 {
        self.start + u64::from(chunk) * (CHUNK + HASH) as u64
    }

    /// Reads a chunk into as many bytes as it has, and verifies it.
    pub(super) fn read(&self, chunk: u32, bytes: &mut [u8]) -> Result<()> {
        let (mut hash, offset) = ([0; HASH], self.offset(chunk));
        let read = self.file.read_exact_at(bytes, offset);
        let read = read.and_then(|()| self.file.read_exact_at(&mut hash, offset + bytes.len() as u64));
        read.map_err(failed(&self.path, "read"))?;
        if chunk_hash(&self.chunk_key, self.section, chunk, bytes) != hash {
            return Err(altered(&self.path, self.section, chunk));
        }
        Ok(())
    }

    /// A chunk, verified.
    fn take(&self, chunk: u32) -> Result<SharedBytes> {
        let left = self.bytes() - u64::from(chunk) * CHUNK as u64;
        let mut bytes = Secret::new(vec![0; left.min(CHUNK as u64) as usize]);
        self.read(chunk, &mut bytes)?;
        Ok(SharedBytes::new(bytes))
    }

    /// All of it is of no use any more.
    pub(super) fn erase(&self) -> Result<()> {
        self.erase_chunks(0..self.chunks())
    }

    /// These chunks are of no use any more.
    fn erase_chunks(&self, chunks: Range<u32>) -> Result<()> {
        let end = self.start + stored_bytes(self.length);
        let (from, to) = (self.offset(chunks.start), self.offset(chunks.end).min(end));
        if from >= to {
            return Ok(());
        }
        punch(&self.file, from, to - from).map_err(failed(&self.path, "erase"))
    }
}

/// What may be done ahead of the use of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Effort {
    chunks: u32,
    threads: usize,
}

impl Effort {
    /// The share of one of so many sections that are used together.
    pub(super) fn of_one_in(sections: usize) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let sections = sections.max(1);
        let threads = match sections {
            ..=MOST_READ_AHEAD => ((cores / 2).clamp(1, MOST_THREADS) / sections).max(1),
            _ => 0,
        };
        Self { chunks: (AHEAD / CHUNK / sections).max(LEAST_AHEAD) as u32, threads }
    }
}

/// A section under way.
pub(super) struct FileSection {
    place: Place,
    usage: Use,
    effort: Effort,
    /// The chunk that is being taken from, of which so many bytes are left, and the number of the next one.
    current: Option<(SharedBytes, usize)>,
    next: u32,
    readers: Option<Readers>,
    /// Chunks that are erased, or will be by the threads.
    erased: u32,
}

impl FileSection {
    pub(super) fn new(place: Place, usage: Use, effort: Effort) -> Self {
        Self { place, usage, effort, current: None, next: 0, readers: None, erased: 0 }
    }

    fn next_chunk(&mut self) -> Result<SharedBytes> {
        let chunk = self.next;
        self.next += 1;
        let read = self.chunk(chunk)?;
        // The first has the seed, from which masks follow: it goes at once.
        if self.usage == Use::Once && (chunk == 0 || self.next - self.erased >= ERASED) {
            let chunks = self.erased..self.next;
            match &self.readers {
                Some(readers) => readers.erase(chunks),
                None => self.place.erase_chunks(chunks)?,
            }
            self.erased = self.next;
        }
        Ok(read)
    }

    fn chunk(&mut self, chunk: u32) -> Result<SharedBytes> {
        // The first has the seed, which is taken before it is known whether the rest will be.
        if chunk == 0 || self.place.chunks() < LEAST_CHUNKS || self.effort.threads == 0 {
            return self.place.take(chunk);
        }
        if self.readers.is_none() {
            self.readers = Some(Readers::start(&self.place, self.effort)?);
        }
        match &self.readers {
            Some(readers) => readers.next(chunk),
            None => self.place.take(chunk),
        }
    }
}

impl Material for FileSection {
    fn take(&mut self, count: usize) -> gatework_fss::Result<SharedBytes> {
        // What lies in one chunk stays where it is.
        if let Some((bytes, left)) = &mut self.current
            && *left >= count
        {
            *left -= count;
            return Ok(bytes.take_front(count));
        }
        let mut taken = Secret::new(vec![0; count]);
        self.read(&mut taken)?;
        Ok(SharedBytes::new(taken))
    }

    fn read(&mut self, mut bytes: &mut [u8]) -> gatework_fss::Result<()> {
        while !bytes.is_empty() {
            let (mut chunk, left) = match self.current.take() {
                Some(current) => current,
                None => {
                    let chunk = self.next_chunk()?;
                    let left = chunk.as_slice().len();
                    (chunk, left)
                }
            };
            let (now, later) = bytes.split_at_mut(left.min(bytes.len()));
            now.copy_from_slice(chunk.take_front(now.len()).as_slice());
            if now.len() < left {
                self.current = Some((chunk, left - now.len()));
            } else if let Some(readers) = &self.readers {
                readers.wipe(chunk);
            }
            bytes = later;
        }
        Ok(())
    }
}

/// What was not read is used up too.
impl Drop for FileSection {
    fn drop(&mut self) {
        // Threads first: they still read.
        let unerased = self.readers.take().and_then(|readers| readers.end());
        let rest = unerased.map_or(self.erased, |first| first.min(self.erased))..self.place.chunks();
        if self.usage == Use::Once
            && let Err(error) = self.place.erase_chunks(rest)
        {
            tracing::warn!("used keys are left in '{}': {error}", self.place.path.display());
        }
    }
}

/// Threads that read ahead.
struct Readers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    place: Place,
    /// Chunks that may be read and not taken yet.
    ahead: u32,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The next chunk that a thread reads, and the next that is taken.
    unread: u32,
    wanted: u32,
    /// Behind the last chunk, or behind the first that cannot be read.
    end: u32,
    ready: BTreeMap<u32, Result<SharedBytes>>,
    /// Chunks that were used: threads have the time to wipe them.
    spent: VecDeque<SharedBytes>,
    /// Chunks that are to be erased, and the first that could not be.
    erasable: VecDeque<Range<u32>>,
    unerased: Option<u32>,
    stopped: bool,
    /// A thread panicked, and what it was reading will not come.
    broken: bool,
}

impl State {
    /// Before anything was read of a section of so many chunks.
    fn new(chunks: u32) -> Self {
        Self {
            unread: 1,
            wanted: 1,
            end: chunks,
            ready: BTreeMap::new(),
            spent: VecDeque::new(),
            erasable: VecDeque::new(),
            unerased: None,
            stopped: false,
            broken: false,
        }
    }
}

/// Tells whoever waits that a thread has panicked.
struct Alarm<'a>(&'a Shared);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().broken = true;
            self.0.changed.notify_all();
        }
    }
}

impl Readers {
    fn start(place: &Place, effort: Effort) -> Result<Self> {
        let state = State::new(place.chunks());
        let shared = Arc::new(Shared {
            place: place.clone(),
            ahead: effort.chunks,
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let mut readers = Self { shared, threads: Vec::new() };
        for _ in 0..effort.threads {
            let shared = readers.shared.clone();
            let thread = thread::Builder::new().name("keys".into()).spawn(move || shared.read_ahead());
            readers.threads.push(thread.map_err(failed(&place.path, "start a thread that reads"))?);
        }
        Ok(readers)
    }

    /// The chunk of that number, which is the next in order.
    fn next(&self, chunk: u32) -> Result<SharedBytes> {
        let mut state = self.shared.lock();
        loop {
            if let Some(read) = state.ready.remove(&chunk) {
                state.wanted = chunk + 1;
                self.shared.changed.notify_all();
                return read;
            }
            if chunk >= state.end || state.broken {
                return Err(Error::Key { what: "it could not be read up to here".into() });
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Has a chunk wiped that was used.
    fn wipe(&self, bytes: SharedBytes) {
        self.shared.lock().spent.push_back(bytes);
        self.shared.changed.notify_all();
    }
}

impl Readers {
    /// Has chunks erased that were taken.
    fn erase(&self, chunks: Range<u32>) {
        self.shared.lock().erasable.push_back(chunks);
        self.shared.changed.notify_all();
    }

    /// Ends the threads. Returns the first chunk that was to be erased and is not.
    fn end(mut self) -> Option<u32> {
        self.stop();
        let state = self.shared.lock();
        if state.broken {
            // A thread that panicked may have been about to erase some.
            return Some(0);
        }
        state.erasable.iter().map(|chunks| chunks.start).chain(state.unerased).min()
    }

    fn stop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A panic there was printed, and who drops this cannot do anything about it.
            let _ = thread.join();
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_ahead(&self) {
        let _alarm = Alarm(self);
        let mut state = self.lock();
        while !state.stopped {
            if let Some(spent) = state.spent.pop_front() {
                drop(state);
                drop(spent);
                state = self.lock();
                continue;
            }
            if let Some(chunks) = state.erasable.pop_front() {
                drop(state);
                let (first, erased) = (chunks.start, self.place.erase_chunks(chunks));
                state = self.lock();
                if erased.is_err() {
                    // Whoever ends the section tries once more, and says so if it fails.
                    state.unerased = Some(state.unerased.map_or(first, |other| other.min(first)));
                }
                continue;
            }
            let end = state.wanted.saturating_add(self.ahead).min(state.end);
            if state.unread >= end {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let chunk = state.unread;
            state.unread += 1;
            drop(state);
            let read = self.place.take(chunk);
            state = self.lock();
            // Nothing behind a chunk that cannot be read is of use.
            if read.is_err() {
                state.end = state.end.min(chunk + 1);
            }
            state.ready.insert(chunk, read);
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        let file = tempfile::tempfile().unwrap();
        Place {
            path: Path::new("keys").into(),
            file: Arc::new(file),
            chunk_key: Arc::default(),
            section: 1,
            start: 0,
            length: 8 * CHUNK as u64,
        }
    }

    #[test]
    fn whoever_waits_for_a_thread_that_panics_hears_of_it() {
        let shared = Arc::new(Shared {
            place: place(),
            ahead: 4,
            state: Mutex::new(State::new(8)),
            changed: Condvar::new(),
        });
        let own = shared.clone();
        let thread = thread::spawn(move || {
            let _alarm = Alarm(&own);
            thread::sleep(std::time::Duration::from_millis(50));
            panic!("on purpose");
        });
        let readers = Readers { shared, threads: vec![thread] };
        assert!(readers.next(1).is_err());
    }

    #[test]
    fn a_batch_of_thousands_starts_no_thread_for_each() {
        assert!((1..=MOST_READ_AHEAD).all(|sections| Effort::of_one_in(sections).threads >= 1));
        assert_eq!(Effort::of_one_in(4096).threads, 0);
    }
}
