//! A BERT and a GPT-2 of one layer, with weights by a rule.

use safetensors::tensor::{Dtype, TensorView, serialize};

const WIDTH: usize = 4;
const INNER: usize = 8;
const WORDS: usize = 6;
const PLACES: usize = 4;

/// Names and shapes of tensors.
type Shapes = Vec<(String, Vec<usize>)>;

/// Family, `config.json` and `model.safetensors` of each.
pub fn small() -> [(&'static str, Vec<u8>, Vec<u8>); 2] {
    let bert = format!(
        r#"{{"model_type": "bert", "architectures": ["BertModel"], "hidden_act": "gelu", "hidden_size": {WIDTH},
"intermediate_size": {INNER}, "layer_norm_eps": 1e-12, "max_position_embeddings": {PLACES}, "num_attention_heads": 2,
"num_hidden_layers": 1, "type_vocab_size": 2, "vocab_size": {WORDS}}}"#
    );
    let gpt2 = format!(
        r#"{{"model_type": "gpt2", "activation_function": "gelu_new", "n_embd": {WIDTH}, "n_head": 2, "n_inner": {INNER},
"n_layer": 1, "n_positions": {PLACES}, "vocab_size": {WORDS}, "layer_norm_epsilon": 1e-5}}"#
    );
    [("bert", bert.into_bytes(), file(&bert_shapes())), ("gpt2", gpt2.into_bytes(), file(&gpt2_shapes()))]
}

fn bert_shapes() -> Shapes {
    let mut shapes = Vec::new();
    for (name, rows) in [("word", WORDS), ("position", PLACES), ("token_type", 2)] {
        shapes.push((format!("embeddings.{name}_embeddings.weight"), vec![rows, WIDTH]));
    }
    let layer = "encoder.layer.0";
    for name in ["embeddings".to_owned(), format!("{layer}.attention.output"), format!("{layer}.output")] {
        shapes.push((format!("{name}.LayerNorm.weight"), vec![WIDTH]));
        shapes.push((format!("{name}.LayerNorm.bias"), vec![WIDTH]));
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
        shapes.push((format!("{layer}.{name}.weight"), vec![outputs, inputs]));
        shapes.push((format!("{layer}.{name}.bias"), vec![outputs]));
    }
    shapes
}

fn gpt2_shapes() -> Shapes {
    let mut shapes =
        vec![("wte.weight".to_owned(), vec![WORDS, WIDTH]), ("wpe.weight".to_owned(), vec![PLACES, WIDTH])];
    for name in ["h.0.ln_1", "h.0.ln_2", "ln_f"] {
        shapes.push((format!("{name}.weight"), vec![WIDTH]));
        shapes.push((format!("{name}.bias"), vec![WIDTH]));
    }
    let maps = [
        ("attn.c_attn", WIDTH, 3 * WIDTH),
        ("attn.c_proj", WIDTH, WIDTH),
        ("mlp.c_fc", WIDTH, INNER),
        ("mlp.c_proj", INNER, WIDTH),
    ];
    for (name, inputs, outputs) in maps {
        shapes.push((format!("h.0.{name}.weight"), vec![inputs, outputs]));
        shapes.push((format!("h.0.{name}.bias"), vec![outputs]));
    }
    shapes
}

fn file(shapes: &Shapes) -> Vec<u8> {
    let values = |count: usize| {
        (0..count).flat_map(|i| (0.25 * (i % 7) as f32 - 0.75).to_le_bytes()).collect::<Vec<u8>>()
    };
    let tensors: Vec<(&String, &Vec<usize>, Vec<u8>)> =
        shapes.iter().map(|(name, shape)| (name, shape, values(shape.iter().product()))).collect();
    let views = tensors.iter().map(|(name, shape, bytes)| {
        let view =
            TensorView::new(Dtype::F32, shape.to_vec(), bytes).expect("shape and bytes are made together");
        (name.as_str(), view)
    });
    serialize(views, None).expect("tensors are written into memory")
}
