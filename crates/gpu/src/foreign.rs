//! Streams and memory that belong to another user of the device, as the tensors of a program on `cudarc` do.
//!
//! A [`Device`] is a hold on the *primary* context of its card, which all well-behaved libraries share: open
//! the same ordinal as the other library, and its handles mean the same here. What is lent is used and never
//! destroyed. Clones of a stream, buffers, events and graphs can all outlive the place where they were made,
//! so that no lifetime could hold them; instead each lent thing carries its *owner*, any value that keeps it
//! alive, and lets go of it when the last user is gone.

use std::any::Any;
use std::ffi::c_void;

use bytemuck::Pod;

use crate::driver::{Pointer, StreamId};
use crate::{Buffer, Device, Error, Result, Stream};

/// The widest that kernels load at once: what every address they are given must be a multiple of.
const ALIGNMENT: u64 = 16;

impl Stream {
    /// A stream that belongs to somebody else: on CUDA a `CUstream`, the null stream included. It is never
    /// destroyed here. `owner` is dropped after the last clone of this stream and the last buffer that was
    /// allocated on it.
    ///
    /// A handle that the device does not know is an error where that can be told, and it cannot always.
    ///
    /// # Safety
    ///
    /// * `raw` is a stream of this device's primary context, and stays one until `owner` is dropped. Where
    ///   `owner` keeps nothing alive, as `()`, the caller sees to that.
    /// * While this stream is used, nobody captures `raw` into a graph elsewhere.
    pub unsafe fn from_raw(device: &Device, raw: *mut c_void, owner: impl Any + Send + Sync) -> Result<Self> {
        let id = StreamId(raw as u64);
        if !device.driver().stream_is_known(id)? {
            return Err(Error::Foreign {
                call: "Stream::from_raw",
                message: format!("{raw:p} is no stream of the device {}", device.properties().id),
            });
        }
        Ok(Self::lent(device, id, Box::new(owner)))
    }

    /// The driver's own handle, on CUDA a `CUstream`: for other libraries, as long as this stream lives.
    pub fn as_raw(&self) -> *mut c_void {
        self.id().0 as *mut c_void
    }
}

impl<T: Pod> Buffer<T> {
    /// `len` elements of device memory that belongs to somebody else. It is never freed here and does not
    /// count to the budget. `owner` is dropped once nothing here uses the memory any more and `stream` runs
    /// after all that did.
    ///
    /// Memory that the device does not know, or not to that length, is an error where that can be told, and
    /// it cannot always.
    ///
    /// # Safety
    ///
    /// * `pointer` is the address of `len` elements in this device's memory, whose bytes are valid as long as
    ///   `owner` lives, and in the order of `stream` beyond that: what is queued before `owner` is dropped
    ///   may still use them. Where `owner` keeps nothing alive, as `()`, the caller sees to that, for graphs
    ///   that captured the buffer too.
    /// * Until then nobody else writes them, or reads what is written through this buffer, but in the order
    ///   of `stream`.
    /// * What lies there was written before, in the order of `stream`.
    pub unsafe fn from_raw(
        stream: &Stream,
        pointer: u64,
        len: usize,
        owner: impl Any + Send + Sync,
    ) -> Result<Self> {
        const CALL: &str = "Buffer::from_raw";
        let refuse = |message: String| Err(Error::Foreign { call: CALL, message });
        let Some(bytes) = len.checked_mul(size_of::<T>()) else {
            return refuse(format!("{len} elements of {} bytes overflow the address space", size_of::<T>()));
        };
        if !pointer.is_multiple_of(ALIGNMENT) {
            return refuse(format!(
                "{pointer:#x} is no multiple of {ALIGNMENT}, as kernels want it: copy the data to where it is"
            ));
        }
        if bytes > 0 && !stream.device().driver().memory_is_known(Pointer(pointer), bytes)? {
            let device = &stream.device().properties().id;
            return refuse(format!("there are no {bytes} bytes of the device {device} at {pointer:#x}"));
        }
        Ok(Self::lent(stream, Pointer(pointer), len, Box::new(owner)))
    }

    /// The device's own address: for other libraries, as long as this buffer lives and in the order of its
    /// streams.
    pub fn as_raw(&self) -> u64 {
        self.address().0
    }
}
