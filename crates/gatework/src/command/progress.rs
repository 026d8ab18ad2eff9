//! A progress bar and the log, both on standard error. The bar is not drawn where that is no terminal.

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gatework_gpu::{Notice, Observer};
use indicatif::{ProgressBar, ProgressStyle};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt, registry};

use crate::command::ending::Failure;

/// The environment variable that says what is logged, as `gatework_gpu=debug`.
const LOG_VARIABLE: &str = "GATEWORK_LOG";

/// One bar for the whole command. It is the [`Observer`] that engines are given: the bar shows the stages
/// that run.
#[derive(Clone)]
pub(crate) struct Progress {
    bar: ProgressBar,
    stages: Arc<Mutex<Stages>>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { bar: ProgressBar::hidden(), stages: Arc::default() }
    }

    /// Shows a bar for `jobs` jobs, until what this returns is dropped.
    pub(crate) fn start(&self, jobs: usize) -> Jobs<'_> {
        self.bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
        // A command may show one bar after the other; one that has ended is not drawn again without this.
        self.bar.reset();
        self.bar.set_length(jobs as u64);
        self.bar.set_position(0);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {bar:20} {pos}/{len} {elapsed} {msg}") {
            self.bar.set_style(style);
        }
        self.bar.enable_steady_tick(Duration::from_millis(100));
        Jobs { progress: self }
    }

    fn change(&self, change: impl FnOnce(&mut Stages)) {
        let mut stages = self.stages.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut stages);
        self.bar.set_message(stages.line());
    }

    /// Writes a line to standard error, above the bar.
    pub(crate) fn say(&self, line: &str) {
        // Nothing is left to tell it to if standard error is closed.
        self.bar.suspend(|| drop(writeln!(io::stderr(), "{line}")));
    }

    /// Sends the log to standard error, above the bar.
    pub(crate) fn log_beside(&self) -> Result<(), Failure> {
        let filter = filter()?;
        let log = fmt::layer().with_writer(self.clone()).with_ansi(io::stderr().is_terminal());
        let subscriber = registry().with(log.without_time().with_target(false).with_filter(filter));
        // What is logged is one thing, what a profiler shows another.
        #[cfg(feature = "nvtx")]
        let subscriber = subscriber.with(gatework_gpu::nvtx::NvtxLayer::new());
        // A program that calls the command may have a log of its own.
        let _ = subscriber.try_init();
        #[cfg(feature = "nvtx")]
        if !gatework_gpu::nvtx::NvtxLayer::new().is_heard() {
            tracing::warn!(
                "spans are no NVTX ranges: no libnvToolsExt.so.1, and no tool that brings its own"
            );
        }
        Ok(())
    }
}

/// What is logged: warnings, if nothing is said.
fn filter() -> Result<EnvFilter, Failure> {
    let given = std::env::var_os(LOG_VARIABLE).unwrap_or_default();
    let wanted = if given.is_empty() { "warn".into() } else { given.to_string_lossy() };
    EnvFilter::builder().parse(&wanted).map_err(|error| {
        Failure::input(format!(
            "the environment variable {LOG_VARIABLE} is '{wanted}': {error}; write it as gatework_gpu=debug, or unset it"
        ))
    })
}

impl Observer for Progress {
    fn hear(&self, notice: Notice<'_>) {
        self.change(|stages| stages.hear(notice));
    }
}

/// The stages that run, the outermost first, each with what was last counted of it.
#[derive(Default)]
struct Stages(Vec<(String, Option<String>)>);

impl Stages {
    fn hear(&mut self, notice: Notice<'_>) {
        match notice {
            Notice::Started { stage } => self.0.push((stage.to_owned(), None)),
            Notice::Counted { what, done, of } => {
                if let Some((_, count)) = self.0.last_mut() {
                    *count = Some(match of {
                        Some(of) => format!("{done} of {of} {what}"),
                        None => format!("{done} {what}"),
                    });
                }
            }
            Notice::Ended { stage } => {
                // Stages of several threads need not end in the order in which they began.
                if let Some(place) = self.0.iter().rposition(|(name, _)| name == stage) {
                    self.0.remove(place);
                }
            }
            _ => (),
        }
    }

    /// As `gpu/saxpy: correctness: n1000, 1 of 3 seeds`.
    fn line(&self) -> String {
        let stage = |(name, count): &(String, Option<String>)| match count {
            Some(count) => format!("{name}, {count}"),
            None => name.clone(),
        };
        self.0.iter().map(stage).collect::<Vec<_>>().join(": ")
    }
}

/// The bar while jobs run.
pub(crate) struct Jobs<'a> {
    progress: &'a Progress,
}

impl Jobs<'_> {
    /// Says what is being done now. Stages that begin later are parts of it.
    pub(crate) fn doing(&self, what: String) {
        self.progress.change(|stages| stages.0 = vec![(what, None)]);
    }

    /// One job is done.
    pub(crate) fn done(&self) {
        self.progress.bar.inc(1);
    }
}

impl Drop for Jobs<'_> {
    fn drop(&mut self) {
        self.progress.change(|stages| stages.0.clear());
        self.progress.bar.disable_steady_tick();
        self.progress.bar.finish_and_clear();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_shows_the_stages_that_run_and_their_counts() {
        let mut stages = Stages::default();
        for stage in ["gpu/saxpy", "correctness", "n1000"] {
            stages.hear(Notice::Started { stage });
        }
        stages.hear(Notice::Counted { what: "seeds", done: 1, of: Some(3) });
        assert_eq!(stages.line(), "gpu/saxpy: correctness: n1000, 1 of 3 seeds");
        stages.hear(Notice::Ended { stage: "correctness" });
        stages.hear(Notice::Counted { what: "pairs", done: 40, of: None });
        assert_eq!(stages.line(), "gpu/saxpy: n1000, 40 pairs");
        stages.hear(Notice::Ended { stage: "unknown" });
        assert_eq!(stages.0.len(), 2);
    }
}
