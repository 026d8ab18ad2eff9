//! Ctrl-C: the process ends at once, but never in the middle of writing a record, and leaves no unfinished
//! secrets behind.

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use gatework_gpu::{Class, remove_scratch_folders};
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use tempfile::TempDir;

/// Attempts to empty a folder to which others write.
const ATTEMPTS: usize = 1000;

static WRITING: Mutex<()> = Mutex::new(());
/// Files and folders that go when the process is interrupted.
static LITTER: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Whether somebody works who wants to save what is done so far.
static GRACEFUL: AtomicBool = AtomicBool::new(false);
/// Whether that one was asked to.
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Whether the process is being ended, and what it leaves behind is being removed.
static LEAVING: AtomicBool = AtomicBool::new(false);

/// What ends the process: Ctrl-C, a request to end, and a terminal that is gone.
const SIGNALS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Ends the process on an interrupt, after the write that is under way.
///
/// The signals are blocked in this thread and in all that it starts from now on, and one thread waits for
/// them. A handler would not do: NVRTC puts its own in place while it compiles, and that one ends the process
/// with a code of its own and leaves everything behind.
pub(crate) fn install() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let signals = SIGNALS.into_iter().collect::<SigSet>();
        let wait = move || {
            // Nothing else may end the waiting: a process that blocks these signals could only be killed
            // then.
            while let Ok(_) | Err(Errno::EINTR) = signals.wait().inspect(|_| end()) {}
        };
        let mut blocked = signals;
        // A file that grows beyond a limit of the user's is then an error of the write, which is said, and no
        // sudden death.
        blocked.add(Signal::SIGXFSZ);
        let waiting = blocked
            .thread_block()
            .map_err(io::Error::from)
            .and_then(|()| std::thread::Builder::new().name("signals".into()).spawn(wait));
        if let Err(error) = waiting {
            // Without a thread that waits for them, they must do what they always do.
            let _ = blocked.thread_unblock();
            tracing::warn!("interrupts are not caught ({error}): one may cut a record short");
        }
    });
}

fn end() {
    if GRACEFUL.load(Ordering::Relaxed) && !REQUESTED.swap(true, Ordering::Relaxed) {
        let _ = writeln!(io::stderr(), "interrupted: saving; once more ends at once");
        return;
    }
    leave("interrupted");
}

/// Ends the process when its standard input is closed. Whoever starts this one holds the other end, and
/// closes it however it ends.
pub(crate) fn end_with_input() {
    let wait = || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        leave("the process that started this one has ended");
    };
    if let Err(error) = std::thread::Builder::new().name("input".into()).spawn(wait) {
        tracing::warn!(
            "no thread can be started ({error}): this process may outlive the one that started it"
        );
    }
}

fn leave(why: &str) -> ! {
    LEAVING.store(true, Ordering::SeqCst);
    let _written = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    LITTER.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|path| remove(path));
    let _ = writeln!(io::stderr(), "{why}");
    // Last of all, since compilers go on writing until the process ends.
    remove_scratch_folders();
    // At once: the destructors of NVRTC's library would run while a thread is still inside it, and crash.
    signal_hook::low_level::exit(Class::Interrupted.exit_code().into());
}

/// Waits for the end of a process that is being ended: work that is still going on fails when its files are
/// removed, and that is no failure to tell.
pub(crate) fn give_way() {
    while LEAVING.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

/// Removes a file or a folder, if it has come into being.
fn remove(path: &Path) {
    // Others still write to it: what comes while a folder is emptied keeps it from going.
    for _ in 0..ATTEMPTS {
        let gone = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        match gone {
            Err(error) if error.kind() != io::ErrorKind::NotFound && path.is_dir() => continue,
            _ => return,
        }
    }
    let _ = writeln!(io::stderr(), "'{}' is left: it may hold keys, remove it", path.display());
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

/// A folder for secrets, which nobody else may look into and which goes with this, or when the process is
/// interrupted.
pub(crate) struct SecretFolder {
    /// Before the note of it: between the two an interrupt still finds it there.
    folder: TempDir,
    _litter: Litter,
}

impl SecretFolder {
    /// A new one in the usual place, or in a folder.
    pub(crate) fn new(parent: Option<&Path>) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("gatework-").permissions(Permissions::from_mode(0o700));
        // No interrupt comes between its making and the note of it.
        let mut litter = LITTER.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = match parent {
            Some(parent) => builder.tempdir_in(parent),
            None => builder.tempdir(),
        }?;
        litter.push(folder.path().to_owned());
        let noted = Litter(folder.path().to_owned());
        Ok(Self { folder, _litter: noted })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_for_secrets_is_its_owners_and_goes() {
        let folder = SecretFolder::new(None).unwrap();
        let path = folder.path().to_owned();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        let noted = || LITTER.lock().unwrap().contains(&path);
        assert!(noted());
        drop(folder);
        assert!(!path.exists() && !noted());
    }

    #[test]
    fn a_folder_goes_though_somebody_writes_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        std::fs::create_dir(&path).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0.. {
                    if stop.load(Ordering::Relaxed)
                        || std::fs::write(path.join(number.to_string()), b"x").is_err()
                    {
                        break;
                    }
                }
            });
            std::thread::sleep(std::time::Duration::from_millis(20));
            remove(&path);
            stop.store(true, Ordering::Relaxed);
        });
        assert!(!path.exists());
    }
}
