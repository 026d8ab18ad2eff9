//! `y = (x − mean) / √(variance + ε) · gain + shift` of every row, and its gradient.

/// As GPT-2 has it.
pub(crate) const EPSILON: f32 = 1e-5;
/// Sums that run beside each other, so that they fit vectors; their number is part of the result.
const LANES: usize = 16;

/// `Σ of(i)` for `i` below `n`.
#[inline(always)]
fn sum(n: usize, of: impl Fn(usize) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let whole = n - n % LANES;
    for start in (0..whole).step_by(LANES) {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += of(start + lane);
        }
    }
    (whole..n).for_each(|i| lanes[i - whole] += of(i));
    lanes.iter().sum()
}

/// Mean and one over the deviation of a row.
fn moments(x: &[f32]) -> [f32; 2] {
    let scale = 1.0 / x.len() as f32;
    let mean = sum(x.len(), |i| x[i]) * scale;
    let variance = sum(x.len(), |i| (x[i] - mean) * (x[i] - mean)) * scale;
    [mean, 1.0 / (variance + EPSILON).sqrt()]
}

/// Normalises every row. `gains` are gains, then shifts.
pub(super) fn forward(gains: &[f32], x: &[f32], y: &mut [f32]) {
    let (gain, shift) = gains.split_at(gains.len() / 2);
    for (x, y) in x.chunks_exact(gain.len()).zip(y.chunks_exact_mut(gain.len())) {
        let [mean, scale] = moments(x);
        for (((y, x), gain), shift) in y.iter_mut().zip(x).zip(gain).zip(shift) {
            *y = (x - mean) * scale * gain + shift;
        }
    }
}

/// Adds the gradients of gains and shifts to `gradient`, and that of `x` to `dx`: with `n = (x − mean) /
/// deviation` and `g = dy · gain`, it is `(g − mean(g) − n · mean(g n)) / deviation`.
pub(super) fn backward(gains: &[f32], x: &[f32], dy: &[f32], gradient: &mut [f32], dx: &mut [f32]) {
    let width = gains.len() / 2;
    let gain = &gains[..width];
    let (of_gain, of_shift) = gradient.split_at_mut(width);
    let rows = x.chunks_exact(width).zip(dy.chunks_exact(width)).zip(dx.chunks_exact_mut(width));
    for ((x, dy), dx) in rows {
        let [mean, scale] = moments(x);
        let part = 1.0 / width as f32;
        let whole = sum(width, |i| dy[i] * gain[i]) * part;
        let along = sum(width, |i| dy[i] * gain[i] * ((x[i] - mean) * scale)) * part;
        for i in 0..width {
            let n = (x[i] - mean) * scale;
            of_gain[i] += dy[i] * n;
            of_shift[i] += dy[i];
            dx[i] += (dy[i] * gain[i] - whole - n * along) * scale;
        }
    }
}
