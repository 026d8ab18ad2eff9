//! The plainest attention, in double precision: the oracle of everything else.

use crate::shape::{Layout, Mask, Shape, Strides};

/// `softmax(scale q k^T + mask) v` of tensors in `[batch, heads, rows, dim or value_dim]`, and the log-sum-exp of every
/// query row. Rows that see no key give zeros, and minus infinity; so do those whose scores are all minus
/// infinity. A score that is not a number, or plus infinity, makes its row not a number; a value that is not
/// finite makes its column so in every row that sees the key. This is what PyTorch's `math` backend gives
/// without a mask.
pub fn attention(
    shape: &Shape,
    mask: Mask,
    scale: f64,
    q: &[f64],
    k: &[f64],
    v: &[f64],
) -> (Vec<f64>, Vec<f64>) {
    attention_of(shape, &Scores { mask, scale, soft_cap: None, sinks: &[] }, q, k, v)
}

/// How products of queries and keys become scores.
#[derive(Debug, Clone, Copy)]
pub struct Scores<'a> {
    /// Which keys a row sees.
    pub mask: Mask,
    /// The factor of products.
    pub scale: f64,
    /// They become `cap tanh(score / cap)`.
    pub soft_cap: Option<f64>,
    /// A logit for each query head that has no value; or none at all.
    pub sinks: &'a [f64],
}

/// The same with scores of any kind. A sink counts in the log-sum-exp.
pub fn attention_of<'a>(
    shape: &Shape,
    scores: &Scores<'_>,
    q: &[f64],
    k: &'a [f64],
    v: &'a [f64],
) -> (Vec<f64>, Vec<f64>) {
    let Scores { mask, scale, soft_cap, sinks } = *scores;
    let capped = |score: f64| soft_cap.map_or(score, |cap| cap * (score / cap).tanh());
    let (mut out, mut lse) = (Vec::with_capacity(q.len()), Vec::new());
    let q_strides = Layout::HeadsFirst.strides(shape.heads, shape.rows, shape.dim);
    let k_strides = Layout::HeadsFirst.strides(shape.key_heads, shape.keys, shape.dim);
    let v_strides = Layout::HeadsFirst.strides(shape.key_heads, shape.keys, shape.value_dim);
    for batch in 0..shape.batch {
        for head in 0..shape.heads {
            let key_head = head / (shape.heads / shape.key_heads);
            let row_of = |x: &'a [f64], strides: Strides, length: usize, key: usize| {
                &x[batch * strides.batch + key_head * strides.head + key * strides.row..][..length]
            };
            for row in 0..shape.rows {
                let query =
                    &q[batch * q_strides.batch + head * q_strides.head + row * q_strides.row..][..shape.dim];
                let seen = shape.visible(row, mask);
                let score = |index: usize| capped(scale * dot(query, row_of(k, k_strides, shape.dim, index)));
                let scores: Vec<f64> = seen.clone().map(score).collect();
                let sink = sinks.get(head).copied().unwrap_or(f64::NEG_INFINITY);
                let top = scores.iter().copied().fold(sink, f64::max);
                let unweighted = scores.iter().chain([&sink]).all(|&score| score == f64::NEG_INFINITY);
                let weight = |score: &f64| if unweighted { 0.0 } else { (score - top).exp() };
                let weights: Vec<f64> = scores.iter().map(weight).collect();
                let sum = if unweighted { 1.0 } else { weights.iter().sum::<f64>() + weight(&sink) };
                lse.push(top + sum.ln());
                let mut output = vec![0.0; shape.value_dim];
                for (index, weight) in seen.zip(&weights) {
                    for (o, v) in output.iter_mut().zip(row_of(v, v_strides, shape.value_dim, index)) {
                        *o += weight / sum * v;
                    }
                }
                out.extend(output);
            }
        }
    }
    (out, lse)
}

/// The Frobenius norm of the difference between what was got and what was wanted, relative to that of the
/// latter.
pub fn relative_error(got: impl IntoIterator<Item = f32>, wanted: &[f64]) -> f64 {
    let (mut count, mut error, mut norm) = (0, 0.0, 0.0);
    for (got, wanted) in got.into_iter().zip(wanted) {
        count += 1;
        error += (f64::from(got) - wanted).powi(2);
        norm += wanted * wanted;
    }
    assert_eq!(count, wanted.len(), "as many numbers as are wanted");
    (error / norm.max(1e-30)).sqrt()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
