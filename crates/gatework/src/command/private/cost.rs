//! `gatework private cost`: what a private inference takes, before anybody deals a key.

use gatework_private::cost::{self, Figures, Link, Report};
use gatework_private::graph::{Gate, Model};
use gatework_private::range::{Knowledge, StatedNorms, Trust};
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::output::table;
use crate::command::schema;
use crate::command::shell::Shell;

use super::options::{PrivateCostOptions, Profile};
use super::session_cost;

/// The four figures, as the document has them at its top level and for every gate.
#[derive(Serialize)]
struct Figured {
    keys_gib: f64,
    traffic_gib: f64,
    rounds: u64,
    prg_blocks: u64,
}

impl From<Figures> for Figured {
    fn from(figures: Figures) -> Self {
        Self {
            keys_gib: figures.keys_gib(),
            traffic_gib: figures.traffic_gib(),
            rounds: figures.rounds,
            prg_blocks: figures.prg_blocks,
        }
    }
}

#[derive(Serialize)]
struct OfGate {
    gate: &'static str,
    #[serde(flatten)]
    figures: Figured,
}

#[derive(Serialize)]
struct Apart {
    /// Once for a model.
    setup: Figured,
    embedding: Figured,
    head: Figured,
}

#[derive(Serialize)]
struct Truncations {
    gap: u64,
    faithful: u64,
}

#[derive(Serialize)]
struct Clamp {
    tensor: String,
    limit: f64,
}

#[derive(Serialize)]
struct Seconds {
    transfer: f64,
    waiting: f64,
    prg: f64,
    total: f64,
}

/// One profile's cost.
#[derive(Serialize)]
struct Costed {
    profile: &'static str,
    #[serde(flatten)]
    figures: Figured,
    gates: Vec<OfGate>,
    #[serde(flatten)]
    apart: Option<Apart>,
    truncations: Truncations,
    clamps: Vec<Clamp>,
    predicted_seconds: Seconds,
}

/// A cost, or why there is none.
#[derive(Serialize)]
#[serde(untagged)]
enum Attempt {
    Costed(Box<Costed>),
    Refused { refused: String },
}

#[derive(Serialize)]
struct Stated {
    gain: f64,
    bias_norm: f64,
    spectral_norm: f64,
    embedding_norm: f64,
    largest_entry: f64,
}

#[derive(Serialize)]
struct Assumed {
    bandwidth_gbit_per_second: f64,
    latency_ms: f64,
    prg_million_per_second: f64,
}

#[derive(Serialize)]
struct Document {
    model: &'static str,
    tokens: usize,
    ring_bits: u32,
    fraction_bits: u32,
    /// The chosen profile; ours, if none was.
    #[serde(flatten)]
    chosen: Costed,
    /// Ours if no truncation after a product is proved.
    #[serde(skip_serializing_if = "Option::is_none")]
    without_proofs: Option<Attempt>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sigma: Option<Costed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stated_weights: Option<Stated>,
    assumed: Assumed,
}

impl schema::Document for Document {
    const SCHEMA: schema::Schema = schema::PRIVATE_COST;
}

const WITHOUT_PROOFS: &str = "no proofs";

pub(super) fn run(options: &PrivateCostOptions, shell: &Shell) -> Result<Ending, Failure> {
    if let Some(path) = &options.public {
        return session_cost::run(options, path, shell);
    }
    let document = document(options)?;
    shell.output.show(&document, || text(&document))?;
    Ok(Ending::Done)
}

fn document(options: &PrivateCostOptions) -> Result<Document, Failure> {
    let model = Model::named(options.model.as_deref().unwrap_or_default())?;
    let format = model.format()?;
    let link = Link::new(options.bandwidth * 1e9, options.latency * 1e-3, options.prg_rate * 1e6)?;
    let norms = StatedNorms {
        gain: options.gain,
        bias: options.bias_norm,
        spectral: options.spectral_norm,
        embedding: options.embedding_norm,
    };
    let costed = |profile, report| costed(profile, report, &link);
    let sigma = || -> Result<Costed, Failure> { Ok(costed("sigma", cost::sigma(&model, options.seq)?)) };
    let ours = || -> Result<Costed, Failure> {
        let stated = Knowledge::Stated(norms);
        let report = cost::gatework(&model, options.seq, &stated, Trust::Norms)?;
        Ok(costed("gatework", report))
    };
    let without_proofs = || match cost::gatework(&model, options.seq, &Knowledge::Entries, Trust::RingOnly) {
        Ok(report) => Attempt::Costed(Box::new(costed(WITHOUT_PROOFS, report))),
        Err(refused) => Attempt::Refused { refused: refused.to_string() },
    };
    let (chosen, without_proofs, sigma) = match options.profile {
        None => (ours()?, Some(without_proofs()), Some(sigma()?)),
        Some(Profile::Gatework) => (ours()?, Some(without_proofs()), None),
        Some(Profile::Sigma) => (sigma()?, None, None),
    };
    let stated_weights = (options.profile != Some(Profile::Sigma)).then_some(Stated {
        gain: norms.gain,
        bias_norm: norms.bias,
        spectral_norm: norms.spectral,
        embedding_norm: norms.embedding,
        largest_entry: Knowledge::ENTRY,
    });
    Ok(Document {
        model: model.name,
        tokens: options.seq,
        ring_bits: format.ring.bits(),
        fraction_bits: format.fraction,
        chosen,
        without_proofs,
        sigma,
        stated_weights,
        assumed: Assumed {
            bandwidth_gbit_per_second: options.bandwidth,
            latency_ms: options.latency,
            prg_million_per_second: options.prg_rate,
        },
    })
}

fn costed(profile: &'static str, report: Report, link: &Link) -> Costed {
    let prediction = link.predict(&report.total);
    let gates = report.gates.into_iter();
    Costed {
        profile,
        figures: report.total.into(),
        gates: gates.map(|(gate, figures)| OfGate { gate: gate.name(), figures: figures.into() }).collect(),
        apart: report.apart.map(|apart| Apart {
            setup: apart.setup.into(),
            embedding: apart.embedding.into(),
            head: apart.head.into(),
        }),
        truncations: Truncations { gap: report.gap_truncations, faithful: report.faithful_truncations },
        clamps: report.clamps.into_iter().map(|(tensor, limit)| Clamp { tensor, limit }).collect(),
        predicted_seconds: Seconds {
            transfer: prediction.transfer,
            waiting: prediction.waiting,
            prg: prediction.generator,
            total: prediction.seconds(),
        },
    }
}

fn gib(figures: &Figured, of: impl Fn(&Figured) -> f64) -> String {
    let value = of(figures);
    if value > 0.0 && value < 0.001 { format!("{value:.1e}") } else { format!("{value:.3}") }
}

/// A figure as the table prints it.
type Printed = fn(&Figured) -> String;

const KEYS: (&str, Printed) = ("keys GiB", |figures| gib(figures, |figures| figures.keys_gib));
const TRAFFIC: (&str, Printed) = ("traffic GiB", |figures| gib(figures, |figures| figures.traffic_gib));
const ROUNDS: (&str, Printed) = ("rounds", |figures| figures.rounds.to_string());
const CALLS: (&str, Printed) = ("PRG calls M", |figures| format!("{:.1}", figures.prg_blocks as f64 / 1e6));

impl Costed {
    /// The row of that name, if this profile has it.
    fn row(&self, name: &str) -> Option<&Figured> {
        let apart = |of: fn(&Apart) -> &Figured| self.apart.as_ref().map(of);
        match name {
            ALL => Some(&self.figures),
            SETUP => apart(|apart| &apart.setup),
            EMBEDDING => apart(|apart| &apart.embedding),
            HEAD => apart(|apart| &apart.head),
            gate => self.gates.iter().find(|found| found.gate == gate).map(|found| &found.figures),
        }
    }
}

const ALL: &str = "all layers";
const SETUP: &str = "apart: set-up, once";
const EMBEDDING: &str = "apart: embedding";
const HEAD: &str = "apart: head";

/// Profiles side by side, a row for each gate.
fn side_by_side(columns: &[&Costed], printed: [(&str, Printed); 2]) -> String {
    let mut header = vec!["gate".to_owned()];
    for (unit, _) in printed {
        header.extend(columns.iter().map(|column| format!("{unit} {}", column.profile)));
    }
    let mut gates = table(["gate"]);
    gates.set_header(header);
    let names = Gate::ALL.map(Gate::name).into_iter().chain([ALL, SETUP, EMBEDDING, HEAD]);
    for name in names.filter(|name| columns.iter().any(|column| column.row(name).is_some())) {
        let mut row = vec![name.to_owned()];
        for (_, print) in printed {
            row.extend(columns.iter().map(|column| column.row(name).map_or_else(String::new, print)));
        }
        gates.add_row(row);
    }
    gates.to_string()
}

fn text(document: &Document) -> String {
    let without = match &document.without_proofs {
        Some(Attempt::Costed(costed)) => Some(&**costed),
        Some(Attempt::Refused { .. }) | None => None,
    };
    let chosen = [&document.chosen];
    let columns: Vec<&Costed> = document.sigma.iter().chain(chosen).chain(without).collect();
    let mut lines = vec![
        format!(
            "{}, {} tokens, {} bits of which {} are behind the point. Keys and PRG calls of the larger party, traffic of both.",
            document.model, document.tokens, document.ring_bits, document.fraction_bits
        ),
        String::new(),
        side_by_side(&columns, [KEYS, TRAFFIC]),
        String::new(),
        side_by_side(&columns, [ROUNDS, CALLS]),
        String::new(),
    ];
    for costed in &columns {
        let seconds = &costed.predicted_seconds;
        lines.push(format!(
            "{}: predicted {:.3} s = {:.3} on the link + {:.3} waiting + {:.3} PRG",
            costed.profile, seconds.total, seconds.transfer, seconds.waiting, seconds.prg
        ));
    }
    let assumed = &document.assumed;
    lines.push(format!(
        "Assumed: {} Gbit/s each way, {} ms, {} million PRG calls a second. Matrix products and copies of keys are not in it.",
        assumed.bandwidth_gbit_per_second, assumed.latency_ms, assumed.prg_million_per_second
    ));
    if let Some(sigma) = &document.sigma {
        let share = |of: fn(&Figured) -> f64| of(&document.chosen.figures) / of(&sigma.figures);
        lines.push(format!(
            "gatework takes {:.3} of SIGMA's keys and {:.3} of its traffic.",
            share(|figures| figures.keys_gib),
            share(|figures| figures.traffic_gib)
        ));
    }
    if let Some(stated) = &document.stated_weights {
        lines.push(format!(
            "Proofs rest on stated weights: gains up to {}, spectral norms up to {}, norms of biases up to {} and of embeddings up to {}.",
            stated.gain, stated.spectral_norm, stated.bias_norm, stated.embedding_norm
        ));
    }
    lines.extend(columns.iter().filter_map(|costed| clamped(costed)));
    if let Some(Attempt::Refused { refused }) = &document.without_proofs {
        lines.push(format!("{WITHOUT_PROOFS}: refused, since {refused}"));
    }
    lines.join("\n")
}

/// Says what is clamped.
fn clamped(costed: &Costed) -> Option<String> {
    let least = costed.clamps.iter().min_by(|a, b| a.limit.total_cmp(&b.limit))?;
    Some(format!(
        "{}: nothing proves {} tensors, which are clamped, the narrowest ('{}') to ±{}.",
        costed.profile,
        costed.clamps.len(),
        least.tensor.trim_end_matches(" clamped"),
        least.limit
    ))
}
