//! Stream capture: what a stream is given becomes a graph instead of running.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::ptr;

use cudarc::driver::sys::{
    self, CUDA_MEMCPY3D, CUcontext, CUgraph, CUgraphExec, CUgraphNode, CUmemorytype, CUstream,
    CUstreamCaptureMode, CUstreamCaptureStatus, CUstreamUpdateCaptureDependencies_flags,
};

use crate::cuda::status::{check, check_release};
use crate::driver::{CopyEnds, GraphId};
use crate::{Error, Result};

/// What each executable graph was made from. Its nodes are named by the template's handles, so both live as
/// long.
#[derive(Default)]
pub(super) struct Templates(HashMap<GraphId, Template>);

struct Template(CUgraph);
// SAFETY: a graph belongs to no thread; the map around it is locked.
unsafe impl Send for Template {}

impl Templates {
    pub(super) fn of(&self, graph: GraphId) -> Result<CUgraph> {
        let template = self.0.get(&graph).map(|Template(template)| *template);
        template.ok_or_else(|| Error::Graph { message: "it is no graph of this device".into() })
    }

    pub(super) fn keep(&mut self, executable: CUgraphExec, template: CUgraph) -> GraphId {
        let id = GraphId(executable as u64);
        self.0.insert(id, Template(template));
        id
    }

    /// The template, which the caller destroys; null, if there is none.
    pub(super) fn take(&mut self, graph: GraphId) -> CUgraph {
        self.0.remove(&graph).map_or(ptr::null_mut(), |Template(template)| template)
    }
}

/// Relaxed, so that other threads may load kernels and allocate while this stream records.
pub(super) fn begin_capture(stream: CUstream) -> Result<()> {
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the stream is alive.
    check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(stream, mode) })
}

/// The node that the stream's next work would wait for, which right after a launch or a copy is that.
pub(super) fn last_node(stream: CUstream) -> Result<CUgraphNode> {
    let (_, nodes) = recorded(stream)?;
    nodes.last().copied().ok_or_else(not_recording)
}

/// The graph that the stream is recorded into, and the nodes that its next work would wait for.
fn recorded(stream: CUstream) -> Result<(CUgraph, Vec<CUgraphNode>)> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut graph, mut nodes, mut edges, mut count) = (ptr::null_mut(), ptr::null(), ptr::null(), 0);
    // SAFETY: the stream is alive; the id is optional, and everything else is written by the call. Edges are
    // asked for because the driver refuses to name nodes without them when an edge carries data.
    let answer = unsafe {
        sys::cuStreamGetCaptureInfo_v3(
            stream,
            &mut status,
            ptr::null_mut(),
            &mut graph,
            &mut nodes,
            &mut edges,
            &mut count,
        )
    };
    check("cuStreamGetCaptureInfo", answer)?;
    if status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE {
        return Err(not_recording());
    }
    if nodes.is_null() || count == 0 {
        return Ok((graph, Vec::new()));
    }
    // SAFETY: `nodes` points to `count` handles, valid until the stream is used again.
    Ok((graph, unsafe { std::slice::from_raw_parts(nodes, count) }.to_vec()))
}

fn not_recording() -> Error {
    let reason = "the driver is no longer recording the stream";
    Error::Capture { call: "Stream::capture".into(), reason: reason.into() }
}

/// Adds a copy of `child` to what the stream records, in its order.
pub(super) fn add_child(stream: CUstream, child: CUgraph) -> Result<CUgraphNode> {
    let (graph, before) = recorded(stream)?;
    let mut node = ptr::null_mut();
    // SAFETY: both graphs are alive, `before` are nodes of the first, and `node` is written by the call.
    let status =
        unsafe { sys::cuGraphAddChildGraphNode(&mut node, graph, before.as_ptr(), before.len(), child) };
    check("cuGraphAddChildGraphNode", status)?;
    let replace = CUstreamUpdateCaptureDependencies_flags::CU_STREAM_SET_CAPTURE_DEPENDENCIES as u32;
    // SAFETY: the stream is being captured into the graph that has the node; there is no data on its edge.
    let status =
        unsafe { sys::cuStreamUpdateCaptureDependencies_v2(stream, &mut node, ptr::null(), 1, replace) };
    check("cuStreamUpdateCaptureDependencies", status)?;
    Ok(node)
}

/// Puts a copy of `child` where another graph of its shape is.
pub(super) fn update_child(graph: CUgraphExec, node: CUgraphNode, child: CUgraph) -> Result<()> {
    // SAFETY: the node is one of the graph that `graph` was made from, and all of them are alive.
    let status = unsafe { sys::cuGraphExecChildGraphNodeSetParams(graph, node, child) };
    check("cuGraphExecChildGraphNodeSetParams", status)
}

/// Gives a copy other ends.
///
/// # Safety
/// The node is a copy of the graph that `graph` was made from. What is of the host is page-locked and stays
/// valid.
pub(super) unsafe fn update_copy(
    graph: CUgraphExec,
    node: CUgraphNode,
    ends: CopyEnds,
    bytes: usize,
    context: CUcontext,
) -> Result<()> {
    let mut copy = MaybeUninit::<CUDA_MEMCPY3D>::zeroed();
    // SAFETY: the node is a copy, and `copy` is written by the call.
    let status = unsafe { sys::cuGraphMemcpyNodeGetParams(node, copy.as_mut_ptr()) };
    check("cuGraphMemcpyNodeGetParams", status)?;
    // SAFETY: the call succeeded, so that it wrote all of it, the kinds of memory among it.
    let mut copy = unsafe { copy.assume_init() };
    let (from, to) = match ends {
        CopyEnds::OnDevice { to, from } => (from.0, to.0),
        CopyEnds::ToDevice { to, from } => (from as u64, to.0),
        CopyEnds::ToHost { to, from } => (from.0, to as u64),
    };
    // The kinds of memory stay as the driver recorded them. An address means the same to host and device.
    match copy.srcMemoryType {
        CUmemorytype::CU_MEMORYTYPE_HOST => copy.srcHost = from as *const _,
        _ => copy.srcDevice = from,
    }
    match copy.dstMemoryType {
        CUmemorytype::CU_MEMORYTYPE_HOST => copy.dstHost = to as *mut _,
        _ => copy.dstDevice = to,
    }
    (copy.srcXInBytes, copy.srcY, copy.srcZ) = (0, 0, 0);
    (copy.dstXInBytes, copy.dstY, copy.dstZ) = (0, 0, 0);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (bytes, 1, 1);
    (copy.srcPitch, copy.dstPitch) = (bytes, bytes);
    // SAFETY: the node is of the graph's template, which is kept alive beside it, and both ends are valid.
    let status = unsafe { sys::cuGraphExecMemcpyNodeSetParams(graph, node, &copy, context) };
    check("cuGraphExecMemcpyNodeSetParams", status)?;
    // In the template too: a capture that takes this graph as a child copies that.
    // SAFETY: as above.
    check("cuGraphMemcpyNodeSetParams", unsafe { sys::cuGraphMemcpyNodeSetParams(node, &copy) })
}

/// Ends the capture: the recorded graph and its executable form.
pub(super) fn end_capture(stream: CUstream) -> Result<(CUgraph, CUgraphExec)> {
    let mut template = ptr::null_mut();
    // SAFETY: the stream is alive, and `template` is written by the call.
    let ended = check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(stream, &mut template) });
    let instantiated = ended.and_then(|()| instantiate(template));
    match instantiated {
        Ok(executable) => Ok((template, executable)),
        Err(error) => {
            destroy_template(template);
            Err(error)
        }
    }
}

/// Ends a capture whose graph nobody wants. A broken capture answers with an error, and that is not news
/// here.
pub(super) fn abort_capture(stream: CUstream) {
    let mut template = ptr::null_mut();
    // SAFETY: the stream is alive, and `template` is written by the call. Streams that joined leave the
    // capture too.
    let _ = unsafe { sys::cuStreamEndCapture(stream, &mut template) };
    destroy_template(template);
}

pub(super) fn launch(graph: CUgraphExec, stream: CUstream) -> Result<()> {
    // SAFETY: the graph and the stream are alive, and the graph's memory is retained beside it.
    check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(graph, stream) })
}

pub(super) fn destroy(graph: CUgraphExec) {
    // SAFETY: the safe layer destroys each graph once; a run that is under way completes.
    check_release("cuGraphExecDestroy", unsafe { sys::cuGraphExecDestroy(graph) });
}

/// Destroys a recorded graph; nothing, if the capture gave none.
pub(super) fn destroy_template(template: CUgraph) {
    if !template.is_null() {
        // SAFETY: the graph came from a capture and is destroyed once; executable graphs do not depend on it.
        check_release("cuGraphDestroy", unsafe { sys::cuGraphDestroy(template) });
    }
}

fn instantiate(template: CUgraph) -> Result<CUgraphExec> {
    let mut executable = ptr::null_mut();
    // SAFETY: the capture succeeded, so the template is a graph; `executable` is written by the call.
    let status = unsafe { sys::cuGraphInstantiateWithFlags(&mut executable, template, 0) };
    check("cuGraphInstantiate", status)?;
    Ok(executable)
}
