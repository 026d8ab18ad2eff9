//! Forward and backward passes of a transformer over windows of a text, on a device.
//!
//! What is multiplied is bf16, sums are f32; the stream between blocks, normalisations, softmax and losses are
//! f32, too. Rows are tokens, window after window. For the gradient a block keeps its streams, what goes into
//! its GELU, queries, keys and values, what its heads gave and the levels of their scores; normalised streams
//! and GELUs are computed again.

mod back;

use bytemuck::Pod;
use gatework_gpu::{Buffer, Slice, SliceMut, Stream};
use half::bf16;

use super::attention::{Heads, attend};
use super::transformer::{RowKernels, Rows};
use super::{Products, ProductsBy, Turned, Write, mixed};
use crate::error::Result;
use crate::network::Transformer;
use crate::network::transformer::{Affine, Layout};

/// Tokens whose logits are computed together, at most: of GPT-2 they are 0.6 GB, rounded ones included.
const TOKENS: usize = 2048;

/// Weights on a device.
#[derive(Clone, Copy)]
pub(super) struct Weights<'a> {
    pub(super) master: &'a Buffer<f32>,
    /// The same in bf16.
    pub(super) rounded: &'a Buffer<bf16>,
}

/// What is found of every token.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) losses: Vec<f32>,
    /// 1 where the target has the largest logit.
    pub(super) right: Vec<u32>,
}

/// What the gradient of a block needs.
#[derive(Debug)]
struct Activations {
    /// Mean and one over the deviation of every row of the stream that came in.
    first: Buffer<f32>,
    /// Queries, keys and values, beside each other.
    mixed: Buffer<bf16>,
    /// What heads gave.
    heads: Buffer<bf16>,
    /// Logarithms of what their scores were divided by.
    levels: Buffer<f32>,
    /// The stream between attention and dense layers, and its moments.
    middle: Buffer<f32>,
    second: Buffer<f32>,
    /// What goes into the GELU.
    before: Buffer<f32>,
}

/// Memory for passes over up to so many windows.
#[derive(Debug)]
pub(super) struct Pass {
    stream: Stream,
    shape: Transformer,
    layout: Layout,
    products: Products,
    kernels: RowKernels,
    /// Tokens whose logits are computed together.
    chunk: usize,
    /// Tokens of this pass.
    tokens: Vec<u32>,
    /// The stream before each block, and after the last.
    streams: Vec<Buffer<f32>>,
    last: Buffer<f32>,
    blocks: Vec<Activations>,
    normal: Buffer<bf16>,
    /// Four times as wide as the stream.
    wide: Buffer<f32>,
    wide_rounded: Buffer<bf16>,
    /// What gradients of heads need of every place.
    dots: Buffer<f32>,
    logits: Buffer<f32>,
    of_logits: Buffer<bf16>,
    /// The gradient of the stream.
    delta: Buffer<f32>,
    delta_rounded: Buffer<bf16>,
    of_normal: Buffer<f32>,
}

/// Sizes of a pass.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    windows: usize,
    context: usize,
    width: usize,
    heads: usize,
}

impl Sizes {
    fn tokens(self) -> usize {
        self.windows * self.context
    }

    fn rows(self) -> Rows {
        Rows { count: self.tokens(), width: self.width }
    }

    /// Numbers of a stream.
    fn stream(self) -> usize {
        self.tokens() * self.width
    }

    fn of_heads(self) -> Heads {
        let Self { windows, context, width, heads } = self;
        Heads { windows, context, heads, numbers: width / heads }
    }
}

/// The first numbers of a list that has room for more.
fn top<T: Pod>(list: &Buffer<T>, count: usize) -> Slice<'_, T> {
    list.slice(..count)
}

fn top_mut<T: Pod>(list: &mut Buffer<T>, count: usize) -> SliceMut<'_, T> {
    list.slice_mut(..count)
}

impl Pass {
    /// Memory for up to so many windows.
    pub(super) fn new(stream: &Stream, shape: &Transformer, windows: usize, by: ProductsBy) -> Result<Self> {
        Self::with_chunks(stream, shape, windows, by, TOKENS)
    }

    /// With logits of so many tokens at a time.
    pub(super) fn with_chunks(
        stream: &Stream,
        shape: &Transformer,
        windows: usize,
        by: ProductsBy,
        chunk: usize,
    ) -> Result<Self> {
        let sizes = sizes(shape, windows);
        let (tokens, numbers, places) = (sizes.tokens(), sizes.stream(), sizes.of_heads().places());
        let logits = tokens.min(chunk) * shape.rows();
        let single = |count| stream.alloc::<f32>(count);
        let half = |count| stream.alloc::<bf16>(count);
        let block = || -> Result<Activations> {
            Ok(Activations {
                first: single(2 * tokens)?,
                mixed: half(3 * numbers)?,
                heads: half(numbers)?,
                levels: single(places)?,
                middle: single(numbers)?,
                second: single(2 * tokens)?,
                before: single(4 * numbers)?,
            })
        };
        let streams = (0..=shape.layers()).map(|_| single(numbers)).collect::<Result<_, _>>()?;
        Ok(Self {
            layout: shape.layout(),
            products: Products::new(stream, by)?,
            kernels: RowKernels::new(stream),
            tokens: Vec::new(),
            streams,
            last: single(2 * tokens)?,
            blocks: (0..shape.layers()).map(|_| block()).collect::<Result<_>>()?,
            normal: half(numbers)?,
            wide: single(4 * numbers)?,
            wide_rounded: half(4 * numbers)?,
            dots: single(places)?,
            logits: single(logits)?,
            of_logits: half(logits)?,
            delta: single(numbers)?,
            delta_rounded: half(numbers)?,
            of_normal: single(numbers)?,
            chunk,
            shape: shape.clone(),
            stream: stream.clone(),
        })
    }

    /// Who multiplies.
    pub(super) fn products(&self) -> &Products {
        &self.products
    }

    /// Bytes that memory for up to so many windows holds.
    pub(super) fn bytes(shape: &Transformer, windows: usize, by: ProductsBy) -> usize {
        let sizes = sizes(shape, windows);
        let (tokens, numbers, places) = (sizes.tokens(), sizes.stream(), sizes.of_heads().places());
        let block = 4 * (4 * tokens + 5 * numbers + places) + 2 * 4 * numbers;
        let scratch = 4 * (6 * numbers + 2 * tokens + places) + 2 * 6 * numbers;
        let logits = tokens.min(TOKENS) * shape.rows();
        Products::bytes(by)
            + shape.layers() * block
            + 4 * (shape.layers() + 1) * numbers
            + scratch
            + 6 * logits
    }

    fn sizes(&self) -> Sizes {
        sizes(&self.shape, self.tokens.len() / self.shape.context())
    }

    /// From tokens of whole windows to the stream after the last block.
    pub(super) fn forward(&mut self, weights: Weights<'_>, tokens: Vec<u32>) -> Result<()> {
        self.tokens = tokens;
        let sizes = self.sizes();
        let [table, places] =
            [&self.layout.tokens, &self.layout.places].map(|range| weights.master.slice(range.clone()));
        let mut first = top_mut(&mut self.streams[0], sizes.stream());
        self.kernels.embed(sizes.rows(), sizes.context, &self.tokens, &table, &places, &mut first)?;
        (0..self.blocks.len()).try_for_each(|block| self.block(weights, block))
    }

    fn block(&mut self, weights: Weights<'_>, at: usize) -> Result<()> {
        let (sizes, layout) = (self.sizes(), self.layout.blocks[at].clone());
        let (rows, numbers) = (sizes.rows(), sizes.stream());
        let master = |range: &std::ops::Range<usize>| weights.master.slice(range.clone());
        let matrix = |affine: &Affine| weights.rounded.slice(affine.matrix.clone());
        let product = |affine: &Affine| [rows.count, affine.sides[1], affine.sides[0]];
        self.normalise_first(weights, at)?;
        let Self { stream, products, normal, wide, .. } = self;
        let (x, mut wide) = (top(normal, numbers), top_mut(wide, 3 * numbers));
        let reads = &layout.reads;
        products.multiply(Turned::Neither, product(reads), &x, &matrix(reads), &mut wide, Write::Over)?;
        let Self { blocks, streams, .. } = self;
        let Activations { mixed: read, heads, levels, middle, .. } = &mut blocks[at];
        let (mut read, mut heads) = (top_mut(read, 3 * numbers), top_mut(heads, numbers));
        mixed::round_with_bias(stream, &wide, &master(&reads.bias), &mut read)?;
        let of_heads = sizes.of_heads();
        attend(stream, of_heads, &read, &mut heads, &mut top_mut(levels, of_heads.places()))?;
        let (mixes, mut middle) = (&layout.mixes, top_mut(middle, numbers));
        mixed::with_bias(stream, &top(&streams[at], numbers), &master(&mixes.bias), &mut middle)?;
        products.multiply(
            Turned::Neither,
            product(mixes),
            &heads,
            &matrix(mixes),
            &mut middle,
            Write::Onto,
        )?;
        self.normalise_second(weights, at)?;
        let Self { stream, products, blocks, streams, normal, wide_rounded, .. } = self;
        let Activations { middle, before, .. } = &mut blocks[at];
        let (x, mut before) = (top(normal, numbers), top_mut(before, 4 * numbers));
        let (widens, narrows) = (&layout.widens, &layout.narrows);
        products.multiply(Turned::Neither, product(widens), &x, &matrix(widens), &mut before, Write::Over)?;
        let mut wide = top_mut(wide_rounded, 4 * numbers);
        mixed::bias_gelu(stream, &mut before, &master(&widens.bias), &mut wide)?;
        let mut next = top_mut(&mut streams[at + 1], numbers);
        mixed::with_bias(stream, &top(middle, numbers), &master(&narrows.bias), &mut next)?;
        products.multiply(Turned::Neither, product(narrows), &wide, &matrix(narrows), &mut next, Write::Onto)
    }

    /// The stream before a block, normalised and rounded.
    fn normalise_first(&mut self, weights: Weights<'_>, at: usize) -> Result<()> {
        let (sizes, gains) = (self.sizes(), weights.master.slice(self.layout.blocks[at].first_norm.clone()));
        let (x, moments) = (&self.streams[at], &mut self.blocks[at].first);
        normalise(&self.kernels, sizes, x, gains, moments, &mut self.normal)
    }

    /// The stream between attention and dense layers, normalised and rounded.
    fn normalise_second(&mut self, weights: Weights<'_>, at: usize) -> Result<()> {
        let (sizes, gains) = (self.sizes(), weights.master.slice(self.layout.blocks[at].second_norm.clone()));
        let Activations { middle, second, .. } = &mut self.blocks[at];
        normalise(&self.kernels, sizes, middle, gains, second, &mut self.normal)
    }

    /// What the stream after the last block says of every token's target. With a gradient to add to, the
    /// gradient of the normalised stream is left behind, that of the sum of losses times `weight`.
    pub(super) fn judge(
        &mut self,
        weights: Weights<'_>,
        targets: &[u32],
        weight: f32,
        mut gradient: Option<(&mut Buffer<f32>, Frozen)>,
    ) -> Result<Found> {
        let (sizes, vocabulary, padded) = (self.sizes(), self.shape.vocabulary(), self.shape.rows());
        let Self { stream, layout, products, kernels, streams, last, normal, .. } = self;
        let gains = weights.master.slice(layout.last_norm.clone());
        normalise(kernels, sizes, &streams[layout.blocks.len()], gains, last, normal)?;
        let embedding = weights.rounded.slice(layout.tokens.clone());
        let width = sizes.width;
        let mut judged = Vec::new();
        for (chunk, targets) in targets.chunks(self.chunk).enumerate() {
            let (from, count) = (chunk * self.chunk * width, targets.len());
            let x = normal.slice(from..from + count * width);
            let mut logits = top_mut(&mut self.logits, count * padded);
            products.multiply(
                Turned::Right,
                [count, padded, width],
                &x,
                &embedding,
                &mut logits,
                Write::Over,
            )?;
            let rows = Rows { count, width: padded };
            let mut deltas = top_mut(&mut self.of_logits, count * padded);
            let found = kernels.cross_entropy(rows, vocabulary, targets, &logits, &mut deltas, weight)?;
            judged.push(found);
            let Some((gradient, frozen)) = &mut gradient else { continue };
            let mut of_x = self.of_normal.slice_mut(from..from + count * width);
            products.multiply(
                Turned::Neither,
                [count, width, padded],
                &deltas,
                &embedding,
                &mut of_x,
                Write::Over,
            )?;
            if *frozen == Frozen::Nothing {
                let mut to = gradient.slice_mut(layout.tokens.clone());
                products.multiply(Turned::Left, [padded, width, count], &deltas, &x, &mut to, Write::Onto)?;
            }
        }
        let mut found = Found::default();
        for judged in judged {
            found.losses.extend(stream.download(&judged.losses)?);
            found.right.extend(stream.download(&judged.right)?);
        }
        Ok(found)
    }
}

/// Whether the embedding has a gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frozen {
    Nothing,
    Embedding,
}

fn sizes(shape: &Transformer, windows: usize) -> Sizes {
    Sizes { windows, context: shape.context(), width: shape.width(), heads: shape.heads() }
}

/// Normalises a stream, and rounds what comes out.
fn normalise(
    kernels: &RowKernels,
    sizes: Sizes,
    x: &Buffer<f32>,
    gains: Slice<'_, f32>,
    moments: &mut Buffer<f32>,
    normal: &mut Buffer<bf16>,
) -> Result<()> {
    let (numbers, mut moments) = (sizes.stream(), top_mut(moments, 2 * sizes.tokens()));
    kernels.normalise(sizes.rows(), &top(x, numbers), &gains, &mut top_mut(normal, numbers), &mut moments)
}
