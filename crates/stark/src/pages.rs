//! Words of the host in page-locked pages.

use std::ops::Range;

use gatework_gpu::{Locked, Pinned, Slice, SliceMut, Stream};
use rayon::iter::{IndexedParallelIterator as _, ParallelIterator as _};
use rayon::slice::{ParallelSlice as _, ParallelSliceMut as _};

use crate::error::OrRaise as _;
use crate::queue::Queue;
use crate::streaming::Streaming;

/// The words of a column that is kept on the host. Nobody changes them once they are written.
pub(crate) struct Pages {
    pages: Vec<Locked<Pinned<u32>>>,
    len: usize,
    streaming: Streaming,
}

impl Pages {
    /// Pages for `len` words, all of which the caller writes. The last is shorter where `len` is no multiple
    /// of a page.
    pub(crate) fn new(queue: &Queue, len: usize, streaming: Streaming) -> Self {
        let page = len.min(1 << streaming.log_page()).max(1);
        let pages = (0..len).step_by(page).map(|first| Locked::new(queue.lock_pages(page.min(len - first))));
        Self { pages: pages.collect(), len, streaming }
    }

    /// Pages with these words, each as `convert` has it.
    pub(crate) fn with(
        queue: &Queue,
        words: &[u32],
        streaming: Streaming,
        convert: impl Fn(u32) -> u32 + Sync,
    ) -> Self {
        let this = Self::new(queue, words.len(), streaming);
        let share = this.page_words().clamp(1, crate::staging::SHARE / size_of::<u32>());
        for (page, words) in this.pages.iter().zip(words.chunks(this.page_words().max(1))) {
            let mut page = page.lock();
            let mut page = page.write().or_raise();
            page.par_chunks_mut(share)
                .zip(words.par_chunks(share))
                .for_each(|(to, from)| to.iter_mut().zip(from).for_each(|(to, &word)| *to = convert(word)));
        }
        this
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn streaming(&self) -> Streaming {
        self.streaming
    }

    /// Words of each page but the last.
    pub(crate) fn page_words(&self) -> usize {
        self.len.min(1 << self.streaming.log_page())
    }

    /// How many words have to be brought for the first `rows`: whole pages.
    pub(crate) fn words_for(&self, rows: usize) -> usize {
        rows.next_multiple_of(self.page_words().max(1)).min(self.len)
    }

    /// Queues copies of whole pages from page `first` on to `target`, as many as it has room for.
    pub(crate) fn load(&self, stream: &Stream, first: usize, target: &mut SliceMut<'_, u32>) {
        self.each_page(first, target.len(), |page, words| {
            stream.copy_from_pinned(&page.lock(), &mut target.slice_mut(words)).or_raise();
        });
    }

    /// Queues copies of `source` to whole pages from page `first` on.
    pub(crate) fn store(&self, stream: &Stream, first: usize, source: &Slice<'_, u32>) {
        self.each_page(first, source.len(), |page, words| {
            stream.copy_to_pinned(&source.slice(words), &mut page.lock()).or_raise();
        });
    }

    fn each_page(&self, first: usize, words: usize, copy: impl FnMut(&Locked<Pinned<u32>>, Range<usize>)) {
        let mut copy = copy;
        let page_words = self.page_words();
        for (number, start) in (0..words).step_by(page_words.max(1)).enumerate() {
            copy(&self.pages[first + number], start..words.min(start + page_words));
        }
    }

    /// One word, after the last copy to its page.
    pub(crate) fn word(&self, index: usize) -> u32 {
        let page = self.pages[index / self.page_words()].lock();
        page.read().or_raise()[index % self.page_words()]
    }

    /// All words, after the last copies to their pages.
    pub(crate) fn read(&self, target: &mut [u32]) {
        for (page, target) in self.pages.iter().zip(target.chunks_mut(self.page_words().max(1))) {
            target.copy_from_slice(&page.lock().read().or_raise());
        }
    }
}
