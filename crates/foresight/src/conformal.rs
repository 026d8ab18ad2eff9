//! Quantiles of scores that a new score keeps to.

/// The `⌈level (n + 1)⌉`-th smallest of `scores`: a new one is not above it with probability `level` or more. None where
/// there are too few for that.
pub(crate) fn conformal(scores: &[f64], level: f64) -> Option<f64> {
    let rank = (level * (scores.len() + 1) as f64).ceil() as usize;
    let mut sorted: Vec<f64> = scores.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn nine_of_ten_new_scores_are_within_the_quantile() {
        let mut random = Random::new(3, "conformal");
        let within = (0..2000)
            .filter(|_| {
                let scores: Vec<f64> = (0..19).map(|_| random.normal()).collect();
                random.normal() <= conformal(&scores, 0.9).unwrap()
            })
            .count();
        assert!((1750..1850).contains(&within), "{within}");
        assert_eq!(conformal(&[1.0; 8], 0.9), None);
        assert_eq!(conformal(&[], 0.9), None);
    }
}
