//! Streams as agents: who used which bytes, and whether something orders that with who uses them now.
//!
//! Inside of a launch, [`super::shadow`] knows every access of every thread. When the launch has ended, what
//! it touched is one *use* by its stream. Two uses of the same bytes, one of them a write, must be ordered:
//! by their stream, by an event, by edges of a graph, or by the host, which waited for one before it queued
//! the other. The order in which the emulated device happens to run them counts for nothing, so that a
//! missing event is found under every schedule.
//!
//! All threads of the program count as one host: what one has waited for, another is taken to know.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::driver::StreamId;
use crate::types::Site;

/// A stream, or a branch of a graph that it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Agent {
    device: usize,
    stream: u64,
    /// 0 for what the stream does by itself.
    branch: u32,
}

impl Agent {
    pub(super) fn of(device: usize, stream: StreamId) -> Self {
        Self { device, stream: stream.0, branch: 0 }
    }

    fn branch(self, branch: u32) -> Self {
        Self { branch, ..self }
    }
}

/// When an agent does something: the number of the operation on its stream, and below it that of a node of a
/// graph.
pub(super) type Time = u64;

/// The time of operation number `operation` of a stream.
pub(super) fn time_of(operation: u32) -> Time {
    u64::from(operation) << 32
}

/// All that has happened before something: how far each agent had come. Copies are cheap until one of them
/// changes.
#[derive(Debug, Clone, Default)]
pub(super) struct Past(Arc<BTreeMap<Agent, Time>>);

impl Past {
    fn holds(&self, agent: Agent, time: Time) -> bool {
        time == 0 || self.0.get(&agent).is_some_and(|&reached| reached >= time)
    }

    fn reach(&mut self, agent: Agent, time: Time) {
        if !self.holds(agent, time) {
            Arc::make_mut(&mut self.0).insert(agent, time);
        }
    }

    pub(super) fn join(&mut self, other: &Past) {
        if Arc::ptr_eq(&self.0, &other.0) || other.0.is_empty() {
            return;
        }
        if self.0.is_empty() {
            self.0 = other.0.clone();
            return;
        }
        other.0.iter().for_each(|(&agent, &time)| self.reach(agent, time));
    }
}

/// One operation that a stream runs: who, when, and what came before.
#[derive(Debug, Clone)]
pub(super) struct Turn {
    agent: Agent,
    time: Time,
    past: Past,
}

impl Turn {
    /// Operation `time` of `agent`, after all of `past` and what the agent did before.
    pub(super) fn new(agent: Agent, time: Time, mut past: Past) -> Self {
        past.reach(agent, time);
        Self { agent, time, past }
    }

    /// What comes before whatever follows this.
    pub(super) fn past(&self) -> &Past {
        &self.past
    }

    /// It waits for what is in `past` too.
    pub(super) fn learn(&mut self, past: &Past) {
        self.past.join(past);
    }
}

/// Hands out the turns of the nodes of one graph launch: each goes on with the branch of a node that it
/// follows, if no other node does, and else begins a branch of its own.
pub(super) struct Branches {
    agent: Agent,
    time: Time,
    next: u32,
    nodes: u64,
}

impl Branches {
    pub(super) fn new(turn: &Turn) -> Self {
        Self { agent: turn.agent, time: turn.time, next: 0, nodes: 0 }
    }

    /// The turn of a node that comes after `start` and after the nodes that `before` are the turns of. `tips`
    /// says of each branch which turn is its last.
    pub(super) fn turn(&mut self, start: &Past, before: &[&Turn], tips: &mut BTreeMap<u32, Time>) -> Turn {
        let mut past = start.clone();
        before.iter().for_each(|turn| past.join(&turn.past));
        let is_tip = |turn: &&&Turn| tips.get(&turn.agent.branch) == Some(&turn.time);
        let branch = before.iter().find(is_tip).map_or_else(
            || {
                self.next += 1;
                self.next
            },
            |turn| turn.agent.branch,
        );
        self.nodes += 1;
        let time = self.time + self.nodes;
        tips.insert(branch, time);
        Turn::new(self.agent.branch(branch), time, past)
    }
}

/// How bytes are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Manner {
    Read,
    Write,
    /// By an atomic that reaches the whole device.
    AtomicRead,
    AtomicWrite,
}

impl Manner {
    fn conflicts_with(self, other: Self) -> bool {
        match self {
            Self::Read => matches!(other, Self::Write | Self::AtomicWrite),
            Self::Write => true,
            Self::AtomicRead => other == Self::Write,
            Self::AtomicWrite => matches!(other, Self::Read | Self::Write),
        }
    }

    /// Whether whatever conflicts with the other conflicts with this too.
    fn covers(self, other: Self) -> bool {
        match self {
            Self::Write => true,
            Self::Read => matches!(other, Self::Read | Self::AtomicRead),
            Self::AtomicWrite => matches!(other, Self::AtomicRead | Self::AtomicWrite),
            Self::AtomicRead => other == Self::AtomicRead,
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::AtomicRead => "reads atomically",
            Self::Write => "writes",
            Self::AtomicWrite => "updates atomically",
        }
    }
}

/// What an operation is, for messages.
pub(super) enum Deed {
    /// A kernel, and the line that the code of a run stands for.
    Kernel { name: String, line: Box<dyn Fn(u32) -> Option<Site> + Send + Sync> },
    /// Something that is no kernel, in words.
    Other(&'static str),
}

/// Bytes that one operation used in one manner, at one place of its source.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) bytes: Range<usize>,
    pub(super) manner: Manner,
    /// Where in the kernel; 0 if that is unknown or there is none.
    pub(super) code: u32,
}

/// An operation that used memory, with what came before it.
struct Doer {
    agent: Agent,
    time: Time,
    past: Past,
    deed: Deed,
    /// What it used, for the lines of messages: the first [`LINES`].
    lines: Vec<Run>,
}

#[derive(Clone)]
struct Use {
    doer: Arc<Doer>,
    manner: Manner,
}

impl Use {
    fn is_same_as(&self, other: &Use) -> bool {
        Arc::ptr_eq(&self.doer, &other.doer) && self.manner == other.manner
    }
}

/// Bytes with the same uses since the last write that all later ones follow.
struct Segment {
    end: usize,
    uses: Vec<Use>,
}

/// An earlier use that nothing orders with one that is made.
pub(super) struct Unordered {
    pub(super) address: usize,
    pub(super) manner: Manner,
    /// Who, what and where, as a clause: `kernel 'fill' writes on another stream (fill.cuh:3)`.
    pub(super) told: String,
}

impl Unordered {
    /// The whole sentence, for who does `what` to `bytes`.
    pub(super) fn sentence(&self, bytes: &str) -> String {
        format!(
            "race: {} {bytes}, which {}; nothing orders the two: wait for an event of the other stream, or for the stream \
             itself, before",
            self.manner.verb(),
            self.told
        )
    }
}

/// All uses of memory that somebody may not know of yet.
#[derive(Default)]
pub(super) struct Usage {
    segments: BTreeMap<usize, Segment>,
    /// What the host has waited for.
    host: Past,
    /// How far every agent has come since the host knew everything.
    latest: BTreeMap<Agent, Time>,
    /// Segments that were left when they were last looked through.
    most: usize,
}

/// Segments that are never looked through for what can be forgotten.
const SEGMENTS: usize = 1 << 16;
/// Runs whose lines an operation keeps for messages.
const LINES: usize = 4096;

impl Usage {
    /// What the host knows, and so whatever it queues from now on comes after.
    pub(super) fn host(&self) -> &Past {
        &self.host
    }

    /// The host has waited for all of `past`.
    pub(super) fn host_waited(&mut self, past: &Past) {
        self.host.join(past);
    }

    /// Once the host knows all that happened, nothing that it queues later can be unordered with it. To be
    /// called when nothing is queued. Whether that was so: then all else that knows of the past may forget it
    /// too.
    pub(super) fn forget_what_the_host_knows(&mut self) -> bool {
        let knows_all = self.latest.iter().all(|(&agent, &time)| self.host.holds(agent, time));
        if knows_all {
            self.segments.clear();
            self.latest.clear();
            self.host = Past::default();
            self.most = 0;
        }
        knows_all
    }

    /// Whether it pays to look for what can be forgotten one by one.
    pub(super) fn is_large(&self) -> bool {
        self.segments.len() > 2 * self.most.max(SEGMENTS)
    }

    /// Forgets uses that the host and all of `pasts` know, which are those of all that may come.
    pub(super) fn forget_what_is_in(&mut self, pasts: &[Past]) {
        let host = &self.host;
        self.segments.retain(|_, segment| {
            segment.uses.retain(|used| {
                let Doer { agent, time, .. } = *used.doer;
                !(host.holds(agent, time) && pasts.iter().all(|past| past.holds(agent, time)))
            });
            !segment.uses.is_empty()
        });
        self.most = self.segments.len();
    }

    /// Notes what an operation used. The first of its uses that an earlier one is not ordered with comes
    /// back; it is not noted, nor are those after it.
    ///
    /// Kernels may also order each other: who uses by an atomic what another wrote by one is taken to follow
    /// it, with all that it does.
    pub(super) fn note(&mut self, turn: &mut Turn, deed: Deed, runs: Vec<Run>) -> Result<(), Unordered> {
        let reached = self.latest.entry(turn.agent).or_default();
        *reached = (*reached).max(turn.time);
        for run in runs.iter().filter(|run| matches!(run.manner, Manner::AtomicRead | Manner::AtomicWrite)) {
            self.follow_atomics(turn, run.bytes.clone());
        }
        let lines = runs[..runs.len().min(LINES)].to_vec();
        let doer = Doer { agent: turn.agent, time: turn.time, past: turn.past.clone(), deed, lines };
        let doer = Arc::new(doer);
        // Neighbours that differ in their line alone are one use.
        let is_next = |a: &Run, b: &Run| a.manner == b.manner && a.bytes.end == b.bytes.start;
        for runs in runs.chunk_by(is_next) {
            let (Some(first), Some(last)) = (runs.first(), runs.last()) else { continue };
            let new = Use { doer: doer.clone(), manner: first.manner };
            self.add(first.bytes.start..last.bytes.end, &new, &turn.past)?;
        }
        Ok(())
    }

    fn follow_atomics(&self, turn: &mut Turn, bytes: Range<usize>) {
        let before = self.segments.range(..bytes.start).next_back();
        let before = before.filter(|(_, segment)| segment.end > bytes.start);
        for (_, segment) in before.into_iter().chain(self.segments.range(bytes)) {
            for earlier in segment.uses.iter().filter(|earlier| earlier.manner == Manner::AtomicWrite) {
                turn.past.join(&earlier.doer.past);
            }
        }
    }

    /// Memory is there from operation `time` of `agent` on.
    pub(super) fn allocated(&mut self, bytes: Range<usize>, agent: Agent, time: Time) {
        if time == 0 || self.host.holds(agent, time) {
            return;
        }
        let reached = self.latest.entry(agent).or_default();
        *reached = (*reached).max(time);
        let mut past = self.host.clone();
        past.reach(agent, time);
        let deed = Deed::Other("the allocation of the memory");
        let doer = Arc::new(Doer { agent, time, past, deed, lines: Vec::new() });
        let uses = vec![Use { doer, manner: Manner::Write }];
        self.segments.insert(bytes.start, Segment { end: bytes.end, uses });
    }

    /// Memory is gone: nothing has the same addresses again.
    pub(super) fn released(&mut self, bytes: Range<usize>) {
        self.split(bytes.start);
        self.split(bytes.end);
        self.remove(bytes);
    }

    fn remove(&mut self, bytes: Range<usize>) {
        let keys: Vec<usize> = self.segments.range(bytes).map(|(&start, _)| start).collect();
        keys.iter().for_each(|start| {
            self.segments.remove(start);
        });
    }

    /// Makes `at` a boundary between segments.
    fn split(&mut self, at: usize) {
        let Some((_, segment)) = self.segments.range_mut(..at).next_back() else { return };
        if segment.end > at {
            let rest = Segment { end: segment.end, uses: segment.uses.clone() };
            segment.end = at;
            self.segments.insert(at, rest);
        }
    }

    fn add(&mut self, bytes: Range<usize>, new: &Use, past: &Past) -> Result<(), Unordered> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.split(bytes.start);
        self.split(bytes.end);
        let known = |other: &Use| past.holds(other.doer.agent, other.doer.time);
        let (mut at, mut gaps, mut alone) = (bytes.start, Vec::new(), true);
        for (&start, segment) in self.segments.range_mut(bytes.clone()) {
            if at < start {
                gaps.push(at..start);
            }
            at = segment.end;
            let conflicting = |other: &&Use| new.manner.conflicts_with(other.manner) && !known(other);
            if let Some(other) = segment.uses.iter().find(conflicting) {
                let told = other.told(new.doer.agent, start);
                return Err(Unordered { address: start, manner: new.manner, told });
            }
            segment
                .uses
                .retain(|other| !(other.is_same_as(new) || new.manner.covers(other.manner) && known(other)));
            alone &= segment.uses.is_empty();
            segment.uses.push(new.clone());
        }
        if at < bytes.end {
            gaps.push(at..bytes.end);
        }
        if alone {
            self.remove(bytes.clone());
            gaps = vec![bytes];
        }
        for gap in gaps {
            self.segments.insert(gap.start, Segment { end: gap.end, uses: vec![new.clone()] });
        }
        Ok(())
    }
}

impl Use {
    /// Who did what to the byte at `address` and where, for somebody who is `reader`.
    fn told(&self, reader: Agent, address: usize) -> String {
        let Doer { agent, deed, lines, .. } = &*self.doer;
        let whose = match (agent.device == reader.device, agent.stream == reader.stream) {
            (false, _) => "on a stream of another device",
            (true, false) => "on another stream",
            (true, true) => "in another branch of the graph",
        };
        match deed {
            Deed::Other(what) => format!("{what} {} {whose}", self.manner.verb()),
            Deed::Kernel { name, line } => {
                let there =
                    lines.iter().find(|run| run.manner == self.manner && run.bytes.contains(&address));
                let site = there.and_then(|run| line(run.code));
                let place = site.map_or_else(String::new, |site| format!(" ({site})"));
                format!("kernel '{name}' {} {whose}{place}", self.manner.verb())
            }
        }
    }
}
