//! Ends the test if a reader does not come back.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Watches one target.
pub struct Watchdog(Arc<Mutex<Option<Watched>>>);

struct Watched {
    since: Instant,
    input: Vec<u8>,
}

impl Watchdog {
    /// Ends the process if an input of `name` takes longer than `limit`: a thread that runs on cannot be
    /// ended alone.
    pub fn new(name: &'static str, limit: Duration) -> Self {
        let watched = Arc::new(Mutex::new(None));
        let watching = Arc::downgrade(&watched);
        thread::spawn(move || watch(name, limit, &watching));
        Self(watched)
    }

    /// An input is being read from here on.
    pub fn begin(&mut self, input: &[u8]) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Watched { since: Instant::now(), input: input.to_vec() });
    }

    /// It was.
    pub fn end(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn watch(name: &str, limit: Duration, watching: &Weak<Mutex<Option<Watched>>>) {
    while let Some(watched) = watching.upgrade() {
        if let Some(Watched { since, input }) = &*watched.lock().unwrap_or_else(PoisonError::into_inner)
            && since.elapsed() > limit
        {
            let kept = super::keep(name, input);
            eprintln!("{name} has read one input for {limit:?}; it is kept as {}", kept.display());
            std::process::exit(101);
        }
        drop(watched);
        thread::sleep(Duration::from_millis(200));
    }
}
