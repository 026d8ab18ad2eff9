//! Every JSON document that a command prints or writes keeps to the schema that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jsonschema::Validator;
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::Value;

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../gatework/models/small-bert");

/// Documents that this machine cannot make, and where their parts are checked instead.
const NOT_MADE_HERE: [(&str, &str); 5] = [
    ("lab-tune", "needs a GPU; its tuning is that of the records in results/"),
    ("tuning", "needs a GPU; it is the tuning of the records in results/"),
    ("lab-profile", "needs a GPU; its record is checked as all are"),
    ("train-fetch-mnist", "needs the network"),
    ("train-fetch-text", "needs the network"),
];

/// The schemas of the binary, and which of them a document has kept to.
struct Schemas {
    validators: BTreeMap<String, Validator>,
    kept: BTreeSet<String>,
}

/// The command, which is built before this test runs.
fn binary() -> PathBuf {
    let built = Path::new(REPOSITORY).join("target/debug/gatework");
    let binary = env::var_os("GATEWORK_BINARY").map_or(built, PathBuf::from);
    assert!(binary.is_file(), "{} is missing: build it with 'cargo build'", binary.display());
    binary
}

fn gatework(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).current_dir(folder).env_remove("GATEWORK_DEVICE");
    command.env("GATEWORK_PYTHON", "/nonexistent/python").env("CUDA_VISIBLE_DEVICES", "-1");
    command
}

/// What the command prints, whatever its exit code says of the matter.
fn printed(folder: &Path, arguments: &[&str]) -> Value {
    let output = gatework(folder, arguments).output().unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {output:?}"))
}

impl Schemas {
    fn read(folder: &Path) -> Self {
        let list = printed(folder, &["schema", "--json"]);
        let names = list["documents"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap());
        let validator = |name: &str| {
            let schema = printed(folder, &["schema", name]);
            jsonschema::draft202012::meta::validate(&schema)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            jsonschema::validator_for(&schema).unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        let validators = names.map(|name| (name.to_owned(), validator(name))).collect();
        let mut schemas = Self { validators, kept: BTreeSet::new() };
        schemas.check("schema", &list);
        schemas
    }

    fn check(&mut self, name: &str, document: &Value) {
        if let Some(schema) = document.get("schema") {
            assert_eq!(schema.as_str().and_then(|schema| schema.split('/').nth(1)), Some(name));
        }
        self.keeps(name, document).unwrap_or_else(|complaint| panic!("{name}: {complaint}"));
        let mut more = document.clone();
        more["a_field_that_nobody_knows"] = 1.into();
        // A record may hold what a later version adds.
        assert!(name == "record" || self.keeps(name, &more).is_err(), "{name} is not closed");
        self.kept.insert(name.to_owned());
    }

    fn keeps(&self, name: &str, document: &Value) -> Result<(), String> {
        let complaint =
            |error: jsonschema::ValidationError<'_>| format!("{}: {error}", error.instance_path());
        self.validators[name].validate(document).map_err(complaint)
    }

    /// Runs a command and checks what it prints.
    fn of(&mut self, name: &str, folder: &Path, arguments: &[&str]) -> Value {
        let document = printed(folder, &[arguments, &["--json"]].concat());
        assert!(document["schema"].is_string(), "{arguments:?} names no schema");
        self.check(name, &document);
        document
    }

    fn of_file(&mut self, name: &str, path: &Path) {
        self.check(name, &serde_json::from_slice(&fs::read(path).unwrap()).unwrap());
    }
}

#[test]
fn every_document_keeps_to_its_schema() {
    let folder = tempfile::tempdir().unwrap();
    let mut schemas = Schemas::read(folder.path());
    verbs(&mut schemas, folder.path());
    lab(&mut schemas, folder.path());
    attention(&mut schemas, folder.path());
    stark(&mut schemas, folder.path());
    private(&mut schemas, folder.path());
    train(&mut schemas, folder.path());
    for (name, why) in NOT_MADE_HERE {
        assert!(schemas.kept.insert(name.to_owned()), "{name} was made here after all: {why}");
    }
    // What text.json holds is in the document of the same command.
    let unchecked = schemas.validators.keys().filter(|name| !schemas.kept.contains(*name));
    assert_eq!(unchecked.collect::<Vec<_>>(), ["train-text"], "documents that no command of this test makes");
}

fn verbs(schemas: &mut Schemas, folder: &Path) {
    let kernel = "extern \"C\" __global__ void add(float* x) { x[0] += 1.0f; }\n";
    fs::write(folder.join("race.cu"), kernel).unwrap();
    schemas.of("doctor", folder, &["doctor"]);
    schemas.of("tour", folder, &["tour", "--device", "cpu"]);
    let found = schemas.of("check", folder, &["check", "race.cu", "--seeds", "2"]);
    assert!(!found["kernels"][0]["findings"].as_array().unwrap().is_empty(), "{found}");
    schemas.of("check-known", folder, &["check", "--known"]);
    schemas.of("zoo", folder, &["zoo", "store-wait", "--seeds", "2"]);
    schemas.of("man", folder, &["man", "pages"]);
}

fn lab(schemas: &mut Schemas, folder: &Path) {
    schemas.of("lab-list", folder, &["lab", "list"]);
    schemas.of("lab-gate", folder, &["lab", "gate", "gpu/saxpy", "--device", "emulated", "--seeds", "1"]);
    schemas.of("lab-bench", folder, &["lab", "bench", "gpu/saxpy", "--device", "emulated", "--no-record"]);
    // The records of a card have all the parts that only a card fills.
    let results = &format!("{REPOSITORY}/results");
    let records = schemas.of("lab-records", folder, &["lab", "records", "--results", results]);
    for record in records["records"].as_array().unwrap() {
        schemas.check("record", record);
    }
    schemas.of("lab-compare", folder, &["lab", "compare", results, results]);
    schemas.of("lab-report", folder, &["lab", "report"]);
    fs::write(folder.join("figures.md"), "It takes 3.4 ms.\n").unwrap();
    schemas.of("lab-records-check", folder, &["lab", "records", "--check"]);
    schemas.of("lab-table", folder, &["lab", "table", "figures.md"]);
    schemas.of("lab-picture", folder, &["lab", "picture", "--results", results, "--out", "overview.svg"]);
}

fn attention(schemas: &mut Schemas, folder: &Path) {
    let bytes: Vec<u8> = (0..64 * 4).flat_map(|place| (place as f32 / 256.0).to_le_bytes()).collect();
    let view = || TensorView::new(Dtype::F32, vec![1, 1, 4, 64], &bytes).unwrap();
    let file = serialize([("q", view()), ("k", view()), ("v", view())], None).unwrap();
    fs::write(folder.join("qkv.safetensors"), file).unwrap();
    let run = ["attention", "run", "--input", "qkv.safetensors", "--output", "o.safetensors"];
    schemas.of("attention-run", folder, &[&run[..], &["--device", "cpu"]].concat());
    schemas.of("attention-demo", folder, &["attention", "run", "--demo", "--device", "cpu"]);
    let bench = ["attention", "bench", "--device", "cpu", "--shapes", "1x2x64x64"];
    schemas.of("attention-bench", folder, &bench);
}

fn stark(schemas: &mut Schemas, folder: &Path) {
    let prove = ["stark", "prove", "--log-rows", "5", "--columns", "8", "--out", "proof.json"];
    schemas.of("stark-prove", folder, &[&prove[..], &["--device", "cpu"]].concat());
    schemas.of_file("proof", &folder.join("proof.json"));
    schemas.of("stark-verify", folder, &["stark", "verify", "proof.json"]);
    let bench = ["stark", "bench", "--log-rows", "5", "--columns", "8"];
    schemas.of("stark-bench", folder, &[&bench[..], &["--device", "emulated"]].concat());
}

fn private(schemas: &mut Schemas, folder: &Path) {
    let describe = ["private", "describe", "--model", MODEL, "--longest", "8", "--out", "model.json"];
    schemas.of("private-describe", folder, &describe);
    schemas.of_file("private-model", &folder.join("model.json"));
    schemas.of("private-cert", folder, &["private", "cert", "--out", "certificates"]);
    fs::create_dir(folder.join("keys")).unwrap();
    let files = ["--server-keys", "keys/alice.keys", "--client-keys", "alice"];
    let deal = ["private", "deal", "--public", "model.json", "--tokens", "5"];
    schemas.of("private-deal", folder, &[&deal[..], &files].concat());
    serve_and_run(schemas, folder);
    let check = ["private", "check", "--model", MODEL, "--ids", "3,14,15"];
    schemas.of("private-check", folder, &check);
    schemas.of("private-cost", folder, &["private", "cost", "--model", "bert-base", "--seq", "32"]);
    let cost = ["private", "cost", "--public", "model.json", "--seq", "5"];
    schemas.of("private-cost-session", folder, &cost);
    let shape = ["--shape", "bert-toy", "--tokens", "3", "--repeats", "1", "--warm-up", "0"];
    let bench = [&["private", "bench", "--device", "cpu"][..], &shape].concat();
    schemas.of("private-bench", folder, &bench);
    schemas.of("private-bench-deal", folder, &[&bench[..], &["--deal"]].concat());
    schemas.of("private-bench-link", folder, &["private", "bench", "--link"]);
}

/// A server for one client, and the client.
fn serve_and_run(schemas: &mut Schemas, folder: &Path) {
    let serve = ["private", "serve", "--model", MODEL, "--public", "model.json", "--keys", "keys"];
    let listen = ["--certificates", "certificates", "--listen", "127.0.0.1:0", "--clients", "1", "--json"];
    let mut server = gatework(folder, &[&serve[..], &listen].concat());
    let mut server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find_map(|line| line.strip_prefix("listening on ").map(str::to_owned)).unwrap();
    let address = line.split(',').next().unwrap().replace("127.0.0.1", "localhost");
    let run = ["private", "run", "--public", "model.json", "--keys", "alice", "--connect", &address];
    let texts = ["--certificates", "certificates", "--ids", "3,14,15,9,26"];
    schemas.of("private-run", folder, &[&run[..], &texts].concat());
    let output = server.wait_with_output().unwrap();
    schemas.check("private-serve", &serde_json::from_slice(&output.stdout).unwrap());
}

fn train(schemas: &mut Schemas, folder: &Path) {
    let xor = ["--preset", "xor", "--set", "steps=120"];
    let run = [&["train", "run"][..], &xor].concat();
    schemas.of("train-config", folder, &[&run[..], &["--show-config"]].concat());
    schemas.of("train-plan", folder, &[&run[..], &["--plan"]].concat());
    schemas.of("train-run", folder, &[&run[..], &["--out", "run", "--compare", "0"]].concat());
    schemas.of("train-resume", folder, &["train", "resume", "run"]);
    schemas.of("train-forecast", folder, &["train", "forecast", "run/log.jsonl", "--at", "600"]);
    let compare = [&["train", "compare", "--seeds", "1", "--factors", "1"][..], &xor].concat();
    schemas.of("train-compare", folder, &compare);
    let vary = ["--vary", "optimiser.learning_rate=1e-7,4e-3", "--out", "sweep"];
    schemas.of("train-sweep", folder, &[&["train", "sweep"][..], &xor, &vary].concat());
}
