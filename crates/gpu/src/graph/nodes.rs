//! Copies and child graphs inside of a graph, and how they change.

use std::sync::{Arc, OnceLock};

use bytemuck::Pod;

use super::Graph;
use crate::buffer::{Allocation, Use, View, ViewMut};
use crate::driver::{CopyEnds, NodeId};
use crate::kernel::Kernel;
use crate::order::Access;
use crate::pinned::{DeviceUse, Pinned, PinnedUse};
use crate::{Device, Error, Result};

/// Between what a copy moves bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyKind {
    /// From device memory to device memory.
    OnDevice,
    /// From page-locked memory to the device.
    FromPinned,
    /// From the device to page-locked memory.
    ToPinned,
}

/// A copy inside a graph.
pub struct GraphCopy {
    /// The kinds of memory at both ends.
    pub kind: CopyKind,
    /// How many bytes.
    pub bytes: usize,
    pub(crate) node: NodeId,
    pub(crate) allocations: Vec<(Arc<Allocation>, Access)>,
    pub(crate) pinned: Option<PinnedUse>,
}

impl std::fmt::Debug for GraphCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {} bytes", self.kind, self.bytes)
    }
}

/// A graph that was launched inside of the capture of another, as it was then.
pub struct GraphChild {
    pub(crate) node: NodeId,
    pub(crate) allocations: Vec<(Arc<Allocation>, Access)>,
    pub(crate) pinned: Vec<PinnedUse>,
    /// Keeps what its nodes run.
    pub(crate) kernels: Vec<Kernel>,
}

impl GraphChild {
    pub(crate) fn of(graph: &Graph, node: NodeId) -> Self {
        let allocations = graph.uses().map(|used| (used.allocation.clone(), used.access)).collect();
        Self { node, allocations, pinned: graph.pinned(), kernels: graph.all_kernels() }
    }
}

impl std::fmt::Debug for GraphChild {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("GraphChild").field(&self.kernels).finish()
    }
}

/// One end of a copy.
struct End<'a> {
    device: &'a Device,
    len: usize,
    used: Option<Use<'a>>,
}

impl Graph {
    /// The copies in it, in the order they were queued. Fills, and copies of nothing, are not among them.
    pub fn copies(&self) -> &[GraphCopy] {
        &self.copies
    }

    /// The graphs in it, in the order they were launched.
    pub fn children(&self) -> &[GraphChild] {
        &self.children
    }

    /// Gives the copy at `index` of [`Graph::copies`], which is one on the device, other memory for the
    /// launches that follow. Its length may differ from before.
    pub fn update_copy<T: Pod>(
        &mut self,
        index: usize,
        from: &impl View<T>,
        to: &mut impl ViewMut<T>,
    ) -> Result<()> {
        let (from, to) = (from.view(), to.view_mut().into_slice());
        let ends = CopyEnds::OnDevice { from: from.pointer(), to: to.pointer() };
        let source = End { device: from.device(), len: from.len(), used: Some(from.used(Access::Read)) };
        let target = End { device: to.device(), len: to.len(), used: Some(to.used(Access::Write)) };
        self.change_copy::<T>(index, CopyKind::OnDevice, [source, target], None, ends)
    }

    /// The same for a copy from page-locked memory.
    pub fn update_copy_from_pinned<T: Pod>(
        &mut self,
        index: usize,
        from: &Pinned<T>,
        to: &mut impl ViewMut<T>,
    ) -> Result<()> {
        let to = to.view_mut().into_slice();
        let ends = CopyEnds::ToDevice { from: from.address(), to: to.pointer() };
        let source = End { device: from.device(), len: from.len(), used: None };
        let target = End { device: to.device(), len: to.len(), used: Some(to.used(Access::Write)) };
        let pinned = Some((from.block(), DeviceUse::Reads));
        self.change_copy::<T>(index, CopyKind::FromPinned, [source, target], pinned, ends)
    }

    /// The same for a copy to page-locked memory.
    pub fn update_copy_to_pinned<T: Pod>(
        &mut self,
        index: usize,
        from: &impl View<T>,
        to: &mut Pinned<T>,
    ) -> Result<()> {
        let from = from.view();
        let ends = CopyEnds::ToHost { from: from.pointer(), to: to.address() };
        let source = End { device: from.device(), len: from.len(), used: Some(from.used(Access::Read)) };
        let target = End { device: to.device(), len: to.len(), used: None };
        let pinned = Some((to.block(), DeviceUse::Writes));
        self.change_copy::<T>(index, CopyKind::ToPinned, [source, target], pinned, ends)
    }

    /// Puts another graph, as it is now, in the place of the one at `index` of [`Graph::children`]. It must
    /// have the same nodes with the same edges, on other memory or with other arguments.
    pub fn update_child(&mut self, index: usize, child: &Graph) -> Result<()> {
        self.shared.device.require_same(&child.shared.device, "Graph::update_child")?;
        child.require_whole("Graph::update_child")?;
        let count = self.children.len();
        let found = self.children.get_mut(index).ok_or_else(|| Error::Graph {
            message: format!("there is no child {index}: the graph has {count}"),
        })?;
        self.shared.device.driver().graph_update_child(self.shared.id, found.node, child.shared.id)?;
        *found = GraphChild::of(child, found.node);
        (self.child_changed, self.merged) = (true, OnceLock::new());
        Ok(())
    }

    fn change_copy<T: Pod>(
        &mut self,
        index: usize,
        kind: CopyKind,
        [source, target]: [End<'_>; 2],
        pinned: Option<PinnedUse>,
        ends: CopyEnds,
    ) -> Result<()> {
        const CALL: &str = "Graph::update_copy";
        let graph = &self.shared;
        graph.device.require_same(source.device, CALL)?;
        graph.device.require_same(target.device, CALL)?;
        let refuse = |message: String| Err(Error::Graph { message });
        let count = self.copies.len();
        let Some(found) = self.copies.get_mut(index) else {
            return refuse(format!("there is no copy {index}: the graph has {count}"));
        };
        if found.kind != kind {
            return refuse(format!("copy {index} is {:?} and cannot become {kind:?}", found.kind));
        }
        if source.len != target.len {
            let message =
                format!("the source has {} elements and the destination {}", source.len, target.len);
            return Err(Error::Length { call: CALL, message });
        }
        let bytes = source.len * size_of::<T>();
        if bytes == 0 {
            return refuse("a copy inside of a graph cannot become one of nothing".into());
        }
        // SAFETY: page-locked memory is kept beside the node, from here on.
        unsafe { graph.device.driver().graph_update_copy(graph.id, found.node, ends, bytes)? };
        let uses = [source.used, target.used].into_iter().flatten();
        // Launches before this one noted the old memory, which is freed only after them.
        found.allocations = uses
            .inspect(|used| used.allocation.tracking.share())
            .map(|used| (used.allocation.clone(), used.access))
            .collect();
        (found.pinned, found.bytes) = (pinned, bytes);
        self.merged = OnceLock::new();
        Ok(())
    }
}
