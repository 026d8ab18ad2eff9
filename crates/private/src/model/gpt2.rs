//! GPT-2's tensors in the order of its graph.

use crate::error::Result;
use crate::graph::{Graph, Model};

use super::exact::ExactWeights;
use super::quantised::{Keeps, QuantisedWeights, Quantiser};
use super::refused;
use super::tensors::Tensors;

pub(super) const PREFIX: &str = "transformer.";

pub(super) fn weights(
    tensors: &Tensors<'_>,
    model: &Model,
    graph: &Graph,
    keeps: Keeps,
) -> Result<(QuantisedWeights, ExactWeights)> {
    let mut reader = Reader { tensors, quantiser: Quantiser::new(graph, keeps) };
    let Model { width, inner, .. } = *model;
    reader.quantiser.push("wte.weight", &tensors.entries("wte.weight", &[model.vocabulary, width])?, 1.0)?;
    let shape = tensors.shape("wpe.weight").unwrap_or_default();
    let places = tensors.entries("wpe.weight", &[shape.first().copied().unwrap_or(0), width])?;
    let places = places.get(..model.context * width);
    let places = places.ok_or_else(|| refused(format!("there are fewer than {} places", model.context)))?;
    reader.quantiser.push("wpe.weight", places, 1.0)?;
    for layer in 0..model.layers {
        let name = |rest: &str| format!("h.{layer}.{rest}");
        reader.norm(&name("ln_1"), width)?;
        reader.attention(&name("attn.c_attn"), model)?;
        reader.linear(&name("attn.c_proj"), [width, width])?;
        reader.norm(&name("ln_2"), width)?;
        reader.linear(&name("mlp.c_fc"), [width, inner])?;
        reader.linear(&name("mlp.c_proj"), [inner, width])?;
    }
    reader.norm("ln_f", width)?;
    reader.quantiser.finish()
}

struct Reader<'a> {
    tensors: &'a Tensors<'a>,
    quantiser: Quantiser<'a>,
}

impl Reader<'_> {
    /// A weight that lies as inputs × outputs, and its bias.
    fn linear(&mut self, name: &str, [inputs, outputs]: [usize; 2]) -> Result<()> {
        let (matrix, bias) = (format!("{name}.weight"), format!("{name}.bias"));
        self.quantiser.push(&matrix, &self.tensors.entries(&matrix, &[inputs, outputs])?, 1.0)?;
        self.quantiser.push(&bias, &self.tensors.entries(&bias, &[outputs])?, 1.0)
    }

    /// Queries, keys and values side by side in one weight. Queries take the scale of the scores.
    fn attention(&mut self, name: &str, model: &Model) -> Result<()> {
        let width = model.width;
        let (matrix, bias) = (format!("{name}.weight"), format!("{name}.bias"));
        let matrices = self.tensors.entries(&matrix, &[width, 3 * width])?;
        let biases = self.tensors.entries(&bias, &[3 * width])?;
        for part in 0..3 {
            let columns = part * width..(part + 1) * width;
            let own: Vec<f32> =
                matrices.chunks(3 * width).flat_map(|row| row[columns.clone()].iter().copied()).collect();
            let scale = if part == 0 { 1.0 / ((width / model.heads) as f64).sqrt() } else { 1.0 };
            self.quantiser.push(&matrix, &own, scale)?;
            self.quantiser.push(&bias, &biases[columns], scale)?;
        }
        Ok(())
    }

    fn norm(&mut self, name: &str, width: usize) -> Result<()> {
        for name in [format!("{name}.weight"), format!("{name}.bias")] {
            self.quantiser.push(&name, &self.tensors.entries(&name, &[width])?, 1.0)?;
        }
        Ok(())
    }
}
