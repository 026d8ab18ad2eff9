//! Messages that have arrived, and those of which parts are still under way on lanes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::BytesMut;
use gatework_fss::Message;

use crate::error::{Error, Result};

use super::parcel::{Destination, body_bytes};
use super::spare::Spare;

/// Set in the head of a parcel whose message comes on the lanes.
pub(super) const STRIPED: u64 = 1 << 63;
/// Messages may wait unread up to this many times the largest one.
const BACKLOG: u64 = 4;
/// Below this many bytes nothing waits for messages to be taken.
const LEAST_BACKLOG: u64 = 1 << 18;

/// What a message that waits takes, with all that is around it.
fn weight(bytes: usize) -> u64 {
    bytes as u64 + 128
}

/// What all connections of a link deliver to, and its caller takes from.
pub(super) struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
    /// The longest message that may come, with its hash.
    largest: AtomicU64,
    spare: Spare,
}

#[derive(Default)]
struct State {
    /// In the order of the main connection.
    messages: VecDeque<Item>,
    /// Bytes of those that are whole.
    unread: u64,
    /// Messages on the lanes from the first that was not taken, and how many were.
    assemblies: VecDeque<Assembly>,
    assembled: u64,
    /// Bytes of these.
    assembling: u64,
    /// Whether a connection stopped reading until something is taken.
    paused: bool,
    /// Why the link is of no use any more, until somebody was told.
    fault: Option<Error>,
    ended: bool,
    /// Messages on the lanes that can still become whole, once a lane has gone.
    last: Option<u64>,
}

enum Item {
    Whole(BytesMut),
    OnLanes { length: u64 },
}

/// A message of which every lane brings a part.
struct Assembly {
    length: u64,
    parts: Vec<Option<BytesMut>>,
    missing: usize,
}

impl Assembly {
    fn new(length: u64, mut rest: BytesMut, lanes: usize) -> Self {
        let bytes = rest.len();
        let parts: Vec<Option<BytesMut>> =
            (0..lanes).map(|lane| Some(rest.split_to(part_of(bytes, lanes, lane).len()))).collect();
        Self { length, parts, missing: lanes }
    }

    fn whole(self) -> Vec<u8> {
        let mut whole = BytesMut::new();
        self.parts.into_iter().flatten().for_each(|part| whole.unsplit(part));
        whole.into()
    }
}

/// Which bytes of a message a lane carries.
pub(super) fn part_of(bytes: usize, lanes: usize, lane: usize) -> std::ops::Range<usize> {
    // Whole blocks of the hash, but for the last.
    let share = bytes.div_ceil(lanes).next_multiple_of(1 << 10);
    (lane * share).min(bytes)..((lane + 1) * share).min(bytes)
}

impl Inbox {
    pub(super) fn new(largest: u64) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            largest: AtomicU64::new(largest),
            spare: Spare::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets messages of that many bytes through, too.
    pub(super) fn expect(&self, bytes: u64) {
        self.largest.fetch_max(bytes, Ordering::Relaxed);
    }

    pub(super) fn largest(&self) -> u64 {
        self.largest.load(Ordering::Relaxed)
    }

    fn most_waiting(&self) -> u64 {
        (BACKLOG * self.largest()).max(LEAST_BACKLOG)
    }

    /// Forgets what was large: the longest message is `bytes` again, and memory of longer ones is let go.
    pub(super) fn expect_only(&self, bytes: u64) {
        self.largest.store(bytes, Ordering::Relaxed);
        self.spare.clear();
    }

    /// Takes back the memory of a message of which a part was sent, or that was read.
    pub(super) fn give_back(&self, message: Arc<Message>) {
        self.spare.give(message, self.most_waiting());
    }

    #[cfg(test)]
    pub(super) fn waiting_bytes(&self) -> u64 {
        let state = self.lock();
        state.unread + state.assembling
    }

    /// Says that the main connection has ended, and why. The first word counts.
    pub(super) fn end(&self, why: Error) {
        let mut state = self.lock();
        state.ended = true;
        state.fault.get_or_insert(why);
        self.changed.notify_all();
    }

    /// Says that a lane has ended after so many parts. A peer that goes closes all its connections, and what
    /// it said last may still be on its way on the others.
    pub(super) fn end_lane(&self, parts: u64, why: Error) {
        let mut state = self.lock();
        state.last = Some(state.last.map_or(parts, |last| last.min(parts)));
        if !matches!(why, Error::Closed | Error::Socket { .. }) {
            state.ended = true;
            state.fault.get_or_insert(why);
        }
        self.changed.notify_all();
    }

    /// Why nothing can be sent any more.
    pub(super) fn failure(&self) -> Error {
        self.lock().fault.take().unwrap_or(Error::Closed)
    }

    /// The next message if it is whole, and whether somebody waits for it to be taken.
    pub(super) fn take(&self) -> Result<Option<(Vec<u8>, Resume)>> {
        self.lock().take()
    }

    /// The same, but waits until `deadline` for it.
    pub(super) fn take_before(&self, deadline: Instant) -> Result<Option<(Vec<u8>, Resume)>> {
        let mut state = self.lock();
        loop {
            if let Some(taken) = state.take()? {
                return Ok(Some(taken));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether the next message was announced, and is on its way on the lanes.
    pub(super) fn waits_for_lanes(&self) -> bool {
        matches!(self.lock().messages.front(), Some(Item::OnLanes { .. }))
    }
}

/// Whether connections that stopped reading must be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resume {
    Nobody,
    Everybody,
}

impl State {
    fn take(&mut self) -> Result<Option<(Vec<u8>, Resume)>> {
        let whole = match self.messages.front() {
            Some(Item::Whole(_)) => true,
            Some(Item::OnLanes { length }) => match self.assemblies.front() {
                Some(first) if first.length != *length => {
                    return Err(Error::OutOfStep {
                        what: "a lane brings another message than was announced".into(),
                    });
                }
                Some(first) => first.missing == 0,
                None => false,
            },
            None => false,
        };
        if !whole {
            let never =
                self.messages.front().is_some() && self.last.is_some_and(|last| self.assembled >= last);
            // A peer that has closed may have said more before; one that broke the rules is not listened to.
            let broken = !matches!(self.fault, None | Some(Error::Closed));
            if self.ended && (self.messages.is_empty() || broken) || never {
                return Err(self.fault.take().unwrap_or(Error::Closed));
            }
            return Ok(None);
        }
        let message: Vec<u8> = match self.messages.pop_front() {
            Some(Item::Whole(body)) => {
                self.unread -= weight(body.len());
                body.into()
            }
            _ => {
                self.unread -= weight(0);
                self.assembled += 1;
                let Some(first) = self.assemblies.pop_front() else { return Err(Error::Closed) };
                let message = first.whole();
                self.assembling -= weight(message.len());
                message
            }
        };
        let resume = if std::mem::take(&mut self.paused) { Resume::Everybody } else { Resume::Nobody };
        Ok(Some((message, resume)))
    }
}

/// The main connection's parcels: messages, and announcements of those that come on the lanes.
pub(super) struct FromMain<'a> {
    pub(super) inbox: &'a Inbox,
    pub(super) lanes: usize,
}

impl Destination for FromMain<'_> {
    fn begin(&mut self, head: u64) -> Result<Option<BytesMut>> {
        let bytes = body_bytes(head & !STRIPED, self.inbox.largest())?;
        let mut state = self.inbox.lock();
        if state.unread > self.inbox.most_waiting() {
            state.paused = true;
            return Ok(None);
        }
        drop(state);
        if head & STRIPED == 0 {
            return Ok(Some(BytesMut::zeroed(bytes)));
        }
        if self.lanes == 0 {
            return Err(Error::OutOfStep {
                what: "a message on lanes is announced, and there are none".into(),
            });
        }
        Ok(Some(BytesMut::new()))
    }

    fn end(&mut self, head: u64, body: BytesMut) -> Result<()> {
        let mut state = self.inbox.lock();
        state.unread += weight(body.len());
        let on_lanes = head & STRIPED != 0;
        state.messages.push_back(if on_lanes {
            Item::OnLanes { length: head & !STRIPED }
        } else {
            Item::Whole(body)
        });
        self.inbox.changed.notify_all();
        Ok(())
    }
}

/// A lane's parcels: its part of one message on lanes after the other.
pub(super) struct FromLane<'a> {
    pub(super) inbox: &'a Inbox,
    pub(super) lanes: usize,
    pub(super) lane: usize,
    /// Parts that were taken before.
    pub(super) before: &'a mut u64,
}

impl Destination for FromLane<'_> {
    fn begin(&mut self, head: u64) -> Result<Option<BytesMut>> {
        let bytes = body_bytes(head, self.inbox.largest())?;
        let mut state = self.inbox.lock();
        let place = (*self.before - state.assembled) as usize;
        if place == state.assemblies.len() {
            // Only what nobody has begun waits: a message that one lane has must become whole.
            if state.assembling > self.inbox.most_waiting() {
                state.paused = true;
                return Ok(None);
            }
            state.assembling += weight(bytes);
            state.assemblies.push_back(Assembly::new(head, self.inbox.spare.take(bytes), self.lanes));
        }
        let missing = || Error::OutOfStep { what: "a lane is ahead of the others".into() };
        let assembly = state.assemblies.get_mut(place).ok_or_else(missing)?;
        if assembly.length != head {
            return Err(Error::OutOfStep { what: "two lanes bring parts of different messages".into() });
        }
        let part = assembly.parts.get_mut(self.lane).and_then(Option::take);
        part.map(Some).ok_or_else(missing)
    }

    fn end(&mut self, _: u64, body: BytesMut) -> Result<()> {
        let mut state = self.inbox.lock();
        let place = (*self.before - state.assembled) as usize;
        if let Some(assembly) = state.assemblies.get_mut(place) {
            assembly.parts[self.lane] = Some(body);
            assembly.missing -= 1;
            if assembly.missing == 0 {
                self.inbox.changed.notify_all();
            }
        }
        *self.before += 1;
        Ok(())
    }
}
