//! Logits, cross-entropies and their gradient, for so many tokens at a time that their logits stay in a
//! cache.
//!
//! Logits are computed with a token's in a column: `L = E xᵀ` for the embedding `E`. Then a product reads
//! every row of `E` once, maxima and sums of many tokens run beside each other in vectors, and `dE = δ x`
//! adds to every row of `E` once.

use super::dense::transpose;
use crate::dense::{Strided, add_product, exp, ln};
use crate::network::Tally;

/// Tokens whose logits are computed together.
const TOKENS: usize = 64;
/// Rows of the embedding that are worked on while their logits are in the cache.
const ROWS: usize = 512;

/// Memory for the logits of so many tokens.
#[derive(Debug, Clone, Default)]
pub(super) struct Head {
    across: Vec<f32>,
    logits: Vec<f32>,
}

/// What the gradient needs beside the logits.
pub(super) struct Backward<'a> {
    /// What a token's gradient is multiplied with.
    pub(super) weight: &'a [f32],
    /// The gradient of the embedding, unless it is frozen.
    pub(super) of_embedding: Option<&'a mut [f32]>,
    /// The gradient of `x`: it is added to.
    pub(super) of_x: &'a mut [f32],
}

/// What is found of every token.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    /// `−ln p` of its target.
    pub(super) losses: Vec<f32>,
    /// `|softmax − target|²`.
    pub(super) squares: Vec<f32>,
    /// Whether its target has the largest logit: the first of equals.
    pub(super) right: Vec<bool>,
}

impl Found {
    pub(super) fn tally(&self) -> Tally {
        Tally {
            loss: self.losses.iter().copied().map(f64::from).sum(),
            correct: self.right.iter().filter(|right| **right).count(),
            judged: self.losses.len(),
        }
    }
}

impl Head {
    /// Numbers that it holds.
    pub(super) fn numbers(vocabulary: usize, width: usize) -> usize {
        TOKENS * (vocabulary + width)
    }

    /// The logits of one token.
    pub(super) fn logits(&mut self, embedding: &[f32], x: &[f32]) -> Vec<f32> {
        let mut logits = vec![0.0; embedding.len() / x.len()];
        add_product([logits.len(), 1, x.len()], Strided::rows(embedding, x.len()), x, &mut logits);
        logits
    }

    /// What rows `x`, of `width` numbers, say of their targets. `embedding` is of the tokens that there are.
    pub(super) fn judge(
        &mut self,
        embedding: &[f32],
        width: usize,
        x: &[f32],
        targets: &[u16],
        mut backward: Option<Backward<'_>>,
        found: &mut Found,
    ) {
        found.losses.clear();
        found.squares.clear();
        found.right.clear();
        let chunks = x.chunks(TOKENS * width).zip(targets.chunks(TOKENS));
        for (chunk, (x, targets)) in chunks.enumerate() {
            let from = chunk * TOKENS;
            let mut here = backward.as_mut().map(|backward| Backward {
                weight: &backward.weight[from..from + targets.len()],
                of_embedding: backward.of_embedding.as_deref_mut(),
                of_x: &mut backward.of_x[from * width..][..x.len()],
            });
            self.chunk(embedding, width, x, targets, here.as_mut(), found);
        }
    }

    fn chunk(
        &mut self,
        embedding: &[f32],
        width: usize,
        x: &[f32],
        targets: &[u16],
        backward: Option<&mut Backward<'_>>,
        found: &mut Found,
    ) {
        let count = targets.len();
        let Self { across, logits } = self;
        across.resize(x.len(), 0.0);
        transpose(x, width, across);
        logits.clear();
        logits.resize(embedding.len() / width * count, 0.0);
        let mut highest = [f32::NEG_INFINITY; TOKENS];
        let mut first = [0u32; TOKENS];
        for (part, logits) in logits.chunks_mut(ROWS * count).enumerate() {
            let rows = logits.len() / count;
            let embedding = Strided::rows(&embedding[part * ROWS * width..][..rows * width], width);
            add_product([rows, count, width], embedding, across, logits);
            for (row, logits) in logits.chunks_exact(count).enumerate() {
                let token = (part * ROWS + row) as u32;
                for ((highest, first), &logit) in highest.iter_mut().zip(&mut first).zip(logits) {
                    let higher = logit > *highest;
                    *highest = if higher { logit } else { *highest };
                    *first = if higher { token } else { *first };
                }
            }
        }
        let own = |logits: &[f32], token: usize| logits[usize::from(targets[token]) * count + token];
        let wanted: Vec<f32> = (0..count).map(|token| own(logits, token) - highest[token]).collect();
        let mut sums = [0.0f64; TOKENS];
        let mut squares = [0.0f64; TOKENS];
        for logits in logits.chunks_mut(ROWS * count) {
            for logits in logits.chunks_exact_mut(count) {
                logits.iter_mut().zip(&highest).for_each(|(logit, highest)| *logit -= highest);
            }
            exp(logits);
            let (mut sum, mut square) = ([0.0f32; TOKENS], [0.0f32; TOKENS]);
            for powers in logits.chunks_exact(count) {
                for ((sum, square), power) in sum.iter_mut().zip(&mut square).zip(powers) {
                    *sum += power;
                    *square += power * power;
                }
            }
            for token in 0..count {
                sums[token] += f64::from(sum[token]);
                squares[token] += f64::from(square[token]);
            }
        }
        let mut logs: Vec<f32> = sums[..count].iter().map(|&sum| sum as f32).collect();
        ln(&mut logs);
        for token in 0..count {
            let p = f64::from(own(logits, token)) / sums[token];
            found.losses.push(logs[token] - wanted[token]);
            // Σ p² − 2 p_target + 1
            found.squares.push((squares[token] / sums[token].powi(2) - 2.0 * p + 1.0) as f32);
            found.right.push(first[token] == u32::from(targets[token]));
        }
        let Some(Backward { weight, of_embedding, of_x }) = backward else { return };
        let scales: Vec<f32> =
            sums[..count].iter().zip(weight.iter()).map(|(sum, weight)| weight / *sum as f32).collect();
        for (part, deltas) in logits.chunks_mut(ROWS * count).enumerate() {
            let rows = deltas.len() / count;
            for deltas in deltas.chunks_exact_mut(count) {
                deltas.iter_mut().zip(&scales).for_each(|(delta, scale)| *delta *= scale);
            }
            for (token, target) in targets.iter().enumerate() {
                let row = usize::from(*target).wrapping_sub(part * ROWS);
                if row < rows {
                    deltas[row * count + token] -= weight[token];
                }
            }
            let here = part * ROWS * width..(part * ROWS + rows) * width;
            if let Some(gradient) = of_embedding {
                let size = [rows, width, count];
                add_product(size, Strided::rows(deltas, count), x, &mut gradient[here.clone()]);
            }
            add_product([count, width, rows], Strided::transposed(deltas, count), &embedding[here], of_x);
        }
    }
}
