//! The engine's own stop of `gatework tour`: from slices in host memory to slices in host memory.

use gatework_attention::{Attention, Mask, Shape, reference};
use gatework_gpu::Target;
use gatework_lab::{Inputs, Outcome};

use super::shapes::text;

/// Grouped heads, odd lengths, more keys than rows.
const SHAPE: Shape = Shape { batch: 1, heads: 4, key_heads: 2, rows: 100, keys: 157, dim: 64 };
const SEED: u64 = 1;

/// What it computes.
pub(crate) const SUMMARY: &str = "softmax(q k^T) v of slices in host memory, against double precision";

/// The case, and what came of it on a target.
pub(crate) fn visit(target: &Target) -> (String, Outcome) {
    // What is left of normal inputs in e4m3, and what the rounding of weights adds; on the CPU it is f32.
    let (place, bound) = match target {
        Target::Cpu => ("the CPU", 1e-5),
        Target::Gpu(device) => (device.properties().id.as_str(), 0.075),
    };
    let case = format!("{}-causal on {place}", text(&SHAPE));
    let outcome = match relative_error(target) {
        Ok(error) if error <= bound => Outcome::Passed,
        Ok(error) => {
            Outcome::Failed { why: format!("the relative error is {error:.2e}, {bound:.0e} is allowed") }
        }
        Err(error) => Outcome::Failed { why: error.to_string() },
    };
    (case, outcome)
}

/// The error of the whole output over its size.
fn relative_error(target: &Target) -> gatework_attention::Result<f64> {
    let mut inputs = Inputs::new(SEED);
    let (q, k) = (inputs.normal(SHAPE.query_elements()), inputs.normal(SHAPE.key_elements()));
    let v = inputs.normal(SHAPE.key_elements());
    let got = Attention::builder(SHAPE).mask(Mask::Causal).build(target)?.forward(&q, &k, &v)?;
    let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
    let scale = 1.0 / (SHAPE.dim as f64).sqrt();
    let (wanted, _) = reference::attention(&SHAPE, Mask::Causal, scale, &wide(&q), &wide(&k), &wide(&v));
    let error: f64 = got.iter().zip(&wanted).map(|(got, wanted)| (f64::from(*got) - wanted).powi(2)).sum();
    Ok((error / wanted.iter().map(|x| x * x).sum::<f64>()).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_passes_by_far_and_the_emulated_device_passes() {
        assert!(relative_error(&Target::Cpu).unwrap() < 1e-6);
        let (case, outcome) = visit(&Target::open("emulated").unwrap());
        assert_eq!((case.as_str(), outcome), ("1x4/2x100/157x64-causal on emulated", Outcome::Passed));
        let error = relative_error(&Target::open("emulated").unwrap()).unwrap();
        assert!(error > 1e-3, "FP8 is not exact: {error} would mean that nothing ran there");
    }
}
