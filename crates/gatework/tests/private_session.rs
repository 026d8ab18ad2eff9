//! `gatework private` with its three roles, from outside.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const DONE: Option<i32> = Some(0);
const FAILED: Option<i32> = Some(1);
const BAD_INPUT: Option<i32> = Some(2);
const PEER_FAILED: Option<i32> = Some(3);
const IDS: &str = "3,14,15,9,26";

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatework"));
    command.arg("private").args(arguments).env_remove("GATEWORK_DEVICE");
    command
}

fn gatework(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = gatework(&[arguments, &["--json"]].concat());
    assert_eq!(output.status.code(), DONE, "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn small_bert() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models/small-bert").display().to_string()
}

/// A folder in which everybody finds what he needs.
struct Scene {
    folder: TempDir,
}

impl Scene {
    fn new() -> Self {
        let scene = Self { folder: tempfile::tempdir().unwrap() };
        let described = json(&[
            "describe",
            "--model",
            &small_bert(),
            "--longest",
            "8",
            "--out",
            &scene.path("model.json"),
        ]);
        assert_eq!((&described["longest"], &described["clamps"]), (&8.into(), &0.into()));
        assert!(described["client_key_bytes"].as_u64() > Some(0) && described["rounds"].as_u64() > Some(0));
        json(&["cert", "--out", &scene.path("certificates")]);
        scene
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Keys for a client of that name.
    fn deal(&self, client: &str, tokens: &str) {
        std::fs::create_dir_all(self.folder.path().join("keys")).unwrap();
        let (public, server) = (self.path("model.json"), self.path(&format!("keys/{client}.keys")));
        let options = ["--tokens", tokens, "--server-keys", &server, "--client-keys", &self.path(client)];
        json(&[&["deal", "--public", &public][..], &options].concat());
    }

    /// A server for so many clients, and its address.
    fn serve(&self, clients: usize) -> (Child, String) {
        let [public, keys, certificates] = ["model.json", "keys", "certificates"].map(|name| self.path(name));
        let clients = clients.to_string();
        let mut server = command(&["serve", "--model", &small_bert(), "--public", &public, "--keys", &keys])
            .args([
                "--certificates",
                &certificates,
                "--listen",
                "127.0.0.1:0",
                "--clients",
                &clients,
                "--json",
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(server.stderr.take().unwrap()).lines().map_while(Result::ok);
        let start = "listening on ";
        let mut lines = lines.filter_map(|line| line.strip_prefix(start).map(str::to_owned));
        let line = lines.next().expect("the server says where it listens");
        let address = line.split(',').next().unwrap().replace("127.0.0.1", "localhost");
        (server, address)
    }

    fn run(&self, client: &str, address: &str, more: &[&str]) -> Output {
        let [public, keys, certificates] = ["model.json", client, "certificates"].map(|name| self.path(name));
        let options = ["run", "--public", &public, "--keys", &keys, "--connect", address];
        gatework(&[&options[..], &["--certificates", &certificates, "--json"], more].concat())
    }
}

fn ended(server: Child) -> (Option<i32>, Value) {
    let output = server.wait_with_output().unwrap();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn three_roles_give_what_one_process_gives() {
    let scene = Scene::new();
    scene.deal("alice", "5,3x2");
    scene.deal("bob", "5");
    let (server, address) = scene.serve(2);
    let alice = scene.run("alice", &address, &["--ids", IDS, "--ids", "1,2,3", "--ids", "7,7,7"]);
    let bob = scene.run("bob", &address, &["--ids", IDS]);
    let [alice, bob] = [alice, bob].map(|output| {
        assert_eq!(output.status.code(), DONE, "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    });
    let (code, served) = ended(server);
    assert_eq!((code, served["clients"].as_array().unwrap().len()), (DONE, 2));
    // One process and the clear evaluation give the same numbers. The longest text is another, so its ring
    // may be.
    let local = json(&["run", "--local", "--model", &small_bert(), "--ids", IDS, "--check"]);
    assert_eq!(local["equal_in_clear"], true);
    assert_eq!(alice["results"][0]["embedding"], bob["results"][0]["embedding"]);
    let numbers = |value: &Value| -> Vec<f64> {
        value["results"][0]["embedding"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
    };
    let furthest = numbers(&local).iter().zip(numbers(&bob)).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(furthest < 0.01, "{furthest}");
    // What was counted is what was predicted, on both sides.
    let public = scene.path("model.json");
    let predicted = json(&["cost", "--public", &public, "--seq", "5"]);
    for name in ["rounds", "server_sent_bytes", "client_sent_bytes"] {
        assert_eq!(bob["summary"]["inference"][name], predicted[name], "{name}");
        assert_eq!(bob["summary"]["set_up"][name], predicted["set_up"][name], "{name}");
        assert_eq!(served["clients"][1]["inference"][name], predicted[name], "{name}");
    }
    let stages: Vec<&str> =
        bob["stages"].as_array().unwrap().iter().map(|stage| stage["part"].as_str().unwrap()).collect();
    assert_eq!(stages[..3], ["masked weights", "inferring", "embedding"]);
    assert_eq!(stages.last(), Some(&"head"));
    assert_eq!(bob["summary"]["inference"]["key_bytes"], predicted["client_key_bytes"]);
    assert_eq!(served["clients"][1]["inference"]["key_bytes"], predicted["server_key_bytes"]);
}

#[test]
fn a_key_works_once() {
    let scene = Scene::new();
    scene.deal("alice", "5");
    let (server, address) = scene.serve(3);
    assert_eq!(scene.run("alice", &address, &["--ids", IDS]).status.code(), DONE);
    let again = scene.run("alice", &address, &["--ids", IDS]);
    assert_eq!(again.status.code(), BAD_INPUT);
    assert!(
        complaint(&again).contains("1 keys for texts of 5 tokens are needed, and 0 are left"),
        "{again:?}"
    );
    let other_length = scene.run("alice", &address, &["--ids", "1"]);
    assert!(complaint(&other_length).contains("texts of 1 tokens"), "{other_length:?}");
    // Clients that went without a word are failures of the sessions, not of the server.
    assert_eq!(ended(server).0, FAILED);
}

#[test]
fn a_scan_of_ports_is_no_client() {
    let scene = Scene::new();
    scene.deal("alice", "5");
    let (server, address) = scene.serve(1);
    for _ in 0..3 {
        drop(std::net::TcpStream::connect(&address).unwrap());
    }
    assert_eq!(scene.run("alice", &address, &["--ids", IDS]).status.code(), DONE);
    let (code, served) = ended(server);
    assert_eq!((code, served["clients"].as_array().unwrap().len()), (DONE, 1));
}

#[test]
fn a_peer_that_leaves_ends_with_3() {
    let scene = Scene::new();
    scene.deal("alice", "5");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string().replace("127.0.0.1", "localhost");
    // It accepts, and hangs up before a word is said.
    let silent = std::thread::spawn(move || drop(listener.accept().unwrap()));
    let output = scene.run("alice", &address, &["--ids", IDS]);
    silent.join().unwrap();
    assert_eq!(output.status.code(), PEER_FAILED, "{output:?}");
    let complains = complaint(&output).lines().any(|line| line.starts_with("error: "));
    assert!(output.stdout.is_empty() && complains, "{output:?}");
    // An address that is taken was given wrongly.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let [public, keys, certificates] = ["model.json", "keys", "certificates"].map(|name| scene.path(name));
    let serve =
        ["serve", "--model", &small_bert(), "--public", &public, "--keys", &keys, "--listen", &address];
    let output = gatework(&[&serve[..], &["--certificates", &certificates]].concat());
    assert_eq!(output.status.code(), BAD_INPUT, "{output:?}");
    assert!(complaint(&output).contains(&address), "{output:?}");
}

#[test]
fn an_interrupted_deal_leaves_nothing() {
    let scene = Scene::new();
    let [public, server, client] = ["model.json", "server.keys", "client.keys"].map(|name| scene.path(name));
    let mut dealer = command(&["deal", "--public", &public, "--tokens", "8x1000"])
        .args(["--server-keys", &server, "--client-keys", &client])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let partial = PathBuf::from(format!("{client}.partial"));
    while !partial.metadata().is_ok_and(|file| file.len() > 1 << 20) {
        assert!(dealer.try_wait().unwrap().is_none(), "it must still be dealing");
    }
    let interrupt = Command::new("kill").args(["-INT", &dealer.id().to_string()]).status();
    assert!(interrupt.unwrap().success());
    assert_eq!(dealer.wait().unwrap().code(), Some(130));
    let left = std::fs::read_dir(scene.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut left: Vec<String> = left.map(|name| name.into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, ["certificates", "model.json", "model.json.salt"]);
}

#[test]
fn gpt2_continues_a_text() {
    let gpt2 = Path::new(env!("CARGO_MANIFEST_DIR")).join("../private/tests/fixtures/gpt2");
    let expected: Value =
        serde_json::from_slice(&std::fs::read(gpt2.join("expected.json")).unwrap()).unwrap();
    let greedy: Vec<u64> =
        expected["greedy"][0].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    let prompt: Vec<String> = greedy[..8].iter().map(u64::to_string).collect();
    let model = gpt2.display().to_string();
    let arguments =
        ["run", "--local", "--model", &model, "--ids", &prompt.join(","), "--generate", "3", "--check"];
    let document = json(&arguments);
    assert_eq!(document["equal_in_clear"], true);
    let generated: Vec<u64> = document["results"][0]["generated"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_u64().unwrap())
        .collect();
    assert_eq!(generated, greedy[8..11]);
    assert_eq!(document["summary"]["inferences"], 3);
}

#[test]
fn fixed_point_is_checked_against_the_checkpoint() {
    let bert = Path::new(env!("CARGO_MANIFEST_DIR")).join("../private/tests/fixtures/bert");
    let model = bert.display().to_string();
    let document = json(&["check", "--model", &model, "--ids", "3,17,5,23", "--ids", "9"]);
    let texts = document["texts"].as_array().unwrap();
    assert_eq!(texts.len(), 2);
    for text in texts {
        let chosen = text["chosen"].as_array().unwrap();
        assert!(chosen[0] == chosen[1] && text["cosine"].as_f64().unwrap() > 0.999, "{text}");
    }
    let difference = document["largest_difference"].as_f64().unwrap();
    assert!(difference > 0.0 && difference < 0.05, "{difference}");
    assert_eq!(document["clamps_that_bite"], Value::Array(Vec::new()));
    let narrow = gatework(&["check", "--model", &model, "--ids", "3,17", "--at-most", "1e-9"]);
    assert_eq!(narrow.status.code(), FAILED);
}

#[test]
fn mistakes_are_sentences() {
    let scene = Scene::new();
    scene.deal("alice", "5");
    let nowhere = PathBuf::from("nowhere").display().to_string();
    let public = scene.path("model.json");
    let keys = scene.path("alice");
    let certificates = scene.path("certificates");
    let run = ["run", "--public", &public, "--keys", &keys, "--certificates", &certificates, "--ids", IDS];
    let cases: [(&[&str], &str); 9] = [
        (&[&run[..], &["--connect", "localhost"]].concat(), "it has no port"),
        (&["describe", "--model", &nowhere, "--out", &scene.path("x.json")], "nowhere/config.json"),
        (
            &["deal", "--public", &nowhere, "--tokens", "5", "--server-keys", "a", "--client-keys", "b"],
            "private describe",
        ),
        (
            &["deal", "--public", &public, "--tokens", "9", "--server-keys", "a", "--client-keys", "b"],
            "9 tokens",
        ),
        (
            &["deal", "--public", &public, "--tokens", "5..8", "--server-keys", "a", "--client-keys", "b"],
            "16x8 or 4-12",
        ),
        (
            &["run", "--public", &public, "--keys", &keys, "--connect", "localhost:1", "--ids", "1"],
            "private cert",
        ),
        (&["run", "--local", "--model", &nowhere, "--text", "words"], "--tokenizer"),
        (&["run", "--local", "--model", &small_bert(), "--ids", "99"], "token 99 is not one of the 32 words"),
        (
            &[
                "serve",
                "--model",
                &small_bert(),
                "--public",
                &public,
                "--keys",
                &keys,
                "--certificates",
                &certificates,
            ],
            "party 1",
        ),
    ];
    for (arguments, words) in cases {
        let output = gatework(arguments);
        assert_eq!(output.status.code(), BAD_INPUT, "{arguments:?}: {output:?}");
        assert!(complaint(&output).contains(words), "{arguments:?}: {}", complaint(&output));
        assert!(output.stdout.is_empty());
    }
    // A server that does not answer is no mistake of the client's.
    let output = gatework(&[&run[..], &["--connect", "127.0.0.1:1"]].concat());
    assert_eq!(output.status.code(), PEER_FAILED, "{output:?}");
    assert!(complaint(&output).contains("cannot be reached") && output.stdout.is_empty(), "{output:?}");
}

#[test]
fn without_a_model_the_bundled_one_is_run_and_said() {
    let output = gatework(&["run", "--local", "--text", "Where is my parcel?", "--check", "--json"]);
    assert_eq!(output.status.code(), DONE, "{output:?}");
    let said = complaint(&output);
    assert!(said.contains("no --model was given: this is the bundled small-bert"), "{said}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["equal_in_clear"], true);
    let answer = &document["results"][0];
    assert_eq!(answer["tokens"].as_array().unwrap().len(), "Where is my parcel?".len() + 2);
    assert_eq!(answer["embedding"].as_array().unwrap().len(), 16);
    // A named model is not talked about.
    let named = gatework(&["run", "--local", "--model", &small_bert(), "--text", "Where?"]);
    assert!(named.status.code() == DONE && !complaint(&named).contains("bundled"), "{named:?}");
}

#[test]
fn what_the_bundled_model_cannot_read_is_said() {
    let too_long = "a".repeat(63);
    let cases: [(&[&str], &str); 5] = [
        (&["run", "--local", "--text", &too_long], "64"),
        (&["run", "--local", "--ids", "32"], "token 32 is not one of the 32 words"),
        (&["run", "--local"], "there is no text: give --text, --file or --ids"),
        (&["run", "--local", "--file", "nowhere.txt"], "--file nowhere.txt"),
        (&["run", "--lokal", "--text", "words"], "--local"),
    ];
    for (arguments, words) in cases {
        let output = gatework(arguments);
        assert_eq!(output.status.code(), BAD_INPUT, "{arguments:?}: {output:?}");
        assert!(complaint(&output).contains(words), "{arguments:?}: {}", complaint(&output));
        assert!(output.stdout.is_empty());
    }
}

/// Keys are dealt for the hash of the weights, which the salt is a part of.
#[test]
fn a_second_description_keeps_the_salt() {
    let scene = Scene::new();
    let read = |name: &str| std::fs::read_to_string(scene.path(name)).unwrap();
    let before = ["model.json", "model.json.salt"].map(read);
    let (model, out) = (small_bert(), scene.path("model.json"));
    json(&["describe", "--model", &model, "--longest", "8", "--out", &out]);
    assert_eq!(["model.json", "model.json.salt"].map(read), before);
}
