//! Key material on its way to the device, ahead of the gates that ask for it.
//!
//! Two threads a section. One reads its bytes, in the order of their use, into page-locked blocks; the other
//! queues their copies on a stream of their own, to a ring of device memory. The first is ahead of the second
//! by as many bytes as the schedule says, or by all of them where that is asked for; the second is ahead of
//! the gates by as many as the ring holds. A block that was copied is read into again, and wiped after the
//! end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

use gatework_gpu::{Buffer, Event, PinnedRoom, Slice, Stream, View as _};

use crate::error::{Error, Result};
use crate::key::KeySection;
use crate::ring::packed_bytes;

use super::packing::{Opened, Source, unpack};
use super::queue::Queue;
use super::schedule::KeyAhead;
use super::staging::SecretBlock;

/// Between two looks whether one is done.
const BETWEEN_LOOKS: Duration = Duration::from_micros(20);

/// Bytes behind the ring that repeat its first ones: eight words that begin before its end may end behind it.
const OVERHANG: usize = 64;

/// Device memory that the bytes of a section go through, round and round.
#[derive(Clone)]
struct Ring {
    words: Arc<Buffer<u64>>,
    /// Bytes, without the overhang: whole chunks, and four of them at least if the section is longer.
    length: u64,
}

/// Bytes of the ring of a section so long, with the overhang.
pub(super) fn ring_bytes(ahead: KeyAhead, section: u64) -> u64 {
    // Words that kernels read are of one chunk each.
    let chunk = ahead.chunk.next_multiple_of(OVERHANG) as u64;
    let most = ahead.copied.next_multiple_of(chunk).max(4 * chunk);
    most.min(section.next_multiple_of(chunk)) + OVERHANG as u64
}

impl Ring {
    fn new(queue: &Queue, stream: &Stream, ahead: KeyAhead, section: u64) -> Result<Self> {
        let bytes = ring_bytes(ahead, section);
        let words = queue.alloc_on(stream, bytes as usize / size_of::<u64>())?;
        Ok(Self { words: Arc::new(words), length: bytes - OVERHANG as u64 })
    }

    /// Where byte `at` of the section lies.
    fn place(&self, at: u64) -> usize {
        (at % self.length) as usize
    }
}

/// The section's bytes before `end` are on the device, from when the event is.
struct Arrived {
    end: u64,
    event: Event,
}

/// The section's bytes before `end` are needed no more, from when the event is.
struct Released {
    end: u64,
    event: Event,
}

/// The material of one section.
pub(super) struct KeyFeed {
    ahead: KeyAhead,
    length: u64,
    used: u64,
    state: State,
    /// Bytes that the queue may read.
    arrived: u64,
    /// Bytes whose place may be used again.
    released: u64,
    /// Of page-locked memory.
    room: Option<PinnedRoom>,
}

enum State {
    /// Nobody has asked yet.
    NotBegun(KeySection),
    /// It is read, and copied as far as somebody asks for it.
    Reading(Reader),
    Copying(Reader, Copier),
    Ended,
}

/// The thread that copies, and its ring.
struct Copier {
    ring: Ring,
    arrivals: Receiver<Result<Arrived>>,
    released: Sender<Released>,
    thread: JoinHandle<()>,
}

/// The thread that reads, and its blocks.
struct Reader {
    blocks: Option<Receiver<Result<SecretBlock>>>,
    back: Option<Sender<SecretBlock>>,
    thread: JoinHandle<()>,
    /// Where all of it was asked for: said once all that may wait in page-locked memory is there, or cannot
    /// be.
    full: Receiver<Result<()>>,
}

impl KeyFeed {
    pub(super) fn new(section: KeySection, ahead: KeyAhead) -> Self {
        let length = section.length();
        let ahead = KeyAhead { chunk: ahead.chunk.next_multiple_of(OVERHANG), ..ahead };
        Self { ahead, length, used: 0, state: State::NotBegun(section), arrived: 0, released: 0, room: None }
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
        self.read_for(queue, Reads::Settling)?;
        match &self.state {
            // Where not all was asked for, the first who takes from it hears what went wrong.
            State::Reading(reader) => reader.full.recv().unwrap_or(Ok(())),
            _ => Ok(()),
        }
    }

    /// The next words, packed to `bits` bits, into a part of a buffer.
    ///
    /// # Safety
    /// Nobody else writes the words, or reads them but in the order of this queue.
    pub(super) unsafe fn unpack(&mut self, queue: &Queue, words: Slice<'_, u64>, bits: u32) -> Result<()> {
        let count = packed_bytes(words.len(), bits) as u64;
        if count > self.left() {
            let what = format!("a gate needs {count} more bytes, its section has {} left", self.left());
            return Err(Error::Key { what });
        }
        if words.is_empty() {
            return Ok(());
        }
        self.copy(queue)?;
        let State::Copying(_, copier) = &self.state else { return Err(ended()) };
        let ring = copier.ring.clone();
        let mut done = 0;
        while done < words.len() {
            let place = ring.place(self.used);
            // Eight words are `bits` bytes. As many as begin before the end of the ring, and half of it at
            // most.
            let until_end = (ring.length as usize - place).div_ceil(bits as usize);
            let groups = until_end.min((ring.length as usize / 2 / bits as usize).max(1));
            let some = (8 * groups).min(words.len() - done);
            let end = self.used + packed_bytes(some, bits) as u64;
            self.arrive(queue, end)?;
            let part = Opened { own: None, sums: words.slice(done..done + some), bits };
            // SAFETY: the caller's promise; what is read has arrived, and is released behind this.
            unsafe { unpack(queue, &[part], place, Source::Device(&ring.words))? };
            (self.used, done) = (end, done + some);
            self.release(queue, &ring)?;
        }
        Ok(())
    }

    /// Has the queue wait until bytes before `end` are on the device.
    fn arrive(&mut self, queue: &Queue, end: u64) -> Result<()> {
        let State::Copying(_, copier) = &self.state else { return Err(ended()) };
        let mut last = None;
        while self.arrived < end {
            let Arrived { end, event } = copier.arrivals.recv().map_err(|_| ended())??;
            (self.arrived, last) = (end, Some(event));
        }
        last.map_or(Ok(()), |event| Ok(queue.stream().wait(&event)?))
    }

    /// Gives the copier the place of what was read, a quarter of the ring at a time.
    fn release(&mut self, queue: &Queue, ring: &Ring) -> Result<()> {
        let State::Copying(_, copier) = &self.state else { return Err(ended()) };
        if self.used - self.released >= ring.length / 4 {
            self.released = self.used;
            // The copier may have ended, with all that there was.
            let _ = copier.released.send(Released { end: self.used, event: queue.stream().record()? });
        }
        Ok(())
    }

    /// Begins to read, if that was not done yet.
    pub(super) fn read(&mut self, queue: &Queue) -> Result<()> {
        self.read_for(queue, Reads::Ahead)
    }

    fn read_for(&mut self, queue: &Queue, reads: Reads) -> Result<()> {
        self.state = match std::mem::replace(&mut self.state, State::Ended) {
            State::NotBegun(section) => {
                self.room = Some(queue.make_room(self.ahead.staged.min(self.length)));
                State::Reading(Reader::start(queue, section, self.ahead, reads)?)
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
        let ring = Ring::new(queue, &stream, self.ahead, self.length)?;
        let (Some(blocks), Some(back)) = (reader.blocks.take(), reader.back.take()) else {
            return Err(ended());
        };
        let ((sender, arrivals), (released, releases)) = (channel(), channel());
        let under_way = self.ahead.under_way.max(1);
        let mut copying = Copying { queue: queue.clone(), stream, ring: ring.clone(), under_way, releases };
        let thread = spawn(move || copying.all(&blocks, &back, &sender))?;
        if let State::Reading(reader) = std::mem::replace(&mut self.state, State::Ended) {
            self.state = State::Copying(reader, Copier { ring, arrivals, released, thread });
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
    fn start(queue: &Queue, section: KeySection, ahead: KeyAhead, reads: Reads) -> Result<Self> {
        let (queue, waiting) = (queue.clone(), ahead.chunks(ahead.staged.min(section.length())));
        let (sender, blocks) = sync_channel(waiting);
        let ((back, returned), (said, full)) = (channel(), sync_channel(1));
        let thread = spawn(move || {
            let most = waiting as u64 * ahead.chunk as u64;
            // Nobody hears it where nobody waits for all of it.
            let said = (reads == Reads::Settling).then_some(said);
            let mut reading = Reading { queue, section, chunk: ahead.chunk, most, returned, said };
            reading.all(&sender);
            drop(sender);
            // What was read is in page-locked memory, and need not be in the host's twice.
            let Reading { queue, section, returned, .. } = reading;
            drop(section);
            // Whoever copies gives blocks back as it goes, until it ends. Wiping them meanwhile would take
            // memory's bandwidth from it.
            queue.wiper().wipe(returned.iter().collect());
        })?;
        Ok(Self { blocks: Some(blocks), back: Some(back), thread, full })
    }
}

/// Why a section is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// Somebody waits until it is near.
    Settling,
    /// Ahead of whoever takes from it.
    Ahead,
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
                block.read_from(&mut self.section)?;
                Ok(block)
            });
            left -= count as u64;
            let block = match block {
                // Whoever waits for the section to be near hears it before anybody begins; if nobody does,
                // the first who takes from it.
                Err(error) if self.said.is_some() => {
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

    /// A block that was given back, or a new one while there is room. Where memory is short, those that are
    /// under way must do.
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

/// What the thread that copies has.
struct Copying {
    queue: Queue,
    stream: Stream,
    ring: Ring,
    /// Copies that are queued at once: a message's copy waits for those that were queued before it, whatever
    /// their stream is.
    under_way: usize,
    releases: Receiver<Released>,
}

impl Copying {
    /// Copies blocks as they come, until the last, the first error, or the end of whoever reads the ring.
    fn all(
        &mut self,
        blocks: &Receiver<Result<SecretBlock>>,
        back: &Sender<SecretBlock>,
        arrivals: &Sender<Result<Arrived>>,
    ) {
        let mut under_way: VecDeque<(SecretBlock, Event)> = VecDeque::new();
        let (mut copied, mut released) = (0, 0);
        loop {
            let block = match blocks.try_recv() {
                Ok(block) => block,
                // The reader may be waiting for one of these.
                Err(TryRecvError::Empty) if !under_way.is_empty() => {
                    if let Err(error) = give_back_first(&self.queue, &mut under_way, back) {
                        let _ = arrivals.send(Err(error));
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
                let end = copied + block.len() as u64;
                while end > released + self.ring.length {
                    let Ok(next) = self.releases.recv() else { return Ok(None) };
                    self.stream.wait(&next.event)?;
                    released = next.end;
                }
                if under_way.len() == self.under_way {
                    give_back_first(&self.queue, &mut under_way, back)?;
                }
                self.copy(&block, copied)?;
                copied = end;
                let event = self.stream.record()?;
                under_way.push_back((block, event.clone()));
                Ok(Some(Arrived { end, event }))
            });
            let failed = chunk.is_err();
            let Some(arrived) = chunk.transpose() else { return };
            if arrivals.send(arrived).is_err() || failed {
                return;
            }
        }
    }

    /// Queues the copy of a block, which is from byte `at` of the section on.
    fn copy(&self, block: &SecretBlock, at: u64) -> Result<()> {
        let (place, all) = (self.ring.place(at), self.ring.words.view().as_bytes());
        // SAFETY: of these bytes nothing is read any more that is not queued before the event that this
        // stream waited for, and what comes after waits for the event behind this.
        let mut target = unsafe { all.slice(place..place + block.len()).assume_unshared() };
        block.copy_to(&self.stream, &mut target)?;
        if place == 0 && at > 0 {
            let length = self.ring.length as usize;
            let count = OVERHANG.min(block.len());
            // SAFETY: as above.
            let mut behind = unsafe { all.slice(length..length + count).assume_unshared() };
            self.stream.copy(&all.slice(..count), &mut behind)?;
        }
        Ok(())
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
            State::Copying(reader, Copier { arrivals, released, thread, .. }) => {
                drop((arrivals, released));
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
