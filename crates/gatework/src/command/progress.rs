//! A progress bar and the log, both on standard error. The bar is not drawn where that is no terminal.

use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// The environment variable that says what is logged, as `gatework_gpu=debug`.
const LOG_VARIABLE: &str = "GATEWORK_LOG";

/// One bar for the whole command.
#[derive(Clone)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { bar: ProgressBar::hidden() }
    }

    /// Shows a bar for `jobs` jobs, until what this returns is dropped.
    pub(crate) fn start(&self, jobs: usize) -> Jobs<'_> {
        self.bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
        self.bar.set_length(jobs as u64);
        self.bar.set_position(0);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {pos}/{len} {elapsed} {msg}") {
            self.bar.set_style(style);
        }
        self.bar.enable_steady_tick(Duration::from_millis(100));
        Jobs { bar: &self.bar }
    }

    /// Says what is being done now, from another thread.
    pub(crate) fn message(&self, what: String) {
        self.bar.set_message(what);
    }

    /// Writes a line to standard error, above the bar.
    pub(crate) fn say(&self, line: &str) {
        // Nothing is left to tell it to if standard error is closed.
        self.bar.suspend(|| drop(writeln!(io::stderr(), "{line}")));
    }

    /// Sends the log to standard error, above the bar.
    pub(crate) fn log_beside(&self) {
        let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new("warn"));
        let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(self.clone());
        let subscriber = subscriber.with_ansi(io::stderr().is_terminal());
        // A program that calls the command may have a log of its own.
        let _ = subscriber.without_time().with_target(false).try_init();
    }
}

/// The bar while jobs run.
pub(crate) struct Jobs<'a> {
    bar: &'a ProgressBar,
}

impl Jobs<'_> {
    /// Says what is being done now.
    pub(crate) fn doing(&self, what: String) {
        self.bar.set_message(what);
    }

    /// One job is done.
    pub(crate) fn done(&self) {
        self.bar.inc(1);
    }
}

impl Drop for Jobs<'_> {
    fn drop(&mut self) {
        self.bar.disable_steady_tick();
        self.bar.finish_and_clear();
    }
}

impl<'a> MakeWriter<'a> for Progress {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for Progress {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bar.suspend(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
