//! Forward and backward passes over a shard of a batch.

use super::convolution::Convolution;
use super::layer::{Layer, Layers};
use crate::data::Examples;
use crate::dense::{Strided, add_product, add_product_transposed};
use crate::network::{Parameters, Tally};
use crate::sampling::Kept;

/// Memory for passes over up to so many examples: what every layer gave, and the gradient of what it was
/// given.
#[derive(Debug, Clone)]
pub struct Pass {
    layers: Vec<Layer>,
    parameters: Vec<Parameters>,
    examples: usize,
    labels: Vec<usize>,
    /// The input of every layer, then the output of the last.
    values: Vec<Vec<f32>>,
    /// For a maximum: which of its inputs each output is.
    chosen: Vec<Vec<u32>>,
    delta: Vec<f32>,
    next_delta: Vec<f32>,
    columns: Vec<f32>,
    /// Columns and deltas of several examples.
    side_by_side: [Vec<f32>; 2],
}

impl Pass {
    /// Memory for up to `capacity` examples.
    pub fn new(architecture: &Layers, capacity: usize) -> Self {
        let layers = architecture.layers().to_vec();
        let mut values = vec![vec![0.0; capacity * architecture.inputs()]];
        values.extend(layers.iter().map(|layer| vec![0.0; capacity * layer.outputs()]));
        let widest = values.iter().map(Vec::len).max().unwrap_or(0);
        let chosen = layers.iter().map(|layer| match layer {
            Layer::MaxPool { .. } => vec![0; capacity * layer.outputs()],
            _ => Vec::new(),
        });
        let columns = layers.iter().filter_map(convolution).map(|layer| layer.columns()).max().unwrap_or(0);
        Self {
            parameters: architecture.parameters(),
            examples: 0,
            labels: Vec::with_capacity(capacity),
            chosen: chosen.collect(),
            values,
            delta: vec![0.0; widest],
            next_delta: vec![0.0; widest],
            columns: vec![0.0; columns],
            side_by_side: Default::default(),
            layers,
        }
    }

    /// Bytes that memory for up to `capacity` examples holds.
    pub fn bytes(architecture: &Layers, capacity: usize) -> usize {
        let outputs = architecture.layers().iter().map(Layer::outputs);
        let sizes = || std::iter::once(architecture.inputs()).chain(outputs.clone());
        let chosen: usize = architecture
            .layers()
            .iter()
            .filter(|layer| matches!(layer, Layer::MaxPool { .. }))
            .map(Layer::outputs)
            .sum();
        let columns = architecture.layers().iter().filter_map(convolution).map(|layer| layer.columns());
        let examples = sizes().sum::<usize>() + chosen + 2 * sizes().max().unwrap_or(0);
        (capacity * examples + columns.max().unwrap_or(0)) * size_of::<f32>()
    }

    /// Runs `indices` of `examples` through the network, and leaves `softmax − label` behind for
    /// [`Pass::backward`].
    pub fn forward(&mut self, weights: &[f32], examples: &Examples, indices: &[u32]) -> Tally {
        self.examples = indices.len();
        self.labels.clear();
        for (slot, &index) in self.values[0].chunks_exact_mut(examples.size()).zip(indices) {
            slot.copy_from_slice(examples.input(index as usize));
            self.labels.push(examples.label(index as usize));
        }
        let mut parameters = self.parameters.iter();
        for (place, layer) in self.layers.iter().enumerate() {
            let group = layer.matrix().and_then(|_| parameters.next());
            let (before, after) = self.values.split_at_mut(place + 1);
            let input = &before[place][..self.examples * layer.inputs()];
            let output = &mut after[0][..self.examples * layer.outputs()];
            match (layer, group) {
                (Layer::Dense { inputs, outputs }, Some(group)) => {
                    let bias = &weights[group.bias.clone()];
                    output.chunks_exact_mut(*outputs).for_each(|row| row.copy_from_slice(bias));
                    let size = [self.examples, *outputs, *inputs];
                    add_product(size, Strided::rows(input, *inputs), &weights[group.matrix.clone()], output);
                }
                (Layer::MaxPool { shape }, _) => maxima(*shape, input, output, &mut self.chosen[place]),
                (Layer::Relu { .. }, _) => {
                    output.iter_mut().zip(input).for_each(|(y, x)| *y = x.max(0.0));
                }
                (layer, group) => {
                    if let (Some(convolution), Some(group)) = (convolution(layer), group) {
                        let images = input.chunks_exact(layer.inputs());
                        for (image, out) in images.zip(output.chunks_exact_mut(layer.outputs())) {
                            let matrix = &weights[group.matrix.clone()];
                            let bias = &weights[group.bias.clone()];
                            let columns = &mut self.columns[..convolution.columns()];
                            convolution.forward(image, matrix, bias, columns, out);
                        }
                    }
                }
            }
        }
        self.judge()
    }

    /// Cross-entropy `−ln softmax(z)_label` of every example; `delta` becomes its gradient in `z`.
    fn judge(&mut self) -> Tally {
        let classes = self.layers.last().map_or(1, Layer::outputs);
        let mut tally = Tally { judged: self.examples, ..Tally::default() };
        let Some(logits) = self.values.last() else { return tally };
        let rows = logits.chunks_exact(classes).zip(self.delta.chunks_exact_mut(classes));
        for ((logits, delta), &label) in rows.zip(&self.labels) {
            let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut sum = 0.0f32;
            for (delta, logit) in delta.iter_mut().zip(logits) {
                *delta = (logit - top).exp();
                sum += *delta;
            }
            delta.iter_mut().for_each(|delta| *delta /= sum);
            delta[label] -= 1.0;
            tally.loss += f64::from(sum.ln() - (logits[label] - top));
            // The first of equals: a network that says the same to everything is not right about it.
            tally.correct += usize::from(logits.iter().position(|&logit| logit == top) == Some(label));
        }
        tally
    }

    /// Adds the length of `softmax − label` of every example of the last forward pass to a list.
    pub fn lengths(&self, into: &mut Vec<f32>) {
        // Rows whose sums run beside each other.
        const ROWS: usize = 8;
        let classes = self.layers.last().map_or(1, Layer::outputs);
        for rows in self.delta[..self.examples * classes].chunks(ROWS * classes) {
            let mut sums = [0.0f32; ROWS];
            let sums = &mut sums[..rows.len() / classes];
            for class in 0..classes {
                for (row, sum) in sums.iter_mut().enumerate() {
                    let delta = rows[row * classes + class];
                    *sum += delta * delta;
                }
            }
            into.extend(sums.iter().map(|sum| sum.sqrt()));
        }
    }

    /// Leaves these examples for the backward pass, in ascending order of their places, each with its weight.
    pub fn keep(&mut self, kept: &[Kept]) {
        let classes = self.layers.last().map_or(1, Layer::outputs);
        for (to, &Kept { place: from, weight }) in kept.iter().enumerate() {
            for (place, values) in self.values.iter_mut().enumerate() {
                let width = self.layers.get(place).map_or(classes, Layer::inputs);
                values.copy_within(from * width..(from + 1) * width, to * width);
            }
            for (layer, chosen) in self.layers.iter().zip(&mut self.chosen) {
                if !chosen.is_empty() {
                    let width = layer.outputs();
                    chosen.copy_within(from * width..(from + 1) * width, to * width);
                }
            }
            self.delta.copy_within(from * classes..(from + 1) * classes, to * classes);
            self.delta[to * classes..(to + 1) * classes].iter_mut().for_each(|delta| *delta *= weight);
        }
        self.examples = kept.len();
    }

    /// Adds the gradient of the sum of losses to `gradient`, for all layers with parameters from number
    /// `frozen` on. The backward pass ends where nothing before it is wanted.
    pub fn backward(&mut self, weights: &[f32], frozen: usize, gradient: &mut [f32]) {
        let wanted = &self.parameters[frozen.min(self.parameters.len())..];
        let Some(first) = wanted.first().map(|group| group.layer) else { return };
        if self.examples == 0 {
            return;
        }
        let mut groups = wanted.iter().rev();
        for place in (first..self.layers.len()).rev() {
            let layer = self.layers[place];
            let (inputs, outputs) = (layer.inputs(), layer.outputs());
            let input = &self.values[place][..self.examples * inputs];
            let delta = &self.delta[..self.examples * outputs];
            let next = &mut self.next_delta[..self.examples * inputs];
            let group = layer.matrix().and_then(|_| groups.next());
            match (layer, group) {
                (Layer::Dense { .. }, Some(group)) => {
                    let size = [inputs, outputs, self.examples];
                    let matrix = &mut gradient[group.matrix.clone()];
                    add_product(size, Strided::transposed(input, inputs), delta, matrix);
                    let bias = &mut gradient[group.bias.clone()];
                    for delta in delta.chunks_exact(outputs) {
                        bias.iter_mut().zip(delta).for_each(|(bias, delta)| *bias += delta);
                    }
                    if place > first {
                        next.fill(0.0);
                        let size = [self.examples, inputs, outputs];
                        add_product_transposed(size, delta, &weights[group.matrix.clone()], next);
                    }
                }
                (Layer::MaxPool { .. }, _) => {
                    next.fill(0.0);
                    let chosen = self.chosen[place].chunks_exact(outputs);
                    let rows = delta.chunks_exact(outputs).zip(next.chunks_exact_mut(inputs));
                    for ((delta, next), chosen) in rows.zip(chosen) {
                        delta.iter().zip(chosen).for_each(|(delta, &at)| next[at as usize] += delta);
                    }
                }
                (Layer::Relu { .. }, _) => {
                    for ((next, delta), input) in next.iter_mut().zip(delta).zip(input) {
                        *next = if *input > 0.0 { *delta } else { 0.0 };
                    }
                }
                (layer, group) => {
                    if let (Some(convolution), Some(group)) = (convolution(&layer), group) {
                        let columns = &mut self.columns[..convolution.columns()];
                        let (matrix, bias) = gradient[group.range()].split_at_mut(group.matrix.len());
                        let together = convolution.together();
                        let images = input.chunks(together * inputs);
                        for (images, delta) in images.zip(delta.chunks(together * outputs)) {
                            convolution.gradient(images, delta, &mut self.side_by_side, matrix, bias);
                        }
                        if place > first {
                            let matrix = &weights[group.matrix.clone()];
                            let examples = delta.chunks_exact(outputs).zip(next.chunks_exact_mut(inputs));
                            examples
                                .for_each(|(delta, next)| convolution.backward(matrix, delta, columns, next));
                        }
                    }
                }
            }
            std::mem::swap(&mut self.delta, &mut self.next_delta);
        }
    }
}

fn convolution(layer: &Layer) -> Option<Convolution> {
    match *layer {
        Layer::Convolution { shape, filters, kernel } => Some(Convolution { shape, filters, kernel }),
        _ => None,
    }
}

/// The largest of each 2 × 2 and its place in the example; the first of equals.
fn maxima([channels, rows, columns]: [usize; 3], input: &[f32], output: &mut [f32], chosen: &mut [u32]) {
    let (size, [down, across]) = (channels * rows * columns, [rows / 2, columns / 2]);
    let outputs = channels * down * across;
    let places = output.chunks_exact_mut(outputs).zip(chosen.chunks_exact_mut(outputs));
    for (input, (output, chosen)) in input.chunks_exact(size).zip(places) {
        let mut at = 0;
        for channel in 0..channels {
            for y in 0..down {
                let top = (channel * rows + 2 * y) * columns;
                for x in 0..across {
                    let first = top + 2 * x;
                    let (mut best, mut value) = (first, input[first]);
                    for other in [first + 1, first + columns, first + columns + 1] {
                        // Two selections and no branch: which is largest is not to be guessed.
                        let larger = input[other] > value;
                        best = if larger { other } else { best };
                        value = if larger { input[other] } else { value };
                    }
                    output[at] = value;
                    chosen[at] = best as u32;
                    at += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn examples(shape: [usize; 3], classes: usize) -> Examples {
        let mut random = Random::new(5, "examples");
        let size: usize = shape.iter().product();
        let inputs = (0..6 * size).map(|_| random.normal() as f32).collect();
        Examples::new(shape, classes, inputs, (0..6).map(|i| (i % classes) as u16).collect()).unwrap()
    }

    /// What is kept has the gradient that it would have alone, times its weight.
    #[test]
    fn kept_examples_have_their_own_gradient() {
        for architecture in [
            Layers::mlp([1, 12, 12], &[12, 7], 3).unwrap(),
            Layers::cnn([1, 12, 12], &[3, 4], 3, &[5], 3).unwrap(),
        ] {
            let (examples, weights) = (examples([1, 12, 12], 3), architecture.initial(1));
            let mut pass = Pass::new(&architecture, 6);
            let mut of = |indices: &[u32], kept: Option<&[Kept]>| {
                let mut gradient = vec![0.0; weights.len()];
                pass.forward(&weights, &examples, indices);
                let mut lengths = Vec::new();
                pass.lengths(&mut lengths);
                assert_eq!(lengths.len(), indices.len());
                if let Some(kept) = kept {
                    pass.keep(kept);
                }
                pass.backward(&weights, 0, &mut gradient);
                gradient
            };
            let kept = |places: &[usize]| -> Vec<Kept> {
                places.iter().map(|&place| Kept { place, weight: 1.0 }).collect()
            };
            let all = [0, 1, 2, 3, 4, 5];
            assert_eq!(of(&all, Some(&kept(&[0, 1, 2, 3, 4, 5]))), of(&all, None));
            assert_eq!(of(&all, Some(&kept(&[1, 4, 5]))), of(&[1, 4, 5], None));
            assert!(of(&all, Some(&[])).iter().all(|&g| g == 0.0));
            let doubled = of(&all, Some(&[Kept { place: 3, weight: 2.0 }]));
            let single = of(&[3], None);
            assert!(
                doubled.iter().zip(&single).all(|(two, one)| (two - 2.0 * one).abs() <= 1e-6 * one.abs())
            );
        }
    }

    /// Central differences in double steps; the loss is piecewise smooth, so a few parameters may sit on an
    /// edge.
    #[test]
    fn gradients_match_finite_differences() {
        let shape = [2, 9, 8];
        for architecture in [
            Layers::mlp(shape, &[12, 7], 3).unwrap(),
            Layers::cnn(shape, &[3], 3, &[5], 3).unwrap(),
            Layers::cnn([1, 12, 12], &[3, 4], 3, &[], 3).unwrap(),
        ] {
            let shape = if architecture.inputs() == 144 && architecture.layers().len() > 5 {
                [1, 12, 12]
            } else {
                shape
            };
            let examples = examples(shape, 3);
            let indices = [0, 1, 2, 3, 4, 5];
            let mut weights = architecture.initial(1);
            weights.iter_mut().enumerate().for_each(|(i, w)| *w += 0.01 * ((i % 7) as f32 - 3.0));
            let mut pass = Pass::new(&architecture, 6);
            let mut gradient = vec![0.0; weights.len()];
            pass.forward(&weights, &examples, &indices);
            pass.backward(&weights, 0, &mut gradient);
            let mut wrong = 0;
            let mut checked = 0;
            for at in (0..weights.len()).step_by(1 + weights.len() / 150) {
                let step = 2e-3f32;
                let mut loss = |shift: f32| {
                    let mut moved = weights.clone();
                    moved[at] += shift;
                    pass.forward(&moved, &examples, &indices).loss
                };
                let difference = (loss(step) - loss(-step)) / f64::from(2.0 * step);
                let found = f64::from(gradient[at]);
                wrong += usize::from((difference - found).abs() > 2e-2 * (1.0 + found.abs()));
                checked += 1;
            }
            assert!(wrong * 20 <= checked, "{}: {wrong} of {checked}", architecture.text());
            assert!(gradient.iter().any(|g| g.abs() > 1e-2));
        }
    }

    #[test]
    fn a_frozen_prefix_gets_no_gradient_and_the_rest_the_same() {
        let architecture = Layers::cnn([1, 12, 12], &[3, 4], 3, &[6], 3).unwrap();
        let examples = examples([1, 12, 12], 3);
        let weights = architecture.initial(2);
        let mut pass = Pass::new(&architecture, 6);
        let gradients: Vec<Vec<f32>> = (0..=architecture.parameters().len())
            .map(|frozen| {
                let mut gradient = vec![0.0; weights.len()];
                pass.forward(&weights, &examples, &[0, 1, 2, 3, 4, 5]);
                pass.backward(&weights, frozen, &mut gradient);
                gradient
            })
            .collect();
        for (frozen, gradient) in gradients.iter().enumerate() {
            let from =
                architecture.parameters().get(frozen).map_or(weights.len(), |group| group.matrix.start);
            assert!(gradient[..from].iter().all(|&g| g == 0.0));
            assert_eq!(gradient[from..], gradients[0][from..]);
        }
    }
}
