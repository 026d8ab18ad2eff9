//! A thread that signals launches that are out of time.
//!
//! Time is processor time of the system thread that runs the launch: a machine that has other things to do
//! stops nothing.

use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

/// Sent to a launch that is out of time: ignored by who does not know it.
pub(super) const OUT_OF_TIME: std::ffi::c_int = libc::SIGURG;
/// Between two signals to a launch that is out of time.
const AGAIN: Duration = Duration::from_millis(3);

/// A launch that is watched.
struct Entry {
    number: u64,
    thread: libc::pthread_t,
    deadline: u64,
}

struct Watches {
    entries: Vec<Entry>,
    next: u64,
    /// Whether the thread waits for a first entry.
    sleeps: bool,
}

static WATCHES: Mutex<Watches> = Mutex::new(Watches { entries: Vec::new(), next: 0, sleeps: false });
static CHANGED: Condvar = Condvar::new();

/// A launch of the running system thread is watched while this lives.
pub(super) struct Watch(u64);

impl Watch {
    /// Signals the running system thread from the time that it has used `deadline` nanoseconds of processor
    /// time on.
    pub(super) fn new(deadline: u64) -> Self {
        static STARTED: Once = Once::new();
        STARTED.call_once(|| {
            let started = std::thread::Builder::new().name("gatework-watchdog".into()).spawn(run);
            if let Err(error) = started {
                tracing::warn!("no thread can be started, so that launches have no limit of time: {error}");
            }
        });
        let mut watches = lock();
        watches.next += 1;
        let number = watches.next;
        // SAFETY: has no condition.
        let thread = unsafe { libc::pthread_self() };
        watches.entries.push(Entry { number, thread, deadline });
        if watches.sleeps {
            CHANGED.notify_one();
        }
        Self(number)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        lock().entries.retain(|entry| entry.number != self.0);
    }
}

fn lock() -> MutexGuard<'static, Watches> {
    WATCHES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run() {
    let mut watches = lock();
    loop {
        while watches.entries.is_empty() {
            watches.sleeps = true;
            watches = CHANGED.wait(watches).unwrap_or_else(PoisonError::into_inner);
        }
        watches.sleeps = false;
        let left = watches.entries.iter().map(remaining).min().unwrap_or_default();
        drop(watches);
        // Launches that come meanwhile are seen soon enough: limits are longer than this.
        std::thread::sleep(left.clamp(AGAIN, 16 * AGAIN));
        watches = lock();
        watches.entries.iter().filter(|entry| remaining(entry).is_zero()).for_each(signal);
    }
}

/// Processor time that the launch still has.
fn remaining(entry: &Entry) -> Duration {
    let mut clock = 0;
    // SAFETY: the thread lives as long as its entry, which it removes under the lock that is held here.
    let known = unsafe { libc::pthread_getcpuclockid(entry.thread, &raw mut clock) } == 0;
    let used = if known { time_of(clock) } else { 0 };
    Duration::from_nanos(entry.deadline.saturating_sub(used))
}

fn signal(entry: &Entry) {
    // SAFETY: as above.
    unsafe { libc::pthread_kill(entry.thread, OUT_OF_TIME) };
}

/// Nanoseconds of processor time that the running system thread has used.
pub(super) fn processor_time() -> u64 {
    time_of(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn time_of(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is written; a clock that is none leaves it at 0.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
