//! Quantiles of scores that a new score keeps to.

/// The `⌈level (n + 1)⌉`-th smallest of `scores`: a new one is not above it with probability `level` or more.
/// None where there are too few for that.
pub(crate) fn conformal(scores: &[f64], level: f64) -> Option<f64> {
    let rank = (level * (scores.len() + 1) as f64).ceil() as usize;
    let mut sorted: Vec<f64> = scores.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(rank.checked_sub(1)?).copied()
}

/// The `⌊α (n + 1)⌋`-th and the `⌈(1 − α) (n + 1)⌉`-th smallest of `values` with `α = (1 − level) / 2`: a new
/// one lies between them with probability `level` or more. None where there are too few for that.
pub(crate) fn signed(values: &[f64], level: f64) -> Option<[f64; 2]> {
    let tail = 0.5 * (1.0 - level) * (values.len() + 1) as f64;
    // Rounding must not cost a rank: 0.05 · 20 is a little less than one.
    let low = (tail + 1e-9) as usize;
    let mut sorted: Vec<f64> = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some([*sorted.get(low.checked_sub(1)?)?, *sorted.get(sorted.len() - low)?])
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
        let between = (0..2000)
            .filter(|_| {
                let values: Vec<f64> = (0..39).map(|_| random.normal()).collect();
                let [low, high] = signed(&values, 0.9).unwrap();
                (low..=high).contains(&random.normal())
            })
            .count();
        assert!((1750..1850).contains(&between), "{between}");
        assert_eq!((signed(&[1.0; 18], 0.9), signed(&[2.0; 19], 0.9)), (None, Some([2.0, 2.0])));
        assert_eq!(conformal(&[1.0; 8], 0.9), None);
        assert_eq!(conformal(&[], 0.9), None);
    }
}
