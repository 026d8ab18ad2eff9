//! Graphs: work recorded once and launched many times.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};

use crate::buffer::{Allocation, DeferredFree};
use crate::driver::{Function, GraphId, NodeId};
use crate::kernel::{Arg, Kernel};
use crate::locked::Locked;
use crate::pinned::{DeviceUse, PinnedBlock};
use crate::types::Grid;
use crate::{Device, Error, Result, Stream};

/// Memory that a graph's nodes point into, and so must live as long as the graph.
pub(crate) enum Retained {
    Device(Arc<Allocation>),
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
    members: Vec<Stream>,
    kernels: Vec<GraphKernel>,
    retained: Vec<Retained>,
    /// Memory that was let go of meanwhile.
    frees: Vec<DeferredFree>,
    broken: Option<(String, String)>,
}

impl Capture {
    pub(crate) fn new(stream: &Stream) -> Self {
        let state = State { members: vec![stream.clone()], ..State::default() };
        Self { device: stream.device().clone(), open: AtomicBool::new(true), state: Locked::new(state) }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    pub(crate) fn join(&self, stream: &Stream) {
        self.lock().members.push(stream.clone());
    }

    pub(crate) fn retain(&self, retained: Retained) {
        self.lock().retained.push(retained);
    }

    pub(crate) fn add_kernel(&self, kernel: GraphKernel) {
        self.lock().kernels.push(kernel);
    }

    /// Keeps a block until the capture has ended: a graph must not hide a free, nor an event that one waits for.
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
        let state = self.close();
        let id = ended.map_err(|error| Error::Capture {
            call: state.kernels.last().map_or_else(
                || "Stream::capture".into(),
                |last| format!("a call after the launch of '{}'", last.name),
            ),
            reason: error.to_string(),
        })?;
        let mut graph =
            GraphShared { device: self.device.clone(), id, allocations: Vec::new(), pinned: Vec::new() };
        for retained in state.retained {
            match retained {
                Retained::Device(allocation) => graph.allocations.push(allocation),
                Retained::Pinned(block, device_use) => graph.pinned.push((block, device_use)),
            }
        }
        // Each block once, for the most that is done to it, in the one order in which launches lock them.
        graph.pinned.sort_by_key(|(block, device_use)| (Arc::as_ptr(block), Reverse(*device_use)));
        graph.pinned.dedup_by(|(later, _), (earlier, _)| Arc::ptr_eq(later, earlier));
        Ok(Graph { shared: graph, kernels: state.kernels })
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
            member.leave_capture();
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
    pub(crate) allocations: Vec<Arc<Allocation>>,
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
}

struct GraphShared {
    device: Device,
    id: GraphId,
    allocations: Vec<Arc<Allocation>>,
    pinned: Vec<(Arc<PinnedBlock>, DeviceUse)>,
}

impl Graph {
    /// Queues one run of the whole graph.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        self.shared.device.require_same(stream.device(), "Graph::launch")?;
        stream.forbid_in_capture("Graph::launch", "a graph cannot be launched inside another capture")?;
        let pinned = &self.shared.pinned;
        let mut states = pinned
            .iter()
            .map(|(block, device_use)| block.lock_for(*device_use))
            .collect::<Result<Vec<_>>>()?;
        self.shared.device.driver().graph_launch(self.shared.id, stream.id())?;
        let of_kernels = self.kernels.iter().flat_map(|kernel| &kernel.allocations);
        for allocation in of_kernels.chain(&self.shared.allocations) {
            allocation.visit(stream);
        }
        let mut noted = Ok(());
        for ((block, _), state) in pinned.iter().zip(&mut states) {
            noted = noted.and(block.note_use(state, stream));
        }
        noted
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
        found.allocations = arguments.iter().filter_map(Arg::allocation).cloned().collect();
        Ok(())
    }
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
