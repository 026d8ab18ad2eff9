//! Stream capture: what a stream is given becomes a graph instead of running.

use std::ptr;

use cudarc::driver::sys::{
    self, CUgraph, CUgraphExec, CUgraphNode, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus,
};

use crate::cuda::status::{check, check_release};
use crate::{Error, Result};

/// Relaxed, so that other threads may load kernels and allocate while this stream records.
pub(super) fn begin_capture(stream: CUstream) -> Result<()> {
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the stream is alive.
    check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(stream, mode) })
}

/// The node that the stream's next work would wait for, which right after a launch is that launch.
pub(super) fn last_node(stream: CUstream) -> Result<CUgraphNode> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut nodes, mut edges, mut count) = (ptr::null(), ptr::null(), 0);
    // SAFETY: the stream is alive; id and graph are optional, and everything else is written by the call. Edges are
    // asked for because the driver refuses to name nodes without them when an edge carries data.
    let answer = unsafe {
        sys::cuStreamGetCaptureInfo_v3(
            stream,
            &mut status,
            ptr::null_mut(),
            ptr::null_mut(),
            &mut nodes,
            &mut edges,
            &mut count,
        )
    };
    check("cuStreamGetCaptureInfo", answer)?;
    if status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE || nodes.is_null() || count == 0 {
        return Err(Error::Capture {
            call: "Kernel::launch".into(),
            reason: "the driver is no longer recording the stream".into(),
        });
    }
    // SAFETY: `nodes` points to `count` handles, valid until the stream is used again.
    Ok(unsafe { *nodes.add(count - 1) })
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

/// Ends a capture whose graph nobody wants. A broken capture answers with an error, and that is not news here.
pub(super) fn abort_capture(stream: CUstream) {
    let mut template = ptr::null_mut();
    // SAFETY: the stream is alive, and `template` is written by the call. Streams that joined leave the capture too.
    let _ = unsafe { sys::cuStreamEndCapture(stream, &mut template) };
    destroy_template(template);
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
