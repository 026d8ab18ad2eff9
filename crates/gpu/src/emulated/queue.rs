//! What streams hold: operations that run when somebody waits, in an order that only events and streams
//! constrain.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::launch::{self, Terms};
use super::memory::{Memory, Region, RegionState};
use super::module::Entry;
use super::schedule::Schedule;
use super::streams::{self, Agent, Branches, Deed, Manner, Past, Run, Turn, Usage};
use crate::driver::{EventId, HostFunction, Pointer, StreamId};
use crate::locked::Locked;
use crate::types::{Emulation, Fault, FaultKind, Grid};
use crate::{Error, Result};

/// A kernel launch with its arguments.
#[derive(Clone)]
pub(super) struct KernelLaunch {
    pub(super) entry: Arc<Entry>,
    pub(super) grid: Grid,
    pub(super) arguments: Vec<Vec<u8>>,
}

/// Arguments may be keys.
impl Drop for KernelLaunch {
    fn drop(&mut self) {
        self.arguments.iter_mut().for_each(|bytes| bytes.fill(0));
        std::hint::black_box(&self.arguments);
    }
}

/// An address of page-locked host memory.
#[derive(Clone, Copy)]
pub(super) struct HostPointer(pub(super) *mut u8);
// SAFETY: the safe layer keeps the memory alive until the copy is done and orders host accesses around it.
unsafe impl Send for HostPointer {}
// SAFETY: as above; the pointer is only followed while an operation runs, under the device's lock.
unsafe impl Sync for HostPointer {}

#[derive(Clone)]
pub(super) enum Op {
    CopyBytes {
        to: Pointer,
        bytes: Arc<Vec<u8>>,
    },
    CopyFromHost {
        to: Pointer,
        from: HostPointer,
        bytes: usize,
    },
    CopyToHost {
        to: HostPointer,
        from: Pointer,
        bytes: usize,
    },
    CopyOnDevice {
        to: Pointer,
        from: Pointer,
        bytes: usize,
    },
    /// From the memory of another device of the group.
    CopyFromPeer {
        to: Pointer,
        from: Pointer,
        peer: usize,
        bytes: usize,
    },
    Fill {
        to: Pointer,
        pattern: Vec<u8>,
        count: usize,
    },
    Free(Pointer),
    Launch(KernelLaunch),
    Record {
        event: EventId,
        number: u64,
        mark: Mark,
    },
    Wait {
        event: EventId,
        number: u64,
        mark: Mark,
    },
    Graph(Arc<Vec<Node>>),
    Host(Arc<Locked<Option<HostFunction>>>),
}

/// What had happened when an event was reached, once it is.
type Mark = Arc<Locked<Past>>;

/// An operation on its way.
struct Queued {
    op: Op,
    /// Its number on its stream.
    number: u32,
    /// What the host knew when it queued this.
    host: Past,
}

/// What running one operation came to.
pub(super) enum Step {
    Done,
    /// Something before it failed. It may own what is not dropped under the lock.
    Skipped(Op),
    /// Code of the program, which runs without the device's lock. [`Queues::host_ended`] tells when it has.
    Host(StreamId, HostFunction),
    /// Everything waits for code of the program that another thread runs.
    Busy,
}

/// A node of a graph and the nodes it comes after.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) op: Op,
    pub(super) after: Vec<usize>,
}

#[derive(Default)]
struct StreamState {
    /// The device it belongs to.
    device: usize,
    queue: VecDeque<Queued>,
    /// Operations that were queued so far.
    queued: u32,
    /// How many of them the host has waited for.
    waited: u32,
    /// What has happened before whatever the stream does next.
    past: Past,
    failed: Option<Error>,
    capture: Option<u64>,
    /// Whether code of the program runs in its order.
    busy: bool,
    /// Whether nobody has it any more: it goes with the last of its work.
    detached: bool,
}

impl StreamState {
    fn push(&mut self, op: Op, host: &Past) {
        self.queued += 1;
        self.queue.push_back(Queued { op, number: self.queued, host: host.clone() });
    }
}

#[derive(Default)]
struct EventState {
    /// Of the last time that it was recorded.
    mark: Mark,
    recorded: u64,
    completed: u64,
    happened: Option<Instant>,
    /// The stream it was last recorded on.
    stream: Option<StreamId>,
    destroyed: bool,
    /// The capture it was recorded in and the nodes it stands for.
    captured: Option<(u64, Vec<usize>)>,
}

/// Whether two graphs have the same kinds of nodes with the same edges.
fn same_shape(left: &[Node], right: &[Node]) -> bool {
    let same = |(left, right): (&Node, &Node)| {
        let same_op = match (&left.op, &right.op) {
            (Op::Graph(left), Op::Graph(right)) => same_shape(left, right),
            (left, right) => std::mem::discriminant(left) == std::mem::discriminant(right),
        };
        same_op && left.after == right.after
    };
    left.len() == right.len() && left.iter().zip(right).all(same)
}

/// A capture in progress.
pub(super) struct Capture {
    nodes: Vec<Node>,
    /// The last nodes of each stream in it.
    tails: HashMap<StreamId, Vec<usize>>,
}

fn range(start: Pointer, bytes: usize) -> Range<usize> {
    start.0 as usize..start.0 as usize + bytes
}

/// Operations that a queue holds before it runs some of its own accord.
const QUEUE_LIMIT: usize = 1024;

/// Streams, events, graphs and memory of a group of devices, which know each other. They are one machine:
/// streams of all of them run in any order that events allow.
pub(super) struct Queues {
    devices: Vec<Member>,
    streams: HashMap<StreamId, StreamState>,
    events: HashMap<EventId, EventState>,
    captures: HashMap<u64, Capture>,
    graphs: HashMap<u64, Arc<Vec<Node>>>,
    /// When each graph was launched last.
    launches: HashMap<u64, EventId>,
    usage: Usage,
    /// What streams of each device had come to that are gone.
    lost: HashMap<usize, Past>,
    schedule: Schedule,
    how: Emulation,
    next_handle: u64,
}

/// One device of a group.
struct Member {
    memory: Memory,
    /// What makes the schedules of its launches its own.
    salt: u64,
    /// Devices whose memory its kernels may touch.
    peers: HashSet<usize>,
}

impl Queues {
    /// One device for each memory. All schedules follow from its seed, and those of the first device are as
    /// if it were alone.
    pub(super) fn new(memories: Vec<Memory>, how: Emulation) -> Self {
        let member =
            |(device, memory)| Member { memory, salt: Schedule::salt_of(device), peers: HashSet::new() };
        Self {
            devices: memories.into_iter().enumerate().map(member).collect(),
            streams: HashMap::new(),
            events: HashMap::new(),
            captures: HashMap::new(),
            graphs: HashMap::new(),
            launches: HashMap::new(),
            usage: Usage::default(),
            lost: HashMap::new(),
            schedule: Schedule::new(how.seed),
            how,
            next_handle: 1,
        }
    }

    fn handle(&mut self) -> u64 {
        self.next_handle += 1;
        self.next_handle
    }

    /// The memory of a device, which is one of the group.
    pub(super) fn memory(&mut self, device: usize) -> &mut Memory {
        &mut self.devices[device].memory
    }

    /// Kernels of `device` may touch memory of `peer` from now on.
    pub(super) fn enable_peer(&mut self, device: usize, peer: usize) {
        self.devices[device].peers.insert(peer);
    }

    pub(super) fn create_stream(&mut self, device: usize) -> StreamId {
        let id = StreamId(self.handle());
        self.streams.insert(id, StreamState { device, ..StreamState::default() });
        id
    }

    pub(super) fn has_stream(&self, device: usize, stream: StreamId) -> bool {
        self.streams.get(&stream).is_some_and(|state| state.device == device)
    }

    /// Forgets a stream. What is still queued runs first, as the CUDA driver does it.
    pub(super) fn destroy_stream(&mut self, stream: StreamId) {
        if !self.is_idle(stream)
            && let Some(state) = self.streams.get_mut(&stream)
        {
            state.detached = true;
            return;
        }
        if let Err(error) = self.failure_of(stream) {
            tracing::warn!("a stream was dropped with an error nobody asked for: {error}");
        }
        if let Some(state) = self.streams.remove(&stream) {
            self.lost.entry(state.device).or_default().join(&state.past);
        }
    }

    /// Whether nothing is left to do on a stream.
    pub(super) fn is_idle(&self, stream: StreamId) -> bool {
        self.streams.get(&stream).is_none_or(|state| state.queue.is_empty() && !state.busy)
    }

    /// Whether everything waits for code of the program that a thread runs.
    pub(super) fn is_busy(&self) -> bool {
        self.streams.values().any(|state| state.busy)
            && !self.streams.values().any(|state| self.may_run(state))
    }

    /// Whether a stream has so much to do that it should do some of it.
    pub(super) fn is_full(&self, stream: StreamId) -> bool {
        self.streams.get(&stream).is_some_and(|state| state.queue.len() > QUEUE_LIMIT)
    }

    /// All streams of a device, in the order they were made.
    pub(super) fn streams(&self, device: usize) -> Vec<StreamId> {
        let of_device = self.streams.iter().filter(|(_, state)| state.device == device);
        let mut streams: Vec<StreamId> = of_device.map(|(&id, _)| id).collect();
        streams.sort_unstable_by_key(|id| id.0);
        streams
    }

    /// What failed on a stream, once.
    pub(super) fn failure_of(&mut self, stream: StreamId) -> Result<()> {
        let failed = self.streams.get_mut(&stream).and_then(|state| state.failed.take());
        failed.map_or(Ok(()), Err)
    }

    /// The same, for the stream that an event was recorded on.
    pub(super) fn failure_before(&mut self, event: EventId) -> Result<()> {
        let stream = self.events.get(&event).and_then(|state| state.stream);
        stream.map_or(Ok(()), |stream| self.failure_of(stream))
    }

    /// Code of the program has run.
    pub(super) fn host_ended(&mut self, stream: StreamId) {
        if let Some(state) = self.streams.get_mut(&stream) {
            state.busy = false;
        }
        self.forget_detached(stream);
    }

    fn forget_detached(&mut self, stream: StreamId) {
        if self.streams.get(&stream).is_some_and(|state| state.detached) && self.is_idle(stream) {
            self.destroy_stream(stream);
        }
    }

    /// The host has waited for what a stream did so far.
    pub(super) fn host_waited_for(&mut self, stream: StreamId) {
        if let Some(state) = self.streams.get(&stream) {
            self.usage.host_waited(&state.past);
            self.forget_what_all_know();
        }
        if let Some(state) = self.streams.get_mut(&stream).filter(|state| state.queue.is_empty()) {
            state.waited = state.queued;
        }
    }

    /// Forgets what nothing that is queued, now or later, can be unordered with.
    fn forget_what_all_know(&mut self) {
        if self.streams.values().all(|state| state.queue.is_empty()) {
            if self.usage.forget_what_the_host_knows() {
                for state in self.streams.values_mut() {
                    (state.past, state.waited) = (Past::default(), state.queued);
                }
                self.events.values().for_each(|event| *event.mark.lock() = Past::default());
                self.lost.clear();
            }
        } else if self.usage.is_large() {
            // What is queued knows what the host knew then, and its stream what it did so far.
            let least = |state: &StreamState| {
                let mut past =
                    state.queue.front().map_or_else(|| self.usage.host().clone(), |front| front.host.clone());
                past.join(&state.past);
                past
            };
            let pasts: Vec<Past> = self.streams.values().map(least).collect();
            self.usage.forget_what_is_in(&pasts);
        }
    }

    /// The host has waited for an event.
    pub(super) fn host_waited_for_event(&mut self, event: EventId) {
        if let Some(state) = self.events.get(&event) {
            let past = state.mark.lock().clone();
            self.usage.host_waited(&past);
            self.forget_what_all_know();
        }
    }

    /// The host has waited for everything on a device.
    pub(super) fn host_waited_for_device(&mut self, device: usize) {
        let of_device =
            |(_, state): (&StreamId, &StreamState)| (state.device == device).then(|| state.past.clone());
        let pasts: Vec<Past> =
            self.streams.iter().filter_map(of_device).chain(self.lost.remove(&device)).collect();
        pasts.iter().for_each(|past| self.usage.host_waited(past));
        self.forget_what_all_know();
    }

    pub(super) fn free_of_host(&mut self, device: usize, start: usize) {
        if let Some(bytes) = self.memory(device).free_of_host(start) {
            self.usage.released(bytes);
        }
    }

    /// Memory of a device, there from this point of a stream on.
    pub(super) fn allocate(&mut self, device: usize, stream: StreamId, bytes: usize) -> Option<usize> {
        let start = self.memory(device).allocate(bytes)?;
        let state = self.streams.get(&stream).filter(|state| state.waited < state.queued);
        let time = state.map_or(0, |state| streams::time_of(state.queued));
        self.usage.allocated(start..start + bytes, Agent::of(device, stream), time);
        Some(start)
    }

    pub(super) fn create_event(&mut self) -> EventId {
        let id = EventId(self.handle());
        self.events.insert(id, EventState::default());
        id
    }

    /// Waits that are queued on the event still hold: it goes when it has happened.
    pub(super) fn destroy_event(&mut self, event: EventId) {
        if self.event_done(event) {
            self.events.remove(&event);
        } else if let Some(state) = self.events.get_mut(&event) {
            state.destroyed = true;
        }
    }

    /// Queues an operation, or records it if the stream is being captured. What is refused is given back: it
    /// may own what is not dropped under the lock.
    pub(super) fn submit(&mut self, stream: StreamId, op: Op) -> Result<(), Box<(Error, Op)>> {
        let state = self.streams.entry(stream).or_default();
        if let Some(capture) = state.capture {
            let Some(capture) = self.captures.get_mut(&capture) else { return Ok(()) };
            let after = capture.tails.insert(stream, vec![capture.nodes.len()]).unwrap_or_default();
            capture.nodes.push(Node { op, after });
            return Ok(());
        }
        if let Some(error) = state.failed.take() {
            return Err(Box::new((error, op)));
        }
        state.push(op, self.usage.host());
        Ok(())
    }

    /// Memory goes back even behind a failure.
    pub(super) fn submit_free(&mut self, device: usize, stream: StreamId, pointer: Pointer) {
        match self.streams.get_mut(&stream) {
            Some(state) => state.push(Op::Free(pointer), self.usage.host()),
            None => {
                let released = self.memory(device).free(pointer.0 as usize);
                released.into_iter().for_each(|bytes| self.usage.released(bytes));
            }
        }
    }

    pub(super) fn record(&mut self, event: EventId, stream: StreamId) -> Result<()> {
        let capture = self.streams.get(&stream).and_then(|state| state.capture);
        let state = self.events.entry(event).or_default();
        if let Some(id) = capture {
            let tails = self.captures.get(&id).and_then(|capture| capture.tails.get(&stream)).cloned();
            state.captured = Some((id, tails.unwrap_or_default()));
            return Ok(());
        }
        state.captured = None;
        state.stream = Some(stream);
        state.recorded += 1;
        state.mark = Mark::default();
        let (number, mark) = (state.recorded, state.mark.clone());
        self.mark(stream, Op::Record { event, number, mark });
        Ok(())
    }

    /// Queues a record or a wait. They carry no result, and are queued by drops too, where nobody would hear
    /// of what failed on the stream: that stays for the next call that can say it.
    fn mark(&mut self, stream: StreamId, op: Op) {
        self.streams.entry(stream).or_default().push(op, self.usage.host());
    }

    pub(super) fn wait(&mut self, stream: StreamId, event: EventId) -> Result<()> {
        let Some(state) = self.events.get(&event) else { return Ok(()) };
        match state.captured.clone() {
            Some((id, nodes)) if self.captures.contains_key(&id) => {
                self.streams.entry(stream).or_default().capture = Some(id);
                if let Some(capture) = self.captures.get_mut(&id) {
                    capture.tails.entry(stream).or_default().extend(nodes);
                }
                Ok(())
            }
            _ => {
                let (number, mark) = (state.recorded, state.mark.clone());
                self.mark(stream, Op::Wait { event, number, mark });
                Ok(())
            }
        }
    }

    pub(super) fn event_done(&self, event: EventId) -> bool {
        self.events.get(&event).is_none_or(|state| state.completed >= state.recorded)
    }

    pub(super) fn event_time(&self, event: EventId) -> Option<Instant> {
        self.events.get(&event).and_then(|state| state.happened)
    }

    /// Takes back copies to host memory that the caller is about to lose.
    pub(super) fn retract_copies(&mut self, stream: StreamId, destination: HostPointer) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        let is_lost = |op: &Op| matches!(op, Op::CopyToHost { to, .. } if to.0 == destination.0);
        state.queue.retain(|queued| !is_lost(&queued.op));
    }

    /// Runs the next operation of some stream that may go on.
    pub(super) fn run_one(&mut self) -> Result<Step> {
        let mut ready: Vec<StreamId> =
            self.streams.iter().filter(|(_, s)| self.may_run(s)).map(|(&id, _)| id).collect();
        ready.sort_unstable_by_key(|id| id.0);
        if ready.is_empty() {
            if self.streams.values().any(|state| state.busy) {
                return Ok(Step::Busy);
            }
            let message = "every stream waits for an event that no stream will reach".into();
            return Err(Error::Graph { message });
        }
        let stream = ready[self.schedule.below(ready.len())];
        let Some(state) = self.streams.get_mut(&stream) else { return Ok(Step::Done) };
        let Some(Queued { op, number, host }) = state.queue.pop_front() else { return Ok(Step::Done) };
        state.past.join(&host);
        let agent = Agent::of(state.device, stream);
        let mut turn = Turn::new(agent, streams::time_of(number), std::mem::take(&mut state.past));
        state.past = turn.past().clone();
        let skipped =
            state.failed.is_some() && !matches!(op, Op::Free(_) | Op::Record { .. } | Op::Wait { .. });
        if let (Op::Host(function), false) = (&op, skipped)
            && let Some(function) = function.lock().take()
        {
            state.busy = true;
            // It may tell all threads of the program, long before it returns.
            self.usage.host_waited(turn.past());
            return Ok(Step::Host(stream, function));
        }
        if skipped {
            self.forget_detached(stream);
            return Ok(Step::Skipped(op));
        }
        let device = state.device;
        let outcome = self.execute(device, op, &mut turn);
        if let Some(state) = self.streams.get_mut(&stream) {
            state.past = turn.past().clone();
            if let Err(error) = outcome {
                state.failed.get_or_insert(error);
            }
        }
        self.forget_detached(stream);
        Ok(Step::Done)
    }

    fn may_run(&self, stream: &StreamState) -> bool {
        match stream.queue.front().map(|queued| &queued.op) {
            _ if stream.busy => false,
            None => false,
            Some(Op::Wait { event, number, .. }) => {
                self.events.get(event).is_none_or(|state| state.completed >= *number)
            }
            Some(_) => true,
        }
    }

    fn execute(&mut self, device: usize, op: Op, turn: &mut Turn) -> Result<()> {
        match op {
            Op::CopyBytes { to, bytes } => {
                self.note(turn, "a copy from the host", &[], &[range(to, bytes.len())])?;
                self.write(device, to, &bytes)
            }
            Op::CopyFromHost { to, from, bytes } => {
                let source = self.host_range(device, from, bytes);
                self.note(turn, "a copy from the host", &[source], &[range(to, bytes)])?;
                // SAFETY: the safe layer keeps pinned memory alive, and unchanged, until the copy is done.
                let source = unsafe { std::slice::from_raw_parts(from.0, bytes) };
                self.write(device, to, source)
            }
            Op::CopyToHost { to, from, bytes } => {
                self.require(device, from, bytes)?;
                let destination = self.host_range(device, to, bytes);
                self.note(turn, "a copy to the host", &[range(from, bytes)], &[destination])?;
                // SAFETY: the range lies in a live buffer, and the safe layer keeps the pinned memory for
                // this copy.
                unsafe { std::ptr::copy(from.0 as *const u8, to.0, bytes) };
                Ok(())
            }
            Op::CopyOnDevice { to, from, bytes } => self.copy(turn, device, to, device, from, bytes),
            Op::CopyFromPeer { to, from, peer, bytes } => self.copy(turn, device, to, peer, from, bytes),
            Op::Fill { to, pattern, count } => {
                self.require(device, to, pattern.len() * count)?;
                self.note(turn, "a fill", &[], &[range(to, pattern.len() * count)])?;
                // SAFETY: the range lies in a live buffer, which only the device's operations touch, one at a
                // time.
                let bytes = unsafe { std::slice::from_raw_parts_mut(to.0 as *mut u8, pattern.len() * count) };
                match *pattern {
                    [byte] => bytes.fill(byte),
                    _ => bytes
                        .chunks_exact_mut(pattern.len())
                        .for_each(|chunk| chunk.copy_from_slice(&pattern)),
                }
                self.memory(device).set_marks(to.0 as usize, pattern.len() * count, None);
                Ok(())
            }
            Op::Free(pointer) => {
                let bytes = self.memory(device).bytes_of(pointer.0 as usize);
                let noted = self.note(turn, "the release of the memory", &[], &[range(pointer, bytes)]);
                let released = self.memory(device).free(pointer.0 as usize);
                released.into_iter().for_each(|bytes| self.usage.released(bytes));
                noted
            }
            Op::Launch(launch) => self.launch(device, &launch, turn).map_err(Error::Fault),
            Op::Record { event, number, mark } => {
                mark.lock().clone_from(turn.past());
                if let Some(state) = self.events.get_mut(&event) {
                    state.completed = state.completed.max(number);
                    state.happened = Some(Instant::now());
                    if state.destroyed && state.completed >= state.recorded {
                        self.events.remove(&event);
                    }
                }
                Ok(())
            }
            Op::Wait { mark, .. } => {
                turn.learn(&mark.lock());
                Ok(())
            }
            // Code of the program is never a part of a graph, and runs outside of the lock.
            Op::Host(_) => Ok(()),
            Op::Graph(nodes) => {
                let mut end = turn.past().clone();
                let ran = self.run_graph(device, &nodes, &mut Branches::new(turn), &mut end);
                turn.learn(&end);
                ran
            }
        }
    }

    /// Notes what an operation that is no kernel reads and writes.
    fn note(
        &mut self,
        turn: &mut Turn,
        what: &'static str,
        reads: &[Range<usize>],
        writes: &[Range<usize>],
    ) -> Result<()> {
        let run = |bytes: &Range<usize>, manner| Run { bytes: bytes.clone(), manner, code: 0 };
        let reads = reads.iter().map(|bytes| run(bytes, Manner::Read));
        let runs = reads.chain(writes.iter().map(|bytes| run(bytes, Manner::Write))).collect();
        let Err(other) = self.usage.note(turn, Deed::Other(what), runs) else { return Ok(()) };
        let message = format!("{what}: {}", other.sentence("the same memory"));
        Err(Error::Fault(Box::new(Fault {
            kind: FaultKind::Race,
            kernel: String::new(),
            block: [0; 3],
            thread: None,
            address: Some(other.address as u64),
            site: None,
            message,
            seed: self.how.seed,
        })))
    }

    /// The bytes of a copy in the host's memory, if kernels could use them too; else none.
    fn host_range(&mut self, device: usize, at: HostPointer, bytes: usize) -> Range<usize> {
        let start = at.0 as usize;
        if self.memory(device).holds_of_host(start, bytes) { start..start + bytes } else { start..start }
    }

    fn launch(&mut self, device: usize, launch: &KernelLaunch, turn: &mut Turn) -> Result<(), Box<Fault>> {
        let terms = Terms { how: self.how, seed: self.schedule.next() ^ self.devices[device].salt };
        let mut regions = self.regions(device);
        let Range { start, end } = *launch.entry.variables();
        if start < end {
            let variables = Region { start, end, state: RegionState::Buffer, written: std::ptr::null_mut() };
            regions.insert(regions.partition_point(|region| region.start < start), variables);
        }
        let order = (&mut self.usage, turn);
        launch::run(&launch.entry, &launch.grid, &launch.arguments, regions, terms, order)
    }

    /// What kernels of a device may touch, and what they may not because it is another's.
    fn regions(&self, device: usize) -> Vec<Region> {
        let mut regions = self.devices[device].memory.regions();
        for (other, member) in self.devices.iter().enumerate().filter(|(other, _)| *other != device) {
            let reachable = self.devices[device].peers.contains(&other);
            let seen = |region: Region| match region.state {
                RegionState::Buffer if !reachable => Region { state: RegionState::OfPeer, ..region },
                _ => region,
            };
            regions.extend(member.memory.regions().into_iter().map(seen));
        }
        if self.devices.len() > 1 {
            regions.sort_unstable_by_key(|region| region.start);
        }
        regions
    }

    /// Any order that the edges allow. `past` is what came before, and then what all nodes did that ran, up
    /// to one that failed.
    fn run_graph(
        &mut self,
        device: usize,
        nodes: &[Node],
        branches: &mut Branches,
        past: &mut Past,
    ) -> Result<()> {
        let mut turns: Vec<Option<Turn>> = vec![None; nodes.len()];
        let mut tips = BTreeMap::new();
        let start = past.clone();
        for _ in 0..nodes.len() {
            let ready: Vec<usize> = (0..nodes.len())
                .filter(|&n| {
                    turns[n].is_none() && nodes[n].after.iter().all(|&before| turns[before].is_some())
                })
                .collect();
            let node = ready[self.schedule.below(ready.len())];
            let before: Vec<&Turn> = nodes[node].after.iter().filter_map(|&n| turns[n].as_ref()).collect();
            let mut turn = branches.turn(&start, &before, &mut tips);
            let ran = match &nodes[node].op {
                Op::Graph(child) => {
                    let mut end = turn.past().clone();
                    let ran = self.run_graph(device, child, branches, &mut end);
                    turn.learn(&end);
                    ran
                }
                op => self.execute(device, op.clone(), &mut turn),
            };
            past.join(turn.past());
            ran?;
            turns[node] = Some(turn);
        }
        Ok(())
    }

    fn copy(
        &mut self,
        turn: &mut Turn,
        device: usize,
        to: Pointer,
        source: usize,
        from: Pointer,
        bytes: usize,
    ) -> Result<()> {
        self.require(source, from, bytes)?;
        self.require(device, to, bytes)?;
        self.note(turn, "a copy on the device", &[range(from, bytes)], &[range(to, bytes)])?;
        // SAFETY: both ranges lie in live buffers.
        unsafe { std::ptr::copy(from.0 as *const u8, to.0 as *mut u8, bytes) };
        let marks = self.memory(source).marks(from.0 as usize, bytes);
        self.memory(device).set_marks(to.0 as usize, bytes, marks.as_deref());
        Ok(())
    }

    fn write(&mut self, device: usize, to: Pointer, bytes: &[u8]) -> Result<()> {
        self.require(device, to, bytes.len())?;
        // SAFETY: the range lies in a live buffer, which only the device's operations touch, one at a time.
        unsafe { std::ptr::copy(bytes.as_ptr(), to.0 as *mut u8, bytes.len()) };
        self.memory(device).set_marks(to.0 as usize, bytes.len(), None);
        Ok(())
    }

    fn require(&self, device: usize, at: Pointer, bytes: usize) -> Result<()> {
        if bytes == 0 || self.devices[device].memory.holds(at.0 as usize, bytes) {
            return Ok(());
        }
        let message = format!("a copy of {bytes} bytes at {:#x}, which is no live buffer", at.0);
        Err(Error::Length { call: "the emulated device", message })
    }

    pub(super) fn begin_capture(&mut self, stream: StreamId) {
        let id = self.handle();
        let tails = HashMap::from([(stream, Vec::new())]);
        self.captures.insert(id, Capture { nodes: Vec::new(), tails });
        self.streams.entry(stream).or_default().capture = Some(id);
    }

    pub(super) fn last_node(&self, stream: StreamId) -> Option<usize> {
        let id = self.streams.get(&stream)?.capture?;
        self.captures.get(&id)?.tails.get(&stream)?.last().copied()
    }

    pub(super) fn end_capture(&mut self, stream: StreamId) -> Result<u64> {
        let Some(capture) = self.abort_capture(stream) else {
            return Err(Error::Graph { message: "the stream is not being captured".into() });
        };
        let mut reached: HashSet<usize> = HashSet::new();
        let mut pending = capture.tails.get(&stream).cloned().unwrap_or_default();
        while let Some(node) = pending.pop() {
            if reached.insert(node) {
                pending.extend(&capture.nodes[node].after);
            }
        }
        if reached.len() < capture.nodes.len() {
            let message = "a stream joined the capture and its work was not joined back by an event".into();
            return Err(Error::Graph { message });
        }
        let id = self.handle();
        self.graphs.insert(id, Arc::new(capture.nodes));
        Ok(id)
    }

    pub(super) fn abort_capture(&mut self, stream: StreamId) -> Option<Capture> {
        let id = self.streams.get(&stream)?.capture?;
        for state in self.streams.values_mut().filter(|state| state.capture == Some(id)) {
            state.capture = None;
        }
        self.captures.remove(&id)
    }

    pub(super) fn nodes_of(&self, graph: u64) -> Option<Arc<Vec<Node>>> {
        self.graphs.get(&graph).cloned()
    }

    pub(super) fn update_graph(&mut self, graph: u64, node: usize, op: Op) {
        let Some(nodes) = self.graphs.get_mut(&graph) else { return };
        if let Some(node) = Arc::make_mut(nodes).get_mut(node) {
            node.op = op;
        }
    }

    /// Puts a graph where another was, whose nodes do the same to other memory.
    pub(super) fn update_child(&mut self, graph: u64, node: usize, child: u64) -> Result<()> {
        let Some(new) = self.nodes_of(child) else { return Ok(()) };
        let old = self.nodes_of(graph).and_then(|nodes| nodes.get(node).map(|node| node.op.clone()));
        match old {
            Some(Op::Graph(old)) if same_shape(&old, &new) => {
                self.update_graph(graph, node, Op::Graph(new));
                Ok(())
            }
            _ => {
                let message = "the new child has other nodes, or other edges, than the one that was captured";
                Err(Error::Graph { message: message.into() })
            }
        }
    }

    /// Queues a graph behind all earlier launches of it, as the CUDA driver does, or makes it a node of a
    /// capture.
    pub(super) fn launch_graph(&mut self, graph: u64, stream: StreamId) -> Result<(), Box<(Error, Op)>> {
        let Some(nodes) = self.nodes_of(graph) else { return Ok(()) };
        let is_captured = self.streams.get(&stream).is_some_and(|state| state.capture.is_some());
        if is_captured {
            return self.submit(stream, Op::Graph(nodes));
        }
        let event = match self.launches.get(&graph) {
            Some(event) => *event,
            None => self.create_event(),
        };
        self.launches.insert(graph, event);
        let refused = |error| Box::new((error, Op::Graph(Arc::default())));
        self.wait(stream, event).map_err(refused)?;
        self.submit(stream, Op::Graph(nodes))?;
        self.record(event, stream).map_err(refused)
    }

    pub(super) fn destroy_graph(&mut self, graph: u64) {
        self.graphs.remove(&graph);
        if let Some(event) = self.launches.remove(&graph) {
            self.destroy_event(event);
        }
    }
}
