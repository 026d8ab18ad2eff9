//! What can be typed after `gatework private`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use gatework_private::range::StatedNorms;

use crate::command::device_memory::MemoryOptions;

use super::lengths::{self, Lengths};
use super::weights::WeightOptions;

pub(super) const DESCRIBE_EXAMPLES: &str = "\
Examples:
  gatework private describe --model all-MiniLM-L6-v2 --out minilm.json
  gatework private describe --model gpt2 --longest 64 --head every-word --out gpt2.json

The folder holds config.json and model.safetensors of a BERT or a GPT-2, as Hugging Face
stores them. What is written holds shapes, the ring, the choice for each truncation, and
a hash of the weights; no weight, and no norm of one.";

/// What goes to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HeadChoice {
    /// The mean of all tokens' last states: a sentence embedding
    Mean,
    /// All tokens' last states
    Tokens,
    /// Scores of the word that follows
    NextWord,
    /// Scores of the words that follow every token
    EveryWord,
}

#[derive(Debug, Args)]
pub(crate) struct DescribeOptions {
    /// The folder with config.json and model.safetensors
    #[arg(long, value_name = "DIR")]
    pub(crate) model: PathBuf,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Tokens of the longest text
    #[arg(long, default_value_t = 128, value_name = "N")]
    pub(crate) longest: usize,
    /// What the client gets [default: what the model was trained for]
    #[arg(long, value_enum, value_name = "HEAD")]
    pub(crate) head: Option<HeadChoice>,
    /// Bits of the ring [default: the narrowest that is proved to suffice]
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u32).range(32..=64))]
    pub(crate) bits: Option<u32>,
    #[command(flatten)]
    pub(crate) memory: MemoryOptions,
}

pub(super) const DEAL_EXAMPLES: &str = "\
Examples:
  gatework private deal --public minilm.json --tokens 16 \\
      --server-keys server.keys --client-keys client.keys
  gatework private deal --public minilm.json --tokens 16x8,4-12 \\
      --server-keys server.keys --client-keys client.keys
  gatework private deal --public gpt2.json --tokens 8-27 \\
      --server-keys server.keys --client-keys client.keys

Each text uses up one key of its own length. 16x8 is eight texts of 16 tokens, 4-12 one
text of each length from 4 to 12. Generating 20 words from 8 tokens takes 8-27.

Whoever runs this learns every mask. It must be neither the server nor the client, must
send each file to its party alone, and must then delete both.";

#[derive(Debug, Args)]
pub(crate) struct DealOptions {
    /// The model, as `private describe` wrote it
    #[arg(long, value_name = "FILE")]
    pub(crate) public: PathBuf,
    /// Lengths of the texts
    #[arg(long, value_name = "LENGTHS", value_parser = lengths::parse)]
    pub(crate) tokens: Lengths,
    /// The server's file to write
    #[arg(long, value_name = "FILE")]
    pub(crate) server_keys: PathBuf,
    /// The client's file to write
    #[arg(long, value_name = "FILE")]
    pub(crate) client_keys: PathBuf,
    #[command(flatten)]
    pub(crate) memory: MemoryOptions,
}

/// Who a party is, and whom it believes.
#[derive(Debug, Args)]
pub(crate) struct IdentityOptions {
    /// A folder as `private cert` makes it
    #[arg(long, value_name = "DIR", conflicts_with_all = ["cert", "key", "ca"])]
    pub(crate) certificates: Option<PathBuf>,
    /// The own certificate, PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "ca")]
    pub(crate) key: Option<PathBuf>,
    /// The authority that signs the other side's certificate, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) ca: Option<PathBuf>,
    /// Seconds that the other side may take for a message
    #[arg(long, default_value_t = 120, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
}

pub(super) const SERVE_EXAMPLES: &str = "\
Examples:
  gatework private serve --model all-MiniLM-L6-v2 --public minilm.json \\
      --keys server.keys --certificates certificates
  gatework private serve --model all-MiniLM-L6-v2 --public minilm.json --keys keys/ \\
      --cert me.pem --key me.key --ca ca.pem --listen 0.0.0.0:7117

Serves until it is interrupted. A folder holds one *.keys file for each client.";

#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    #[command(flatten)]
    pub(crate) weights: WeightOptions,
    /// The model, as `private describe` wrote it
    #[arg(long, value_name = "FILE")]
    pub(crate) public: PathBuf,
    /// The server's key file, or a folder of them
    #[arg(long, value_name = "PATH")]
    pub(crate) keys: PathBuf,
    /// Where to listen
    #[arg(long, default_value = "127.0.0.1:7117", value_name = "ADDRESS")]
    pub(crate) listen: String,
    /// End after that many clients
    #[arg(long, value_name = "N")]
    pub(crate) clients: Option<usize>,
    /// End when the standard input is closed, as it is when the process that started this one ends
    #[arg(long, hide = true)]
    pub(crate) until_closed: bool,
    #[command(flatten)]
    pub(crate) memory: MemoryOptions,
    #[command(flatten)]
    pub(crate) identity: IdentityOptions,
}

/// Texts, in the order of the options.
#[derive(Debug, Clone, Args)]
pub(crate) struct TextOptions {
    /// A text, or a pair of sentences with a tab between them; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Vec<String>,
    /// A file with one text a line
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// A text as token ids, as 101,7592,102; may be given several times
    #[arg(long, value_name = "IDS", value_parser = lengths::ids)]
    pub(crate) ids: Vec<lengths::Ids>,
    /// The model's tokenizer.json [default: the one beside the model]
    #[arg(long, value_name = "FILE")]
    pub(crate) tokenizer: Option<PathBuf>,
}

pub(super) const CHECK_EXAMPLES: &str = "\
Examples:
  gatework private check --model all-MiniLM-L6-v2 --text 'Where is my parcel?'
  gatework private check --model gpt2 --file texts.txt --at-most 0.05 --json
  gatework private check --model sst2 --labelled validation.tsv

Nothing is private here: one process evaluates the checkpoint in double precision, and
the circuit of a private inference in clear.

A line of --labelled is the number of a class, a tab and a text, or two texts with a tab
between them. The exit code is 1 if a number is off by more than --at-most.";

#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    /// The folder with config.json and model.safetensors
    #[arg(long, value_name = "DIR")]
    pub(crate) model: PathBuf,
    #[command(flatten)]
    pub(crate) texts: TextOptions,
    /// A file with a class and a text a line, for the accuracy of both
    #[arg(long, value_name = "FILE")]
    pub(crate) labelled: Option<PathBuf>,
    /// How far a number may be off
    #[arg(long, value_name = "DIFFERENCE")]
    pub(crate) at_most: Option<f64>,
    /// What the client gets [default: what the model was trained for]
    #[arg(long, value_enum, value_name = "HEAD")]
    pub(crate) head: Option<HeadChoice>,
    /// Bits of the ring [default: the narrowest that is proved to suffice]
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u32).range(32..=64))]
    pub(crate) bits: Option<u32>,
}

pub(super) const RUN_EXAMPLES: &str = "\
Examples:
  gatework private run --local --text 'Where is my parcel?' --check
  gatework private run --local --model all-MiniLM-L6-v2 --text 'Where is my parcel?' --check
  gatework private run --public minilm.json --keys client.keys \\
      --connect models.example.org:7117 --certificates certificates \\
      --tokenizer tokenizer.json --text 'Where is my parcel?' --json
  gatework private run --public gpt2.json --keys client.keys --connect localhost:7117 \\
      --certificates certificates --ids 464,3290 --generate 5

--local plays dealer, server and client in one process. Nothing is private then;
everything else works as over a network. Only with --local can --check compare the
result with the clear evaluation, bit for bit. Without --model it runs a small bundled
model with random weights.";

#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// All roles in this process, for a first look
    #[arg(long, conflicts_with_all = ["public", "keys", "connect"])]
    pub(crate) local: bool,
    /// With --local, the folder with config.json and model.safetensors [default: a small bundled model]
    #[arg(long, value_name = "DIR", requires = "local")]
    pub(crate) model: Option<PathBuf>,
    /// Compare with the clear evaluation, with --local
    #[arg(long, requires = "local")]
    pub(crate) check: bool,
    /// The model, as `private describe` wrote it
    #[arg(long, value_name = "FILE", required_unless_present = "local")]
    pub(crate) public: Option<PathBuf>,
    /// The client's key file
    #[arg(long, value_name = "FILE", required_unless_present = "local")]
    pub(crate) keys: Option<PathBuf>,
    /// The server's address
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "local")]
    pub(crate) connect: Option<String>,
    /// The name in the server's certificate [default: the host of --connect]
    #[arg(long, value_name = "NAME", requires = "connect")]
    pub(crate) server_name: Option<String>,
    #[command(flatten)]
    pub(crate) texts: TextOptions,
    /// Words to add, one inference each, with a model that scores words
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = at_most_10_000)]
    pub(crate) generate: usize,
    #[command(flatten)]
    pub(crate) memory: MemoryOptions,
    #[command(flatten)]
    pub(crate) identity: IdentityOptions,
}

#[derive(Debug, Args)]
pub(crate) struct CertOptions {
    /// The folder to write to
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// A name or an address of the server; may be given several times
    #[arg(long, value_name = "NAME", default_values = ["localhost", "127.0.0.1"])]
    pub(crate) name: Vec<String>,
}

pub(super) const PRIVATE_COST_EXAMPLES: &str = "\
Examples:
  gatework private cost --model bert-base --seq 128
  gatework private cost --model gpt2 --bandwidth 0.305 --latency 60   # a wide-area network
  gatework private cost --model bert-base --profile sigma --json
  gatework private cost --model bert-large --spectral-norm 5          # more clamps
  gatework private cost --public minilm.json --seq 16 --texts 8       # exact to the byte

Models: bert-tiny, bert-base, bert-large, gpt2, gpt-neo-1.3b, llama2-7b, llama2-13b.
Truncations are short where the stated norms of the weights prove that they may be. A
tensor that nothing proves to stay in its ring is clamped, and the clamp is counted. The
column beside it assumes that no truncation is proved, and that only the largest entry
of the weights is known.";

/// Whose protocol is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    /// A model of SIGMA (ePrint 2023/1269)
    Sigma,
    /// This program
    Gatework,
}

/// What to count, and what the time is predicted from.
#[derive(Debug, Args)]
pub(crate) struct PrivateCostOptions {
    /// The model's name
    #[arg(long, value_name = "NAME", required_unless_present = "public")]
    pub(crate) model: Option<String>,
    /// A model as `private describe` wrote it: what a session with it takes, to the byte
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "profile"])]
    pub(crate) public: Option<PathBuf>,
    /// Texts of that length in one batch, with --public
    #[arg(long, default_value_t = 1, value_name = "N", requires = "public", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) texts: u32,
    /// Tokens of the sequence
    #[arg(long, default_value_t = 128, value_name = "N")]
    pub(crate) seq: usize,
    /// Only this one; both side by side, if none is given
    #[arg(long, value_name = "PROFILE")]
    pub(crate) profile: Option<Profile>,
    /// Gbit a second, in each direction
    #[arg(long, default_value_t = 9.4, value_name = "GBIT", value_parser = above_zero)]
    pub(crate) bandwidth: f64,
    /// Milliseconds until a message arrives
    #[arg(long, default_value_t = 0.05, value_name = "MS", value_parser = not_negative)]
    pub(crate) latency: f64,
    /// Generator calls of a party, in millions a second: an assumption, not a measurement
    #[arg(long, default_value_t = 400.0, value_name = "MILLIONS", value_parser = above_zero)]
    pub(crate) prg_rate: f64,
    /// Stated: the largest spectral norm of a matrix
    #[arg(long, default_value_t = StatedNorms::default().spectral, value_name = "NORM", value_parser = not_negative)]
    pub(crate) spectral_norm: f64,
    /// Stated: the largest gain of a normalisation
    #[arg(long, default_value_t = StatedNorms::default().gain, value_name = "GAIN", value_parser = not_negative)]
    pub(crate) gain: f64,
    /// Stated: the largest norm of a bias
    #[arg(long, default_value_t = StatedNorms::default().bias, value_name = "NORM", value_parser = not_negative)]
    pub(crate) bias_norm: f64,
    /// Stated: the largest norm of an embedding's row
    #[arg(long, default_value_t = StatedNorms::default().embedding, value_name = "NORM", value_parser = not_negative)]
    pub(crate) embedding_norm: f64,
}

/// Numbers that are far from where arithmetic on them ends.
const LEAST: f64 = 1e-6;
const MOST: f64 = 1e9;

fn at_most_10_000(given: &str) -> Result<usize, String> {
    given
        .parse()
        .ok()
        .filter(|number| *number <= 10_000)
        .ok_or_else(|| "give a number up to 10000".to_owned())
}

fn above_zero(given: &str) -> Result<f64, String> {
    between(LEAST, given)
}

fn not_negative(given: &str) -> Result<f64, String> {
    between(0.0, given)
}

fn between(least: f64, given: &str) -> Result<f64, String> {
    match given.parse() {
        Ok(number) if (least..=MOST).contains(&number) => Ok(number),
        Ok(_) => Err(format!("it must be a number from {least} to {MOST}")),
        Err(error) => Err(format!("{error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_model() {
        for model in gatework_private::graph::Model::ALL {
            assert!(PRIVATE_COST_EXAMPLES.contains(model.name), "{}", model.name);
        }
    }
}
