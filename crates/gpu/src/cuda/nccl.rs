//! NCCL, NVIDIA's library for collectives, loaded at run time.
//!
//! By hand and not by `cudarc`: its loader does not look for `libnccl.so.2`, the only name that the library's
//! packages have, and panics where it finds none.

use std::env;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::{Arc, OnceLock};

use libloading::Library;

use crate::cuda::context::Context;
use crate::driver::{Pointer, StreamId};
use crate::locked::Locked;
use crate::{Error, Result};

const FOLDER_VARIABLE: &str = "GATEWORK_CUDA_LIBRARIES";
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];
const SUCCESS: c_int = 0;
/// `ncclInProgress`: not an error.
const IN_PROGRESS: c_int = 7;
/// `ncclUint8`.
const BYTES: c_int = 1;

type RawCommunicator = *mut c_void;

/// What ranks that belong together have in common.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([c_char; 128]);

/// The functions that are used, as `nccl.h` declares them. Codes are plain numbers: newer libraries have more
/// of them.
struct Nccl {
    version: String,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    unique_id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    init_rank: unsafe extern "C" fn(*mut RawCommunicator, c_int, UniqueId, c_int) -> c_int,
    destroy: unsafe extern "C" fn(RawCommunicator) -> c_int,
    abort: unsafe extern "C" fn(RawCommunicator) -> c_int,
    async_error: unsafe extern "C" fn(RawCommunicator, *mut c_int) -> c_int,
    group_start: unsafe extern "C" fn() -> c_int,
    group_end: unsafe extern "C" fn() -> c_int,
    send: unsafe extern "C" fn(*const c_void, usize, c_int, c_int, RawCommunicator, *mut c_void) -> c_int,
    receive: unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, RawCommunicator, *mut c_void) -> c_int,
    /// Keeps the functions above in memory.
    _library: Library,
}

impl Nccl {
    /// The library, loaded once for the process.
    fn get() -> Result<&'static Self> {
        static LOADED: OnceLock<std::result::Result<Nccl, String>> = OnceLock::new();
        LOADED.get_or_init(Self::load).as_ref().map_err(|reason| Error::Nccl { reason: reason.clone() })
    }

    fn load() -> std::result::Result<Self, String> {
        let folder = env::var_os(FOLDER_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        let places = folder.iter().flat_map(|folder| NAMES.map(|name| folder.join(name)));
        let places = places.chain(NAMES.map(PathBuf::from));
        let mut tried = Vec::new();
        for place in places {
            // SAFETY: initialisers of NVIDIA's libraries may run at any time.
            match unsafe { Library::new(&place) } {
                Ok(library) => {
                    return Self::of(library).map_err(|error| format!("{}: {error}", place.display()));
                }
                Err(error) => tried.push(error.to_string()),
            }
        }
        Err(format!(
            "its library was not found ({}); install NCCL or the PyPI package nvidia-nccl-cu13, and name its library \
             folder in {FOLDER_VARIABLE} or LD_LIBRARY_PATH",
            tried.join("; ")
        ))
    }

    fn of(library: Library) -> std::result::Result<Self, String> {
        fn function<F: Copy>(library: &Library, name: &str) -> std::result::Result<F, String> {
            // SAFETY: the fields have the types of nccl.h.
            unsafe { library.get::<F>(name.as_bytes()) }
                .map(|symbol| *symbol)
                .map_err(|_| format!("there is no {name} in it; NCCL 2.7 or later is needed"))
        }
        let version: unsafe extern "C" fn(*mut c_int) -> c_int = function(&library, "ncclGetVersion")?;
        let mut number = 0;
        // SAFETY: `number` is written by the call.
        if unsafe { version(&mut number) } != SUCCESS {
            return Err("it does not say its version".into());
        }
        Ok(Self {
            version: version_text(number),
            error_string: function(&library, "ncclGetErrorString")?,
            unique_id: function(&library, "ncclGetUniqueId")?,
            init_rank: function(&library, "ncclCommInitRank")?,
            destroy: function(&library, "ncclCommDestroy")?,
            abort: function(&library, "ncclCommAbort")?,
            async_error: function(&library, "ncclCommGetAsyncError")?,
            group_start: function(&library, "ncclGroupStart")?,
            group_end: function(&library, "ncclGroupEnd")?,
            send: function(&library, "ncclSend")?,
            receive: function(&library, "ncclRecv")?,
            _library: library,
        })
    }

    fn check(&self, call: &str, code: c_int) -> Result<()> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: the library has a text of its own for every number.
        let text = unsafe { (self.error_string)(code) };
        let text = if text.is_null() {
            "no words for it".into()
        } else {
            // SAFETY: the text ends in NUL and is never freed.
            unsafe { CStr::from_ptr(text) }.to_string_lossy()
        };
        Err(Error::Nccl { reason: format!("{call} failed with {code}: {text}") })
    }

    /// Runs `body` as one group: its calls are carried out together, so that no order of them can wait for
    /// itself.
    fn group(&self, body: impl FnOnce() -> Result<()>) -> Result<()> {
        // SAFETY: matched by the end below, on the same thread.
        self.check("ncclGroupStart", unsafe { (self.group_start)() })?;
        let outcome = body();
        // SAFETY: ends what was started above.
        let ended = self.check("ncclGroupEnd", unsafe { (self.group_end)() });
        outcome.and(ended)
    }
}

/// The library's version, as `2.27.3`.
pub(crate) fn version() -> Result<String> {
    Ok(Nccl::get()?.version.clone())
}

/// Before 2.9 the library wrote 2.8.4 as 2804, and since then 2.27.3 as 22703.
fn version_text(number: c_int) -> String {
    let (major, minor) = if number < 10_000 {
        (number / 1000, number % 1000 / 100)
    } else {
        (number / 10_000, number % 10_000 / 100)
    };
    format!("{major}.{minor}.{}", number % 100)
}

/// One rank of a communicator of NCCL.
pub(crate) struct Communicator {
    nccl: &'static Nccl,
    /// `None`: it was aborted.
    raw: Locked<Option<Handle>>,
    context: Arc<Context>,
}

struct Handle(RawCommunicator);
// SAFETY: a communicator belongs to no thread; the lock around it keeps calls apart.
unsafe impl Send for Handle {}

/// Bytes at an address, to or from a rank.
pub(crate) struct Parcel {
    pub(crate) peer: usize,
    pub(crate) pointer: Pointer,
    pub(crate) bytes: usize,
}

impl Communicator {
    /// One rank for each context, which are those of different cards.
    pub(super) fn of(contexts: &[Arc<Context>]) -> Result<Vec<Self>> {
        let nccl = Nccl::get()?;
        let mut id = UniqueId([0; 128]);
        // SAFETY: `id` is written by the call.
        nccl.check("ncclGetUniqueId", unsafe { (nccl.unique_id)(&mut id) })?;
        let mut raw = vec![ptr::null_mut(); contexts.len()];
        let joined = nccl.group(|| {
            for (rank, (context, raw)) in contexts.iter().zip(&mut raw).enumerate() {
                context.enter()?;
                // SAFETY: the rank's context is current, and its handle is written at the latest at the end
                // of the group, until when `raw` lives.
                let code = unsafe { (nccl.init_rank)(raw, contexts.len() as c_int, id, rank as c_int) };
                nccl.check("ncclCommInitRank", code)?;
            }
            Ok(())
        });
        let communicators = contexts.iter().zip(raw).map(|(context, raw)| Self {
            nccl,
            raw: Locked::new(Some(Handle(raw)).filter(|handle| !handle.0.is_null())),
            context: context.clone(),
        });
        let communicators: Vec<Self> = communicators.collect();
        if joined.is_err() {
            communicators.iter().for_each(Self::abort);
        }
        joined.map(|()| communicators)
    }

    /// Queues sends and receives as one group.
    pub(crate) fn exchange(&self, stream: StreamId, sends: &[Parcel], receives: &[Parcel]) -> Result<()> {
        self.context.enter()?;
        let raw = self.raw.lock();
        let Some(Handle(raw)) = &*raw else {
            return Err(Error::Nccl { reason: "the communicator was aborted".into() });
        };
        let stream = stream.0 as *mut c_void;
        self.nccl.group(|| {
            for Parcel { peer, pointer, bytes } in sends {
                // SAFETY: the bytes lie inside an allocation that lives until the stream has passed this; so
                // does the communicator, which is aborted or destroyed once.
                let code = unsafe {
                    (self.nccl.send)(pointer.0 as *const c_void, *bytes, BYTES, *peer as c_int, *raw, stream)
                };
                self.nccl.check("ncclSend", code)?;
            }
            for Parcel { peer, pointer, bytes } in receives {
                // SAFETY: as above.
                let code = unsafe {
                    (self.nccl.receive)(pointer.0 as *mut c_void, *bytes, BYTES, *peer as c_int, *raw, stream)
                };
                self.nccl.check("ncclRecv", code)?;
            }
            Ok(())
        })
    }

    /// What failed behind a call that had returned.
    pub(crate) fn check(&self) -> Result<()> {
        let raw = self.raw.lock();
        let Some(Handle(raw)) = &*raw else { return Ok(()) };
        let mut code = SUCCESS;
        // SAFETY: the communicator is alive, and `code` is written by the call.
        self.nccl.check("ncclCommGetAsyncError", unsafe { (self.nccl.async_error)(*raw, &mut code) })?;
        if code == IN_PROGRESS { Ok(()) } else { self.nccl.check("an earlier operation", code) }
    }

    /// Ends what waits for ranks that will not come. Nothing can be queued afterwards.
    pub(crate) fn abort(&self) {
        if let Some(Handle(raw)) = self.raw.lock().take()
            && self.context.enter().is_ok()
        {
            // SAFETY: taken out above, so that this happens once.
            let _ = self.nccl.check("ncclCommAbort", unsafe { (self.nccl.abort)(raw) }).inspect_err(warn);
        }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        if let Some(Handle(raw)) = self.raw.lock().take()
            && self.context.enter().is_ok()
        {
            // SAFETY: taken out above, so that this happens once.
            let _ = self.nccl.check("ncclCommDestroy", unsafe { (self.nccl.destroy)(raw) }).inspect_err(warn);
        }
    }
}

fn warn(error: &Error) {
    tracing::warn!("{error}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_people_write_them() {
        assert_eq!(version_text(22_703), "2.27.3");
        assert_eq!(version_text(2804), "2.8.4");
    }

    #[test]
    fn a_machine_without_the_library_gets_a_sentence_and_no_panic() {
        match version() {
            Ok(version) => assert!(version.starts_with("2."), "{version}"),
            Err(error) => assert!(error.to_string().contains("install NCCL"), "{error}"),
        }
    }
}
