//! Configurations that say other mathematics than is computed. Altered bytes are tried in `session/fuzz.rs`.

use std::path::{Path, PathBuf};

use gatework_private::model::Checkpoint;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

#[test]
fn other_mathematics_is_refused_by_name() {
    let config = |name: &str| std::fs::read_to_string(fixture(name).join("config.json")).unwrap();
    let empty = || [&2u64.to_le_bytes()[..], b"{}"].concat();
    let cases = [
        ("bert", "\"hidden_act\": \"gelu\"", "\"hidden_act\": \"relu\"", "hidden_act"),
        ("bert", "\"is_decoder\": false", "\"is_decoder\": true", "is_decoder"),
        ("bert", "\"model_type\": \"bert\"", "\"model_type\": \"roberta\"", "roberta"),
        (
            "bert",
            "\"use_cache\": true",
            "\"architectures\": [\"BertForTokenClassification\"]",
            "BertForTokenClassification",
        ),
        ("bert", "\"use_cache\": true", "\"position_embedding_type\": \"relative_key\"", "relative_key"),
        ("gpt2", "\"gelu_new\"", "\"gelu\"", "activation_function"),
        ("gpt2", "\"scale_attn_weights\": true", "\"scale_attn_weights\": false", "scale_attn_weights"),
        (
            "gpt2",
            "\"scale_attn_by_inverse_layer_idx\": false",
            "\"scale_attn_by_inverse_layer_idx\": true",
            "scale_attn_by_inverse_layer_idx",
        ),
        ("gpt2", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false", "tie_word_embeddings"),
    ];
    for (name, from, to, named) in cases {
        let text = config(name);
        assert!(text.contains(from), "{name}: {from}");
        let changed = text.replace(from, to);
        let error = Checkpoint::from_bytes(changed.as_bytes(), empty()).err().unwrap().to_string();
        assert!(error.contains(named), "{error}");
    }
    let missing = Checkpoint::load(Path::new("no such directory")).err().unwrap().to_string();
    assert!(missing.contains("config.json"), "{missing}");
}
