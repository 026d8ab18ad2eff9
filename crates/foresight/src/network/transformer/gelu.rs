//! `x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2`, GPT-2's form of the Gaussian error linear unit, and its
//! gradient.

use crate::dense::tanh;

/// `√(2/π)`.
pub(crate) const SCALE: f32 = 0.797_884_6;
/// What the cube is multiplied with.
pub(crate) const CUBIC: f32 = 0.044_715;

/// `t ← tanh(√(2/π) (x + 0.044715 x³))`.
fn inner(x: &[f32], t: &mut [f32]) {
    t.iter_mut().zip(x).for_each(|(t, x)| *t = SCALE * (x + CUBIC * x * x * x));
    tanh(t);
}

/// `y = gelu(x)`.
pub(super) fn forward(x: &[f32], y: &mut [f32]) {
    inner(x, y);
    y.iter_mut().zip(x).for_each(|(y, x)| *y = 0.5 * x * (1.0 + *y));
}

/// `y = gelu(x)`, and `x ← gelu'(x)`.
pub(super) fn slope(x: &mut [f32], y: &mut [f32]) {
    inner(x, y);
    for (y, x) in y.iter_mut().zip(x) {
        let t = *y;
        let slope = SCALE * (1.0 + 3.0 * CUBIC * *x * *x);
        *y = 0.5 * *x * (1.0 + t);
        *x = 0.5 * (1.0 + t) + 0.5 * *x * (1.0 - t * t) * slope;
    }
}
