//! `gatework private cost --public`: what a session takes, to the byte.

use std::path::Path;

use gatework_private::roles::{Predicted, predict};
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::output::table;
use crate::command::schema;
use crate::command::shell::Shell;

use super::options::PrivateCostOptions;
use super::public_model;

const GIB: f64 = (1u64 << 30) as f64;

/// Names are those of a session's summary, so that both can be compared.
#[derive(Serialize)]
struct Part {
    keys_gib: f64,
    traffic_gib: f64,
    rounds: u64,
    prg_blocks: u64,
    server_sent_bytes: u64,
    client_sent_bytes: u64,
    server_key_bytes: u64,
    client_key_bytes: u64,
}

impl From<Predicted> for Part {
    fn from(predicted: Predicted) -> Self {
        let ([server_sent_bytes, client_sent_bytes], [server_key_bytes, client_key_bytes]) =
            (predicted.traffic.bytes, predicted.key_bytes);
        Self {
            keys_gib: server_key_bytes.max(client_key_bytes) as f64 / GIB,
            traffic_gib: (server_sent_bytes + client_sent_bytes) as f64 / GIB,
            rounds: predicted.traffic.frames,
            prg_blocks: predicted.prg_blocks.into_iter().max().unwrap_or(0),
            server_sent_bytes,
            client_sent_bytes,
            server_key_bytes,
            client_key_bytes,
        }
    }
}

#[derive(Serialize)]
struct Document {
    tokens: usize,
    texts: usize,
    ring_bits: u32,
    fraction_bits: u32,
    /// One request for all texts.
    #[serde(flatten)]
    inference: Part,
    /// Once a session.
    set_up: Part,
}

impl schema::Document for Document {
    const SCHEMA: schema::Schema = schema::PRIVATE_COST_SESSION;
}

pub(super) fn run(options: &PrivateCostOptions, path: &Path, shell: &Shell) -> Result<Ending, Failure> {
    let model = public_model(path)?;
    let texts = options.texts as usize;
    let [set_up, inference] = predict(&model, &vec![options.seq; texts])?;
    let document = Document {
        tokens: options.seq,
        texts,
        ring_bits: model.format().ring.bits(),
        fraction_bits: model.format().fraction,
        inference: inference.into(),
        set_up: set_up.into(),
    };
    shell.output.show(&document, || {
        let mut rows = table(["", "rounds", "server sends", "client sends", "server's keys", "client's keys"]);
        for (name, part) in [("weights, once a session", &document.set_up), ("the texts", &document.inference)] {
            let bytes =
                [part.server_sent_bytes, part.client_sent_bytes, part.server_key_bytes, part.client_key_bytes];
            let mut row = vec![name.to_owned(), part.rounds.to_string()];
            row.extend(bytes.map(|bytes| format!("{bytes} B")));
            rows.add_row(row);
        }
        format!(
            "{} texts of {} tokens, {} bits of which {} are behind the point. Bytes are those of frames; TLS adds to them.\n\n{rows}",
            document.texts, document.tokens, document.ring_bits, document.fraction_bits
        )
    })?;
    Ok(Ending::Done)
}
