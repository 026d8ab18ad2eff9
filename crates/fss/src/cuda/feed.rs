//! Key material on its way to the device, ahead of the gates that ask for it.
//!
//! Two threads a section. One reads its bytes, in the order of their use, into page-locked blocks; the other queues their copies on a
//! stream of their own. Each is ahead of the next by as many bytes as the schedule says, or the first by all of them where that is asked
//! for. A block that was copied is read into again, and wiped at the end.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

use gatework_gpu::{Buffer, Event, Stream};

use crate::error::{Error, Result};
use crate::key::KeySection;

use super::queue::{Queue, Room};
use super::schedule::KeyAhead;
use super::staging::SecretBlock;

/// Copies that are queued at once.
const UNDER_WAY: usize = 2;
/// Between two looks whether one is done.
const BETWEEN_LOOKS: Duration = Duration::from_micros(20);

/// Bytes on the device, from when their event is.
struct Chunk {
    bytes: Buffer<u8>,
    arrived: Event,
}

/// The material of one section.
pub(super) struct KeyFeed {
    ahead: KeyAhead,
    length: u64,
    used: u64,
    state: State,
    /// The chunk that is being read, and the bytes of it that were.
    current: Option<(Chunk, usize)>,
    /// Of page-locked memory.
    room: Option<Room>,
}

enum State {
    /// Nobody has asked yet.
    NotBegun(KeySection),
    /// It is read, and copied as far as somebody asks for it.
    Reading(Reader),
    Copying(Reader, Receiver<Result<Chunk>>, JoinHandle<()>),
    Ended,
}

/// The thread that reads, and its blocks.
struct Reader {
    blocks: Option<Receiver<Result<SecretBlock>>>,
    back: Option<Sender<SecretBlock>>,
    thread: JoinHandle<()>,
    /// Said once all that may wait in page-locked memory is there, or that none of it can be.
    full: Receiver<Result<()>>,
}

impl KeyFeed {
    pub(super) fn new(section: KeySection, ahead: KeyAhead) -> Self {
        let length = section.length();
        Self { ahead, length, used: 0, state: State::NotBegun(section), current: None, room: None }
    }

    /// Bytes that were asked for.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Bytes that were not.
    pub(super) fn left(&self) -> u64 {
        self.length - self.used
    }

    /// Reads all of the section, or as much as there is page-locked memory for, and waits for that.
    pub(super) fn settle(&mut self, queue: &Queue) -> Result<()> {
        if let State::NotBegun(_) = self.state {
            self.ahead.staged = u64::MAX;
        }
        self.read(queue)?;
        match &self.state {
            // Where the thread has ended, the first who takes from it hears why.
            State::Reading(reader) => reader.full.recv().unwrap_or(Ok(())),
            _ => Ok(()),
        }
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
                // What was read goes before there is one more.
                self.current = None;
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
        self.copy(queue)?;
        let State::Copying(_, chunks, _) = &self.state else { return Err(ended()) };
        let chunk = chunks.recv().map_err(|_| ended())??;
        queue.stream().wait(&chunk.arrived)?;
        Ok(chunk)
    }

    /// Begins to read, if that was not done yet.
    pub(super) fn read(&mut self, queue: &Queue) -> Result<()> {
        self.state = match std::mem::replace(&mut self.state, State::Ended) {
            State::NotBegun(section) => {
                self.room = Some(queue.make_room(self.ahead.staged.min(self.length)));
                State::Reading(Reader::start(queue, section, self.ahead)?)
            }
            begun => begun,
        };
        Ok(())
    }

    /// Begins to copy, if that was not done yet.
    fn copy(&mut self, queue: &Queue) -> Result<()> {
        self.read(queue)?;
        let State::Reading(reader) = &mut self.state else { return Ok(()) };
        let stream = queue.device().stream()?;
        let (Some(blocks), Some(back)) = (reader.blocks.take(), reader.back.take()) else {
            return Err(ended());
        };
        let (sender, chunks) = sync_channel(self.ahead.chunks(self.ahead.copied));
        let queue = queue.clone();
        let thread = spawn(move || copy_all(&queue, &stream, &blocks, &back, &sender))?;
        if let State::Reading(reader) = std::mem::replace(&mut self.state, State::Ended) {
            self.state = State::Copying(reader, chunks, thread);
        }
        Ok(())
    }
}

fn ended() -> Error {
    Error::Key { what: "the thread that uploads its bytes has ended".into() }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let failed = |error| Error::Key { what: format!("no thread can be started that uploads it ({error})") };
    Builder::new().name("fss-keys".into()).spawn(work).map_err(failed)
}

impl Reader {
    fn start(queue: &Queue, section: KeySection, ahead: KeyAhead) -> Result<Self> {
        let (queue, waiting) = (queue.clone(), ahead.chunks(ahead.staged.min(section.length())));
        let (sender, blocks) = sync_channel(waiting);
        let ((back, returned), (said, full)) = (channel(), sync_channel(1));
        let thread = spawn(move || {
            let most = waiting as u64 * ahead.chunk as u64;
            let mut reading =
                Reading { queue, section, chunk: ahead.chunk, most, returned, said: Some(said) };
            reading.all(&sender);
            drop(sender);
            // What was read is in page-locked memory, and need not be in the host's twice.
            let Reading { section, returned, .. } = reading;
            drop(section);
            // Whoever copies gives blocks back as it goes, until it ends.
            returned.iter().for_each(drop);
        })?;
        Ok(Self { blocks: Some(blocks), back: Some(back), thread, full })
    }
}

struct Reading {
    queue: Queue,
    section: KeySection,
    chunk: usize,
    /// Bytes that may be in page-locked memory.
    most: u64,
    returned: Receiver<SecretBlock>,
    said: Option<SyncSender<Result<()>>>,
}

impl Reading {
    /// Reads a section until its end, the first error, or the end of whoever copies it.
    fn all(&mut self, blocks: &SyncSender<Result<SecretBlock>>) {
        let (mut left, mut held) = (self.section.length(), 0);
        while left > 0 {
            let count = left.min(self.chunk as u64) as usize;
            let block = self.block(count, &mut held).and_then(|mut block| {
                block.fill_with(self.section.take(count)?.as_slice())?;
                Ok(block)
            });
            let first = left == self.section.length();
            left -= count as u64;
            let block = match block {
                // Whoever waits for the section to be near hears it before anybody begins.
                Err(error) if first => {
                    self.say_full(Err(error));
                    Err(ended())
                }
                other => other,
            };
            if left == 0 || held >= self.most {
                self.say_full(Ok(()));
            }
            let failed = block.is_err();
            if blocks.send(block).is_err() || failed {
                break;
            }
        }
        self.say_full(Ok(()));
    }

    fn say_full(&mut self, how: Result<()>) {
        if let Some(said) = self.said.take() {
            // Nobody may be waiting.
            let _ = said.send(how);
        }
    }

    /// A block that was given back, or a new one while there is room. Where memory is short, those that are under way must do.
    fn block(&mut self, count: usize, held: &mut u64) -> Result<SecretBlock> {
        if let Ok(block) = self.returned.try_recv() {
            return self.fitting(block, count);
        }
        if *held < self.most {
            match SecretBlock::take(self.queue.device(), count) {
                Err(Error::Device(gatework_gpu::Error::OutOfPinnedMemory { .. })) if *held > 0 => {}
                taken => {
                    *held += count as u64;
                    return taken;
                }
            }
        }
        self.say_full(Ok(()));
        let block = self.returned.recv().map_err(|_| ended())?;
        self.fitting(block, count)
    }

    /// A block that came back, or one in its place for the last chunk, which is shorter than the others.
    fn fitting(&self, block: SecretBlock, count: usize) -> Result<SecretBlock> {
        if block.len() == count {
            return Ok(block);
        }
        drop(block);
        SecretBlock::take(self.queue.device(), count)
    }
}

/// Copies blocks as they come, until the last, the first error, or the end of whoever reads chunks.
fn copy_all(
    queue: &Queue,
    stream: &Stream,
    blocks: &Receiver<Result<SecretBlock>>,
    back: &Sender<SecretBlock>,
    chunks: &SyncSender<Result<Chunk>>,
) {
    let mut under_way: VecDeque<(SecretBlock, Event)> = VecDeque::new();
    loop {
        let block = match blocks.try_recv() {
            Ok(block) => block,
            // The reader may be waiting for one of these.
            Err(TryRecvError::Empty) if !under_way.is_empty() => {
                if let Err(error) = give_back_first(queue, &mut under_way, back) {
                    let _ = chunks.send(Err(error));
                    return;
                }
                continue;
            }
            Err(_) => match blocks.recv() {
                Ok(block) => block,
                Err(_) => return,
            },
        };
        let chunk = block.and_then(|block| {
            let mut bytes = queue.alloc_on(stream, block.len())?;
            // A message's copy waits for those that were queued before it, whatever their stream is.
            if under_way.len() == UNDER_WAY {
                give_back_first(queue, &mut under_way, back)?;
            }
            block.copy_to(stream, &mut bytes)?;
            let arrived = stream.record()?;
            under_way.push_back((block, stream.record()?));
            Ok(Chunk { bytes, arrived })
        });
        let failed = chunk.is_err();
        if chunks.send(chunk).is_err() || failed {
            return;
        }
    }
}

/// Waits for the copy that was queued first, and gives its block back.
fn give_back_first(
    queue: &Queue,
    under_way: &mut VecDeque<(SecretBlock, Event)>,
    back: &Sender<SecretBlock>,
) -> Result<()> {
    let Some((block, copied)) = under_way.pop_front() else { return Ok(()) };
    if queue.device().is_emulated() {
        // Nothing happens there unless somebody waits for it.
        copied.synchronize()?;
    }
    // The driver's own way to wait is busy, and in the way of whoever launches kernels.
    while !copied.is_complete()? {
        sleep(BETWEEN_LOOKS);
    }
    // The reader may have ended; the block is wiped here then.
    let _ = back.send(block);
    Ok(())
}

impl Drop for KeyFeed {
    /// The threads end before the section's owner goes on.
    fn drop(&mut self) {
        let (reader, copying) = match std::mem::replace(&mut self.state, State::Ended) {
            State::Copying(reader, chunks, thread) => {
                drop(chunks);
                (Some(reader), Some(thread))
            }
            State::Reading(reader) => (Some(reader), None),
            State::NotBegun(_) | State::Ended => (None, None),
        };
        // A panic there was printed, and who drops this cannot do anything about it.
        let _ = copying.map(JoinHandle::join);
        if let Some(Reader { blocks, back, thread, .. }) = reader {
            drop((blocks, back));
            let _ = thread.join();
        }
    }
}
