//! One running peer.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::{Handshake, NotMeasured, PROTOCOL, PeerCommand, Reply, Request};
use crate::bench::PeerRequest;

/// Longest that a peer may take to say who it is: it loads a framework from a cold disk meanwhile.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(120);
/// Longest that it may take for one request: the first of a kind compiles.
const REQUEST_LIMIT: Duration = Duration::from_secs(120);
/// How long it is given to leave by itself.
const PARTING_LIMIT: Duration = Duration::from_secs(2);

/// A peer that said who it is and waits for requests.
#[derive(Debug)]
pub struct PeerSession {
    child: Child,
    requests: Option<ChildStdin>,
    lines: Receiver<String>,
    complaints: Option<File>,
    handshake: Handshake,
    request_limit: Duration,
}

impl PeerSession {
    /// Starts a peer and waits until it says who it is.
    pub fn start(command: &PeerCommand) -> Result<Self, NotMeasured> {
        Self::start_within(command, HANDSHAKE_LIMIT, REQUEST_LIMIT)
    }

    /// With other limits than the usual ones.
    pub fn start_within(
        command: &PeerCommand,
        handshake_limit: Duration,
        request_limit: Duration,
    ) -> Result<Self, NotMeasured> {
        let (program, arguments) = command.command.as_ref().map_err(Clone::clone)?;
        let complaints = tempfile::tempfile().ok();
        let stderr = complaints.as_ref().and_then(|file| file.try_clone().ok());
        let mut child = Command::new(program)
            .args(arguments)
            // A script's folder may be one that nobody should write to.
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr.map_or_else(Stdio::null, Stdio::from))
            .spawn()
            .map_err(|error| NotMeasured(format!("'{}' cannot be started: {error}", program.display())))?;
        let (requests, lines) = (child.stdin.take(), read_lines(&mut child));
        let handshake = Handshake {
            protocol: PROTOCOL,
            peer: command.name.clone(),
            versions: BTreeMap::new(),
            device: String::new(),
            operations: Vec::new(),
            unavailable: None,
        };
        let mut session = Self { child, requests, lines, complaints, handshake, request_limit };
        session.handshake = session.shake_hands(handshake_limit)?;
        Ok(session)
    }

    fn shake_hands(&mut self, limit: Duration) -> Result<Handshake, NotMeasured> {
        let line = self.receive(limit)?;
        let handshake: Handshake = serde_json::from_str(&line)
            .map_err(|error| NotMeasured(format!("its first line is no handshake ({error})")))?;
        handshake.accepted()
    }

    /// The name it gave itself.
    pub fn name(&self) -> &str {
        &self.handshake.peer
    }

    /// The versions it gave, and the device it uses.
    pub fn versions(&self) -> BTreeMap<String, String> {
        let device =
            (!self.handshake.device.is_empty()).then(|| ("device".to_owned(), self.handshake.device.clone()));
        self.handshake.versions.clone().into_iter().chain(device).collect()
    }

    /// Whether it offers an operation.
    pub fn offers(&self, operation: &str) -> bool {
        self.handshake.operations.iter().any(|offered| offered == operation)
    }

    /// Asks for samples. After an error other than the peer's own answer the session is over.
    pub fn measure(&mut self, request: &PeerRequest, samples: usize) -> Result<Vec<f64>, NotMeasured> {
        let PeerRequest { operation, shape } = request;
        let mut line = serde_json::to_vec(&Request { operation, shape, samples })
            .map_err(|error| NotMeasured(error.to_string()))?;
        line.push(b'\n');
        let sent =
            self.requests.as_mut().map(|requests| requests.write_all(&line).and_then(|()| requests.flush()));
        if !matches!(sent, Some(Ok(()))) {
            return Err(self.ended("it no longer listens"));
        }
        let line = self.receive(self.request_limit)?;
        let reply: Reply = serde_json::from_str(&line)
            .map_err(|error| self.ended(&format!("it answered something that is no reply ({error})")))?;
        reply.samples(samples)
    }

    fn receive(&mut self, limit: Duration) -> Result<String, NotMeasured> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => {
                self.requests = None;
                // Whether it can be killed or is gone already: it is not asked again.
                let _ = self.child.kill();
                Err(NotMeasured(format!("it was stuck for {} s and was ended", limit.as_secs_f64())))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.ended("it ended before it answered")),
        }
    }

    /// What happened, with the last thing the peer said about it.
    fn ended(&mut self, what: &str) -> NotMeasured {
        self.requests = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
        let mut said = String::new();
        if let Some(file) = &mut self.complaints {
            let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut said));
            if read.is_err() {
                said.clear();
            }
        }
        match said.lines().rfind(|line| !line.trim().is_empty()) {
            Some(last) => NotMeasured(format!("{what}; its last words were: {}", last.trim())),
            None => NotMeasured(what.to_owned()),
        }
    }
}

impl Drop for PeerSession {
    fn drop(&mut self) {
        // The end of its input is the peer's sign to leave.
        self.requests = None;
        let deadline = Instant::now() + PARTING_LIMIT;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The peer's lines as they come. A thread reads them, so that waiting for one can end.
fn read_lines(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = channel();
    if let Some(stdout) = child.stdout.take() {
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
    }
    receiver
}
