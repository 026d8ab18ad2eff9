//! `config.json` of a checkpoint.

use serde::Deserialize;

use crate::error::Result;
use crate::graph::{Family, Head, Model};

use super::refused;

/// Only what tells the families apart.
#[derive(Deserialize)]
struct Kind {
    model_type: String,
    #[serde(default)]
    architectures: Option<Vec<String>>,
}

/// What checkpoints are read as what they were trained for. Others with the same tensors mean something else.
const ARCHITECTURES: [&str; 4] =
    ["BertModel", "BertForSequenceClassification", "GPT2Model", "GPT2LMHeadModel"];

/// What is common to the configurations, under one set of names.
pub(super) struct Config {
    family: Family,
    layers: usize,
    heads: usize,
    width: usize,
    inner: usize,
    vocabulary: usize,
    types: usize,
    context: usize,
    epsilon: f64,
}

impl Config {
    /// Reads a configuration, and refuses one that says other mathematics than is computed here.
    pub(super) fn parse(text: &[u8]) -> Result<Self> {
        let unreadable = |error: serde_json::Error| refused(format!("config.json: {error}"));
        let kind: Kind = serde_json::from_slice(text).map_err(unreadable)?;
        let other = |name: &&String| !ARCHITECTURES.contains(&name.as_str());
        if let Some(other) = kind.architectures.iter().flatten().find(other) {
            return Err(refused(format!(
                "config.json: architectures has '{other}'; {} are known",
                ARCHITECTURES.join(", ")
            )));
        }
        match kind.model_type.as_str() {
            "bert" => serde_json::from_slice::<BertConfig>(text).map_err(unreadable)?.check(),
            "gpt2" => serde_json::from_slice::<Gpt2Config>(text).map_err(unreadable)?.check(),
            other => Err(refused(format!("config.json: model_type is '{other}'; bert and gpt2 are known"))),
        }
    }

    pub(super) fn family(&self) -> Family {
        self.family
    }

    pub(super) fn context(&self) -> usize {
        self.context
    }

    /// The model for sequences up to `longest`.
    pub(super) fn model(&self, longest: usize, head: Head, bits: u32) -> Result<Model> {
        let model = Model {
            name: "the checkpoint",
            family: self.family,
            layers: self.layers,
            heads: self.heads,
            width: self.width,
            inner: self.inner,
            vocabulary: self.vocabulary,
            types: self.types,
            context: self.context,
            head,
            epsilon: self.epsilon,
            bits,
        };
        model.check(longest)?;
        Ok(Model { context: longest, ..model })
    }
}

fn differs(key: &str, found: impl std::fmt::Debug, expected: &str) -> crate::Error {
    refused(format!("config.json: {key} is {found:?}; only {expected} is computed"))
}

/// Defaults are those of the transformers library, for keys that it leaves out.
#[derive(Deserialize)]
#[serde(default)]
struct BertConfig {
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    vocab_size: usize,
    type_vocab_size: usize,
    max_position_embeddings: usize,
    layer_norm_eps: f64,
    hidden_act: String,
    position_embedding_type: String,
    is_decoder: bool,
    add_cross_attention: bool,
}

impl Default for BertConfig {
    fn default() -> Self {
        Self {
            hidden_size: 768,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            intermediate_size: 3072,
            vocab_size: 30522,
            type_vocab_size: 2,
            max_position_embeddings: 512,
            layer_norm_eps: 1e-12,
            hidden_act: "gelu".into(),
            position_embedding_type: "absolute".into(),
            is_decoder: false,
            add_cross_attention: false,
        }
    }
}

impl BertConfig {
    fn check(self) -> Result<Config> {
        if self.hidden_act != "gelu" {
            return Err(differs("hidden_act", &self.hidden_act, "\"gelu\""));
        }
        if self.position_embedding_type != "absolute" {
            return Err(differs("position_embedding_type", &self.position_embedding_type, "\"absolute\""));
        }
        for (key, found) in
            [("is_decoder", self.is_decoder), ("add_cross_attention", self.add_cross_attention)]
        {
            if found {
                return Err(differs(key, found, "false"));
            }
        }
        Ok(Config {
            family: Family::Bert,
            layers: self.num_hidden_layers,
            heads: self.num_attention_heads,
            width: self.hidden_size,
            inner: self.intermediate_size,
            vocabulary: self.vocab_size,
            types: self.type_vocab_size,
            context: self.max_position_embeddings,
            epsilon: self.layer_norm_eps,
        })
    }
}

#[derive(Deserialize)]
#[serde(default)]
struct Gpt2Config {
    n_embd: usize,
    n_layer: usize,
    n_head: usize,
    n_inner: Option<usize>,
    n_positions: usize,
    vocab_size: usize,
    layer_norm_epsilon: f64,
    activation_function: String,
    scale_attn_weights: bool,
    scale_attn_by_inverse_layer_idx: bool,
    add_cross_attention: bool,
    tie_word_embeddings: bool,
}

impl Default for Gpt2Config {
    fn default() -> Self {
        Self {
            n_embd: 768,
            n_layer: 12,
            n_head: 12,
            n_inner: None,
            n_positions: 1024,
            vocab_size: 50257,
            layer_norm_epsilon: 1e-5,
            activation_function: "gelu_new".into(),
            scale_attn_weights: true,
            scale_attn_by_inverse_layer_idx: false,
            add_cross_attention: false,
            tie_word_embeddings: true,
        }
    }
}

impl Gpt2Config {
    fn check(self) -> Result<Config> {
        if self.activation_function != "gelu_new" {
            return Err(differs("activation_function", &self.activation_function, "\"gelu_new\""));
        }
        let flags = [
            ("scale_attn_weights", self.scale_attn_weights, true),
            ("scale_attn_by_inverse_layer_idx", self.scale_attn_by_inverse_layer_idx, false),
            ("add_cross_attention", self.add_cross_attention, false),
            ("tie_word_embeddings", self.tie_word_embeddings, true),
        ];
        if let Some((key, found, expected)) = flags.iter().find(|(_, found, expected)| found != expected) {
            return Err(differs(key, found, &expected.to_string()));
        }
        let inner = self.n_inner.or(self.n_embd.checked_mul(4));
        Ok(Config {
            family: Family::Gpt,
            layers: self.n_layer,
            heads: self.n_head,
            width: self.n_embd,
            inner: inner.ok_or_else(|| refused(format!("config.json: n_embd is {}", self.n_embd)))?,
            vocabulary: self.vocab_size,
            types: 0,
            context: self.n_positions,
            epsilon: self.layer_norm_epsilon,
        })
    }
}
