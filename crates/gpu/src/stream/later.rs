//! A thread for what cannot be done where it comes up: it sleeps otherwise.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use crate::{Error, Result};

/// Something to do. A panic in it was printed, and keeps nobody else waiting.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// Where jobs are sent, started with the first.
pub(super) fn thread() -> Result<Sender<Job>> {
    static THREAD: OnceLock<std::result::Result<Sender<Job>, String>> = OnceLock::new();
    let start = || {
        let (sender, receiver) = channel::<Job>();
        let run = move || receiver.into_iter().for_each(|job| drop(catch_unwind(AssertUnwindSafe(job))));
        let started = std::thread::Builder::new().name("gatework-later".into()).spawn(run);
        started.map(|_| sender).map_err(|error| error.to_string())
    };
    let thread = THREAD.get_or_init(start).clone();
    thread.map_err(|reason| Error::HostFunction { message: format!("no thread to go on with: {reason}") })
}
