//! Ctrl-C: the process ends at once, but never in the middle of writing a record.

use std::io::{self, Write as _};
use std::process::exit;
use std::sync::{Mutex, Once, PoisonError};

use crate::command::ending::INTERRUPTED;

static WRITING: Mutex<()> = Mutex::new(());

/// Ends the process on an interrupt, after the write that is under way.
pub(crate) fn install() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        if let Err(error) = ctrlc::set_handler(end) {
            tracing::warn!("interrupts are not caught ({error}): one may cut a record short");
        }
    });
}

fn end() {
    let _written = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = writeln!(io::stderr(), "interrupted");
    exit(INTERRUPTED);
}

/// Runs `write` to its end, whatever signal comes.
pub(crate) fn uninterrupted<T>(write: impl FnOnce() -> T) -> T {
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    write()
}
