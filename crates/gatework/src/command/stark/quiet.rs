//! Panics of this thread that nobody needs to read.

use std::cell::Cell;
use std::panic;
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `body`, which catches its panics: what they would print is not printed. Those of other threads are.
pub(super) fn quietly<R>(body: impl FnOnce() -> R) -> R {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                loud(panic);
            }
        }));
    });
    /// Loud again, also where `body` is left by a panic.
    struct Quiet;
    impl Drop for Quiet {
        fn drop(&mut self) {
            QUIET.set(false);
        }
    }
    QUIET.set(true);
    let _quiet = Quiet;
    body()
}
