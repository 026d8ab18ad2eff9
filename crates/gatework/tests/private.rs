//! `gatework private cost` from outside.

use std::process::{Command, Output};

use serde_json::Value;

const DONE: Option<i32> = Some(0);
const BAD_INPUT: Option<i32> = Some(2);

fn cost(arguments: &[&str]) -> Output {
    let binary = env!("CARGO_BIN_EXE_gatework");
    Command::new(binary)
        .args(["private", "cost"])
        .args(arguments)
        .env_remove("GATEWORK_DEVICE")
        .output()
        .unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = cost(&[arguments, &["--json"]].concat());
    assert_eq!(output.status.code(), DONE, "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(document: &Value, name: &str) -> f64 {
    document[name].as_f64().unwrap_or_else(|| panic!("{name} in {document}"))
}

#[test]
fn both_profiles_stand_side_by_side() {
    let document = json(&["--model", "bert-base", "--seq", "128"]);
    assert_eq!(document["profile"], "gatework");
    let sigma = &document["sigma"];
    assert!((number(sigma, "keys_gib") / 16.84 - 1.0).abs() < 0.01);
    assert!((number(sigma, "traffic_gib") / 0.99 - 1.0).abs() < 0.01);
    assert!(number(&document, "keys_gib") <= 0.55 * 16.84 && number(&document, "traffic_gib") <= 0.88 * 0.99);
    assert!(number(&document["without_proofs"], "keys_gib") > number(&document, "keys_gib"));
    assert!(
        number(&document["setup"], "keys_gib") > 0.0 && number(&document["embedding"], "traffic_gib") > 0.0
    );
    let output = cost(&["--model", "bert-base"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for word in
        ["sigma", "gatework", "no proofs", "softmax", "truncations", "all layers", "spectral norms up to 3"]
    {
        assert!(text.contains(word), "{word} in {text}");
    }
}

#[test]
fn gates_have_the_figures_of_the_top_level_and_add_up() {
    for profile in ["sigma", "gatework"] {
        let document = json(&["--model", "gpt2", "--seq", "32", "--profile", profile]);
        assert_eq!(document["profile"], profile);
        for name in ["keys_gib", "traffic_gib", "rounds", "prg_blocks"] {
            let sum: f64 = document["gates"].as_array().unwrap().iter().map(|gate| number(gate, name)).sum();
            let total = number(&document, name);
            assert!(total > 0.0 && (sum / total - 1.0).abs() < 1e-9, "{profile} {name}: {sum} and {total}");
        }
    }
}

#[test]
fn every_model_has_a_cost() {
    for model in ["bert-tiny", "bert-large", "gpt-neo-1.3b", "llama2-7b", "llama2-13b"] {
        let document = json(&["--model", model]);
        assert!(number(&document, "keys_gib") < 0.7 * number(&document["sigma"], "keys_gib"), "{model}");
    }
}

#[test]
fn time_follows_the_link() {
    let seconds = |arguments: &[&str]| {
        let document = json(&[&["--model", "bert-tiny", "--profile", "gatework"], arguments].concat());
        let seconds = document["predicted_seconds"].clone();
        (number(&seconds, "transfer"), number(&seconds, "waiting"), number(&seconds, "prg"))
    };
    let near = seconds(&["--bandwidth", "10", "--latency", "0"]);
    let far = seconds(&["--bandwidth", "1", "--latency", "60", "--prg-rate", "800"]);
    assert!((far.0 / near.0 - 10.0).abs() < 1e-6 && near.1 == 0.0 && far.1 > 1.0 && far.2 < near.2);
}

#[test]
fn larger_norms_cost_clamps() {
    let clamps = |norm: &str| {
        let document =
            json(&["--model", "bert-base", "--seq", "8", "--spectral-norm", norm, "--profile", "gatework"]);
        document["clamps"].as_array().unwrap().len()
    };
    assert_eq!(clamps("3"), 0);
    assert!(clamps("12") > 0);
}

#[test]
fn bad_input_is_a_sentence() {
    let refused = |arguments: &[&str], sentence: &str| {
        let output = cost(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), BAD_INPUT, "{arguments:?}: {stderr}");
        assert!(stderr.contains(sentence) && !stderr.contains("panicked"), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty());
    };
    refused(
        &["--model", "bert-huge"],
        "bert-tiny, bert-base, bert-large, gpt2, gpt-neo-1.3b, llama2-7b, llama2-13b",
    );
    refused(&["--model", "bert-base", "--seq", "0"], "takes 1 to 512");
    refused(&["--model", "bert-base", "--seq", "18446744073709551615"], "takes 1 to 512");
    refused(&["--model", "bert-base", "--seq=-3"], "--seq");
    refused(&["--model", "llama2-7b", "--seq", "4096"], "scores a layer");
    for number in ["0", "-1", "nan", "inf", "1e400", "1e-320", "fast"] {
        refused(&["--model", "bert-base", &format!("--bandwidth={number}")], "--bandwidth");
    }
    refused(&["--model", "bert-base", "--latency=-1"], "--latency");
    refused(&["--model", "bert-base", "--prg-rate", "0"], "--prg-rate");
    refused(&["--model", "bert-base", "--spectral-norm", "nan"], "--spectral-norm");
    refused(&[], "--model");
}
