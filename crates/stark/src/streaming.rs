//! Columns that stay in page-locked memory of the host and visit the device.

use std::sync::Arc;

use gatework_gpu::{Locked, Stream};

use crate::error::OrRaise as _;
use crate::queue::Queue;

/// Fewest words of a page, as a logarithm.
pub(crate) const LOG_LEAST_PAGE: u32 = 4;
/// Most words of a page, as a logarithm: four megabytes, above which copies are no faster.
pub(crate) const LOG_LARGEST_PAGE: u32 = 20;

/// How columns are streamed: kept in page-locked memory of the host, in pages, and brought to the device
/// where they are used. [`Plan::way`](crate::Plan::way) chooses one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streaming {
    window: u64,
    log_page: u32,
}

impl Streaming {
    /// With a window of so many bytes of device memory for columns that are on their way or in use, and pages
    /// of 2^`log_page` rows, of which as many as a component has columns are in the window at once. Pages
    /// have from 2^4 to 2^20 rows.
    ///
    /// At least one column is in use at a time, and one on its way, or sixteen of each where leaves are
    /// hashed: a window that is smaller does not make them so.
    pub fn new(window: u64, log_page: u32) -> Self {
        Self { window, log_page: log_page.clamp(LOG_LEAST_PAGE, LOG_LARGEST_PAGE) }
    }

    /// Bytes of device memory for columns that are on their way or in use.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// The logarithm of the rows of a page.
    pub fn log_page(&self) -> u32 {
        self.log_page
    }
}

/// Whether a queue streams the columns that it is given, and by which stream they come.
#[derive(Default)]
pub(crate) struct Streams {
    streaming: Locked<Option<Streaming>>,
    copies: Locked<Option<Arc<Stream>>>,
}

impl Streams {
    pub(crate) fn of(queue: &Queue) -> Arc<Self> {
        queue.keeps(|_| Self::default())
    }

    pub(crate) fn set(&self, streaming: Option<Streaming>) {
        *self.streaming.lock() = streaming;
    }

    pub(crate) fn get(&self) -> Option<Streaming> {
        *self.streaming.lock()
    }

    /// The stream of copies to the device, which run beside what is computed.
    pub(crate) fn copies(&self, queue: &Queue) -> Arc<Stream> {
        let mut copies = self.copies.lock();
        copies.get_or_insert_with(|| Arc::new(queue.stream().device().stream().or_raise())).clone()
    }
}
