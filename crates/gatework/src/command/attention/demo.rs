//! `gatework attention run --demo`, and the engine's stop of the tour: tensors from a seed, attended and held
//! against double precision.

use std::time::Instant;

use gatework_attention::reference::{Scores, attention_of, relative_error};
use gatework_attention::{Builder, Mask, Shape};
use gatework_gpu::Target;
use gatework_lab::Inputs;
use serde::Serialize;

use super::run::RunOptions;
use super::shapes::text;
use crate::command::ending::{Ending, Failure};
use crate::command::schema;
use crate::command::shell::Shell;

/// Grouped heads, odd lengths, more keys than rows.
pub(super) const SHAPE: Shape =
    Shape { batch: 1, heads: 4, key_heads: 2, rows: 100, keys: 157, dim: 64, value_dim: 64 };

/// What is computed with the tensors.
pub(super) struct Question {
    pub(super) seed: u64,
    pub(super) builder: Builder,
    pub(super) mask: Mask,
    pub(super) scale: Option<f32>,
    pub(super) soft_cap: Option<f32>,
}

/// What came of it.
#[derive(Serialize)]
pub(super) struct Found {
    /// The error of the whole output over its size.
    pub(super) relative_error: f64,
    pub(super) allowed: f64,
    /// Host time from tensors in memory to the output in memory; a first run on a device compiles, too.
    pub(super) seconds: f64,
}

impl Question {
    /// Attends over normal random numbers.
    pub(super) fn ask(self, target: &Target) -> gatework_attention::Result<Found> {
        let mut inputs = Inputs::new(self.seed);
        let (q, k) = (inputs.normal(SHAPE.query_elements()), inputs.normal(SHAPE.key_elements()));
        let v = inputs.normal(SHAPE.value_elements());
        let start = Instant::now();
        let got = self.builder.build(target)?.forward(&q, &k, &v)?;
        let seconds = start.elapsed().as_secs_f64();
        let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
        let scale = self.scale.map_or_else(|| 1.0 / (SHAPE.dim as f64).sqrt(), f64::from);
        let scores = Scores { mask: self.mask, scale, soft_cap: self.soft_cap.map(f64::from), sinks: &[] };
        let (wanted, _) = attention_of(&SHAPE, &scores, &wide(&q), &wide(&k), &wide(&v));
        // What is left of normal inputs in e4m3, and what the rounding of weights adds; on the CPU it is f32.
        let allowed = if target.device().is_none() { 1e-5 } else { 0.075 };
        Ok(Found { relative_error: relative_error(got, &wanted), allowed, seconds })
    }
}

impl Found {
    pub(super) fn holds(&self) -> bool {
        self.relative_error <= self.allowed
    }
}

#[derive(Serialize)]
struct Document {
    shape: String,
    seed: u64,
    device: String,
    holds: bool,
    #[serde(flatten)]
    found: Found,
}

impl schema::Document for Document {
    const SCHEMA: schema::Schema = schema::ATTENTION_DEMO;
}

pub(super) fn run(options: &RunOptions, shell: &Shell) -> Result<Ending, Failure> {
    let question = Question {
        seed: options.seed,
        builder: options.builder(SHAPE)?,
        mask: options.mask()?,
        scale: options.scale,
        soft_cap: options.soft_cap,
    };
    let target = shell.target()?;
    let jobs = shell.progress.start(1);
    jobs.doing(format!("attending on {}", target.id()));
    let found = question.ask(&target)?;
    drop(jobs);
    let (shape, device) = (text(&SHAPE), target.id().to_owned());
    let document = Document { shape, seed: options.seed, device, holds: found.holds(), found };
    shell.output.show(&document, || document.text())?;
    Ok(if document.holds { Ending::Done } else { Ending::GateFailed })
}

impl Document {
    fn text(&self) -> String {
        let Shape { heads, key_heads, rows, keys, dim, .. } = SHAPE;
        let Found { relative_error, allowed, seconds } = self.found;
        let verdict = if self.holds { "within" } else { "MORE than" };
        format!(
            "{rows} queries in each of {heads} heads attended over {keys} keys in {key_heads} heads of {dim} columns, on {} in \
             {seconds:.3} s\nnormal random numbers of seed {}; the output is {relative_error:.2e} of its size from double \
             precision, {verdict} the {allowed:.1e} that is allowed\nwith tensors of your own: gatework attention run --input \
             qkv.safetensors --output o.safetensors",
            self.device, self.seed
        )
    }
}
