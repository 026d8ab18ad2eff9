//! One layer of bert-base at 128 tokens: what it costs beside SIGMA, and that a real deal writes just that.
//!
//! SIGMA's figures are a twelfth of what its authors print for the model: 16.84 GiB of keys, 0.99 GiB of traffic, 1128 rounds.

use crate::bound::Bound;
use crate::{
    Activation, Circuit, Cost, Engine, LayerNorm, MatmulShape, Party, Randomness, Result, Ring, Rows,
    Softmax, Weights, Wire, deal, estimate, join3,
};

const BITS: u32 = 50;
const FRACTION: u32 = 12;
const GIB: f64 = (1u64 << 30) as f64;
const SIGMA_KEYS_GIB: f64 = 16.84 / 12.0;
const SIGMA_TRAFFIC_GIB: f64 = 0.99 / 12.0;
const SIGMA_ROUNDS: f64 = 1128.0 / 12.0;

/// A layer's shape. Weights are masked once and reused, so that they are no part of an inference.
#[derive(Clone, Copy)]
struct Shape {
    rows: usize,
    width: usize,
    heads: usize,
    inner: usize,
}

const BERT_BASE: Shape = Shape { rows: 128, width: 768, heads: 12, inner: 3072 };

/// Weights by their length, dealt in a circuit of its own.
struct Setup(Shape);

impl Circuit for Setup {
    type Output = [Weights; 5];

    async fn run(&self, engine: &Engine) -> Result<[Weights; 5]> {
        let Shape { width, inner, .. } = self.0;
        let ring = Ring::new(BITS)?;
        let weights = |len: usize| engine.weights(Party::Zero, ring, len, -(2 << FRACTION)..=2 << FRACTION);
        Ok([
            weights(width * width).await?,
            weights(width * inner).await?,
            weights(inner * width).await?,
            weights(width).await?,
            weights(width).await?,
        ])
    }
}

/// A layer whose values are proved to stay below 2^36 after each truncation, as norms of weights prove it for real ones. Weight
/// matrices of one size share their masked values here, which changes no count.
struct Layer {
    shape: Shape,
}

/// Where truncated products lie: what a gap in a ring of 50 bits leaves of them.
fn activations() -> Bound {
    Bound::proved(-(1 << 35), 1 << 35)
}

/// What is added to the residual stream.
fn residuals() -> Bound {
    Bound::proved(-(1 << 24), 1 << 24)
}

impl Layer {
    async fn linear(&self, engine: &Engine, x: &Wire, w: &Weights, inner: usize) -> Result<Wire> {
        let columns = w.wire().len() / inner;
        let shape = MatmulShape { batch: 1, rows: x.len() / inner, inner, columns };
        let mask = engine.mask_share(x)?;
        let products = Bound::proved(-(1 << 47), 1 << 47);
        let product = engine.matmul(x, &mask, w.wire(), w.mask(), shape, Some(products))?;
        self.rescale(engine, engine.open(product).await?).await
    }

    async fn rescale(&self, engine: &Engine, x: Wire) -> Result<Wire> {
        let truncated = engine.gap_truncate(&x, FRACTION, x.ring()).await?;
        engine.open(truncated).await
    }
}

impl Circuit for Layer {
    type Output = ();

    async fn run(&self, engine: &Engine) -> Result<()> {
        let Shape { rows, width, heads, inner } = self.shape;
        let ring = Ring::new(BITS)?;
        let [square, up, down, gamma, beta] = &Setup(self.shape).run(engine).await?;
        let products = Some(Bound::proved(-(1 << 47), 1 << 47));
        let squares = Some(Bound::proved(0, (1 << 47) - 1));
        let norm = LayerNorm::new(width, FRACTION, 1e-12 + 1.0 / 4096.0, 47)?;
        let x = engine.input(Party::One, ring, rows * width, -(1 << 24)..=1 << 24).await?;

        let project = || self.linear(engine, &x, square, width);
        let (query, key, value) = join3(project(), project(), project()).await?;
        let [query_mask, key_mask, value_mask] = [&query, &key, &value].map(|wire| engine.mask_share(wire));
        let head = width / heads;
        let shape = MatmulShape { batch: heads, rows, inner: head, columns: rows };
        let scores = engine.matmul(&query, &query_mask?, &key, &key_mask?, shape, products)?;
        let scores =
            engine.claim("scores", self.rescale(engine, engine.open(scores).await?).await?, activations())?;
        let softmax = Softmax::new(Rows::full(heads * rows, rows)?, FRACTION)?;
        let probabilities = engine.open(softmax.apply(engine, &scores, ring).await?).await?;
        let mask = engine.mask_share(&probabilities)?;
        let shape = MatmulShape { batch: heads, rows, inner: rows, columns: head };
        let mixed = engine.matmul(&probabilities, &mask, &value, &value_mask?, shape, products)?;
        let mixed = self.rescale(engine, engine.open(mixed).await?).await?;
        let attended = self.linear(engine, &mixed, square, width).await?;
        let x = engine.claim("attention", attended, residuals())?.plus(&x)?;

        let x = engine.open(norm.apply(engine, &x, gamma, beta, squares).await?).await?;
        let hidden = engine.claim("hidden", self.linear(engine, &x, up, width).await?, activations())?;
        let active = engine.open(Activation::gelu(FRACTION)?.apply(engine, &hidden).await?).await?;
        debug_assert_eq!(active.len(), rows * inner);
        let fed = self.linear(engine, &active, down, inner).await?;
        let x = engine.claim("feed forward", fed, residuals())?.plus(&x)?;
        engine.open(norm.apply(engine, &x, gamma, beta, squares).await?).await?;
        Ok(())
    }
}

/// The layer's cost with its weights, less theirs.
fn inference(shape: Shape) -> (Cost, Cost) {
    let layer = Layer { shape };
    let (both, setup) = (estimate(&layer).unwrap(), estimate(&Setup(shape)).unwrap());
    let less = |both: [u64; 2], setup: [u64; 2]| [both[0] - setup[0], both[1] - setup[1]];
    let cost = Cost {
        key_bytes: less(both.key_bytes, setup.key_bytes),
        sent_bytes: less(both.sent_bytes, setup.sent_bytes),
        sent_bits: less(both.sent_bits, setup.sent_bits),
        rounds: both.rounds - setup.rounds,
        prg_blocks: less(both.prg_blocks, setup.prg_blocks),
        opened_words: both.opened_words - setup.opened_words,
    };
    (cost, setup)
}

#[test]
fn a_layer_of_bert_base_costs_less_than_sigmas() {
    let (cost, setup) = inference(BERT_BASE);
    let keys = cost.larger_key_bytes() as f64 / GIB / SIGMA_KEYS_GIB;
    let traffic = cost.traffic_bytes() as f64 / GIB / SIGMA_TRAFFIC_GIB;
    let rounds = cost.rounds as f64 / SIGMA_ROUNDS;
    println!("one layer of bert-base: {cost:?}; its weights once: {setup:?}");
    println!("over SIGMA's: keys {keys:.3}, traffic {traffic:.3}, rounds {rounds:.3}");
    assert!(keys <= 0.55 && traffic <= 0.88, "keys {keys}, traffic {traffic}");
}

/// Deals a layer and compares its streams with the model.
fn deal_layer(shape: Shape) {
    let layer = Layer { shape };
    let planned = estimate(&layer).unwrap();
    let format = crate::FixedPoint::new(BITS, FRACTION).unwrap();
    let dealt = deal(&mut Randomness::from_os().unwrap(), format, &[layer]).unwrap();
    for (party, stream) in dealt.streams.iter().enumerate() {
        assert_eq!(stream.key_bytes() as u64, planned.key_bytes[party]);
        assert_eq!(stream.bytes().len() as u64, planned.key_bytes[party] + crate::HEADER_BYTES as u64 + 8);
    }
}

#[test]
fn a_real_deal_of_a_layer_writes_what_the_model_says() {
    // The same layer with fewer tokens and channels; lengths that are odd in every way.
    deal_layer(Shape { rows: 13, width: 36, heads: 3, inner: 52 });
}

#[test]
fn a_real_deal_of_a_layer_of_bert_base_writes_what_the_model_says() {
    deal_layer(BERT_BASE);
}
