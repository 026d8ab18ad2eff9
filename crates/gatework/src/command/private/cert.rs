//! `gatework private cert`.

use std::path::PathBuf;

use gatework_private::net::make_test_certificates;
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::schema;
use crate::command::shell::Shell;

use super::options::CertOptions;

#[derive(Serialize)]
struct Made {
    authority: PathBuf,
    server: [PathBuf; 2],
    client: [PathBuf; 2],
    names: Vec<String>,
}

impl schema::Document for Made {
    const SCHEMA: schema::Schema = schema::PRIVATE_CERT;
}

pub(super) fn run(options: &CertOptions, shell: &Shell) -> Result<Ending, Failure> {
    let folder = &options.out;
    std::fs::create_dir_all(folder).map_err(|error| {
        Failure::input(format!("--out {}: {error}; name another folder", folder.display()))
    })?;
    let files = make_test_certificates(folder, &options.name)?;
    let made = Made {
        authority: files.authority,
        server: files.server,
        client: files.client,
        names: options.name.clone(),
    };
    shell.output.show(&made, || {
        format!(
            "{}: an authority, a server for {}, and a client. Their keys are for a first try; give each side only its own.",
            folder.display(),
            made.names.join(", ")
        )
    })?;
    Ok(Ending::Done)
}
