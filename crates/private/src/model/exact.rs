//! A model in double precision: what the checkpoint itself computes, to hold fixed point against.

use gatework_fss::reference;

use crate::error::{Error, Result};
use crate::graph::{ActivationKind, Graph, Mask, Node, NormKind, Op, Shape, WeightId};

use super::client::Tokens;
use super::public::PublicModel;
use super::refused;

/// The weights of a checkpoint as they are, in the order of [`Graph::weights`]; queries have the scale of the
/// scores.
pub struct ExactWeights {
    tensors: Vec<Vec<f64>>,
}

/// A model evaluated in double precision.
#[derive(Debug, Clone, PartialEq)]
pub struct Exact {
    /// The result, row by row, as [`PublicModel::decode`] gives it.
    pub numbers: Vec<f64>,
    /// Tensors of which elements are beyond a clamp's limit, which fixed point cuts off: with the largest
    /// element, and the limit.
    pub clamped: Vec<(String, f64, f64)>,
}

impl ExactWeights {
    pub(super) fn new(tensors: Vec<Vec<f64>>) -> Self {
        Self { tensors }
    }

    /// Evaluates the public model of these weights for a text. Clamps are not applied: the checkpoint has
    /// none.
    pub fn evaluate(&self, public: &PublicModel, text: &Tokens) -> Result<Exact> {
        // Checks the number of tokens and every one of them.
        public.encode(text)?;
        let network = public.network(text.ids().len())?;
        let graph = network.proved().graph();
        let mut values: Vec<Vec<f64>> = Vec::with_capacity(graph.nodes().len());
        let mut clamped = Vec::new();
        for node in graph.nodes() {
            let inputs: Vec<&[f64]> = node.inputs.iter().map(|input| values[input.0].as_slice()).collect();
            if let Op::Clamp { magnitude } = node.op {
                let limit = magnitude as f64 * 2f64.powi(-(graph.format().fraction as i32));
                let largest = inputs[0].iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
                if largest > limit {
                    clamped.push((node.name.clone(), largest, limit));
                }
            }
            values.push(Step { weights: self, graph, node, text }.evaluate(&inputs)?);
        }
        let mut numbers = values.pop().ok_or_else(|| refused("the graph is empty"))?;
        if public.head() == crate::graph::Head::Mean {
            numbers.iter_mut().for_each(|number| *number /= text.ids().len() as f64);
        }
        Ok(Exact { numbers, clamped })
    }

    fn get(&self, id: WeightId) -> &[f64] {
        &self.tensors[id.0]
    }
}

/// One node.
struct Step<'a> {
    weights: &'a ExactWeights,
    graph: &'a Graph,
    node: &'a Node,
    text: &'a Tokens,
}

impl Step<'_> {
    fn evaluate(&self, inputs: &[&[f64]]) -> Result<Vec<f64>> {
        let x = inputs.first().copied().unwrap_or_default();
        Ok(match &self.node.op {
            Op::Input { .. } => {
                let what = "a graph whose input is activations, not tokens".to_owned();
                return Err(Error::Unsupported { gate: "evaluation in double precision", what });
            }
            Op::Embed { table, positions, types } => self.embed(*table, *positions, *types),
            Op::Linear { weights } => {
                let segments = weights.iter().zip(&self.node.segments);
                segments.flat_map(|(&(matrix, bias), shape)| self.linear(x, matrix, bias, *shape)).collect()
            }
            Op::Tied { table } => {
                let (table, inner) = (self.weights.get(*table), self.graph.weight(*table).columns);
                rows(x, inner).flat_map(|row| rows(table, inner).map(|word| dot(row, word))).collect()
            }
            Op::Scores { heads, attention } => self.scores(x, inputs[1], *heads, *attention),
            Op::Softmax { heads, attention } => self.softmax(x, *heads, *attention)?,
            Op::Mix { heads, attention } => self.mix(x, inputs[1], *heads, *attention),
            Op::Rotate { .. } => {
                let what = "rotary positions".to_owned();
                return Err(Error::Unsupported { gate: "evaluation in double precision", what });
            }
            // Nothing is rounded, so nothing is truncated; and what a clamp would cut off is told, not cut
            // off.
            Op::Truncate | Op::Clamp { .. } => x.to_vec(),
            Op::Multiply => x.iter().zip(inputs[1]).map(|(x, y)| x * y).collect(),
            Op::Add => x.iter().zip(inputs[1]).map(|(x, y)| x + y).collect(),
            Op::Activate(kind) => x.iter().map(|&x| activation(*kind, x)).collect(),
            Op::Normalise { kind, gain, shift, epsilon } => {
                let unit = 2f64.powi(-2 * self.graph.format().fraction as i32);
                let shift = shift.map(|shift| self.weights.get(shift));
                let width = self.node.segments[0].columns;
                let normal = |row| normalised(row, *kind, *epsilon as f64 * unit);
                let scaled = rows(x, width).flat_map(|row| {
                    let gained =
                        normal(row).into_iter().zip(self.weights.get(*gain)).map(|(x, gain)| x * gain);
                    gained
                        .enumerate()
                        .map(|(column, x)| x + shift.map_or(0.0, |shift| shift[column]))
                        .collect::<Vec<f64>>()
                });
                scaled.collect()
            }
            Op::Segment(index) => {
                let lengths = &self.graph.node(self.node.inputs[0]).segments;
                let start: usize = lengths[..*index].iter().map(|shape| shape.len()).sum();
                x[start..start + self.node.len()].to_vec()
            }
            Op::Row(row) => {
                let columns = self.node.segments[0].columns;
                x[row * columns..(row + 1) * columns].to_vec()
            }
            Op::SumRows => {
                let columns = self.node.segments[0].columns;
                (0..columns).map(|column| x.iter().skip(column).step_by(columns).sum()).collect()
            }
        })
    }

    fn embed(&self, table: WeightId, positions: Option<WeightId>, types: usize) -> Vec<f64> {
        let (width, words) = (self.graph.weight(table).columns, self.graph.weight(table).rows - types);
        let row_of = |id: WeightId, row: usize| &self.weights.get(id)[row * width..(row + 1) * width];
        let mut rows = Vec::with_capacity(self.node.len());
        for (place, (&id, &kind)) in self.text.ids().iter().zip(self.text.types()).enumerate() {
            let start = rows.len();
            rows.extend_from_slice(row_of(table, id as usize));
            let kind = (types > 0).then(|| row_of(table, words + kind as usize));
            let added = kind.into_iter().chain(positions.map(|positions| row_of(positions, place)));
            for row in added {
                rows[start..].iter_mut().zip(row).for_each(|(sum, entry)| *sum += entry);
            }
        }
        rows
    }

    fn linear(&self, x: &[f64], matrix: WeightId, bias: Option<WeightId>, shape: Shape) -> Vec<f64> {
        let inner = self.graph.weight(matrix).rows;
        let (matrix, bias) = (self.weights.get(matrix), bias.map(|bias| self.weights.get(bias)));
        let product = |row: &[f64]| {
            let mut sums = bias.map_or_else(|| vec![0.0; shape.columns], <[f64]>::to_vec);
            for (x, weights) in row.iter().zip(rows(matrix, shape.columns)) {
                sums.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += x * weight);
            }
            sums
        };
        rows(x, inner).take(shape.rows).flat_map(product).collect()
    }

    /// Head by head, and in each row by row, what the row sees.
    fn scores(&self, query: &[f64], key: &[f64], heads: usize, mask: Mask) -> Vec<f64> {
        let tokens = self.graph.tokens();
        let width = query.len() / tokens;
        let head = width / heads;
        let part = |x: &[f64], token: usize, of: usize| -> Vec<f64> {
            x[token * width + of * head..token * width + (of + 1) * head].to_vec()
        };
        let mut scores = Vec::with_capacity(mask.scores(heads, tokens));
        for of in 0..heads {
            for row in 0..tokens {
                let query = part(query, row, of);
                scores.extend((0..seen(mask, row, tokens)).map(|column| dot(&query, &part(key, column, of))));
            }
        }
        scores
    }

    fn softmax(&self, x: &[f64], heads: usize, mask: Mask) -> Result<Vec<f64>> {
        let mut probabilities = Vec::with_capacity(x.len());
        let mut rest = x;
        for &length in mask.rows(heads, self.graph.tokens())?.lengths() {
            let (row, after) = rest.split_at(length);
            let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let powers: Vec<f64> = row.iter().map(|x| (x - largest).exp()).collect();
            let sum: f64 = powers.iter().sum();
            probabilities.extend(powers.into_iter().map(|power| power / sum));
            rest = after;
        }
        Ok(probabilities)
    }

    fn mix(&self, probabilities: &[f64], value: &[f64], heads: usize, mask: Mask) -> Vec<f64> {
        let tokens = self.graph.tokens();
        let width = value.len() / tokens;
        let head = width / heads;
        let mut mixed = vec![0.0; tokens * width];
        let mut rest = probabilities.iter();
        for of in 0..heads {
            for row in 0..tokens {
                let sums = &mut mixed[row * width + of * head..row * width + (of + 1) * head];
                for (column, probability) in rest.by_ref().take(seen(mask, row, tokens)).enumerate() {
                    let value = &value[column * width + of * head..];
                    sums.iter_mut().zip(value).for_each(|(sum, value)| *sum += probability * value);
                }
            }
        }
        mixed
    }
}

/// How many tokens a row sees.
fn seen(mask: Mask, row: usize, tokens: usize) -> usize {
    match mask {
        Mask::Full => tokens,
        Mask::Causal => row + 1,
    }
}

fn rows(x: &[f64], columns: usize) -> std::slice::ChunksExact<'_, f64> {
    x.chunks_exact(columns)
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

fn activation(kind: ActivationKind, x: f64) -> f64 {
    match kind {
        ActivationKind::Gelu => reference::gelu(x),
        ActivationKind::GeluTanh => reference::gelu_tanh(x),
        ActivationKind::Silu => reference::silu(x),
        ActivationKind::Tanh => x.tanh(),
    }
}

/// A row over the root of its mean square, centred before where the kind says so. `epsilon` is d ε.
fn normalised(row: &[f64], kind: NormKind, epsilon: f64) -> Vec<f64> {
    let count = row.len() as f64;
    let centre = match kind {
        NormKind::Layer => row.iter().sum::<f64>() / count,
        NormKind::RootMeanSquare => 0.0,
    };
    let squares = row.iter().map(|x| (x - centre).powi(2)).sum::<f64>();
    let root = ((squares + epsilon) / count).sqrt();
    row.iter().map(|x| (x - centre) / root).collect()
}
