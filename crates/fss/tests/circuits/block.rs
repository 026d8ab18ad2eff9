//! A transformer of two layers: two parties give, bit for bit, what the clear evaluator gives, and that is
//! close to f64.

use gatework_fss::backend::MatmulShape;
use gatework_fss::executor::join3;
use gatework_fss::formula::Places;
use gatework_fss::gates::{Activation, LayerNorm, Rows, Softmax, clamp};
use gatework_fss::ops::Weights;
use gatework_fss::{Evaluator, Party, Result, Ring, Wire, reference};

use crate::support::{Given, check};

const ROWS: usize = 6;
const WIDTH: usize = 16;
const HEADS: usize = 2;
const HEAD: usize = WIDTH / HEADS;
const INNER: usize = 32;
const LAYERS: usize = 2;
const FRACTION: u32 = 12;
const EPSILON: f64 = 1e-5;
/// 16 with 12 fractional bits, which no activation here reaches.
const CLAMP: i64 = 16 << 12;

/// Real weights of one layer: lengths as in [`lengths`], row by row.
struct Plain(Vec<Vec<f64>>);

/// γ1, β1, query, key, value, projection, γ2, β2, up, down.
fn lengths() -> [usize; 10] {
    let square = WIDTH * WIDTH;
    [WIDTH, WIDTH, square, square, square, square, WIDTH, WIDTH, WIDTH * INNER, INNER * WIDTH]
}

fn wave(len: usize, seed: usize, centre: f64, height: f64) -> Vec<f64> {
    let value = |i: usize| centre + height * ((i * (2 * seed + 3) + seed * seed) as f64 * 0.618).sin();
    (0..len).map(|i| (value(i) * 4096.0).round() / 4096.0).collect()
}

fn layer(index: usize) -> Plain {
    let tensor = |(place, len): (usize, usize)| match place {
        0 | 6 => wave(len, 10 * index + place, 1.0, 0.2),
        1 | 7 => wave(len, 10 * index + place, 0.0, 0.1),
        _ => wave(len, 10 * index + place, 0.0, 0.45),
    };
    Plain(lengths().into_iter().enumerate().map(tensor).collect())
}

/// A layer's public parts.
struct Layer {
    norm: LayerNorm,
    softmax: Softmax,
    gelu: Activation,
    ring: Ring,
    causal: bool,
}

impl Layer {
    fn new(ring: Ring, causal: bool) -> Result<Self> {
        let rows = if causal { Rows::causal(HEADS, ROWS)? } else { Rows::full(HEADS * ROWS, ROWS)? };
        Ok(Self {
            norm: LayerNorm::new(WIDTH, FRACTION, EPSILON, 40)?,
            softmax: Softmax::new(rows, FRACTION)?,
            gelu: Activation::gelu(FRACTION)?,
            ring,
            causal,
        })
    }

    async fn weights(&self, evaluator: &Evaluator) -> Result<Vec<Weights>> {
        let mut weights = Vec::new();
        for len in lengths() {
            weights.push(evaluator.weights(Party::Zero, self.ring, len, -8192..=8192).await?);
        }
        Ok(weights)
    }

    /// x w, truncated and opened.
    async fn linear(
        &self,
        evaluator: &Evaluator,
        x: &Wire,
        w: &Weights,
        inner: usize,
        columns: usize,
    ) -> Result<Wire> {
        let shape = MatmulShape { batch: 1, rows: x.len() / inner, inner, columns };
        let mask = evaluator.mask_share(x)?;
        let product = evaluator.open(evaluator.matmul(x, &mask, w.wire(), w.mask(), shape)?).await?;
        evaluator.open(evaluator.truncate(&product, FRACTION, self.ring).await?).await
    }

    async fn attend(&self, evaluator: &Evaluator, x: &Wire, weights: &[Weights]) -> Result<Wire> {
        let project = |place: usize| self.linear(evaluator, x, &weights[place], WIDTH, WIDTH);
        let (query, key, value) = join3(project(2), project(3), project(4)).await?;
        // Head by head; keys transposed.
        let by_head = |row: usize, head: usize, k: usize| row * WIDTH + head * HEAD + k;
        let heads = |transposed: bool| {
            let place = |head: usize, a: usize, b: usize| {
                if transposed { by_head(b, head, a) } else { by_head(a, head, b) }
            };
            let (first, second) = if transposed { (HEAD, ROWS) } else { (ROWS, HEAD) };
            let of_head =
                |head: usize| (0..first).flat_map(move |a| (0..second).map(move |b| place(head, a, b)));
            Places::new((0..HEADS).flat_map(of_head))
        };
        let (query, key, value) =
            (query.gather(&heads(false)?)?, key.gather(&heads(true)?)?, value.gather(&heads(false)?)?);
        let masks = [&query, &key, &value].map(|wire| evaluator.mask_share(wire));
        let [query_mask, key_mask, value_mask] = masks;
        let shape = MatmulShape { batch: HEADS, rows: ROWS, inner: HEAD, columns: ROWS };
        let scores = evaluator.matmul(&query, &query_mask?, &key, &key_mask?, shape)?;
        let scores = evaluator.open(scores.gather(&self.softmax.rows().places_in(ROWS)?)?).await?;
        // Scores are halved, in the place of a division by the root of the head's width.
        let scores = evaluator.open(evaluator.truncate(&scores, FRACTION + 1, self.ring).await?).await?;
        let packed = evaluator.open(self.softmax.apply(evaluator, &scores, self.ring).await?).await?;
        let probabilities = self.unpack(&packed)?;
        let mask = evaluator.mask_share(&probabilities)?;
        let shape = MatmulShape { batch: HEADS, rows: ROWS, inner: ROWS, columns: HEAD };
        let mixed =
            evaluator.open(evaluator.matmul(&probabilities, &mask, &value, &value_mask?, shape)?).await?;
        let mixed = evaluator.open(evaluator.truncate(&mixed, FRACTION, self.ring).await?).await?;
        let back = |index: usize| {
            let (row, head, k) = (index / WIDTH, index % WIDTH / HEAD, index % HEAD);
            (head * ROWS + row) * HEAD + k
        };
        let mixed = mixed.gather(&Places::new((0..ROWS * WIDTH).map(back))?)?;
        self.linear(evaluator, &mixed, &weights[5], WIDTH, WIDTH).await
    }

    /// Probabilities as full rows: what a causal row does not see is a public zero.
    fn unpack(&self, packed: &Wire) -> Result<Wire> {
        if !self.causal {
            return Ok(packed.clone());
        }
        packed.gather(&self.softmax.rows().elements_of(ROWS)?)
    }

    async fn apply(&self, evaluator: &Evaluator, x: &Wire, weights: &[Weights]) -> Result<Wire> {
        // Intervals alone do not keep sums of squares in the ring: explicit clamps do.
        let x = &evaluator.open(clamp(evaluator, x, -CLAMP, CLAMP).await?).await?;
        let normal = self.norm.apply(evaluator, x, &weights[0], &weights[1]).await?;
        let normal = evaluator.open(normal).await?;
        let x = self.attend(evaluator, &normal, weights).await?.plus(x)?;
        let x = evaluator.open(clamp(evaluator, &x, -CLAMP, CLAMP).await?).await?;
        let normal = evaluator.open(self.norm.apply(evaluator, &x, &weights[6], &weights[7]).await?).await?;
        let up = self.linear(evaluator, &normal, &weights[8], WIDTH, INNER).await?;
        let active = evaluator.open(self.gelu.apply(evaluator, &up).await?).await?;
        self.linear(evaluator, &active, &weights[9], INNER, WIDTH).await?.plus(&x)
    }
}

/// The same in double precision.
fn plain_layer(x: &[f64], weights: &Plain, causal: bool) -> Vec<f64> {
    let w = &weights.0;
    let matmul = |x: &[f64], w: &[f64], inner: usize, columns: usize| -> Vec<f64> {
        let cell = |row: usize, column: usize| {
            (0..inner).map(|k| x[row * inner + k] * w[k * columns + column]).sum()
        };
        (0..x.len() / inner)
            .flat_map(|row| (0..columns).map(move |column| (row, column)))
            .map(|(r, c)| cell(r, c))
            .collect()
    };
    let norm = |x: &[f64], gamma: &[f64], beta: &[f64]| -> Vec<f64> {
        let row = |row: &[f64]| -> Vec<f64> {
            let mean = row.iter().sum::<f64>() / WIDTH as f64;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / WIDTH as f64;
            let scale = 1.0 / (variance + EPSILON).sqrt();
            row.iter().zip(gamma.iter().zip(beta)).map(|(x, (g, b))| (x - mean) * scale * g + b).collect()
        };
        x.chunks(WIDTH).flat_map(row).collect()
    };
    let add = |x: &[f64], y: &[f64]| -> Vec<f64> { x.iter().zip(y).map(|(x, y)| x + y).collect() };
    let normal = norm(x, &w[0], &w[1]);
    let [query, key, value] = [2, 3, 4].map(|place| matmul(&normal, &w[place], WIDTH, WIDTH));
    let mut mixed = vec![0.0; ROWS * WIDTH];
    for head in 0..HEADS {
        let at = |row: usize, k: usize| row * WIDTH + head * HEAD + k;
        for row in 0..ROWS {
            let seen = if causal { row + 1 } else { ROWS };
            let score =
                |other: usize| (0..HEAD).map(|k| query[at(row, k)] * key[at(other, k)]).sum::<f64>() / 2.0;
            let scores: Vec<f64> = (0..seen).map(score).collect();
            let largest = scores.iter().copied().fold(f64::MIN, f64::max);
            let powers: Vec<f64> = scores.iter().map(|score| reference::exp(score - largest)).collect();
            let sum: f64 = powers.iter().sum();
            for k in 0..HEAD {
                mixed[at(row, k)] = (0..seen).map(|other| powers[other] / sum * value[at(other, k)]).sum();
            }
        }
    }
    let x = add(x, &matmul(&mixed, &w[5], WIDTH, WIDTH));
    let up = matmul(&norm(&x, &w[6], &w[7]), &w[8], WIDTH, INNER);
    let active: Vec<f64> = up.into_iter().map(reference::gelu).collect();
    add(&x, &matmul(&active, &w[9], INNER, WIDTH))
}

fn encode(ring: Ring, values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| ring.encode((value * 4096.0).round() as i128)).collect()
}

fn two_layers(causal: bool) {
    let ring = Ring::new(50).unwrap();
    let public = Layer::new(ring, causal).unwrap();
    let circuit = async |evaluator: &Evaluator| {
        let mut x = evaluator.input(Party::One, ring, ROWS * WIDTH, -16384..=16384).await?;
        for _ in 0..LAYERS {
            let weights = public.weights(evaluator).await?;
            x = public.apply(evaluator, &x, &weights).await?;
        }
        evaluator.reveal(&x, Party::One)
    };
    let x = wave(ROWS * WIDTH, 77, 0.0, 2.0);
    let mut given: Vec<Given> = vec![(Party::One, encode(ring, &x))];
    let mut exact = x;
    for index in 0..LAYERS {
        let weights = layer(index);
        exact = plain_layer(&exact, &weights, causal);
        given.extend(weights.0.iter().map(|tensor| (Party::Zero, encode(ring, tensor))));
    }
    let seen = check(circuit, &given, None, 12);
    let error = |(found, exact): (&u64, &f64)| (ring.signed(*found) as f64 / 4096.0 - exact).abs();
    let worst = seen.output.iter().zip(&exact).map(error).fold(0.0, f64::max);
    println!("two layers, causal {causal}: worst error {worst:.4} against f64; {:?}", seen.cost);
    assert!(worst < 0.08, "{worst}");
}

#[test]
fn two_layers_match_clear_and_the_real_function() {
    two_layers(false);
}

#[test]
fn two_causal_layers_match_clear_and_the_real_function() {
    two_layers(true);
}
