//! How good a forecast was: the continuous ranked probability score.

/// The score of a normal forecast: `σ (z (2 Φ(z) − 1) + 2 φ(z) − 1/√π)` with `z = (found − mean) / σ`. Less is better; for a
/// deviation of zero it is the absolute error.
pub fn crps_normal(mean: f64, deviation: f64, found: f64) -> f64 {
    if deviation <= 0.0 {
        return (found - mean).abs();
    }
    let z = (found - mean) / deviation;
    let density = (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt();
    deviation * (z * (2.0 * normal(z) - 1.0) + 2.0 * density - 1.0 / std::f64::consts::PI.sqrt())
}

/// The score of a band of 90 % around its middle, as the normal distribution that has it.
pub fn crps_of_band(middle: f64, width: f64, found: f64) -> f64 {
    crps_normal(middle, width / 1.644_853_626_951_472_7, found)
}

/// The normal distribution function, by Abramowitz and Stegun 7.1.26: to 1.5e−7.
fn normal(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let terms = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let error = 1.0 - terms.iter().fold(0.0, |sum, term| sum * t + term) * t * (-x * x).exp();
    0.5 * (1.0 + error.copysign(z))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_those_of_the_formula_and_of_samples() {
        assert!((normal(1.0) - 0.841_344_7).abs() < 1e-6 && (normal(-2.0) - 0.022_750_1).abs() < 1e-6);
        // At its mean a standard normal scores (√2 − 1)/√π.
        let wanted = (2f64.sqrt() - 1.0) / std::f64::consts::PI.sqrt();
        assert!((crps_normal(0.0, 1.0, 0.0) - wanted).abs() < 1e-6);
        assert_eq!(crps_normal(1.0, 0.0, 3.0), 2.0);
        // E|X − y| − E|X − X'| / 2 by samples.
        let mut random = crate::random::Random::new(1, "crps");
        let mean: f64 = (0..40_000)
            .map(|_| {
                let (a, b) = (random.normal(), random.normal());
                (a - 0.7).abs() - 0.5 * (a - b).abs()
            })
            .sum::<f64>()
            / 40_000.0;
        assert!((crps_normal(0.0, 1.0, 0.7) - mean).abs() < 0.01, "{mean}");
    }
}
