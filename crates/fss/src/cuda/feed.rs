//! Key material on its way to the device, ahead of the gates that ask for it.
//!
//! A thread takes a section's bytes in the order of their use, stages them in two page-locked buffers in turns, and queues their
//! copies on a stream of their own. Chunks wait on the device until a gate asks for their bytes; so many are on their way that
//! one is copied while another is read, and no more, whatever the size of a section.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use gatework_gpu::{Buffer, Event, Pinned, Stream};
use rayon::iter::{IndexedParallelIterator as _, ParallelIterator as _};
use rayon::slice::{ParallelSlice as _, ParallelSliceMut as _};

use crate::error::{Error, Result};
use crate::key::KeySection;

use super::queue::Queue;

/// Chunks that wait on the device.
const AHEAD: usize = 2;
/// Bytes that one thread stages.
const SHARE: usize = 1 << 20;

/// Bytes on the device, from when their event is.
struct Chunk {
    bytes: Buffer<u8>,
    arrived: Event,
}

/// The material of one section.
pub(super) struct KeyFeed {
    state: State,
    chunk_bytes: usize,
    length: u64,
    used: u64,
    /// The chunk that is being read, and the bytes of it that were.
    current: Option<(Chunk, usize)>,
}

enum State {
    /// Nobody has asked yet.
    NotBegun(KeySection),
    Running {
        chunks: Receiver<Result<Chunk>>,
        thread: JoinHandle<()>,
    },
    Ended,
}

impl KeyFeed {
    pub(super) fn new(section: KeySection, chunk_bytes: usize) -> Self {
        let length = section.length();
        Self { state: State::NotBegun(section), chunk_bytes, length, used: 0, current: None }
    }

    /// Bytes that were asked for.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Bytes that were not.
    pub(super) fn left(&self) -> u64 {
        self.length - self.used
    }

    /// The next `count` bytes, from the start of a buffer of whole words.
    pub(super) fn take(&mut self, queue: &Queue, count: usize) -> Result<Buffer<u64>> {
        if count as u64 > self.left() {
            let what = format!("a gate needs {count} more bytes, its section has {} left", self.left());
            return Err(Error::Key { what });
        }
        self.used += count as u64;
        // The last word may end behind the last byte.
        let mut bytes = queue.alloc::<u64>(count.div_ceil(8))?;
        let mut done = 0;
        while done < count {
            if self.current.as_ref().is_none_or(|(chunk, read)| *read == chunk.bytes.len()) {
                self.current = Some((self.next_chunk(queue)?, 0));
            }
            let Some((chunk, read)) = &mut self.current else { return Err(Error::Absent) };
            let some = (count - done).min(chunk.bytes.len() - *read);
            let mut target = bytes.slice_mut(..);
            queue.stream().copy(
                &chunk.bytes.slice(*read..*read + some),
                &mut target.as_bytes_mut().slice_mut(done..done + some),
            )?;
            (*read, done) = (*read + some, done + some);
        }
        Ok(bytes)
    }

    /// The next chunk, in whose order the queue goes on.
    fn next_chunk(&mut self, queue: &Queue) -> Result<Chunk> {
        if let State::NotBegun(_) = self.state
            && let State::NotBegun(section) = std::mem::replace(&mut self.state, State::Ended)
        {
            self.state = begin(queue.clone(), section, self.chunk_bytes)?;
        }
        let State::Running { chunks, .. } = &self.state else { return Err(ended()) };
        let chunk = chunks.recv().map_err(|_| ended())??;
        queue.stream().wait(&chunk.arrived)?;
        Ok(chunk)
    }
}

fn ended() -> Error {
    Error::Key { what: "the thread that uploads its bytes has ended".into() }
}

fn begin(queue: Queue, section: KeySection, chunk_bytes: usize) -> Result<State> {
    let stream = queue.device().stream()?;
    let (sender, chunks) = sync_channel(AHEAD);
    let thread = Builder::new()
        .name("fss-keys".into())
        .spawn(move || upload_all(&queue, &stream, section, chunk_bytes, &sender))
        .map_err(|error| Error::Key {
            what: format!("no thread can be started that uploads it ({error})"),
        })?;
    Ok(State::Running { chunks, thread })
}

/// Uploads a section until its end, the first error, or the end of whoever reads it.
fn upload_all(
    queue: &Queue,
    stream: &Stream,
    mut section: KeySection,
    chunk_bytes: usize,
    chunks: &SyncSender<Result<Chunk>>,
) {
    let mut staging: [Option<Pinned<u8>>; 2] = [None, None];
    let mut left = section.length();
    for turn in (0..staging.len()).cycle() {
        let count = left.min(chunk_bytes as u64) as usize;
        if count == 0 {
            break;
        }
        left -= count as u64;
        let chunk = upload(queue, stream, &mut section, count, &mut staging[turn]);
        let failed = chunk.is_err();
        if chunks.send(chunk).is_err() || failed {
            break;
        }
    }
    // Key material must not stay behind in memory that others are given.
    for pinned in staging.iter_mut().flatten() {
        if let Ok(mut bytes) = pinned.write() {
            bytes.fill(0);
        }
    }
}

fn upload(
    queue: &Queue,
    stream: &Stream,
    section: &mut KeySection,
    count: usize,
    staging: &mut Option<Pinned<u8>>,
) -> Result<Chunk> {
    let material = section.take(count)?;
    if let Some(pinned) = staging
        && pinned.len() != count
    {
        pinned.write()?.fill(0);
        *staging = None;
    }
    let pinned = match staging {
        Some(pinned) => pinned,
        None => staging.insert(stream.device().pinned().take(count)?),
    };
    // Waits for the copy before the last.
    let mut staged = pinned.write()?;
    let shares = staged.par_chunks_mut(SHARE).zip(material.as_slice().par_chunks(SHARE));
    shares.for_each(|(to, from)| to.copy_from_slice(from));
    drop(staged);
    let mut bytes = queue.alloc_on(stream, count)?;
    stream.copy_from_pinned(pinned, &mut bytes)?;
    Ok(Chunk { bytes, arrived: stream.record()? })
}

impl Drop for KeyFeed {
    /// The thread ends before the section's owner goes on.
    fn drop(&mut self) {
        if let State::Running { chunks, thread } = std::mem::replace(&mut self.state, State::Ended) {
            drop(chunks);
            // A panic there was printed, and who drops this cannot do anything about it.
            let _ = thread.join();
        }
    }
}
