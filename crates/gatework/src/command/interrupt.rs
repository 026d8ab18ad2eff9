//! Ctrl-C: the process ends at once, but never in the middle of writing a record, and leaves no unfinished secrets behind.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use gatework_gpu::Class;

static WRITING: Mutex<()> = Mutex::new(());
/// Files and folders that go when the process is interrupted.
static LITTER: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Whether somebody works who wants to save what is done so far.
static GRACEFUL: AtomicBool = AtomicBool::new(false);
/// Whether that one was asked to.
static REQUESTED: AtomicBool = AtomicBool::new(false);

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
    if GRACEFUL.load(Ordering::Relaxed) && !REQUESTED.swap(true, Ordering::Relaxed) {
        let _ = writeln!(io::stderr(), "interrupted: saving; once more ends at once");
        return;
    }
    let _written = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    for path in LITTER.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        // It may never have come into being.
        let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    }
    let _ = writeln!(io::stderr(), "interrupted");
    exit(Class::Interrupted.exit_code().into());
}

/// As long as this lives, the first interrupt raises its flag and nothing else.
pub(crate) struct Graceful(());

/// Asks for a flag instead of an end, for work that saves itself.
pub(crate) fn gracefully() -> Graceful {
    REQUESTED.store(false, Ordering::Relaxed);
    GRACEFUL.store(true, Ordering::Relaxed);
    Graceful(())
}

impl Graceful {
    /// Raised by the first interrupt.
    pub(crate) fn flag(&self) -> &'static AtomicBool {
        &REQUESTED
    }
}

impl Drop for Graceful {
    fn drop(&mut self) {
        GRACEFUL.store(false, Ordering::Relaxed);
    }
}

/// Runs `write` to its end, whatever signal comes.
pub(crate) fn uninterrupted<T>(write: impl FnOnce() -> T) -> T {
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    write()
}

/// Something on disk that nobody wants if the process is interrupted before this is dropped.
pub(crate) struct Litter(PathBuf);

impl Litter {
    pub(crate) fn new(path: &Path) -> Self {
        LITTER.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_owned());
        Self(path.to_owned())
    }
}

impl Drop for Litter {
    fn drop(&mut self) {
        let mut litter = LITTER.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = litter.iter().position(|path| *path == self.0) {
            litter.swap_remove(place);
        }
    }
}
