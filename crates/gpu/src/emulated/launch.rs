//! One launch: its blocks, its threads as fibers, and the loop that decides who runs.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use corosensei::stack::{DefaultStack, Stack};
use corosensei::{Coroutine, CoroutineResult};

use super::access::Published;
use super::barrier::{ClusterBarrier, GridBarrier};
use super::block::{Block, CallSite, Fiber, Thread, Wait};
use super::clocks::Slot;
use super::cluster::Clusters;
use super::copy::Flight;
use super::interruption::{self, Guard};
use super::memory::Region;
use super::module::Entry;
use super::schedule::Schedule;
use super::shadow::{GlobalShadow, Stamp};
use super::streams::{Deed, Turn, Usage};
use super::telling::{self, Calls};
use crate::abi::Rule;
use crate::types::{Emulation, Fault, FaultKind, Grid, Overflow, Prints, Site};

/// Stack of one thread.
const STACK_BYTES: usize = 256 << 10;
/// Below this much a function may not be entered: its own frame (64 KiB at most, as the compiler checks) and
/// the runtime's must still fit above the guard page.
const STACK_RESERVE: usize = 128 << 10;
/// Blocks of an ordinary launch that run side by side.
const RESIDENT_BLOCKS: usize = 4;
/// Blocks of a launch: they are listed to be shuffled, and more would take days.
pub(super) const MOST_BLOCKS: u64 = 1 << 24;
/// Threads that a cooperative launch may keep at once: each has a stack with a guard page of its own.
pub(super) const COOPERATIVE_THREADS: u64 = 8192;
/// Atomic loads and failed waits, with no store by any thread between them, after which a launch spins for
/// ever.
const QUIET_LIMIT: u64 = 2_000_000;
/// Polls in a row and no store after which the schedule turns kind: threads may be spinning for a copy that
/// has not landed, or for a thread that it starves.
const PATIENCE: u64 = 10_000;

thread_local! {
    /// The launch whose thread is running on this system thread.
    static CURRENT: Cell<*mut Launch> = const { Cell::new(std::ptr::null_mut()) };
    /// Stacks of finished threads, for the next launch.
    static STACKS: Cell<Vec<DefaultStack>> = const { Cell::new(Vec::new()) };
}

/// A fault was recorded: the thread that caused it never runs again.
#[derive(Debug)]
pub(super) struct Stop;

/// Whether a thread goes on after a call, or waits until another wakes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Go,
    Wait,
}

pub(super) type Step = Result<Flow, Stop>;

/// Everything about one launch. Fibers reach it through [`with`].
pub(super) struct Launch {
    pub(super) entry: Arc<Entry>,
    pub(super) grid: Grid,
    pub(super) seed: u64,
    overflow: Overflow,
    pub(super) prints: Prints,
    /// Calls that asynchronous accesses were issued by, by their codes.
    pub(super) calls: Calls,
    argument_pointers: Vec<*mut c_void>,
    /// Where the arguments lie: each thread starts by copying them to its stack.
    pub(super) arguments: Vec<Range<usize>>,
    /// The parameters as addresses; 0 for one that has another size.
    pub(super) pointers: Vec<usize>,
    pub(super) regions: Vec<Region>,
    pub(super) last_region: usize,
    pub(super) schedule: Schedule,
    pub(super) blocks: Vec<Block>,
    pub(super) clusters: Clusters,
    pub(super) cluster_barriers: Vec<ClusterBarrier>,
    pub(super) waiting_clusters: Vec<u64>,
    ready: Vec<(usize, usize)>,
    pub(super) flights: Vec<Flight>,
    pub(super) global: GlobalShadow,
    /// What atomics on an address have been given to pass on.
    pub(super) published: HashMap<usize, Published>,
    pub(super) grid_barrier: GridBarrier,
    current: (usize, usize),
    fuel: u32,
    pub(super) quiet: u64,
    pub(super) fault: Option<Box<Fault>>,
    /// The first load of bytes that nobody has written.
    pub(super) unwritten: Option<Box<Fault>>,
}

/// How the device runs launches, and the seed of this one, which follows from the device's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) how: Emulation,
    pub(super) seed: u64,
}

/// Runs a kernel over a grid, in a stream's turn. Regions are the memory it may touch, sorted by address.
pub(super) fn run(
    entry: &Arc<Entry>,
    grid: &Grid,
    arguments: &[Vec<u8>],
    regions: Vec<Region>,
    terms: Terms,
    (usage, turn): (&mut Usage, &mut Turn),
) -> Result<(), Box<Fault>> {
    let pointers = arguments.iter().map(|bytes| address_of(bytes)).collect();
    let mut arguments: Vec<Vec<u128>> = arguments.iter().map(|bytes| aligned_copy(bytes)).collect();
    let argument_pointers = arguments.iter_mut().map(|words| words.as_mut_ptr().cast()).collect();
    let argument_ranges = arguments.iter().map(|words| words.as_ptr_range());
    let argument_ranges = argument_ranges.map(|range| range.start as usize..range.end as usize).collect();
    let mut schedule = Schedule::new(terms.seed);
    let clusters = Clusters::new(grid);
    let mut waiting_clusters: Vec<u64> = (0..grid.block_count() / clusters.size() as u64).collect();
    for last in (1..waiting_clusters.len()).rev() {
        waiting_clusters.swap(last, schedule.below(last + 1));
    }
    let mut launch = Launch {
        entry: entry.clone(),
        grid: *grid,
        seed: terms.how.seed,
        overflow: terms.how.overflow,
        prints: terms.how.prints,
        calls: Calls::default(),
        argument_pointers,
        arguments: argument_ranges,
        pointers,
        regions,
        last_region: 0,
        schedule,
        blocks: Vec::new(),
        clusters,
        cluster_barriers: Vec::new(),
        waiting_clusters,
        ready: Vec::new(),
        flights: Vec::new(),
        global: GlobalShadow::default(),
        published: HashMap::new(),
        grid_barrier: GridBarrier::default(),
        current: (0, 0),
        fuel: 0,
        quiet: 0,
        fault: None,
        unwritten: None,
    };
    let pointer = &raw mut launch;
    let outer = CURRENT.replace(pointer);
    let guard = Guard::new(entry, terms.how.limit);
    // SAFETY: `launch` outlives the loop, and only this system thread reaches it, through short borrows of
    // `pointer`.
    unsafe { drive(pointer) };
    drop(guard);
    CURRENT.set(outer);
    launch.reclaim_stacks();
    arguments.iter_mut().for_each(|words| words.fill(0));
    std::hint::black_box(&arguments);
    if launch.fault.is_none() {
        launch.fault = launch.settle(usage, turn);
    }
    launch.fault.take().or(launch.unwritten.take()).map_or(Ok(()), Err)
}

/// # Safety
/// `launch` is valid and reached by nobody else; borrows of it end before a fiber is resumed.
unsafe fn drive(launch: *mut Launch) {
    loop {
        // SAFETY: as the caller promises; the borrow ends with the statement.
        let next = unsafe { &mut *launch }.next_thread();
        let Some((block, thread, mut fiber)) = next else { return };
        let outcome = fiber.resume(());
        // SAFETY: as above.
        unsafe { &mut *launch }.returned(
            block,
            thread,
            fiber,
            matches!(outcome, CoroutineResult::Return(())),
        );
    }
}

/// Lets a runtime function work on the launch whose thread called it.
pub(super) fn with<R>(work: impl FnOnce(&mut Launch) -> R) -> R {
    let launch = CURRENT.get();
    // SAFETY: kernels run only inside `run`, which set the pointer; no other borrow is alive while a fiber
    // runs, and `work` does not switch fibers.
    work(unsafe { &mut *launch })
}

/// Carries out a call that may have to wait; comes back when the thread may go on, and not at all after a
/// fault.
pub(super) fn step(work: impl FnOnce(&mut Launch) -> Step) {
    match with(work) {
        Ok(Flow::Go) => {}
        Ok(Flow::Wait) => suspend(),
        Err(Stop) => loop {
            suspend();
        },
    }
}

/// The highest address of the stack of the thread that runs. For the handler of signals, in kernel code.
pub(super) fn stack_top() -> usize {
    with(|launch| launch.stack().1)
}

fn suspend() {
    let yielder = with(|launch| launch.thread().yielder);
    // SAFETY: the yielder belongs to the running fiber and lives as long as its body.
    unsafe { &*yielder }.suspend(());
}

impl Launch {
    pub(super) fn thread(&mut self) -> &mut Thread {
        let (block, thread) = self.current;
        &mut self.blocks[block].threads[thread]
    }

    pub(super) fn block(&mut self) -> &mut Block {
        &mut self.blocks[self.current.0]
    }

    /// Index of the running thread in its block.
    pub(super) fn current_thread(&self) -> usize {
        self.current.1
    }

    pub(super) fn current_block(&self) -> usize {
        self.current.0
    }

    /// Makes another thread the one that checks and faults speak of.
    pub(super) fn run_as(&mut self, block: usize, thread: usize) {
        self.current = (block, thread);
    }

    /// The stamp of an ordinary access by the running thread.
    pub(super) fn own_stamp(&mut self, pc: u32) -> Stamp {
        let slot = self.current.1 as Slot;
        let block = self.block();
        Stamp { block: block.number, slot, time: block.threads[usize::from(slot)].time, pc }
    }

    /// Puts the running thread to sleep.
    pub(super) fn wait(&mut self, waiting: Wait, site: CallSite) -> Flow {
        let thread = self.thread();
        thread.waiting = waiting;
        thread.site = site;
        Flow::Wait
    }

    pub(super) fn wake(&mut self, block: usize, thread: usize) {
        let sleeper = &mut self.blocks[block].threads[thread];
        // The thread that completes a barrier is among those it releases, and is not asleep.
        if sleeper.waiting != Wait::Nothing {
            sleeper.waiting = Wait::Nothing;
            self.ready.push((block, thread));
        }
    }

    /// Gives another thread a turn.
    pub(super) fn preempt(&mut self) -> Flow {
        self.thread().site = CallSite::NOWHERE;
        self.ready.push(self.current);
        Flow::Wait
    }

    /// Counts an access; now and then it is another thread's turn.
    pub(super) fn burn(&mut self) -> Flow {
        self.fuel = self.fuel.saturating_sub(1);
        if self.fuel == 0 { self.preempt() } else { Flow::Go }
    }

    /// The turn of an access that others may wait for or answer: often it is another thread's then.
    pub(super) fn may_preempt(&mut self) -> Flow {
        if self.schedule.below(4) == 0 { self.preempt() } else { self.burn() }
    }

    /// Counts a load that may be a poll, as far as makes turns fair: it may as well be one of data.
    pub(super) fn count_volatile(&mut self) {
        self.quiet += u64::from(self.quiet <= PATIENCE);
    }

    /// Counts polls between writes, so that a spin that nobody ends is found.
    pub(super) fn count_quiet(&mut self) -> Result<(), Stop> {
        self.quiet += 1;
        if self.quiet < QUIET_LIMIT {
            return Ok(());
        }
        let message = format!(
            "{QUIET_LIMIT} polls in a row and no store: the kernel spins for a value that nobody writes{}",
            self.told_of_blocks()
        );
        Err(self.fault(FaultKind::Deadlock, None, None, message))
    }

    /// Records a fault of the running thread.
    pub(super) fn fault(
        &mut self,
        kind: FaultKind,
        address: Option<usize>,
        site: Option<Site>,
        message: String,
    ) -> Stop {
        let fault = self.make_fault(kind, address, site, message);
        self.fault.get_or_insert(fault);
        Stop
    }

    pub(super) fn make_fault(
        &mut self,
        kind: FaultKind,
        address: Option<usize>,
        site: Option<Site>,
        message: String,
    ) -> Box<Fault> {
        let (kernel, seed) = (self.entry.name.clone(), self.seed);
        let block = self.block().index;
        let thread = Some(self.thread().index);
        let address = address.map(|address| address as u64);
        Box::new(Fault { kind, kernel, block, thread, address, site, message, seed })
    }

    /// Records a fault at a call that knows its place.
    pub(super) fn fault_at(&mut self, kind: FaultKind, site: CallSite, message: String) -> Stop {
        self.fault(kind, None, site.site(), message)
    }

    /// A function of the kernel begins, with its frame above `frame`.
    pub(super) fn enter(&mut self, frame: usize) -> Step {
        let (low, _) = self.stack();
        self.thread().frames.push(frame);
        if frame - low >= STACK_RESERVE {
            return Ok(Flow::Go);
        }
        let message =
            format!("calls nest deeper than a thread's stack of {} bytes", STACK_BYTES - STACK_RESERVE);
        Err(self.fault(FaultKind::StackOverflow, None, None, message))
    }

    pub(super) fn leave(&mut self) {
        self.thread().frames.pop();
    }

    /// The compiler's own checks found a rule of the language broken.
    pub(super) fn misuse(&mut self, rule: Rule, site: Option<Site>) -> Step {
        if rule == Rule::Overflow && self.overflow == Overflow::Wraps {
            return Ok(Flow::Go);
        }
        let (kind, message) = match rule {
            Rule::ArrayBounds => {
                (FaultKind::OutOfBounds, "an index beyond the end of an array of the thread's own")
            }
            Rule::DivisionByZero => (FaultKind::DivisionByZero, "an integer is divided by zero"),
            Rule::Shift => (
                FaultKind::OutOfRange,
                "a shift by the integer's width or more: use gw::shift_left or shift_right",
            ),
            Rule::Conversion => (
                FaultKind::OutOfRange,
                "a float that the integer cannot hold: use gw::f32_to_i32 or f32_to_u32",
            ),
            Rule::Overflow => (
                FaultKind::Overflow,
                "a signed integer overflows: the language leaves the result open, unsigned ones wrap",
            ),
            Rule::MissingReturn => {
                (FaultKind::OutOfRange, "a function that returns a value ends without a return")
            }
            Rule::Trap => (FaultKind::Trap, "the kernel was given what it does not know, and stopped itself"),
        };
        Err(self.fault(kind, None, site, message.into()))
    }

    /// The source line of the call that returns to an address of the kernel.
    pub(super) fn line_at(&self, pc: usize) -> Option<Site> {
        self.entry.line(self.entry.offset(pc))
    }

    /// The bounds of the running thread's stack.
    pub(super) fn stack(&mut self) -> (usize, usize) {
        self.thread().stack
    }

    fn next_thread(&mut self) -> Option<(usize, usize, Fiber)> {
        loop {
            if self.fault.is_some() {
                return None;
            }
            self.fill_blocks();
            let stuck = self.ready.is_empty() || self.quiet > PATIENCE;
            if !self.flights.is_empty() && (stuck || self.schedule.lands_now()) {
                let flight = self.schedule.below(self.flights.len());
                self.land(flight);
                continue;
            }
            if self.ready.is_empty() {
                self.report_deadlock();
                return None;
            }
            let picked = if self.quiet > PATIENCE {
                self.schedule.pick_fairly(&self.ready)
            } else {
                self.schedule.pick(&self.ready, |&(block, thread)| (block * 64 + thread / 32) as u32)
            };
            let (block, thread) = self.ready.swap_remove(picked);
            self.current = (block, thread);
            self.fuel = self.schedule.fuel();
            if interruption::is_overdue() && self.stop_waiting_thread() {
                return None;
            }
            let fiber = match self.thread().fiber.take() {
                Some(fiber) => fiber,
                None => match self.start_fiber() {
                    Ok(fiber) => fiber,
                    Err(Stop) => return None,
                },
            };
            return Some((block, thread, fiber));
        }
    }

    /// Out of time: the thread that is next is to blame if it comes from a call that knows its line. Others
    /// are stopped where they are.
    fn stop_waiting_thread(&mut self) -> bool {
        let site = self.thread().site.site();
        if site.is_some() {
            self.out_of_time(site);
        }
        self.fault.is_some()
    }

    fn returned(&mut self, block: usize, thread: usize, fiber: Fiber, finished: bool) {
        if !finished {
            self.blocks[block].threads[thread].fiber = Some(fiber);
            return;
        }
        give_stack(fiber.into_stack());
        self.current = (block, thread);
        // A fault here is recorded and ends the loop.
        let _ = self.exit();
    }

    /// What the end of a thread means for those that wait for it.
    fn exit(&mut self) -> Result<(), Stop> {
        self.check_exit_copies()?;
        self.check_exit_products()?;
        self.check_exit_early()?;
        let thread = self.thread();
        thread.done = true;
        let block = self.block();
        block.live -= 1;
        self.check_block_end()?;
        let block = self.block();
        if block.barriers[0].is_waited_for() {
            let site = block.barriers[0].site();
            let index = self.thread().index;
            return Err(self.fault_at(
                FaultKind::Divergence,
                site,
                format!("threads wait at sync_threads, but thread {index:?} has ended without it"),
            ));
        }
        let warp = self.current.1 / 32;
        self.lane_left(self.current.0, warp)?;
        self.cluster_member_left();
        self.grid_member_left()
    }

    /// Whoever waits for this launch waits for those before it only if every thread of this one did.
    fn check_exit_early(&mut self) -> Result<(), Stop> {
        if !self.grid.early || self.thread().awaited {
            return Ok(());
        }
        let message =
            "the thread of a launch that starts early ends without gw::await_stream(): the launch may end \
                       before the work that it follows"
                .into();
        let site = self.entry.definition();
        Err(self.fault(FaultKind::Protocol, None, site, message))
    }

    /// Starts clusters of blocks while there is room for more.
    fn fill_blocks(&mut self) {
        let size = self.clusters.size();
        let limit = if self.grid.cooperative { usize::MAX } else { (RESIDENT_BLOCKS / size).max(1) };
        for group in 0..self.blocks.len() / size {
            let members = group * size..(group + 1) * size;
            if self.waiting_clusters.is_empty() {
                return;
            }
            if self.blocks[members].iter().all(|block| block.live == 0) {
                self.start_cluster(group);
            }
        }
        while self.blocks.len() / size < limit && !self.waiting_clusters.is_empty() {
            self.start_cluster(self.blocks.len() / size);
        }
    }

    /// Starts the next cluster in the place of number `group`.
    fn start_cluster(&mut self, group: usize) {
        let Some(cluster) = self.waiting_clusters.pop() else { return };
        let threads = self.grid.threads_per_block() as usize;
        for (rank, number) in self.clusters.members(cluster).enumerate() {
            let block = Block::new(number as u32, rank as u32, &self.grid, &self.clusters);
            let slot = group * self.clusters.size() + rank;
            match self.blocks.get_mut(slot) {
                Some(former) => *former = block,
                None => self.blocks.push(block),
            }
            self.ready.extend((0..threads).map(|thread| (slot, thread)));
        }
        match self.cluster_barriers.get_mut(group) {
            Some(former) => *former = ClusterBarrier::default(),
            None => self.cluster_barriers.push(ClusterBarrier::default()),
        }
    }

    fn start_fiber(&mut self) -> Result<Fiber, Stop> {
        let stack = take_stack().map_err(|error| {
            let message = format!("the machine has no memory for the stack of another thread: {error}");
            self.fault(FaultKind::Exhausted, None, None, message)
        })?;
        let bounds = (stack.limit().get(), stack.base().get());
        let invoke = self.entry.invoke;
        let arguments = self.argument_pointers.as_mut_ptr() as usize;
        self.thread().stack = bounds;
        Ok(Coroutine::with_stack(stack, move |yielder, ()| {
            // What lies above belongs to this closure and to the switch between fibers.
            let top = (&raw const yielder) as usize;
            with(|launch| {
                let thread = launch.thread();
                thread.yielder = std::ptr::from_ref(yielder);
                thread.stack.1 = top;
            });
            // SAFETY: the entry was described by the same library, and `arguments` holds one pointer a
            // parameter, each to a value of the parameter's size; both outlive the fiber.
            unsafe { invoke(arguments as *mut *mut c_void) };
        }))
    }

    /// Tells other streams what the launch used of memory, and finds who used it without an order between the
    /// two.
    fn settle(&mut self, usage: &mut Usage, turn: &mut Turn) -> Option<Box<Fault>> {
        let (entry, calls) = (self.entry.clone(), self.call_lines());
        let line = move |code| telling::line_of_code(&entry, &calls, code);
        let deed = Deed::Kernel { name: self.entry.name.clone(), line: Box::new(line) };
        let unordered = usage.note(turn, deed, self.global.runs()).err()?;
        Some(self.unordered(&unordered))
    }

    /// Abandons fibers that a fault left suspended. Kernels own nothing that would need unwinding.
    fn reclaim_stacks(&mut self) {
        for thread in self.blocks.iter_mut().flat_map(|block| &mut block.threads) {
            if let Some(mut fiber) = thread.fiber.take() {
                if fiber.started() && !fiber.done() {
                    // SAFETY: the frames on the stack are the kernel's and the runtime's own, which hold no
                    // resources.
                    unsafe { fiber.force_reset() };
                }
                give_stack(fiber.into_stack());
            }
        }
    }
}

/// Bytes of a stack in which a kernel's arguments and locals lie.
const STACK_WIPED: usize = 8 << 10;
/// Stacks kept for reuse by one system thread.
const STACKS_KEPT: usize = 4096;

fn take_stack() -> std::io::Result<DefaultStack> {
    let mut stacks = STACKS.take();
    let stack = stacks.pop();
    STACKS.set(stacks);
    stack.map_or_else(|| DefaultStack::new(STACK_BYTES), Ok)
}

/// A stack stands for registers, which keep nothing of a kernel that has ended.
fn give_stack(stack: DefaultStack) {
    let base = stack.base().get() as *mut u8;
    // SAFETY: the stack reaches further down from its base, and no fiber runs on it any more.
    unsafe { std::ptr::write_bytes(base.sub(STACK_WIPED), 0, STACK_WIPED) };
    let mut stacks = STACKS.take();
    if stacks.len() < STACKS_KEPT {
        stacks.push(stack);
    }
    STACKS.set(stacks);
}

/// A parameter as an address.
fn address_of(bytes: &[u8]) -> usize {
    bytes.try_into().map_or(0, usize::from_le_bytes)
}

fn aligned_copy(bytes: &[u8]) -> Vec<u128> {
    let mut words = vec![0u128; bytes.len().div_ceil(16).max(1)];
    bytemuck::cast_slice_mut::<u128, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
    words
}
