//! Code of the program that runs in the order of a stream.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{Stream, later};
use crate::locked::Locked;
use crate::{Error, Result};

/// What the first host function of a stream that panicked said, until somebody is told.
#[derive(Clone, Default)]
pub(super) struct Panicked(Arc<Locked<Option<String>>>);

thread_local! {
    /// Whether this thread runs a host function.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

impl Stream {
    /// Runs `function` on a thread of the runtime's when everything queued before is done, and what is queued
    /// after when it has returned.
    ///
    /// It may not use the device: queueing, waiting, recording and allocating are refused inside of it.
    /// Buffers that it drops are freed by another thread; other things of the device it should not own. Keep
    /// it short: the driver runs all of them on one thread. If it panics, the stream goes on, and its next
    /// [`Stream::synchronize`] or download is an error with the panic's words. It is not run if work before
    /// it failed.
    pub fn host(&self, function: impl FnOnce() + Send + 'static) -> Result<()> {
        const CALL: &str = "Stream::host";
        forbid_inside(CALL)?;
        self.forbid_in_capture(
            CALL,
            "a host function runs once and a graph many times; queue it before or after the graph's launch",
        )?;
        let panicked = self.shared.panicked.clone();
        let guarded = move || {
            let outer = INSIDE.replace(true);
            // What the closure left half done is the program's own, and it is told of the panic.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(function)) {
                panicked.0.lock().get_or_insert_with(|| words(panic.as_ref()));
                // What it carries may panic in its turn when it is dropped.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
            }
            INSIDE.set(outer);
        };
        self.device().driver().host(self.id(), Box::new(guarded))
    }

    /// Tells of a host function that panicked, once.
    pub(super) fn report_panic(&self) -> Result<()> {
        match self.shared.panicked.0.lock().take() {
            None => Ok(()),
            Some(words) => Err(Error::HostFunction { message: format!("it panicked: {words}") }),
        }
    }
}

/// Refuses what would use the device from inside of a host function, where CUDA forbids it.
pub(crate) fn forbid_inside(call: &str) -> Result<()> {
    if !INSIDE.get() {
        return Ok(());
    }
    let message =
        format!("{call} is not possible inside of it; wake another thread, which may use the device");
    Err(Error::HostFunction { message })
}

/// Drops `held` where the device may be used: on another thread, if this one runs a host function.
pub(crate) fn outside<T: Send + 'static>(held: T) {
    if !INSIDE.get() {
        return drop(held);
    }
    match later::thread() {
        // The thread is there till the end of the process.
        Ok(thread) => drop(thread.send(Box::new(move || drop(held)))),
        Err(error) => {
            tracing::warn!("memory that a host function dropped stays: {error}");
            std::mem::forget(held);
        }
    }
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "with something that is no text".into())
}
