//! `gatework lab list`: the workloads.

use gatework_gpu::Kind;
use gatework_lab::{Case, Workload};
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::output::table;
use crate::command::schema;
use crate::command::shell::Shell;

#[derive(Serialize)]
struct Listed {
    workloads: Vec<Entry>,
}

impl schema::Document for Listed {
    const SCHEMA: schema::Schema = schema::LAB_LIST;
}

#[derive(Serialize)]
struct Entry {
    name: String,
    summary: String,
    kernels: Vec<String>,
    emulated_cases: Vec<Case>,
    cuda_cases: Vec<Case>,
}

impl Entry {
    fn of(workload: &dyn Workload) -> Self {
        Self {
            name: workload.name().to_owned(),
            summary: workload.summary().to_owned(),
            kernels: workload.kernels().into_iter().flat_map(|spec| spec.entries).collect(),
            emulated_cases: workload.cases(Kind::Emulated),
            cuda_cases: workload.cases(Kind::Cuda),
        }
    }
}

pub(super) fn run(shell: &Shell) -> Result<Ending, Failure> {
    let listed = Listed { workloads: shell.registry.iter().map(Entry::of).collect() };
    shell.output.show(&listed, || {
        let mut rows = table(["workload", "what it computes", "kernels", "cases on cuda, emulated"]);
        for entry in &listed.workloads {
            let cases = format!("{}, {}", entry.cuda_cases.len(), entry.emulated_cases.len());
            rows.add_row([&entry.name, &entry.summary, &entry.kernels.join(" "), &cases]);
        }
        rows.to_string()
    })?;
    Ok(Ending::Done)
}
