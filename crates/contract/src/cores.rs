//! Independent work on all cores.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{panic, thread};

/// What `work` gives for each of `0..count`, in that order, with as many threads as there are cores. A panic
/// in `work` goes on in the caller.
///
/// ```
/// assert_eq!(gatework_contract::on_all_cores(4, |index| index * index), [0, 1, 4, 9]);
/// ```
pub fn on_all_cores<R: Send>(count: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let some = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return done;
            }
            done.push((index, work(index)));
        }
    };
    let mut done = thread::scope(|scope| {
        let workers: Vec<_> = (0..cores.min(count)).map(|_| scope.spawn(some)).collect();
        let ended = workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| panic::resume_unwind(panic)));
        ended.collect::<Vec<_>>()
    });
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}
