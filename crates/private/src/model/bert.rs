//! BERT's tensors in the order of its graph.

use crate::error::Result;
use crate::graph::{Graph, Head, Model};

use super::exact::ExactWeights;
use super::quantised::{Keeps, QuantisedWeights, Quantiser, transposed};
use super::refused;
use super::tensors::Tensors;

pub(super) const PREFIX: &str = "bert.";

/// What the checkpoint was trained to give: classes, or else embeddings of sentences.
pub(super) fn head(tensors: &Tensors<'_>) -> Result<Head> {
    match (tensors.shape("classifier.weight"), tensors.shape("pooler.dense.weight")) {
        (Some(shape), Some(_)) => Ok(Head::Classes(shape.first().copied().unwrap_or(0))),
        (Some(_), None) => Err(refused(
            "the checkpoint classifies without a pooler; choose another head, such as all tokens",
        )),
        (None, _) => Ok(Head::Mean),
    }
}

pub(super) fn weights(
    tensors: &Tensors<'_>,
    model: &Model,
    graph: &Graph,
    keeps: Keeps,
) -> Result<(QuantisedWeights, ExactWeights)> {
    let mut reader = Reader { tensors, quantiser: Quantiser::new(graph, keeps) };
    let Model { width, inner, .. } = *model;
    let mut table = tensors.entries("embeddings.word_embeddings.weight", &[model.vocabulary, width])?;
    table.extend(tensors.entries("embeddings.token_type_embeddings.weight", &[model.types, width])?);
    reader.quantiser.push("embeddings of words and token types", &table, 1.0)?;
    reader.quantiser.push("positions", &places(tensors, model)?, 1.0)?;
    reader.norm("embeddings.LayerNorm", width)?;
    let scale = 1.0 / ((width / model.heads) as f64).sqrt();
    for layer in 0..model.layers {
        let name = |rest: &str| format!("encoder.layer.{layer}.{rest}");
        reader.linear(&name("attention.self.query"), [width, width], scale)?;
        reader.linear(&name("attention.self.key"), [width, width], 1.0)?;
        reader.linear(&name("attention.self.value"), [width, width], 1.0)?;
        reader.linear(&name("attention.output.dense"), [width, width], 1.0)?;
        reader.norm(&name("attention.output.LayerNorm"), width)?;
        reader.linear(&name("intermediate.dense"), [width, inner], 1.0)?;
        reader.linear(&name("output.dense"), [inner, width], 1.0)?;
        reader.norm(&name("output.LayerNorm"), width)?;
    }
    if let Head::Classes(classes) = model.head {
        reader.linear("pooler.dense", [width, width], 1.0)?;
        reader.linear("classifier", [width, classes], 1.0)?;
    }
    reader.quantiser.finish()
}

/// Rows of as many places as the longest sequence has.
fn places(tensors: &Tensors<'_>, model: &Model) -> Result<Vec<f32>> {
    const NAME: &str = "embeddings.position_embeddings.weight";
    let shape = tensors.shape(NAME).ok_or_else(|| refused(format!("model.safetensors has no '{NAME}'")))?;
    let [rows, _] = shape[..] else { return Err(refused(format!("'{NAME}' is {shape:?}"))) };
    let mut places = tensors.entries(NAME, &[rows, model.width])?;
    if rows < model.context {
        return Err(refused(format!("there are fewer than {} places", model.context)));
    }
    places.truncate(model.context * model.width);
    Ok(places)
}

struct Reader<'a> {
    tensors: &'a Tensors<'a>,
    quantiser: Quantiser<'a>,
}

impl Reader<'_> {
    /// A weight that lies as outputs × inputs, and its bias.
    fn linear(&mut self, name: &str, [inputs, outputs]: [usize; 2], scale: f64) -> Result<()> {
        let (matrix, bias) = (format!("{name}.weight"), format!("{name}.bias"));
        let entries = self.tensors.entries(&matrix, &[outputs, inputs])?;
        self.quantiser.push(&matrix, &transposed(&entries, inputs), scale)?;
        self.quantiser.push(&bias, &self.tensors.entries(&bias, &[outputs])?, scale)
    }

    fn norm(&mut self, name: &str, width: usize) -> Result<()> {
        for name in [format!("{name}.weight"), format!("{name}.bias")] {
            self.quantiser.push(&name, &self.tensors.entries(&name, &[width])?, 1.0)?;
        }
        Ok(())
    }
}
