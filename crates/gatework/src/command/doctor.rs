//! What this machine has, and what will run where.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use gatework_gpu::{DeviceListing, Presence, cache_directory, list_devices, presence};
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::output::{Output, table};

const TOOLS: [&str; 4] = ["cuobjdump", "nvdisasm", "ncu", "compute-sanitizer"];

#[derive(Serialize)]
struct Examination {
    gatework: &'static str,
    devices: Vec<DeviceListing>,
    parts: Vec<Part>,
    cache: Cache,
    jobs: Vec<Job>,
}

/// A part of the tool chain.
#[derive(Serialize)]
struct Part {
    name: &'static str,
    #[serde(flatten)]
    presence: Presence,
}

/// The folder of compiled kernels.
#[derive(Serialize)]
struct Cache {
    folder: PathBuf,
    /// Why kernels are compiled anew every time, if they are.
    unwritable: Option<String>,
}

/// Something Gatework does, and where it will run.
#[derive(Serialize)]
struct Job {
    name: &'static str,
    #[serde(flatten)]
    presence: Presence,
}

pub(crate) fn run(output: &Output) -> Result<Ending, Failure> {
    let examination = Examination::new();
    output.show(&examination, || examination.text())?;
    Ok(Ending::Done)
}

impl Examination {
    fn new() -> Self {
        let parts = parts();
        let devices = list_devices().unwrap_or_default();
        let jobs = jobs(&devices, &parts);
        Self { gatework: env!("CARGO_PKG_VERSION"), devices, parts, cache: Cache::examine(), jobs }
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
        let mut rows = table(["job", "runs", "where, or why not"]);
        for Job { name, presence } in &self.jobs {
            rows.add_row([*name, here(presence), said(presence)]);
        }
        let _ = writeln!(text, "{rows}");
        text
    }
}

fn parts() -> Vec<Part> {
    let named = |name, presence| Part { name, presence };
    let mut parts = vec![
        named("CUDA driver", presence::cuda_driver()),
        named("NVRTC", presence::nvrtc()),
        named("C++ compiler", presence::cxx()),
    ];
    parts.extend(TOOLS.map(|tool| named(tool, presence::tool(tool))));
    parts
}

fn jobs(devices: &[DeviceListing], parts: &[Part]) -> Vec<Job> {
    let part = |name: &str| parts.iter().find(|part| part.name == name).map(|part| &part.presence);
    let with =
        |names: &[&str], what: &str| match names.iter().filter_map(|name| part(name)).find(|p| !p.is_found())
        {
            Some(missing) => missing.clone(),
            None => Presence::Found { what: what.to_owned() },
        };
    let cuda = match (devices.first(), part("CUDA driver")) {
        (Some(device), _) => {
            let properties = &device.properties;
            let compiled = format!("{} ({}, {})", properties.id, properties.name, properties.architecture);
            with(&["NVRTC"], &compiled)
        }
        (None, Some(Presence::Missing { reason })) => Presence::Missing { reason: reason.clone() },
        (None, _) => Presence::Missing { reason: "the driver reports no device".to_owned() },
    };
    let emulated = with(&["C++ compiler"], "on the CPU, with --device emulated; for correctness, not speed");
    let resources = with(&["NVRTC", "cuobjdump", "nvdisasm"], "for sm_90a where there is no GPU to ask");
    vec![
        Job { name: "kernels on a GPU", presence: cuda },
        Job { name: "kernels emulated", presence: emulated },
        Job { name: "compile gate for GPUs", presence: with(&["NVRTC"], "needs no GPU") },
        Job { name: "resource gate", presence: resources },
    ]
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
