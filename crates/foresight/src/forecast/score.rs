//! How good a forecast was: the continuous ranked probability score.

/// The score of a forecast that is given by samples: `E|X − found| − E|X − X'| / 2`. Less is better; for one
/// sample it is the absolute error.
pub fn crps_samples(samples: &[f64], found: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let distance = sorted.iter().map(|x| (x - found).abs()).sum::<f64>() / n;
    let spread: f64 =
        sorted.iter().enumerate().map(|(i, x)| (2.0 * (i + 1) as f64 - n - 1.0) * x).sum::<f64>() / (n * n);
    distance - spread
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn the_score_of_normal_samples_is_that_of_the_normal_distribution() {
        let mut random = Random::new(1, "crps");
        let samples: Vec<f64> = (0..40_000).map(|_| random.normal()).collect();
        // At its mean a standard normal distribution scores (√2 − 1)/√π.
        let wanted = (2f64.sqrt() - 1.0) / std::f64::consts::PI.sqrt();
        assert!((crps_samples(&samples, 0.0) - wanted).abs() < 0.01);
        assert_eq!(crps_samples(&[1.0], 3.0), 2.0);
    }
}
