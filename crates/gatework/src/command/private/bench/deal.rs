//! `--deal`: the dealer on its own, into memory.

use std::path::PathBuf;
use std::time::Instant;

use gatework_fss::{Randomness, backend_on};
use gatework_gpu::Target;
use gatework_lab::MeasuredRecord;
use gatework_private::model::Owner;
use gatework_private::roles::{DealPlan, LocalKeys};
use serde::Serialize;
use serde_json::Value;

use crate::command::ending::{Ending, Failure};
use crate::command::schema;
use crate::command::shell::Shell;

use super::document::{median, milliseconds};
use super::{BenchOptions, in_clear, keep_record, texts};

/// What the records of this measurement are of.
const RECORD_NAME: &str = "private/deal";

#[derive(Serialize)]
struct Document {
    kind: &'static str,
    model: String,
    tokens: usize,
    batch: usize,
    device: String,
    threads: usize,
    repeats: usize,
    server_key_bytes: u64,
    client_key_bytes: u64,
    median_ms: f64,
    worst_ms: f64,
    fastest_ms: f64,
    /// Whether the keys of the last deal gave what the clear evaluation does, bit for bit.
    equal_in_clear: bool,
}

impl schema::Document for Document {
    const SCHEMA: schema::Schema = schema::PRIVATE_BENCH_DEAL;
}

impl Document {
    fn measured(&self) -> Result<MeasuredRecord, Failure> {
        let Ok(Value::Object(row)) = serde_json::to_value(self) else {
            return Err(Failure::device("the figures are no JSON object".into()));
        };
        let origin = format!(
            "gatework private bench --deal, {} times: from what is to be dealt to the keys of both parties in this process's memory, {} threads",
            self.repeats, self.threads
        );
        Ok(MeasuredRecord { origin, rows: vec![row] })
    }

    fn text(&self) -> String {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let bytes = self.server_key_bytes + self.client_key_bytes;
        format!(
            "{}, {} tokens: keys of {:.3} and {:.3} GiB in {:.0} ms median, {:.0} ms worst of {}: {:.1} GB/s on {}\n\
             an inference with the last ones gives {}",
            self.model,
            self.tokens,
            gib(self.server_key_bytes),
            gib(self.client_key_bytes),
            self.median_ms,
            self.worst_ms,
            self.repeats,
            bytes as f64 / self.median_ms / 1e6,
            self.device,
            if self.equal_in_clear {
                "what the clear evaluation does, bit for bit"
            } else {
                "SOMETHING ELSE"
            }
        )
    }
}

pub(super) fn run(options: &BenchOptions, shell: &Shell, target: &Target) -> Result<Ending, Failure> {
    let (tokens, batch) = (options.tokens.get(), options.batch.get());
    let weights = options.weights.read()?;
    let public = weights.public(tokens, options.trust())?;
    let owner = Owner::new(&public, weights.quantised(&public)?)?;
    drop(weights);
    let (backend, texts) = (backend_on(target)?, texts(&public, tokens, batch));
    let plan = DealPlan::new(&public, &vec![tokens; batch])?;
    let count = options.warm_up + options.repeats.get();
    let jobs = shell.progress.start(count);
    let (mut times, mut last) = (Vec::with_capacity(count), None);
    for index in 0..count {
        jobs.doing(format!("dealing {} of {count}", index + 1));
        // Only one at a time is in memory.
        drop(last.take());
        let mut randomness = Randomness::from_os()?;
        let start = Instant::now();
        let keys = LocalKeys::deal(&backend, &mut randomness, &plan, &())?;
        times.push(milliseconds(start.elapsed()));
        last = Some(keys);
        jobs.done();
    }
    drop(jobs);
    let times = times.split_off(options.warm_up);
    let Some(keys) = last else { return Err(Failure::input("nothing was measured".into())) };
    let [server_key_bytes, client_key_bytes] = keys.key_bytes();
    let found = keys.infer(&owner, &plan, [backend.clone(), backend_on(target)?], &texts)?;
    let document = Document {
        kind: "deal",
        model: options.weights.name(),
        tokens,
        batch,
        device: target.id().to_owned(),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        repeats: times.len(),
        server_key_bytes,
        client_key_bytes,
        worst_ms: times.iter().copied().fold(0.0, f64::max),
        fastest_ms: times.iter().copied().fold(f64::INFINITY, f64::min),
        median_ms: median(times),
        equal_in_clear: found == in_clear(&public, &owner, &texts)?,
    };
    let measured = document.measured()?;
    let keep = |folder: &PathBuf| keep_record(RECORD_NAME, folder, target, measured, shell);
    let kept = options.results.as_ref().map_or(Ok(()), keep);
    // What was measured is shown, whatever became of its record.
    shell.output.show(&document, || document.text())?;
    kept?;
    Ok(if document.equal_in_clear { Ending::Done } else { Ending::GateFailed })
}
