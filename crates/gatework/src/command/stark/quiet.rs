//! Panics of this thread that nobody needs to read.

use std::cell::Cell;
use std::panic;
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `body`, which catches panics that it expects: what they would print is not printed. Those of other
/// threads are, and one that leaves `body`.
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
    QUIET.set(true);
    let outcome = panic::catch_unwind(panic::AssertUnwindSafe(body));
    QUIET.set(false);
    outcome.unwrap_or_else(|payload| {
        let words = payload.downcast_ref::<String>().map(String::as_str);
        panic!("{}", words.or(payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without words"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_that_leaves_is_said_again() {
        assert!(quietly(|| panic::catch_unwind(|| panic!("expected")).is_err()));
        let left = panic::catch_unwind(|| quietly(|| panic!("not {}", "expected"))).unwrap_err();
        assert_eq!(left.downcast_ref::<String>().map(String::as_str), Some("not expected"));
        assert!(!QUIET.get());
    }
}
