//! Forward and backward passes over windows of a text.

use super::attention::{Head as AttentionHead, Scratch};
use super::head::{Backward, Found, Head};
use super::{Layout, Transformer, gelu, norm};
use crate::data::Windows;
use crate::network::Tally;
use crate::sampling::Kept;

/// Memory for passes over up to so many windows: what the gradient needs of every block, and what a block
/// needs while it is computed. Rows are tokens, window after window.
#[derive(Debug, Clone)]
pub struct Pass {
    shape: Transformer,
    layout: Layout,
    /// Tokens of a window: as many as the context, or fewer.
    columns: usize,
    inputs: Vec<u16>,
    targets: Vec<u16>,
    blocks: Vec<Activations>,
    /// The stream after the last block.
    last: Vec<f32>,
    /// What a token's gradient is multiplied with.
    weight: Vec<f32>,
    pub(super) found: Found,
    /// The gradient of the stream.
    delta: Vec<f32>,
    /// The stream, normalised.
    normal: Vec<f32>,
    of_normal: Vec<f32>,
    /// Four times as wide as the stream, twice.
    wide: [Vec<f32>; 2],
    turned: Vec<f32>,
    head: Head,
    attention: Scratch,
}

/// What the gradient of a block needs.
#[derive(Debug, Clone, Default)]
struct Activations {
    /// The stream that came in.
    stream: Vec<f32>,
    /// Queries, keys and values.
    mixed: Vec<f32>,
    /// What heads gave.
    heads: Vec<f32>,
    /// The logarithm of the sum of powers of every row, window by window, head by head.
    logs: Vec<f32>,
    /// The stream between attention and dense layers.
    middle: Vec<f32>,
    /// What goes into the GELU.
    before: Vec<f32>,
}

impl Activations {
    /// Every list with its numbers of a token.
    fn lists(&mut self, width: usize, heads: usize) -> [(&mut Vec<f32>, usize); 6] {
        let Self { stream, mixed, heads: outputs, logs, middle, before } = self;
        [
            (stream, width),
            (mixed, 3 * width),
            (outputs, width),
            (logs, heads),
            (middle, width),
            (before, 4 * width),
        ]
    }
}

impl Pass {
    /// Memory for up to `capacity` windows.
    pub fn new(shape: &Transformer, capacity: usize) -> Self {
        let (tokens, width) = (capacity * shape.context, shape.width);
        let zeros = |width: usize| vec![0.0; tokens * width];
        let mut block = Activations::default();
        block.lists(width, shape.heads).into_iter().for_each(|(list, width)| *list = zeros(width));
        Self {
            layout: shape.layout(),
            columns: shape.context,
            inputs: Vec::with_capacity(tokens),
            targets: Vec::with_capacity(tokens),
            blocks: vec![block; shape.layers],
            last: zeros(width),
            weight: Vec::with_capacity(tokens),
            found: Found::default(),
            delta: zeros(width),
            normal: zeros(width),
            of_normal: zeros(width),
            wide: [zeros(4 * width), zeros(4 * width)],
            turned: Vec::new(),
            head: Head::default(),
            attention: Scratch::default(),
            shape: shape.clone(),
        }
    }

    /// The transformer that it is for.
    pub fn shape(&self) -> &Transformer {
        &self.shape
    }

    /// Bytes that memory for up to `capacity` windows holds.
    pub fn bytes(shape: &Transformer, capacity: usize) -> usize {
        let (tokens, width) = (capacity * shape.context, shape.width);
        let block = 10 * width + shape.heads;
        let numbers = tokens * (shape.layers * block + 13 * width + 3)
            + 4 * width * width
            + Scratch::numbers(shape.head_width(), shape.context)
            + Head::numbers(shape.vocabulary, width);
        numbers * size_of::<f32>() + tokens * (2 * size_of::<u16>() + size_of::<bool>())
    }

    /// Runs `indices` of `windows` through the network, and leaves behind what [`Self::backward`] needs.
    pub fn forward(&mut self, weights: &[f32], windows: &Windows, indices: &[u32]) -> Tally {
        self.draw(windows, indices);
        self.blocks(weights);
        self.judge(weights, None);
        self.found.tally()
    }

    /// [`Self::forward`] and [`Self::backward`], with logits that are computed once.
    pub fn learn(
        &mut self,
        weights: &[f32],
        windows: &Windows,
        indices: &[u32],
        frozen: usize,
        gradient: &mut [f32],
    ) -> Tally {
        self.draw(windows, indices);
        self.blocks(weights);
        if frozen >= self.shape.layers + 2 {
            self.judge(weights, None);
        } else {
            self.back(weights, frozen, gradient);
        }
        self.found.tally()
    }

    /// Adds the gradient of the sum of losses to `gradient`, for all groups from number `frozen` on. Logits
    /// are computed again. What the forward pass left behind is used up.
    pub fn backward(&mut self, weights: &[f32], frozen: usize, gradient: &mut [f32]) {
        if frozen < self.shape.layers + 2 && !self.inputs.is_empty() {
            self.back(weights, frozen, gradient);
        }
    }

    /// Adds the length of `softmax − target` of every window of the last forward pass to a list.
    pub fn lengths(&self, into: &mut Vec<f32>) {
        into.extend(
            self.found.squares.chunks_exact(self.columns).map(|window| window.iter().sum::<f32>().sqrt()),
        );
    }

    /// Leaves these windows for the backward pass, in ascending order of their places, each with its weight.
    pub fn keep(&mut self, kept: &[Kept]) {
        let columns = self.columns;
        let (width, heads) = (self.shape.width, self.shape.heads);
        for (to, &Kept { place: from, weight }) in kept.iter().enumerate() {
            let of = |width: usize| from * columns * width..(from + 1) * columns * width;
            for block in &mut self.blocks {
                for (list, width) in block.lists(width, heads) {
                    list.copy_within(of(width), to * columns * width);
                }
            }
            self.last.copy_within(of(width), to * columns * width);
            self.inputs.copy_within(of(1), to * columns);
            self.targets.copy_within(of(1), to * columns);
            self.weight[to * columns..(to + 1) * columns].fill(weight);
        }
        self.inputs.truncate(kept.len() * columns);
        self.targets.truncate(kept.len() * columns);
        self.weight.truncate(kept.len() * columns);
    }

    /// The logits of what follows `tokens`, of which there are from one to as many as the context.
    pub fn next(&mut self, weights: &[f32], tokens: &[u16]) -> Vec<f32> {
        self.columns = tokens.len();
        self.inputs.clear();
        self.inputs.extend(tokens);
        self.blocks(weights);
        let width = self.shape.width;
        let last = &self.last[(tokens.len() - 1) * width..tokens.len() * width];
        let normal = &mut self.normal[..width];
        norm::forward(&weights[self.layout.last_norm.clone()], last, normal);
        self.head.logits(&weights[..self.shape.vocabulary * width], normal)
    }

    fn draw(&mut self, windows: &Windows, indices: &[u32]) {
        self.columns = windows.columns();
        self.inputs.clear();
        self.targets.clear();
        for &index in indices {
            self.inputs.extend(windows.inputs(index as usize));
            self.targets.extend(windows.targets(index as usize));
        }
        self.weight.clear();
        self.weight.resize(self.inputs.len(), 1.0);
    }

    fn attention_heads(&self) -> impl Iterator<Item = AttentionHead> + Clone + use<> {
        let (width, stream) = (self.shape.head_width(), self.shape.width);
        (0..self.shape.heads).map(move |head| AttentionHead { head, width, stream })
    }

    /// From tokens to the stream after the last block.
    fn blocks(&mut self, weights: &[f32]) {
        let (width, heads, columns) = (self.shape.width, self.shape.heads, self.columns);
        let attention_heads = self.attention_heads();
        let Self { layout, inputs, blocks, last, normal, wide, attention, .. } = self;
        let rows = inputs.len();
        let (normal, wide) = (&mut normal[..rows * width], &mut wide[0][..4 * rows * width]);
        let embedding = &weights[layout.tokens.clone()];
        let places = &weights[layout.places.clone()];
        let mut stream = vec![0.0; rows * width];
        for (row, (to, &token)) in stream.chunks_exact_mut(width).zip(inputs.iter()).enumerate() {
            let token = &embedding[usize::from(token) * width..][..width];
            let place = &places[row % columns * width..][..width];
            to.iter_mut().zip(token).zip(place).for_each(|((to, token), place)| *to = token + place);
        }
        for (layout, block) in layout.blocks.iter().zip(blocks) {
            let Activations { stream: before_block, mixed, heads: outputs, logs, middle, before } = block;
            before_block[..rows * width].copy_from_slice(&stream);
            norm::forward(&weights[layout.first_norm.clone()], &stream, normal);
            let mixed = &mut mixed[..3 * rows * width];
            layout.reads.forward(weights, normal, mixed);
            let outputs = &mut outputs[..rows * width];
            let windows =
                mixed.chunks_exact(3 * columns * width).zip(outputs.chunks_exact_mut(columns * width));
            for ((mixed, outputs), logs) in windows.zip(logs.chunks_exact_mut(columns * heads)) {
                for (head, logs) in attention_heads.clone().zip(logs.chunks_exact_mut(columns)) {
                    head.forward(mixed, outputs, logs, attention);
                }
            }
            let middle = &mut middle[..rows * width];
            layout.mixes.forward(weights, outputs, middle);
            middle.iter_mut().zip(&stream).for_each(|(middle, x)| *middle += x);
            norm::forward(&weights[layout.second_norm.clone()], middle, normal);
            let before = &mut before[..4 * rows * width];
            layout.widens.forward(weights, normal, before);
            gelu::forward(before, wide);
            layout.narrows.forward(weights, wide, &mut stream);
            stream.iter_mut().zip(middle.iter()).for_each(|(x, middle)| *x += middle);
        }
        last[..rows * width].copy_from_slice(&stream);
    }

    /// From the stream after the last block to what is found of every token; `delta` becomes the gradient of
    /// the normalised stream if there is one to add to.
    fn judge(&mut self, weights: &[f32], gradient: Option<(&mut [f32], bool)>) {
        let (rows, width) = (self.inputs.len(), self.shape.width);
        let embedding = 0..self.shape.vocabulary * width;
        let normal = &mut self.normal[..rows * width];
        norm::forward(&weights[self.layout.last_norm.clone()], &self.last[..rows * width], normal);
        let of_x = &mut self.of_normal[..rows * width];
        of_x.fill(0.0);
        let backward = gradient.map(|(gradient, frozen)| Backward {
            weight: &self.weight,
            of_embedding: (!frozen).then(|| &mut gradient[embedding.clone()]),
            of_x,
        });
        self.head.judge(&weights[embedding], width, normal, &self.targets, backward, &mut self.found);
    }

    fn back(&mut self, weights: &[f32], frozen: usize, gradient: &mut [f32]) {
        let (width, heads, columns, rows) =
            (self.shape.width, self.shape.heads, self.columns, self.inputs.len());
        self.judge(weights, Some((gradient, frozen > 0)));
        let attention_heads = self.attention_heads();
        let Self { layout, inputs, blocks, last, delta, normal, of_normal, wide, turned, attention, .. } =
            self;
        let [delta, normal, of_normal] = [delta, normal, of_normal].map(|list| &mut list[..rows * width]);
        let [wide, of_wide] = wide.each_mut().map(|list| &mut list[..4 * rows * width]);
        delta.fill(0.0);
        let norms = layout.last_norm.clone();
        norm::backward(
            &weights[norms.clone()],
            &last[..rows * width],
            of_normal,
            &mut gradient[norms],
            delta,
        );
        let wanted = layout.blocks.iter().zip(blocks).enumerate().rev();
        for (_, (layout, block)) in wanted.take_while(|(place, _)| *place + 1 >= frozen) {
            let Activations { stream, mixed, heads: outputs, logs, middle, before } = block;
            let (stream, middle) = (&stream[..rows * width], &middle[..rows * width]);
            // The dense layers. Their output's gradient is the stream's.
            let slopes = &mut before[..4 * rows * width];
            gelu::slope(slopes, wide);
            layout.narrows.backward(weights, wide, delta, gradient, turned, of_wide);
            of_wide.iter_mut().zip(slopes.iter()).for_each(|(d, slope)| *d *= slope);
            let norms = layout.second_norm.clone();
            norm::forward(&weights[norms.clone()], middle, normal);
            layout.widens.backward(weights, normal, of_wide, gradient, turned, of_normal);
            norm::backward(&weights[norms.clone()], middle, of_normal, &mut gradient[norms], delta);
            // The attention.
            let outputs = &outputs[..rows * width];
            layout.mixes.backward(weights, outputs, delta, gradient, turned, of_normal);
            let of_mixed = &mut of_wide[..3 * rows * width];
            let windows = mixed[..3 * rows * width]
                .chunks_exact(3 * columns * width)
                .zip(of_mixed.chunks_exact_mut(3 * columns * width))
                .zip(outputs.chunks_exact(columns * width).zip(of_normal.chunks_exact(columns * width)))
                .zip(logs.chunks_exact(columns * heads));
            for (((mixed, of_mixed), (out, of_out)), logs) in windows {
                for (head, logs) in attention_heads.clone().zip(logs.chunks_exact(columns)) {
                    head.backward(mixed, [out, of_out], logs, of_mixed, attention);
                }
            }
            let norms = layout.first_norm.clone();
            norm::forward(&weights[norms.clone()], stream, normal);
            layout.reads.backward(weights, normal, of_mixed, gradient, turned, of_normal);
            norm::backward(&weights[norms.clone()], stream, of_normal, &mut gradient[norms], delta);
        }
        if frozen == 0 {
            for (row, (delta, &token)) in delta.chunks_exact(width).zip(inputs.iter()).enumerate() {
                let token = layout.tokens.start + usize::from(token) * width;
                let place = layout.places.start + row % columns * width;
                for start in [token, place] {
                    let to = &mut gradient[start..start + width];
                    to.iter_mut().zip(delta).for_each(|(to, delta)| *to += delta);
                }
            }
        }
    }
}
