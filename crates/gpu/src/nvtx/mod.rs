//! Spans as NVTX ranges, so that `nsys` and `ncu` show the stages of a program. Behind the feature `nvtx`.
//!
//! ```
//! use gatework_gpu::nvtx::NvtxLayer;
//! use tracing_subscriber::layer::SubscriberExt as _;
//! let subscriber = tracing_subscriber::registry().with(NvtxLayer::new());
//! tracing::subscriber::with_default(subscriber, || {
//!     let _span = tracing::info_span!("stage").entered(); // A range called "stage", till the end of the scope.
//! });
//! ```
//!
//! The ranges go to `libnvToolsExt.so.1` where the machine has it. Newer toolkits have no such library: there
//! a tool that wants to hear of ranges names its own in `NVTX_INJECTION64_PATH`, and that one is asked, as
//! NVIDIA's `nvtx3` headers do. Without either there are no ranges, and one line of the log says so.

mod injection;

use std::ffi::{CString, c_char, c_int};
use std::sync::OnceLock;

use gatework_contract::{Notice, Observer};
use libloading::Library;
use tracing::Subscriber;
use tracing::span::Id;
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// A layer of `tracing-subscriber` that opens a range when a thread enters a span, and closes it when it
/// leaves.
#[derive(Debug, Clone, Copy)]
pub struct NvtxLayer {
    ranges: Option<&'static Ranges>,
}

/// The stages that engines tell an [`Observer`] of are ranges too, for who passes it as one.
impl Observer for NvtxLayer {
    fn hear(&self, notice: Notice<'_>) {
        match (self.ranges, notice) {
            (Some(ranges), Notice::Started { stage }) => ranges.open(stage),
            (Some(ranges), Notice::Ended { .. }) => ranges.close(),
            // Counts are no ranges, nor is what is told where nobody hears of it.
            _ => {}
        }
    }
}

/// Both functions that ranges of a thread need.
#[derive(Debug, Clone, Copy)]
struct Ranges {
    push: unsafe extern "C" fn(*const c_char) -> c_int,
    pop: unsafe extern "C" fn() -> c_int,
}

impl NvtxLayer {
    /// Looks for somebody to tell of ranges, once for the process.
    pub fn new() -> Self {
        static FOUND: OnceLock<Option<Ranges>> = OnceLock::new();
        let ranges = FOUND.get_or_init(|| {
            find().inspect_err(|reason| tracing::warn!("spans are no NVTX ranges: {reason}")).ok()
        });
        Self { ranges: ranges.as_ref() }
    }

    /// Whether somebody hears of the ranges, as far as that can be told.
    pub fn is_heard(&self) -> bool {
        self.ranges.is_some()
    }
}

impl Default for NvtxLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for NvtxLayer {
    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(ranges) = self.ranges else { return };
        let name = context.span(id).map_or("", |span| span.name());
        ranges.open(name);
    }

    fn on_exit(&self, _id: &Id, _context: Context<'_, S>) {
        if let Some(ranges) = self.ranges {
            ranges.close();
        }
    }
}

impl Ranges {
    fn open(&self, name: &str) {
        // Every range that is closed must have been opened.
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the function is NVTX's, and copies the text, which ends in NUL.
        unsafe { (self.push)(name.as_ptr()) };
    }

    fn close(&self) {
        // SAFETY: the function is NVTX's; without a range to close it does nothing.
        unsafe { (self.pop)() };
    }
}

fn find() -> Result<Ranges, String> {
    match from_library("libnvToolsExt.so.1") {
        Ok(ranges) => Ok(ranges),
        Err(reason) => match std::env::var_os("NVTX_INJECTION64_PATH").filter(|path| !path.is_empty()) {
            Some(path) => injection::ranges(path.as_ref()),
            None => Err(format!("{reason}, and no tool has set NVTX_INJECTION64_PATH")),
        },
    }
}

/// An error of the loader with its cause, where the loader's own words are.
fn words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

fn from_library(name: &str) -> Result<Ranges, String> {
    // SAFETY: the library's initialisers may run at any time.
    let library = unsafe { Library::new(name) }.map_err(|error| words(&error))?;
    // Never closed: the process uses it until its end.
    let library: &'static Library = Box::leak(Box::new(library));
    let missing = |error: libloading::Error| format!("{name}: {}", words(&error));
    // SAFETY: these are the signatures of both functions.
    unsafe {
        let push = *library
            .get::<unsafe extern "C" fn(*const c_char) -> c_int>(b"nvtxRangePushA")
            .map_err(missing)?;
        let pop = *library.get::<unsafe extern "C" fn() -> c_int>(b"nvtxRangePop").map_err(missing)?;
        Ok(Ranges { push, pop })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    static HEARD: Mutex<Vec<String>> = Mutex::new(Vec::new());

    unsafe extern "C" fn push(name: *const c_char) -> c_int {
        // SAFETY: the layer passes a text that ends in NUL.
        let name = unsafe { std::ffi::CStr::from_ptr(name) }.to_string_lossy().into_owned();
        HEARD.lock().unwrap().push(name);
        0
    }

    unsafe extern "C" fn pop() -> c_int {
        HEARD.lock().unwrap().push("end".into());
        0
    }

    #[test]
    fn spans_open_and_close_ranges_on_their_thread() {
        static RANGES: Ranges = Ranges { push, pop };
        let subscriber = tracing_subscriber::registry().with(NvtxLayer { ranges: Some(&RANGES) });
        tracing::subscriber::with_default(subscriber, || {
            let outer = tracing::info_span!("outer").entered();
            tracing::info_span!("inner").in_scope(|| ());
            drop(outer);
        });
        let observer: &dyn Observer = &NvtxLayer { ranges: Some(&RANGES) };
        drop(observer.stage("stage"));
        assert_eq!(*HEARD.lock().unwrap(), ["outer", "inner", "end", "end", "stage", "end"]);
    }

    #[test]
    fn nobody_to_tell_is_no_error() {
        let told = from_library("libgatework-no-such-library.so.1").unwrap_err();
        assert!(told.contains("libgatework-no-such-library"), "{told}");
        let subscriber = tracing_subscriber::registry().with(NvtxLayer { ranges: None });
        tracing::subscriber::with_default(subscriber, || tracing::info_span!("unheard").in_scope(|| ()));
    }
}
