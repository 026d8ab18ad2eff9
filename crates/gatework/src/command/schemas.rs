//! `gatework schema`: the JSON Schema of a document, or a list of all documents.

use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::output::table;
use crate::command::schema::{self, Document, SCHEMAS, Schema};
use crate::command::shell::{DeviceUse, Shell};

pub(crate) const EXAMPLES: &str = "\
Examples:
  gatework schema
  gatework schema lab-gate > lab-gate.schema.json";

/// Options of `gatework schema`.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub(crate) struct SchemaOptions {
    /// The document whose JSON Schema is printed [default: list all documents]
    name: Option<String>,
}

/// The list of schemas.
#[derive(Serialize)]
struct Listed {
    documents: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    name: &'static str,
    version: u32,
    made_by: &'static str,
}

impl Document for Listed {
    const SCHEMA: Schema = schema::SCHEMA;
}

/// Prints one JSON Schema, or the list of all.
pub(crate) fn run(options: &SchemaOptions, shell: &Shell) -> Result<Ending, Failure> {
    shell.device.check("schema", DeviceUse::None)?;
    let Some(name) = &options.name else {
        let entry =
            |schema: &Schema| Entry { name: schema.name, version: schema.version, made_by: schema.made_by };
        let listed = Listed { documents: SCHEMAS.iter().map(entry).collect() };
        shell.output.show(&listed, || listed.text())?;
        return Ok(Ending::Done);
    };
    let schema = SCHEMAS.iter().find(|schema| schema.name == name).ok_or_else(|| {
        Failure::input(format!("there is no document '{name}': 'gatework schema' lists those there are"))
    })?;
    shell.output.print(&format!("{:#}", schema.bundle()?))?;
    Ok(Ending::Done)
}

impl Listed {
    fn text(&self) -> String {
        let mut rows = table(["document", "version", "printed or written by gatework"]);
        for Entry { name, version, made_by } in &self.documents {
            rows.add_row([*name, &version.to_string(), *made_by]);
        }
        rows.to_string()
    }
}
