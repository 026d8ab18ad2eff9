//! `gatework zoo`: bugs of public reports, and what the emulated device says of them.

use std::fmt::Write as _;

use clap::Args;
use gatework_lab::zoo::{EXHIBITS, Visit, visit_all};
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::schema;
use crate::command::shell::{DeviceUse, Shell};

/// Options of `gatework zoo`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(crate) struct ZooOptions {
    /// Show only exhibits whose name contains this [default: all]
    name: Option<String>,
    /// Number of schedules to run each exhibit and its mended twin under
    #[arg(long, default_value_t = 20, value_name = "N")]
    seeds: u64,
    /// Print the source of the kernels, too
    #[arg(long)]
    source: bool,
}

#[derive(Serialize)]
struct Visited {
    exhibits: Vec<Visit>,
}

impl schema::Document for Visited {
    const SCHEMA: schema::Schema = schema::ZOO;
}

pub(crate) fn run(options: &ZooOptions, shell: &Shell) -> Result<Ending, Failure> {
    shell.device.check("zoo", DeviceUse::EmulatedOnly)?;
    let part = options.name.as_deref().unwrap_or_default();
    if options.seeds == 0 {
        return Err(Failure::input("no schedules: at least one seed is needed".into()));
    }
    let chosen = EXHIBITS.iter().filter(|exhibit| exhibit.name.contains(part)).count();
    if chosen == 0 {
        let names: Vec<&str> = EXHIBITS.iter().map(|exhibit| exhibit.name).collect();
        return Err(Failure::input(format!("no exhibit is called '{part}': there are {}", names.join(", "))));
    }
    let jobs = shell.progress.start(chosen);
    let visits = visit_all(part, options.seeds, |name| {
        jobs.doing(name.to_owned());
        jobs.done();
    });
    drop(jobs);
    let visited = Visited { exhibits: visits? };
    shell.output.show(&visited, || text(&visited.exhibits, options.source))?;
    let all = visited.exhibits.iter().all(Visit::is_found);
    Ok(if all { Ending::Done } else { Ending::GateFailed })
}

fn text(visits: &[Visit], with_source: bool) -> String {
    let mut text = String::new();
    for visit in visits {
        let _ = writeln!(text, "{}: {}\n  {}", visit.name, visit.report, visit.says);
        match &visit.fault {
            Some(fault) => {
                let site =
                    fault.site.as_ref().map_or_else(String::new, |site| format!("line {}: ", site.line));
                let _ = writeln!(
                    text,
                    "  found under {} of {}: {site}{}",
                    visit.found, visit.seeds, fault.message
                );
            }
            None => _ = writeln!(text, "  not found under {} schedules", visit.seeds),
        }
        if let Some(alarm) = &visit.alarm {
            let _ = writeln!(text, "  an alarm in the mended twin: {alarm}");
        }
        if with_source && let Some(exhibit) = EXHIBITS.iter().find(|exhibit| exhibit.name == visit.name) {
            let _ = writeln!(text, "\n{}", exhibit.text);
        }
        text.push('\n');
    }
    let found = visits.iter().filter(|visit| visit.is_found()).count();
    let _ = writeln!(text, "{found} of {} are found, and their mended twins pass", visits.len());
    text
}
