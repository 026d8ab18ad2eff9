//! What faults say: memory by the kernel's parameters, threads by their blocks, calls by their lines.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::access::Touch;
use super::block::{Agent, CallSite, Wait};
use super::cluster::unravel;
use super::launch::{Launch, Stop};
use super::memory::Region;
use super::module::Entry;
use super::shadow::{Conflict, Manner};
use super::streams::Unordered;
use crate::types::{Fault, FaultKind, Site};

/// Set in the code of a call, which is else a program counter.
const OF_CALL: u32 = 1 << 31;

/// Calls that accesses were made by, numbered.
#[derive(Default)]
pub(super) struct Calls {
    all: Vec<CallSite>,
    codes: HashMap<(usize, u32), u32>,
}

impl Launch {
    /// A number that stands for a call in a stamp.
    pub(super) fn code_of(&mut self, site: CallSite) -> u32 {
        let Calls { all, codes } = &mut self.calls;
        *codes.entry((site.file as usize, site.line)).or_insert_with(|| {
            all.push(site);
            OF_CALL | (all.len() - 1) as u32
        })
    }

    /// The same for the call that the running thread is in.
    pub(super) fn code_of_call(&mut self) -> u32 {
        let site = self.thread().site;
        self.code_of(site)
    }

    /// The line that the code of a stamp stands for.
    pub(super) fn line_of_code(&self, code: u32) -> Option<Site> {
        if code & OF_CALL == 0 {
            return self.entry.line(code);
        }
        self.calls.all.get((code & !OF_CALL) as usize)?.site()
    }

    /// The lines of all calls that accesses were made by, for [`line_of_code`] after the launch.
    pub(super) fn call_lines(&self) -> Vec<Option<Site>> {
        self.calls.all.iter().map(CallSite::site).collect()
    }

    /// What the launch used of global memory that another stream uses too, and nothing orders the two.
    pub(super) fn unordered(&mut self, other: &Unordered) -> Box<Fault> {
        let stamp = self.global.user(other.address, other.manner);
        let site = stamp.and_then(|stamp| self.line_of_code(stamp.pc));
        let message = other.sentence(&self.describe(other.address, 1));
        let block = stamp.map_or([0; 3], |stamp| unravel(u64::from(stamp.block), self.grid.blocks));
        let threads = self.grid.threads_per_block();
        let thread = stamp.map(|stamp| u64::from(stamp.slot)).filter(|slot| *slot < threads);
        let thread = thread.map(|thread| unravel(thread, self.grid.threads));
        let address = Some(other.address as u64);
        let (kind, kernel, seed) = (FaultKind::Race, self.entry.name.clone(), self.seed);
        Box::new(Fault { kind, kernel, block, thread, address, site, message, seed })
    }

    /// Bytes as a reader of the kernel knows them: `4 bytes at byte 260 of parameter 1`, of shared memory, of
    /// a buffer.
    pub(super) fn describe(&mut self, address: usize, bytes: usize) -> String {
        if let Some(offset) = self.block().shared.offset(address, bytes) {
            return format!("{bytes} bytes at byte {offset} of shared memory");
        }
        if let Some((block, offset)) = self.of_cluster(address, bytes) {
            let number = self.blocks[block].number;
            return format!("{bytes} bytes at byte {offset} of the shared memory of block number {number}");
        }
        let region = self.region_of(address).filter(|region| address + bytes <= region.end);
        let Some(region) = region else { return format!("{bytes} bytes at {address:#x}") };
        let (at, size) = (address - region.start, region.end - region.start);
        if region.start == self.entry.variables().start {
            return format!("{bytes} bytes at byte {at} of {size} bytes of __device__ variables");
        }
        match self.parameter_in(&region, address) {
            Some((parameter, start)) => {
                format!("{bytes} bytes at byte {} of parameter {parameter}", address - start)
            }
            None => format!("{bytes} bytes at byte {at} of a buffer of {size} bytes"),
        }
    }

    /// The parameter of the kernel that points into a region, nearest before an address, and where.
    fn parameter_in(&self, region: &Region, address: usize) -> Option<(usize, usize)> {
        let pointers = self.pointers.iter().copied().enumerate();
        pointers.filter(|(_, at)| *at >= region.start && *at <= address).max_by_key(|(_, at)| *at)
    }

    pub(super) fn whereabouts(&mut self, address: usize, after: usize) -> String {
        let shared = self.block().shared.bytes;
        let base = self.block().shared.base();
        if shared > 0 && address >= base && address < base + shared + 4096 {
            return format!("{} bytes into the block's {shared} bytes of shared memory", address - base);
        }
        let before = after.checked_sub(1).map(|index| self.regions[index]);
        let Some(region) = before.filter(|region| address < region.end + 4096) else {
            return "in no buffer of this device".into();
        };
        let size = region.end - region.start;
        if region.start == self.entry.variables().start {
            return format!("{} bytes into {size} bytes of __device__ variables", address - region.start);
        }
        let of = self.pointers.iter().position(|&at| at >= region.start && at < region.end);
        let of = of.map_or_else(String::new, |parameter| format!(", which parameter {parameter} points to"));
        format!("{} bytes into a buffer of {size} bytes{of}", address - region.start)
    }

    pub(super) fn told(&mut self, touch: &Touch) -> String {
        let verb = match (touch.manner, touch.write) {
            (Manner::Atomic(..), true) if touch.updates => "updates atomically",
            (Manner::Reduction, _) => "updates atomically",
            (_, true) => "writes",
            (_, false) => "reads",
        };
        format!("{verb} {}", self.describe(touch.address, touch.bytes))
    }

    /// Two accesses that nothing orders, each with what it does, who does it and where.
    pub(super) fn race(&mut self, touch: Touch, other: Conflict, home: Option<u32>) -> Stop {
        let stamp = other.access.stamp;
        let who = self.agent_of(stamp.block, stamp.slot);
        let place = self.line_of_code(stamp.pc).map_or_else(String::new, |site| format!(" at {site}"));
        let verb = if other.wrote { "writes" } else { "reads" };
        let hint = self.hint(&touch, &other, home);
        let told = self.told(&touch);
        let message = format!("race: {told}, which {who} {verb}{place}; nothing orders the two{hint}");
        self.fault_touch(FaultKind::Race, touch, message)
    }

    /// What is missing, where that is more than a barrier.
    fn hint(&self, touch: &Touch, other: &Conflict, home: Option<u32>) -> String {
        let block = other.access.stamp.block;
        let fence = match home {
            None => "fence_async_proxy_global",
            Some(home) if home == block => "fence_async_proxy_shared",
            Some(_) => "fence_async_proxy_cluster",
        };
        match touch.manner {
            Manner::AsyncProxy | Manner::Reduction if other.lacks_proxy_fence => {
                format!(
                    " for the asynchronous proxy: who writes must also call {fence} before the barrier, so that a bulk copy \
                     or wgmma may follow"
                )
            }
            Manner::Atomic(_, width) if other.access.is_atomic_of_another_size(width) => {
                " (atomics of two sizes are not atomic to each other)".into()
            }
            Manner::Atomic(scope, _) if other.access.is_atomic() => {
                format!(" (an atomic of scope {scope:?} reaches no further)")
            }
            Manner::ReadOnly => {
                " (a load through the read-only path may see what was there before the kernel, whatever orders the two)".into()
            }
            _ if other.access.is_read_only() => {
                " (it is loaded through the read-only path, which may not see what the kernel writes)".into()
            }
            _ => String::new(),
        }
    }

    /// An agent by the number of its block and its own.
    fn agent_of(&mut self, number: u32, slot: u16) -> String {
        let mine = self.block().number;
        let index = unravel(u64::from(number), self.grid.blocks);
        let of = if number == mine { String::new() } else { format!(" of block {index:?}") };
        let threads = self.grid.threads_per_block();
        if u64::from(slot) < threads {
            return format!("thread {:?}{of}", unravel(u64::from(slot), self.grid.threads));
        }
        let block = self.blocks.iter().find(|block| block.number == number);
        let agent = block.and_then(|block| block.agents.get(usize::from(slot)));
        let thread = |thread: usize| unravel(thread as u64, self.grid.threads);
        match agent {
            None => format!("an asynchronous copy{of}"),
            Some(Agent::Thread(number)) => format!("thread {:?}{of}", thread(*number)),
            Some(Agent::Mbarrier(offset)) => {
                format!("a bulk copy for the mbarrier at shared offset {offset}{of}")
            }
            Some(Agent::CopyGroup(number)) => format!("a cp.async group of thread {:?}{of}", thread(*number)),
            Some(Agent::StoreRead(number) | Agent::StoreWrite(number)) => {
                format!("a bulk store of thread {:?}{of}", thread(*number))
            }
            Some(Agent::Products(warp)) => format!("a wgmma of warp {warp}{of}"),
        }
    }

    /// Blocks that have not been started, for who waits for one of them.
    pub(super) fn told_of_blocks(&self) -> String {
        let waiting = self.waiting_clusters.len() * self.clusters.size();
        if waiting == 0 {
            return String::new();
        }
        let running = self.blocks.iter().filter(|block| block.live > 0).count();
        format!(
            "; {waiting} blocks were never started, since those {running} that run do not end: only a cooperative launch has \
             all of its blocks at once"
        )
    }

    /// What a wait is for, and what of it has come.
    fn told_wait(&self, slot: usize, wait: Wait) -> String {
        let Wait::Mbarrier { offset, .. } = wait else { return wait.to_string() };
        let state = self.blocks[slot].mbarriers.get(&offset).map(|barrier| barrier.told());
        format!("{wait}{}", state.map_or_else(String::new, |state| format!(", {state}")))
    }

    pub(super) fn report_deadlock(&mut self) {
        let mut waits: BTreeMap<(usize, Wait, u32), Vec<usize>> = BTreeMap::new();
        for (slot, block) in self.blocks.iter().enumerate() {
            for (thread, state) in block.threads.iter().enumerate().filter(|(_, state)| !state.done) {
                waits.entry((slot, state.waiting, state.site.line)).or_default().push(thread);
            }
        }
        // Who waits for a whole cluster or grid waits for somebody who waits for something else.
        let is_cause = |wait: Wait| !matches!(wait, Wait::Cluster | Wait::Grid);
        let cause = waits.iter().find(|((_, wait, _), _)| is_cause(*wait));
        let Some((&(slot, _, _), threads)) = cause.or_else(|| waits.first_key_value()) else { return };
        let (block, site) = (self.blocks[slot].index, self.blocks[slot].threads[threads[0]].site.site());
        let ended = self.blocks[slot].threads.len() - self.blocks[slot].live;
        let told: Vec<String> = waits
            .iter()
            .filter(|((other, ..), _)| *other == slot)
            .map(|((_, wait, line), threads)| {
                let wait = self.told_wait(slot, *wait);
                format!("{} of the block wait for {wait} (line {line})", ranges(threads))
            })
            .chain((ended > 0).then(|| format!("{ended} threads of it have ended")))
            .collect();
        self.fault = Some(Box::new(Fault {
            kind: FaultKind::Deadlock,
            kernel: self.entry.name.clone(),
            block,
            thread: None,
            address: None,
            site,
            message: format!("deadlock: {}{}", told.join("; "), self.told_of_blocks()),
            seed: self.seed,
        }));
    }
}

/// The line that the code of a stamp stands for, of a launch that has ended.
pub(super) fn line_of_code(entry: &Entry, calls: &[Option<Site>], code: u32) -> Option<Site> {
    if code & OF_CALL == 0 {
        return (code != 0).then(|| entry.line(code)).flatten();
    }
    calls.get((code & !OF_CALL) as usize)?.clone()
}

/// `threads 0-31, 64` from a sorted list.
fn ranges(threads: &[usize]) -> String {
    let mut runs: VecDeque<(usize, usize)> = VecDeque::new();
    for &thread in threads {
        match runs.back_mut() {
            Some((_, last)) if *last + 1 == thread => *last = thread,
            _ => runs.push_back((thread, thread)),
        }
    }
    let told: Vec<String> =
        runs.iter().map(|&(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") }).collect();
    format!("threads {}", told.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_read_well() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "threads 0-2, 5, 7-8");
    }
}
