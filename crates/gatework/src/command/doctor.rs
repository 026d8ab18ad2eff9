//! What this machine has, and what will run where.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use gatework_gpu::{DeviceListing, Presence, cache_directory};
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::machine::{Job, Machine, Part};
use crate::command::noun::Entry;
use crate::command::output::table;
use crate::command::schema;
use crate::command::shell::Shell;
use crate::command::topology::Joints;

#[derive(Serialize)]
struct Examination {
    gatework: &'static str,
    /// The device that the jobs are asked about.
    device: String,
    devices: Vec<DeviceListing>,
    topology: Joints,
    parts: Vec<Part>,
    cache: Cache,
    jobs: Vec<JobOfNoun>,
}

impl schema::Document for Examination {
    const SCHEMA: schema::Schema = schema::DOCTOR;
}

/// A job, with the noun that says it.
#[derive(Serialize)]
struct JobOfNoun {
    noun: String,
    #[serde(flatten)]
    job: Job,
}

/// The folder of compiled kernels.
#[derive(Serialize)]
struct Cache {
    folder: PathBuf,
    /// Why kernels are compiled anew every time, if they are.
    unwritable: Option<String>,
}

pub(crate) fn run(shell: &Shell, nouns: &[Entry]) -> Result<Ending, Failure> {
    let examination = Examination::new(Machine::examine(shell.device.choice), nouns);
    shell.output.show(&examination, || examination.text())?;
    Ok(Ending::Done)
}

impl Examination {
    fn new(machine: Machine, nouns: &[Entry]) -> Self {
        let of_noun = |noun: &Entry| {
            let name = noun.name();
            (noun.jobs)(&machine).into_iter().map(move |job| JobOfNoun { noun: name.clone(), job })
        };
        let jobs = nouns.iter().flat_map(of_noun).collect();
        let Machine { choice, devices, parts } = machine;
        Self {
            gatework: env!("CARGO_PKG_VERSION"),
            device: choice.to_string(),
            devices,
            topology: Joints::examine(),
            parts,
            cache: Cache::examine(),
            jobs,
        }
    }

    fn text(&self) -> String {
        let mut text = format!("gatework {}\n\n", self.gatework);
        let mut rows = table(["part", "here", "what"]);
        for Part { name, presence } in &self.parts {
            rows.add_row([*name, here(presence), said(presence)]);
        }
        let folder = self.cache.folder.display().to_string();
        match &self.cache.unwritable {
            None => rows.add_row(["kernel cache", "yes", &folder]),
            Some(why) => rows.add_row(["kernel cache", "no", &format!("{folder} cannot be written: {why}")]),
        };
        let _ = writeln!(text, "{rows}\n");
        if !self.devices.is_empty() {
            let _ = writeln!(text, "{}\n", device_table(&self.devices));
        }
        if let Some(rows) = self.topology.table() {
            let _ = writeln!(text, "{rows}\n");
        }
        let asked = format!("where with --device {}, or why not", self.device);
        let mut rows = table(["job", "runs", &asked]);
        for JobOfNoun { job: Job { name, presence }, .. } in &self.jobs {
            rows.add_row([*name, here(presence), said(presence)]);
        }
        let _ = writeln!(text, "{rows}");
        text
    }
}

impl Cache {
    fn examine() -> Self {
        let folder = cache_directory();
        let tried = fs::create_dir_all(&folder).and_then(|()| tempfile::tempfile_in(&folder));
        Self { folder, unwritable: tried.err().map(|error| error.to_string()) }
    }
}

fn device_table(devices: &[DeviceListing]) -> comfy_table::Table {
    let mut rows = table(["device", "name", "architecture", "SMs", "memory", "peers"]);
    for DeviceListing { properties, peers } in devices {
        let gibibytes = properties.memory_bytes as f64 / f64::from(1 << 30);
        rows.add_row([
            properties.id.clone(),
            properties.name.clone(),
            properties.architecture.to_string(),
            properties.multiprocessors.to_string(),
            format!("{gibibytes:.1} GiB"),
            peers.iter().map(|peer| format!("cuda:{peer}")).collect::<Vec<_>>().join(" "),
        ]);
    }
    rows
}

fn here(presence: &Presence) -> &'static str {
    if presence.is_found() { "yes" } else { "no" }
}

fn said(presence: &Presence) -> &str {
    match presence {
        Presence::Found { what } => what,
        Presence::Missing { reason } => reason,
    }
}
