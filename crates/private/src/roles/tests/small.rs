//! A BERT that is small enough to be dealt in a moment.

use crate::model::{Checkpoint, Options, Owner, PublicModel};

pub(super) const VOCABULARY: usize = 24;
pub(super) const LONGEST: usize = 8;
const WIDTH: usize = 8;
const INNER: usize = 16;

/// Random weights of one layer, with the names and shapes that Hugging Face gives them.
fn tensors(seed: u64, vocabulary: usize) -> Vec<(String, Vec<usize>, Vec<f32>)> {
    let mut state = seed;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let mut tensors = Vec::new();
    let mut add = |name: &str, shape: &[usize], offset: f32| {
        let values = (0..shape.iter().product()).map(|_| offset + 0.5 * random()).collect();
        tensors.push((name.to_owned(), shape.to_vec(), values));
    };
    for (name, rows) in [("word", vocabulary), ("position", LONGEST), ("token_type", 2)] {
        add(&format!("embeddings.{name}_embeddings.weight"), &[rows, WIDTH], 0.0);
    }
    let layer = "encoder.layer.0";
    for name in ["embeddings".to_owned(), format!("{layer}.attention.output"), format!("{layer}.output")] {
        add(&format!("{name}.LayerNorm.weight"), &[WIDTH], 1.0);
        add(&format!("{name}.LayerNorm.bias"), &[WIDTH], 0.0);
    }
    let maps = [
        ("attention.self.query", WIDTH, WIDTH),
        ("attention.self.key", WIDTH, WIDTH),
        ("attention.self.value", WIDTH, WIDTH),
        ("attention.output.dense", WIDTH, WIDTH),
        ("intermediate.dense", INNER, WIDTH),
        ("output.dense", WIDTH, INNER),
    ];
    for (name, outputs, inputs) in maps {
        add(&format!("{layer}.{name}.weight"), &[outputs, inputs], 0.0);
        add(&format!("{layer}.{name}.bias"), &[outputs], 0.0);
    }
    tensors
}

/// `config.json` and `model.safetensors`.
pub(super) fn files(seed: u64) -> (Vec<u8>, Vec<u8>) {
    files_with(seed, VOCABULARY)
}

fn files_with(seed: u64, vocabulary: usize) -> (Vec<u8>, Vec<u8>) {
    let config = format!(
        r#"{{"model_type": "bert", "hidden_act": "gelu", "hidden_size": {WIDTH}, "intermediate_size": {INNER},
        "layer_norm_eps": 1e-12, "max_position_embeddings": {LONGEST}, "num_attention_heads": 2,
        "num_hidden_layers": 1, "type_vocab_size": 2, "vocab_size": {vocabulary}}}"#
    );
    let tensors = tensors(seed, vocabulary);
    let views = tensors.iter().map(|(name, shape, values)| {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.clone(), bytes);
        (name.as_str(), view.unwrap())
    });
    (config.into_bytes(), safetensors::serialize(views, None).unwrap())
}

/// The model of a seed, with all that its owner has.
pub(super) fn model(seed: u64) -> (PublicModel, Owner) {
    opened(files(seed))
}

/// One with so many words that its messages are long.
pub(super) fn model_of_words(vocabulary: usize) -> (PublicModel, Owner) {
    opened(files_with(1, vocabulary))
}

fn opened((config, file): (Vec<u8>, Vec<u8>)) -> (PublicModel, Owner) {
    let checkpoint = Checkpoint::from_bytes(&config, file).unwrap();
    let public = checkpoint.public(LONGEST, &Options::default()).unwrap();
    let owner = Owner::new(&public, checkpoint.weights(&public).unwrap()).unwrap();
    (public, owner)
}
