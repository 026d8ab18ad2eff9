//! Whether a proof's columns stay on the device or are streamed from the host, and what either way takes.

use gatework_gpu::{Device, Target};

use super::{BASE, DIGEST, FEWER, Plan, Reads, SECURE, require, tree_bytes};
use crate::streaming::{LOG_LARGEST_PAGE, LOG_LEAST_PAGE, Streaming};
use crate::{Error, Result, shared};

/// Columns of one block of a leaf's hash, which are hashed together.
const BLOCK_COLUMNS: usize = shared::BLOCK_COLUMNS as usize;
/// Words of the smallest block of page-locked memory, as a logarithm: a shorter page takes one too.
const LOG_BLOCK: u32 = 10;
/// A larger window makes nothing faster, unless the least is larger.
const LARGE_WINDOW: u64 = 4 << 30;
/// The way out where columns are streamed already.
const MORE_DEVICES: &str = "prove fewer rows or columns, or prove over several devices";

/// How a proof is made on a device, and the memory that it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Way {
    /// How columns are streamed; none if they are in device memory from the first upload on.
    pub streaming: Option<Streaming>,
    /// The most device memory that is held at once.
    pub device_bytes: u64,
    /// The most page-locked memory of the host that is held at once, which is none unless columns are
    /// streamed.
    pub pinned_bytes: u64,
}

impl Plan {
    /// How a proof goes on `device`, with what may still be held there: with its columns in device memory if
    /// they fit, else streamed from page-locked memory of the host. Refuses a proof whose device memory does
    /// not fit even so. Whether the host has the page-locked memory is not looked at.
    pub fn way(&self, device: &Device) -> Result<Way> {
        let free = device.budget().free();
        let on_device = self.peak_bytes();
        if on_device <= free {
            return Ok(Way { streaming: None, device_bytes: on_device, pinned_bytes: 0 });
        }
        let least = self.least_window();
        let needed = self.streamed_bytes(least).min(on_device);
        if self.streamed_bytes(least) > free {
            return Err(Error::too_large(device, needed, free, MORE_DEVICES));
        }
        // What is left is the window's, as far as that is of use.
        let (mut window, most) = (least, LARGE_WINDOW.min(free / 4));
        while 2 * window <= most && self.streamed_bytes(2 * window) <= free {
            window *= 2;
        }
        let streaming = Streaming::new(window, self.log_page(window));
        Ok(Way {
            streaming: Some(streaming),
            device_bytes: self.streamed_bytes(window),
            pinned_bytes: self.pinned_bytes(streaming),
        })
    }

    /// The most of the host's memory that a proof on `target` holds at once. The trace is made on the host
    /// for a device too, and the memory of an emulated device is the host's.
    pub fn host_bytes(&self, target: &Target) -> u64 {
        let Target::Gpu(device) = target else { return self.host_peak_bytes() };
        let (on_device, pinned) = match self.way(device) {
            Ok(way) => (way.device_bytes, way.pinned_bytes),
            // It will be refused.
            Err(_) => (self.peak_bytes(), 0),
        };
        let emulated = if device.is_emulated() { on_device } else { 0 };
        self.column_bytes() + emulated + pinned
    }

    /// Refuses a proof of streamed columns, once everything is committed to, that does not fit into what of
    /// `device` may still be held.
    pub(crate) fn check_proving_streamed(&self, device: &Device, streaming: Streaming) -> Result<()> {
        // A window of one's own may be larger than all columns, or smaller than pages of them.
        let extended = self.column_bytes() << self.log_blowup();
        let page = BASE << streaming.log_page().min(self.log_rows() + 1);
        let window = streaming.window().max(self.least_of_trees()).min(extended);
        require(self.proving_bytes_streamed(window, self.pages_at_once() * page), device, FEWER)
    }

    /// Pages in the window while the widest component is evaluated.
    fn pages_at_once(&self) -> u64 {
        self.components().iter().map(Reads::pages).max().unwrap_or(0)
    }

    /// The smallest window: what trees need, and pages of all columns of a component.
    fn least_window(&self) -> u64 {
        let log_page = LOG_LEAST_PAGE.min(self.log_rows() + self.log_blowup().max(1));
        self.least_of_trees().max(self.pages_at_once() * (BASE << log_page))
    }

    /// A block of columns that is hashed while another comes, and a column that is extended while another
    /// comes.
    fn least_of_trees(&self) -> u64 {
        let blowup = self.log_blowup();
        let of_tree = |tree: &Vec<u32>| {
            let largest = tree.iter().max().map_or(0, |&log_rows| BASE << log_rows);
            let block = tree.len().min(BLOCK_COLUMNS) as u64;
            (2 * block * (largest << blowup)).max(2 * (largest + (largest << blowup)))
        };
        self.trees.iter().map(of_tree).max().unwrap_or(0)
    }

    /// Pages as long as the window has room for.
    fn log_page(&self, window: u64) -> u32 {
        let words = window / BASE / self.pages_at_once().max(1);
        words.max(1).ilog2().min(LOG_LARGEST_PAGE)
    }

    /// The most device memory that is held at once with a window of so many bytes.
    fn streamed_bytes(&self, window: u64) -> u64 {
        let (mut held, mut peak) = (self.twiddle_bytes() + self.table_bytes(), 0);
        for tree in &self.trees {
            // The running sums of an interaction trace.
            let sums = if self.interacts { SECURE << self.log_rows() } else { 0 };
            peak = peak.max(held + sums + window);
            if let Some(&largest) = tree.iter().max() {
                let log_leaves = self.config.lifting_log_size.unwrap_or(largest + self.log_blowup());
                held += tree_bytes(log_leaves);
                peak = peak.max(held + self.hashing_bytes(tree, log_leaves) + window);
            }
        }
        peak.max(held + self.proving_bytes_streamed(window, window))
    }

    /// As [`Plan::proving_bytes`], where columns come to the samples and the quotients through the window,
    /// and pages of so many bytes to the constraints.
    fn proving_bytes_streamed(&self, window: u64, pages: u64) -> u64 {
        let log_rows = self.log_rows();
        let (sums, weights) = (SECURE << (log_rows + 1), SECURE << log_rows);
        let sampling = weights + window + window / 256;
        // Each group's numerators are added to those before.
        let dividing = self.all_numerators() + weights + window;
        let composition = self.composition_bytes();
        self.proving_bytes().max(sums + pages).max(composition + sampling.max(dividing))
    }

    /// States of rows between groups of columns of a tree: before some that are longer, and after them.
    pub(super) fn hashing_bytes(&self, tree: &[u32], log_leaves: u32) -> u64 {
        let mut lengths: Vec<u32> = tree.iter().map(|&log_rows| log_rows + self.log_blowup()).collect();
        lengths.sort_unstable();
        let hashes_felts = self.state > 0;
        let state = if hashes_felts { self.state } else { DIGEST };
        let rows_of = |block: usize| lengths[(BLOCK_COLUMNS * (block + 1)).min(lengths.len()) - 1];
        let blocks = lengths.len().div_ceil(BLOCK_COLUMNS);
        let mut rows: Vec<u32> = (0..blocks).map(rows_of).collect();
        if !hashes_felts && let Some(last) = rows.last_mut() {
            *last = log_leaves;
        }
        rows.dedup();
        let last = rows.len().saturating_sub(1);
        let bytes = |run: usize| state << rows[run];
        let at_run = |run: usize| {
            let before = if run > 0 { bytes(run - 1) } else { 0 };
            // The last digests of Blake2s are where its states are.
            before + if run < last || hashes_felts { bytes(run) } else { 0 }
        };
        (0..rows.len()).map(at_run).max().unwrap_or(0)
    }

    /// The most page-locked memory that is held at once: values of the trace, and those that they are
    /// extended to.
    fn pinned_bytes(&self, streaming: Streaming) -> u64 {
        let pages = |log_rows: u32| {
            let log_page = streaming.log_page().min(log_rows);
            (BASE << log_page).max(BASE << LOG_BLOCK) << (log_rows - log_page)
        };
        let of = |tree: &Vec<u32>, blowup| tree.iter().map(|&log_rows| pages(log_rows + blowup)).sum::<u64>();
        let extended = |tree: &Vec<u32>| of(tree, self.log_blowup());
        if self.held > 0 {
            // Interactions are made of values that stay.
            return self.trees.iter().map(|tree| of(tree, 0) + extended(tree)).sum();
        }
        // Those of a tree go once it is extended.
        let values: u64 = self.trees.iter().map(|tree| of(tree, 0)).sum();
        let (mut held, mut peak) = (values, values);
        for tree in &self.trees {
            held += extended(tree);
            peak = peak.max(held);
            held -= of(tree, 0);
        }
        peak
    }
}
