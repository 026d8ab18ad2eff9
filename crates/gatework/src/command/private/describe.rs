//! `gatework private describe`.

use std::path::PathBuf;

use gatework_private::graph::Head;
use gatework_private::model::{Checkpoint, Options};
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::files::write_file;
use crate::command::shell::Shell;

use super::options::{DescribeOptions, HeadChoice};

#[derive(Serialize)]
struct Described {
    out: PathBuf,
    ring_bits: u32,
    longest: usize,
    clamps: usize,
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
    let jobs = shell.progress.start(2);
    jobs.doing(format!("reading {}", options.model.display()));
    let checkpoint = Checkpoint::load(&options.model)?;
    jobs.done();
    jobs.doing("measuring the weights".into());
    let longest = options.longest.min(checkpoint.context());
    let chosen = Options { head: options.head.map(Into::into), bits: options.bits };
    let public = checkpoint.public(longest, &chosen)?;
    drop(jobs);
    let text = public.to_json()?;
    write_file(&options.out, text.as_bytes())?;
    let described = Described {
        out: options.out.clone(),
        ring_bits: public.format().ring.bits(),
        longest,
        clamps: public.clamps(),
    };
    shell.output.show(&described, || {
        let clamps = match described.clamps {
            0 => "every value is proved to stay in it".to_owned(),
            count => format!("{count} tensors are clamped, because nothing proves that they stay in it"),
        };
        format!(
            "{}: texts of up to {longest} tokens in a ring of {} bits; {clamps}. Give it to the dealer and to the client.",
            described.out.display(),
            described.ring_bits
        )
    })?;
    Ok(Ending::Done)
}
