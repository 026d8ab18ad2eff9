//! Words on the device.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use bytemuck::Pod;
use gatework_gpu::{Buffer, Locked, Slice, View as _};

use crate::backend::Handle;
use crate::error::{Error, Result};

use super::queue::Queue;

/// A tensor's words, one after the other. They do not change once the launch that writes them is done.
pub(super) type DeviceWords = Buffer<u64>;

/// What a handle keeps, and the queue in whose order it is made and read.
struct Kept<T> {
    queue: u64,
    kept: T,
}

/// A handle of what this queue makes.
pub(super) fn keep<T: Send + Sync + 'static>(queue: &Queue, kept: T) -> Handle {
    Handle::new(Kept { queue: queue.number(), kept })
}

/// What a handle of this queue keeps. Another queue's is an error: nothing here would wait for it.
pub(super) fn kept<'a, T: 'static>(queue: &Queue, handle: &'a Handle) -> Result<&'a T> {
    let kept = handle.get::<Kept<T>>().filter(|kept| kept.queue == queue.number());
    kept.map(|kept| &kept.kept).ok_or(Error::OtherBackend)
}

/// A tensor's words, and what was made of them for products.
pub(super) struct TensorWords {
    pub(super) words: DeviceWords,
    planes: OnceLock<(LimbPlanes, Buffer<u32>)>,
}

/// How the digits of a matrix lie: so many limbs of so many rows, which lie inner index by inner index in the
/// words or row by row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LimbPlanes {
    pub(super) limbs: u32,
    pub(super) batch: u32,
    pub(super) rows: u32,
    pub(super) inner: u32,
    pub(super) by_inner: bool,
}

/// Digits that are kept with their words, or that were asked for in another form than those.
pub(super) enum Digits<'a> {
    Kept(&'a Buffer<u32>),
    Own(Buffer<u32>),
}

impl Digits<'_> {
    pub(super) fn view(&self) -> Slice<'_, u32> {
        match self {
            Self::Kept(digits) => digits.view(),
            Self::Own(digits) => digits.view(),
        }
    }
}

impl TensorWords {
    /// The digits of these words, which are kept in the form in which they are asked for first.
    pub(super) fn planes(
        &self,
        form: LimbPlanes,
        split: impl FnOnce(LimbPlanes) -> Result<Buffer<u32>>,
    ) -> Result<Digits<'_>> {
        if let Some((kept, digits)) = self.planes.get()
            && *kept == form
        {
            return Ok(Digits::Kept(digits));
        }
        match self.planes.set((form, split(form)?)) {
            Ok(()) => self.planes.get().map(|(_, digits)| Digits::Kept(digits)).ok_or(Error::Absent),
            Err((_, digits)) => Ok(Digits::Own(digits)),
        }
    }
}

/// A handle of words that this queue makes.
/// Fails unless a tensor is as long as a kernel will read it: a kernel has no other way to know.
pub(super) fn expect_words(gate: &'static str, words: &DeviceWords, expected: usize) -> Result<()> {
    if words.len() == expected {
        return Ok(());
    }
    Err(Error::Shape { gate, what: format!("{} words where {expected} are read", words.len()) })
}

pub(super) fn keep_words(queue: &Queue, words: DeviceWords) -> Handle {
    keep(queue, TensorWords { words, planes: OnceLock::new() })
}

/// The words of a handle.
pub(super) fn words<'a>(queue: &Queue, handle: &'a Handle) -> Result<&'a DeviceWords> {
    kept::<TensorWords>(queue, handle).map(|tensor| &tensor.words)
}

/// The words of a handle, to change: themselves if nobody else holds them, a copy otherwise.
pub(super) fn words_to_change(queue: &Queue, handle: Handle) -> Result<DeviceWords> {
    words(queue, &handle)?;
    let shared = match handle.try_unwrap::<Kept<TensorWords>>() {
        Ok(own) => return Ok(own.kept.words),
        Err(shared) => shared,
    };
    let shared = words(queue, &shared)?;
    let mut copy = queue.alloc(shared.len())?;
    queue.stream().copy(shared, &mut copy)?;
    Ok(copy)
}

/// Copies of public arrays that gates share, such as tables and places. An entry is there as long as the host
/// keeps its array.
pub(super) struct Copies<T: Pod>(Locked<HashMap<usize, Copied<T>>>);

struct Copied<T: Pod> {
    /// Holds the address, so that no other array has it while the entry is there.
    host: Weak<[T]>,
    device: Arc<Buffer<T>>,
}

impl<T: Pod> Copies<T> {
    pub(super) fn new() -> Self {
        Self(Locked::default())
    }

    /// The copy of `host`, made when it is asked for the first time.
    pub(super) fn of(&self, queue: &Queue, host: &Arc<[T]>) -> Result<Arc<Buffer<T>>> {
        let key = host.as_ptr() as usize;
        if let Some(found) = self.0.lock().get(&key)
            && found.host.strong_count() > 0
        {
            return Ok(found.device.clone());
        }
        let device = Arc::new(queue.upload(host)?);
        let copied = Copied { host: Arc::downgrade(host), device: device.clone() };
        let mut copies = self.0.lock();
        copies.retain(|_, copied| copied.host.strong_count() > 0);
        copies.insert(key, copied);
        Ok(device)
    }
}
