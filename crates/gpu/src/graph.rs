//! Graphs: work recorded once and launched many times.

mod nodes;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock};

pub use nodes::{CopyKind, GraphChild, GraphCopy};

use crate::buffer::{Allocation, DeferredFree, Use};
use crate::driver::{Function, GraphId, NodeId};
use crate::kernel::{Arg, Kernel};
use crate::locked::Locked;
use crate::order::{self, Access, Line, Ordered, Tracking};
use crate::pinned::{DeviceUse, PinnedBlock, PinnedUse};
use crate::types::Grid;
use crate::{Device, Error, Result, Stream};

/// Memory that a graph's nodes point into, and so must live as long as the graph.
pub(crate) enum Retained {
    Device(Arc<Allocation>, Access),
    Pinned(Arc<PinnedBlock>, DeviceUse),
}

/// A capture in progress: the streams in it, what they use, and what broke it.
pub(crate) struct Capture {
    device: Device,
    open: AtomicBool,
    state: Locked<State>,
}

#[derive(Default)]
struct State {
    members: Vec<Member>,
    /// Who used which memory last in this capture, by its address.
    trackings: HashMap<usize, Arc<Tracking<Member>>>,
    kernels: Vec<GraphKernel>,
    copies: Vec<GraphCopy>,
    children: Vec<GraphChild>,
    retained: Vec<Retained>,
    /// Memory that was let go of meanwhile.
    frees: Vec<DeferredFree>,
    broken: Option<(String, String)>,
}

/// A stream in a capture. It has an order of its own there: what is recorded does not run.
#[derive(Clone)]
pub(crate) struct Member {
    stream: Stream,
    line: Arc<Line>,
}

impl Member {
    fn new(stream: &Stream) -> Self {
        Self { stream: stream.clone(), line: Line::new() }
    }
}

impl Ordered for Member {
    fn line(&self) -> &Arc<Line> {
        &self.line
    }

    /// Both are in the same capture, so that this becomes an edge of its graph.
    fn run_after(&self, other: &Self) -> Result<()> {
        let driver = self.stream.device().driver();
        let event = driver.event_create()?;
        let clock = other.line.mark();
        let ordered = driver
            .event_record(event, other.stream.id())
            .and_then(|()| driver.stream_wait(self.stream.id(), event));
        driver.event_destroy(event);
        ordered?;
        self.line.learn(&clock);
        Ok(())
    }
}

impl Capture {
    pub(crate) fn new(stream: &Stream) -> Self {
        let state = State { members: vec![Member::new(stream)], ..State::default() };
        Self { device: stream.device().clone(), open: AtomicBool::new(true), state: Locked::new(state) }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    pub(crate) fn join(&self, stream: &Stream) {
        self.lock().members.push(Member::new(stream));
    }

    /// The order of what `stream` records.
    pub(crate) fn line_of(&self, stream: &Stream) -> Arc<Line> {
        self.member(stream).line
    }

    fn member(&self, stream: &Stream) -> Member {
        let mut state = self.lock();
        let found = state.members.iter().find(|member| member.stream.is_same(stream)).cloned();
        found.unwrap_or_else(|| {
            let member = Member::new(stream);
            state.members.push(member.clone());
            member
        })
    }

    /// Records `work`, after what was recorded on other streams and conflicts with it.
    pub(crate) fn queue<'a, R>(
        &self,
        stream: &Stream,
        uses: impl Iterator<Item = Use<'a>>,
        pinned: Vec<PinnedUse>,
        work: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let member = self.member(stream);
        let device = uses.map(|used| {
            // The graph is going to use it whoever holds it then.
            used.allocation.tracking.share();
            (Arc::as_ptr(used.allocation) as usize, used.access)
        });
        let pinned = pinned.iter().map(|(block, device_use)| {
            let access = match device_use {
                DeviceUse::Reads => Access::Read,
                DeviceUse::Writes => Access::Write,
            };
            (Arc::as_ptr(block) as usize, access)
        });
        let places: Vec<(usize, Access)> = device.chain(pinned).collect();
        let trackings: Vec<(Arc<Tracking<Member>>, Access)> = {
            let mut state = self.lock();
            let mut find =
                |place| state.trackings.entry(place).or_insert_with(|| Arc::new(Tracking::unused())).clone();
            places.into_iter().map(|(place, access)| (find(place), access)).collect()
        };
        order::queued(&member, trackings.iter().map(|(tracking, access)| (&**tracking, *access)), work)
    }

    pub(crate) fn retain(&self, retained: Retained) {
        self.lock().retained.push(retained);
    }

    pub(crate) fn add_kernel(&self, kernel: GraphKernel) {
        self.lock().kernels.push(kernel);
    }

    /// Notes a copy that `stream` has just recorded.
    pub(crate) fn add_copy(
        &self,
        stream: &Stream,
        kind: CopyKind,
        bytes: usize,
        uses: &[Use<'_>],
        pinned: Option<PinnedUse>,
    ) -> Result<()> {
        let allocations = uses.iter().map(|used| (used.allocation.clone(), used.access)).collect();
        match self.device.driver().capture_last_node(stream.id()) {
            Ok(node) => {
                self.lock().copies.push(GraphCopy { kind, bytes, node, allocations, pinned });
                Ok(())
            }
            Err(error) => {
                // The driver has the copy, and with it the addresses.
                let device =
                    allocations.into_iter().map(|(allocation, access)| Retained::Device(allocation, access));
                let pinned = pinned.map(|(block, device_use)| Retained::Pinned(block, device_use));
                self.lock().retained.extend(device.chain(pinned));
                Err(error)
            }
        }
    }

    /// Keeps a block until the capture has ended: a graph must not hide a free, nor an event that one waits
    /// for.
    pub(crate) fn free_after_end(&self, free: DeferredFree) {
        self.lock().frees.push(free);
    }

    /// Marks the capture as broken by `call`; the first call that breaks it is the one reported.
    pub(crate) fn broken_by(&self, call: &str, reason: &str) -> Error {
        let mut state = self.lock();
        state.broken.get_or_insert_with(|| (call.to_owned(), reason.to_owned()));
        Error::Capture { call: call.to_owned(), reason: reason.to_owned() }
    }

    pub(crate) fn end(&self, stream: &Stream, outcome: Result<()>) -> Result<Graph> {
        let broken = self.lock().broken.take();
        let failure = match (broken, outcome) {
            (Some((call, reason)), _) => Some(Error::Capture { call, reason }),
            (None, Err(error)) => Some(error),
            (None, Ok(())) => None,
        };
        if let Some(failure) = failure {
            self.abort(stream);
            return Err(failure);
        }
        let ended = self.device.driver().capture_end(stream.id());
        let mut state = self.close();
        let id = ended.map_err(|error| Error::Capture {
            call: state.kernels.last().map_or_else(
                || "Stream::capture".into(),
                |last| format!("a call after the launch of '{}'", last.name),
            ),
            reason: error.to_string(),
        })?;
        let mut graph =
            GraphShared { device: self.device.clone(), id, allocations: Vec::new(), pinned: Vec::new() };
        for retained in std::mem::take(&mut state.retained) {
            match retained {
                Retained::Device(allocation, access) => graph.allocations.push((allocation, access)),
                Retained::Pinned(block, device_use) => graph.pinned.push((block, device_use)),
            }
        }
        let State { kernels, copies, children, .. } = state;
        Ok(Graph { shared: graph, kernels, copies, children, child_changed: false, merged: OnceLock::new() })
    }

    pub(crate) fn abort(&self, stream: &Stream) {
        self.device.driver().capture_abort(stream.id());
        self.close();
    }

    /// Releases the member streams and runs the frees that had to wait.
    fn close(&self) -> State {
        self.open.store(false, Ordering::Release);
        let mut state = std::mem::take(&mut *self.lock());
        for member in &state.members {
            member.stream.leave_capture();
        }
        // Freed when `state.frees` is dropped, now that the streams are ordinary again.
        state.frees.clear();
        state
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// A kernel inside a graph, in the order it was launched.
#[derive(Clone)]
pub struct GraphKernel {
    /// The kernel's name.
    pub name: String,
    pub(crate) kernel: Kernel,
    pub(crate) function: Function,
    pub(crate) grid: Grid,
    pub(crate) node: NodeId,
    /// The memory its arguments point into.
    pub(crate) allocations: Vec<(Arc<Allocation>, Access)>,
}

impl GraphKernel {
    /// The kernel that was launched.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }
}

impl std::fmt::Debug for GraphKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.name, self.grid)
    }
}

/// An instantiated graph. It keeps the memory its nodes use alive.
pub struct Graph {
    shared: GraphShared,
    kernels: Vec<GraphKernel>,
    copies: Vec<GraphCopy>,
    children: Vec<GraphChild>,
    /// Whether a child is another than the one that was captured: the driver has no way to copy that.
    child_changed: bool,
    /// What all nodes use, put together at the first launch after a change.
    merged: OnceLock<Merged>,
}

/// The memory of a graph, each block once, for the most that is done to it.
struct Merged {
    allocations: Vec<(Arc<Allocation>, Access)>,
    pinned: Vec<PinnedUse>,
}

struct GraphShared {
    device: Device,
    id: GraphId,
    allocations: Vec<(Arc<Allocation>, Access)>,
    pinned: Vec<PinnedUse>,
}

impl Graph {
    /// Queues one run of the whole graph. To everything else it is one use of all the memory that it uses, so
    /// that it runs after what other streams queued before and conflicts with it.
    ///
    /// Inside of a capture it becomes a child of the graph that is captured, as it is now: what is updated
    /// here later does not change it there.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        const CALL: &str = "Graph::launch";
        self.shared.device.require_same(stream.device(), CALL)?;
        let driver = self.shared.device.driver();
        let Some(capture) = stream.capture_state() else {
            return stream
                .queue(self.uses(), self.pinned(), || driver.graph_launch(self.shared.id, stream.id()));
        };
        if let Err(error) = self.require_whole(CALL) {
            return Err(capture.broken_by(CALL, &error.to_string()));
        }
        let node =
            stream.queue(self.uses(), self.pinned(), || driver.capture_child(stream.id(), self.shared.id))?;
        capture.lock().children.push(GraphChild::of(self, node));
        Ok(())
    }

    /// Refuses a graph that cannot be copied into another.
    fn require_whole(&self, call: &str) -> Result<()> {
        if !self.child_changed {
            return Ok(());
        }
        let message = format!(
            "{call}: a child of it was updated, so that it cannot be a child itself; capture it anew"
        );
        Err(Error::Graph { message })
    }

    fn pinned(&self) -> Vec<PinnedUse> {
        self.merged().pinned.clone()
    }

    /// The kernels of it and of all graphs in it.
    fn all_kernels(&self) -> Vec<Kernel> {
        let own = self.kernels.iter().map(|kernel| &kernel.kernel);
        own.chain(self.children.iter().flat_map(|child| &child.kernels)).cloned().collect()
    }

    fn uses(&self) -> impl Iterator<Item = Use<'_>> + Clone {
        self.merged().allocations.iter().map(|(allocation, access)| Use { allocation, access: *access })
    }

    fn merged(&self) -> &Merged {
        self.merged.get_or_init(|| {
            let of_kernels = self.kernels.iter().flat_map(|kernel| &kernel.allocations);
            let of_copies = self.copies.iter().flat_map(|copy| &copy.allocations);
            let of_children = self.children.iter().flat_map(|child| &child.allocations);
            let all = of_kernels.chain(of_copies).chain(of_children).chain(&self.shared.allocations);
            let mut allocations: Vec<_> = all.cloned().collect();
            allocations.sort_by_key(|(allocation, access)| (Arc::as_ptr(allocation), Reverse(*access)));
            allocations.dedup_by(|(later, _), (earlier, _)| Arc::ptr_eq(later, earlier));
            let of_copies = self.copies.iter().filter_map(|copy| copy.pinned.as_ref());
            let of_children = self.children.iter().flat_map(|child| &child.pinned);
            let pinned = self.shared.pinned.iter().chain(of_copies).chain(of_children);
            let mut pinned: Vec<PinnedUse> = pinned.cloned().collect();
            pinned.sort_by_key(|(block, device_use)| (Arc::as_ptr(block), Reverse(*device_use)));
            pinned.dedup_by(|(later, _), (earlier, _)| Arc::ptr_eq(later, earlier));
            Merged { allocations, pinned }
        })
    }

    /// The kernels in it, in the order they were launched.
    pub fn kernels(&self) -> &[GraphKernel] {
        &self.kernels
    }

    /// Gives the kernel at `index` of [`Graph::kernels`] new arguments for the launches that follow.
    pub fn update(&mut self, index: usize, arguments: &[Arg<'_>]) -> Result<()> {
        let count = self.kernels.len();
        let found = self.kernels.get_mut(index).ok_or_else(|| Error::Graph {
            message: format!("there is no kernel {index}: the graph has {count}"),
        })?;
        found.kernel.check(&self.shared.device, &found.grid, arguments)?;
        if arguments.iter().any(|argument| argument.pinned().is_some()) {
            let message = "page-locked memory stays what it was when the graph was captured";
            return Err(Error::Graph { message: message.into() });
        }
        self.shared.device.driver().graph_update(
            self.shared.id,
            found.node,
            &found.function,
            &found.grid,
            &mut arguments.iter().map(Arg::bytes),
        )?;
        // Launches before this one noted their stream with the old memory, which is freed only after them.
        found.allocations = kept(arguments);
        self.merged = OnceLock::new();
        Ok(())
    }
}

/// The memory that arguments point into, which a graph is going to use whoever holds it then.
pub(crate) fn kept(arguments: &[Arg<'_>]) -> Vec<(Arc<Allocation>, Access)> {
    let uses = arguments.iter().filter_map(Arg::used);
    uses.inspect(|used| used.allocation.tracking.share())
        .map(|used| (used.allocation.clone(), used.access))
        .collect()
}

impl Drop for GraphShared {
    fn drop(&mut self) {
        self.device.driver().graph_destroy(self.id);
    }
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Graph").field("kernels", &self.kernels).finish()
    }
}
