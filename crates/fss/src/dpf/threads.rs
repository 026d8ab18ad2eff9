//! Many keys on many threads. Keys are independent of each other, so the results are the same for any number
//! of threads.

use std::ops::Range;

use rayon::prelude::*;

use super::corrections::TILE;

/// Steps, of about a nanosecond each, below which another thread is not worth its start.
const WORTH_A_THREAD: u64 = 1 << 16;

/// Whole tiles of `count` keys for as many threads of the pool as are worth it.
pub(super) fn parts(count: usize, steps: u64) -> Vec<Range<usize>> {
    let threads = (steps / WORTH_A_THREAD).clamp(1, rayon::current_num_threads() as u64);
    let each = count.div_ceil(threads as usize).next_multiple_of(TILE);
    (0..count).step_by(each.max(1)).map(|start| start..count.min(start + each)).collect()
}

/// The work of every part, in their order.
pub(super) fn each<T: Send>(parts: &[Range<usize>], work: impl Fn(Range<usize>) -> T + Sync) -> Vec<T> {
    if let [all] = parts {
        return vec![work(all.clone())];
    }
    parts.par_iter().map(|keys| work(keys.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_whole_tiles_and_cover_all_keys() {
        for (count, steps) in
            [(0, 0), (1, u64::MAX), (31, u64::MAX), (1000, u64::MAX), (1000, 1), (4096, 1 << 18)]
        {
            let parts = parts(count, steps);
            assert_eq!(parts.iter().cloned().flatten().collect::<Vec<_>>(), (0..count).collect::<Vec<_>>());
            assert!(parts.iter().all(|part| part.start % TILE == 0 && !part.is_empty()));
            assert!(parts.len() <= rayon::current_num_threads().max(1));
        }
    }
}
