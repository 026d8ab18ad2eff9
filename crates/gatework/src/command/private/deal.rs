//! `gatework private deal`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use gatework_fss::{Randomness, backend_on};
use gatework_private::disk::partial_path;
use gatework_private::roles::deal_files;
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::interrupt::Litter;
use crate::command::schema;
use crate::command::shell::Shell;

use super::device_bytes::Planned;
use super::options::DealOptions;
use super::public_model;

#[derive(Serialize)]
struct Dealt {
    server_keys: PathBuf,
    client_keys: PathBuf,
    texts: usize,
    server_bytes: u64,
    client_bytes: u64,
    #[serde(flatten)]
    device: Option<Planned>,
    seconds: f64,
}

impl schema::Document for Dealt {
    const SCHEMA: schema::Schema = schema::PRIVATE_DEAL;
}

pub(super) fn run(options: &DealOptions, shell: &Shell) -> Result<Ending, Failure> {
    let model = public_model(&options.public)?;
    let started = Instant::now();
    let tokens = &options.tokens.0;
    let paths: [&Path; 2] = [&options.server_keys, &options.client_keys];
    let _unfinished = paths.map(|path| Litter::new(&partial_path(path)));
    let jobs = shell.progress.start(1);
    let target = options.memory.limited(shell.target()?)?;
    let backend = backend_on(&target)?;
    let device = Planned::new(&target, &backend, &model, tokens)?;
    let mut randomness = Randomness::from_os()?;
    deal_files(&backend, &mut randomness, &model, tokens, paths, &shell.progress)?;
    drop(jobs);
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let dealt = Dealt {
        server_keys: options.server_keys.clone(),
        client_keys: options.client_keys.clone(),
        texts: tokens.len(),
        server_bytes: size(paths[0]),
        client_bytes: size(paths[1]),
        device,
        seconds: started.elapsed().as_secs_f64(),
    };
    shell.output.show(&dealt, || {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        format!(
            "{} texts in {:.1} s: {} ({:.1} MiB) for the server, {} ({:.1} MiB) for the client, each with its ledger. \
             Give each file to its party alone, and forget both: whoever has the two can read everything.{}",
            dealt.texts,
            dealt.seconds,
            dealt.server_keys.display(),
            mib(dealt.server_bytes),
            dealt.client_keys.display(),
            mib(dealt.client_bytes),
            Planned::said(dealt.device.as_ref())
        )
    })?;
    Ok(Ending::Done)
}
