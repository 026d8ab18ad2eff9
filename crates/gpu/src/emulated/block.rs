//! A resident block, its threads and its shared memory.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};

use super::barrier::NamedBarrier;
use super::clocks::{Address, Knowledge, Meeting, Passage, Slot};
use super::cluster::{Clusters, unravel};
use super::marks::Marks;
use super::mbarrier::Mbarrier;
use super::memory;
use super::registers::Registers;
use super::shadow::SharedShadow;
use super::transfer::CopyGroups;
use super::warp::Warp;
use super::wgmma::WgmmaState;
use crate::types::{Grid, Site};

/// Where a call stands in the source, as the kernel passes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallSite {
    pub(super) file: *const c_char,
    pub(super) line: u32,
}

impl CallSite {
    pub(super) const NOWHERE: Self = Self { file: std::ptr::null(), line: 0 };

    pub(super) fn same_as(&self, other: &CallSite) -> bool {
        self.line == other.line && self.file == other.file
    }

    pub(super) fn site(&self) -> Option<Site> {
        if self.file.is_null() {
            return None;
        }
        // SAFETY: the pointer is of a string literal in the kernel's image, which outlives the launch.
        let file = unsafe { CStr::from_ptr(self.file) }.to_string_lossy().into_owned();
        Some(Site { file, line: self.line })
    }
}

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wait {
    Nothing,
    Barrier { id: u32 },
    Warp,
    Mbarrier { offset: usize, parity: u32 },
    Products,
    Registers { count: u32 },
    Cluster,
    Grid,
}

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Barrier { id: 0 } => f.write_str("sync_threads"),
            Self::Barrier { id } => write!(f, "named barrier {id}"),
            Self::Warp => f.write_str("the rest of the warp"),
            Self::Mbarrier { offset, parity } => {
                write!(f, "the phase of parity {parity} of the mbarrier at shared offset {offset}")
            }
            Self::Products => f.write_str("the rest of the warpgroup to issue its wgmma"),
            Self::Registers { count } => write!(f, "{count} registers a thread that others must release"),
            Self::Cluster => f.write_str("cluster_wait"),
            Self::Grid => f.write_str("sync_grid"),
        }
    }
}

/// A thread's execution, suspended wherever it waits.
pub(super) type Fiber = Coroutine<(), (), (), DefaultStack>;

/// One CUDA thread.
pub(super) struct Thread {
    pub(super) fiber: Option<Fiber>,
    /// Set by the fiber when it starts.
    pub(super) yielder: *const Yielder<(), ()>,
    /// Lowest and highest address of its stack that the kernel's frames may have.
    pub(super) stack: (usize, usize),
    /// Where the frames of the functions it is in end, innermost last.
    pub(super) frames: Vec<usize>,
    pub(super) index: [u32; 3],
    pub(super) done: bool,
    /// Whether it waited for the work before this launch.
    pub(super) awaited: bool,
    pub(super) waiting: Wait,
    pub(super) site: CallSite,
    /// The thread's own time: raised whenever others may learn what it did so far.
    pub(super) time: u32,
    pub(super) knowledge: Knowledge,
    /// What a fence made ready to be passed on by the next atomic.
    pub(super) released: Passage,
    /// What atomics brought, to be known after the next fence.
    pub(super) acquired: Passage,
    pub(super) copies: CopyGroups,
    pub(super) stores: CopyGroups,
    /// Cluster barriers that it has arrived at, and those that it has waited for.
    pub(super) cluster_arrivals: u32,
    pub(super) cluster_waits: u32,
    /// What a call that waited returns when the thread goes on.
    pub(super) result: u64,
}

/// What an agent is, for messages.
#[derive(Debug, Clone, Copy)]
pub(super) enum Agent {
    Thread(usize),
    Mbarrier(usize),
    CopyGroup(usize),
    StoreRead(usize),
    StoreWrite(usize),
    Products(usize),
}

/// A resident block.
pub(super) struct Block {
    pub(super) index: [u32; 3],
    /// Its number in the launch.
    pub(super) number: u32,
    /// Where its threads are, as scopes see it.
    pub(super) address: Address,
    /// Its number in its cluster.
    pub(super) rank: u32,
    pub(super) threads: Vec<Thread>,
    pub(super) shared: SharedMemory,
    pub(super) shadow: SharedShadow,
    /// Which bytes of shared memory somebody has written.
    pub(super) written: Marks,
    pub(super) barriers: Vec<NamedBarrier>,
    pub(super) mbarriers: BTreeMap<usize, Mbarrier>,
    /// Barriers that were invalidated: their agents, and the times these had come to.
    pub(super) retired: BTreeMap<usize, (Slot, u32)>,
    /// What threads of other blocks last did here: by block and thread, when and where.
    pub(super) visits: BTreeMap<(u32, Slot), (u32, Visit)>,
    /// Copies out of its shared memory that another block's mbarrier ends: that block, the agent, its time,
    /// and where.
    pub(super) departures: Vec<(u32, Slot, u32, CallSite)>,
    pub(super) warps: Vec<Warp>,
    pub(super) products: Vec<WgmmaState>,
    pub(super) agents: Vec<Agent>,
    /// What `setmaxnreg` deals out.
    pub(super) pool: Registers,
    /// Threads that have not ended.
    pub(super) live: usize,
}

/// Where in the source another block's shared memory was touched.
#[derive(Debug, Clone, Copy)]
pub(super) enum Visit {
    Counter(u32),
    Call(CallSite),
}

impl Block {
    pub(super) fn new(number: u32, rank: u32, grid: &Grid, clusters: &Clusters) -> Self {
        let threads = grid.threads_per_block() as usize;
        let bytes = grid.shared_bytes as usize;
        Self {
            index: unravel(u64::from(number), grid.blocks),
            number,
            address: clusters.address(number),
            rank,
            threads: (0..threads).map(|thread| Thread::new(unravel(thread as u64, grid.threads))).collect(),
            shared: SharedMemory::new(bytes),
            shadow: SharedShadow::new(bytes),
            written: Marks::new(bytes),
            pool: Registers::default(),
            barriers: (0..16).map(|_| NamedBarrier::default()).collect(),
            mbarriers: BTreeMap::new(),
            retired: BTreeMap::new(),
            visits: BTreeMap::new(),
            departures: Vec::new(),
            warps: (0..threads.div_ceil(32)).map(|_| Warp::default()).collect(),
            products: (0..threads.div_ceil(32)).map(|_| WgmmaState::default()).collect(),
            agents: (0..threads).map(Agent::Thread).collect(),
            live: threads,
        }
    }

    /// What all of its threads together know.
    pub(super) fn knowledge(&self) -> Knowledge {
        let mut meeting = Meeting::default();
        for (slot, thread) in self.threads.iter().enumerate() {
            meeting.add(&thread.knowledge, slot as Slot, thread.time);
        }
        meeting.knowledge().clone()
    }

    pub(super) fn new_agent(&mut self, agent: Agent) -> Slot {
        self.agents.push(agent);
        (self.agents.len() - 1) as Slot
    }
}

/// A block's shared memory, at a multiple of 1024 as on the hardware, poisoned.
pub(super) struct SharedMemory {
    kibibytes: Vec<Kibibyte>,
    pub(super) bytes: usize,
}

/// A kibibyte where the hardware would put it.
#[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C, align(1024))]
struct Kibibyte([u8; 1024]);

impl SharedMemory {
    fn new(bytes: usize) -> Self {
        Self { kibibytes: vec![Kibibyte([memory::POISON; 1024]); bytes.div_ceil(1024)], bytes }
    }

    pub(super) fn base(&self) -> usize {
        self.kibibytes.as_ptr() as usize
    }

    /// The offset of `address .. address + len` if it lies inside.
    pub(super) fn offset(&self, address: usize, len: usize) -> Option<usize> {
        let offset = address.wrapping_sub(self.base());
        (offset < self.bytes && len <= self.bytes - offset).then_some(offset)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.kibibytes)[..self.bytes]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.kibibytes)[..self.bytes]
    }
}

impl Thread {
    pub(super) fn new(index: [u32; 3]) -> Self {
        Self {
            fiber: None,
            yielder: std::ptr::null(),
            stack: (0, 0),
            frames: Vec::new(),
            index,
            done: false,
            awaited: false,
            waiting: Wait::Nothing,
            site: CallSite::NOWHERE,
            time: 1,
            knowledge: Knowledge::default(),
            released: Passage::default(),
            acquired: Passage::default(),
            copies: CopyGroups::default(),
            stores: CopyGroups::default(),
            cluster_arrivals: 0,
            cluster_waits: 0,
            result: 0,
        }
    }
}
