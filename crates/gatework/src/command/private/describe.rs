//! `gatework private describe`.

use std::path::PathBuf;
use std::time::Instant;

use gatework_fss::backend_on;
use gatework_private::graph::Head;
use gatework_private::model::{Options, Salt};
use gatework_private::roles::predict;
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::files::{require_writable, write_file};
use crate::command::schema;
use crate::command::shell::Shell;

use super::device_bytes::Planned;
use super::options::{DescribeOptions, HeadChoice};
use super::weights::checkpoint;

#[derive(Serialize)]
struct Described {
    out: PathBuf,
    /// What the server alone keeps.
    salt: PathBuf,
    #[serde(flatten)]
    device: Option<Planned>,
    ring_bits: u32,
    longest: usize,
    clamps: usize,
    /// What one text of the longest kind takes of each party's keys and of the link.
    server_key_bytes: u64,
    client_key_bytes: u64,
    server_sent_bytes: u64,
    client_sent_bytes: u64,
    rounds: u64,
    read_seconds: f64,
    measure_seconds: f64,
}

impl schema::Document for Described {
    const SCHEMA: schema::Schema = schema::PRIVATE_DESCRIBE;
}

impl From<HeadChoice> for Head {
    fn from(choice: HeadChoice) -> Self {
        match choice {
            HeadChoice::Mean => Self::Mean,
            HeadChoice::Tokens => Self::Tokens,
            HeadChoice::NextWord => Self::NextWord,
            HeadChoice::EveryWord => Self::EveryWord,
        }
    }
}

pub(super) fn run(options: &DescribeOptions, shell: &Shell) -> Result<Ending, Failure> {
    require_writable("--out", &options.out)?;
    let target = options.memory.limited(shell.target()?)?;
    let jobs = shell.progress.start(2);
    jobs.doing(format!("reading {}", options.model.display()));
    let start = Instant::now();
    let checkpoint = checkpoint(&options.model)?;
    let read = start.elapsed();
    jobs.done();
    jobs.doing("measuring the weights".into());
    let longest = options.longest.min(checkpoint.context());
    // One that is there stays: keys were dealt for the hash that it gives.
    let salt_file = Salt::path_beside(&options.out);
    let kept = Salt::read(&salt_file)?;
    let salt = kept.map_or_else(Salt::random, Ok)?;
    let chosen =
        Options { head: options.head.map(Into::into), bits: options.bits, salt, ..Options::default() };
    let public = checkpoint.public(longest, &chosen)?;
    let measured = start.elapsed() - read;
    drop(jobs);
    let [_, text] = predict(&public, &[longest])?;
    let ([server_key_bytes, client_key_bytes], traffic) = (text.key_bytes, text.traffic);
    let [server_sent_bytes, client_sent_bytes] = traffic.bytes;
    let device = Planned::new(&target, &backend_on(&target)?, &public, &[longest])?;
    let text = public.to_json()?;
    if kept.is_none() {
        salt.write(&salt_file)?;
    }
    write_file(&options.out, text.as_bytes())?;
    let described = Described {
        out: options.out.clone(),
        salt: salt_file,
        device,
        ring_bits: public.format().ring.bits(),
        longest,
        clamps: public.clamps(),
        server_key_bytes,
        client_key_bytes,
        server_sent_bytes,
        client_sent_bytes,
        rounds: traffic.frames,
        read_seconds: read.as_secs_f64(),
        measure_seconds: measured.as_secs_f64(),
    };
    shell.output.show(&described, || {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let clamps = match described.clamps {
            0 => "every value is proved to stay in it".to_owned(),
            count => format!("{count} tensors are clamped, because nothing proves that they stay in it"),
        };
        format!(
            "{}: texts of up to {longest} tokens in a ring of {} bits; {clamps}. The longest takes {:.1} MiB of the server's keys, \
             {:.1} MiB of the client's and {} rounds.{} Give it to the dealer and to the client, and keep {} to yourself.",
            described.out.display(),
            described.ring_bits,
            mib(described.server_key_bytes),
            mib(described.client_key_bytes),
            described.rounds,
            Planned::said(described.device.as_ref()),
            described.salt.display()
        )
    })?;
    Ok(Ending::Done)
}
