//! The server, in a process of its own.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::command::ending::Failure;
use crate::command::progress::Progress;

/// What `private serve` says when it is there.
const LISTENING: &str = "listening on ";
/// How long it may take to read or draw its weights, and to check them.
const START: Duration = Duration::from_secs(600);
/// Lines of its own that are kept for a failure.
const KEPT_LINES: usize = 20;

/// Lines that a process wrote last.
type LastLines = Arc<Mutex<VecDeque<String>>>;

/// `gatework private serve`, which goes when this does.
pub(super) struct ServerProcess {
    child: Child,
    address: String,
    lines: LastLines,
    reader: Option<JoinHandle<()>>,
}

impl ServerProcess {
    /// Starts this program once more, and waits until it listens.
    pub(super) fn start(arguments: &[String], progress: &Progress) -> Result<Self, Failure> {
        let failed = |error| Failure::device(format!("the server's process cannot be started: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .arg("--until-closed")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let lines = LastLines::default();
        let (found, address) = channel();
        let reader = child.stderr.take().map(|errors| {
            let lines = lines.clone();
            thread::spawn(move || read_lines(errors, &lines, &found))
        });
        let mut server = Self { child, address: String::new(), lines, reader };
        match address.recv_timeout(START) {
            Ok(address) => server.address = address,
            Err(RecvTimeoutError::Timeout) => {
                return Err(Failure::device(format!(
                    "the server does not listen after {} s",
                    START.as_secs()
                )));
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::device(format!("the server ended early:\n{}", server.last_lines())));
            }
        }
        progress.say(&format!("the server is process {}, on {}", server.child.id(), server.address));
        Ok(server)
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    fn last_lines(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().cloned().collect::<Vec<_>>().join("\n")
    }

    /// A failure of the client's, with what the server said last.
    pub(super) fn blamed(&self, failure: Failure) -> Failure {
        failure.beside(&format!("the server said:\n{}", self.last_lines()))
    }

    /// Waits for its end, which comes with the last session's, and returns what it says of all.
    pub(super) fn finish(mut self) -> Result<serde_json::Value, Failure> {
        let mut text = String::new();
        let unread = |error| Failure::device(format!("the server's summary cannot be read: {error}"));
        if let Some(mut output) = self.child.stdout.take() {
            output.read_to_string(&mut text).map_err(unread)?;
        }
        let status = self.child.wait().map_err(unread)?;
        if !status.success() {
            return Err(Failure::device(format!("the server ended with {status}:\n{}", self.last_lines())));
        }
        serde_json::from_str(&text).map_err(|error| unread(error.into()))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It has ended already, unless something failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// Keeps the last lines, and sends the address as soon as it is said.
fn read_lines(errors: ChildStderr, lines: &LastLines, found: &Sender<String>) {
    for line in BufReader::new(errors).lines().map_while(Result::ok) {
        if let Some(rest) = line.strip_prefix(LISTENING) {
            let address = rest.split(',').next().unwrap_or(rest).to_owned();
            // Whoever waits for it may have given up.
            let _ = found.send(address);
        }
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == KEPT_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}
