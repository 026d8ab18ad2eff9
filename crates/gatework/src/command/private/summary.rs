//! What a session took.

use gatework_fss::executor::Stages;
use gatework_gpu::{Device, Target};
use gatework_private::roles::{Counted, Summary};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Told {
    inferences: usize,
    set_up: Part,
    inference: Part,
    /// The most memory that the process had, in GiB, where the system tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_memory_gib: Option<f64>,
    /// The most device memory that the process had.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_device_bytes: Option<u64>,
    /// The most that was planned for this session at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    planned_device_bytes: Option<u64>,
    /// What all sessions may have, and what is promised to those that are under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    device_limit_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_pending_bytes: Option<u64>,
    /// Page-locked memory of the host that the process holds for copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    page_locked_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Part {
    seconds: f64,
    evaluate_seconds: f64,
    wait_seconds: f64,
    /// Beside the others, on a thread of its own.
    send_seconds: f64,
    stages: StageSeconds,
    rounds: u64,
    server_sent_bytes: u64,
    client_sent_bytes: u64,
    key_bytes: u64,
}

/// Where the time of the thread that evaluates went.
#[derive(Serialize)]
struct StageSeconds {
    /// Gates: computing them, or queueing them on a device.
    gates: f64,
    /// Until messages were computed and on the host.
    messages: f64,
    /// Handing them to the connection.
    sending: f64,
    /// For the other party's.
    waiting: f64,
    /// Opening those, or queueing that.
    opening: f64,
    /// Making keys ready for the next round.
    ahead: f64,
}

impl From<Stages> for StageSeconds {
    fn from(stages: Stages) -> Self {
        Self {
            gates: stages.gates.as_secs_f64(),
            messages: stages.messages.as_secs_f64(),
            sending: stages.sending.as_secs_f64(),
            waiting: stages.waiting.as_secs_f64(),
            opening: stages.opening.as_secs_f64(),
            ahead: stages.ahead.as_secs_f64(),
        }
    }
}

impl From<Counted> for Part {
    fn from(counted: Counted) -> Self {
        let [server_sent_bytes, client_sent_bytes] = counted.traffic.bytes;
        Self {
            seconds: counted.wall.as_secs_f64(),
            evaluate_seconds: counted.evaluating.as_secs_f64(),
            wait_seconds: counted.waiting.as_secs_f64(),
            send_seconds: counted.sending.as_secs_f64(),
            stages: counted.stages.into(),
            rounds: counted.traffic.frames,
            server_sent_bytes,
            client_sent_bytes,
            key_bytes: counted.key_bytes,
        }
    }
}

impl Told {
    pub(super) fn new(summary: Summary) -> Self {
        Self {
            inferences: summary.inferences,
            set_up: summary.set_up.into(),
            inference: summary.inference.into(),
            peak_memory_gib: peak_memory(),
            peak_device_bytes: None,
            planned_device_bytes: summary.planned_device_bytes,
            device_limit_bytes: None,
            device_pending_bytes: None,
            page_locked_bytes: None,
        }
    }

    /// With what was used of a device, if it is one.
    pub(super) fn with_device_of(self, target: &Target) -> Self {
        let of = |bytes: fn(&Device) -> u64| target.device().map(bytes);
        Self {
            peak_device_bytes: of(|device| device.budget().peak()),
            device_limit_bytes: of(|device| device.budget().limit()),
            device_pending_bytes: of(|device| device.budget().promised()),
            page_locked_bytes: of(|device| device.pinned().stats().held),
            ..self
        }
    }

    /// A line for each part.
    pub(super) fn lines(&self) -> String {
        let line = |name: &str, part: &Part| {
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            format!(
                "{name}: {:.2} s (evaluate {:.2}, wait {:.2}; send {:.2} beside), {} rounds, {:.2} MiB from the server, {:.2} MiB from the client, {:.1} MiB of keys",
                part.seconds,
                part.evaluate_seconds,
                part.wait_seconds,
                part.send_seconds,
                part.rounds,
                mib(part.server_sent_bytes),
                mib(part.client_sent_bytes),
                mib(part.key_bytes)
            )
        };
        let texts = if self.inferences == 1 { "1 text".into() } else { format!("{} texts", self.inferences) };
        let memory =
            self.peak_memory_gib.map_or_else(String::new, |gib| format!("\nmost memory: {gib:.2} GiB"));
        format!("{}\n{}{memory}", line("weights", &self.set_up), line(&texts, &self.inference))
    }
}

fn peak_memory() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / f64::from(1 << 20))
}
