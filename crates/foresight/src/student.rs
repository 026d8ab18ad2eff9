//! Student's t, for the means of few values.

/// The one-sided 95 % quantile for the mean of `n` values, that is at `n − 1` degrees of freedom; between the
/// entries of the table the larger one. None for one value.
pub(crate) fn student(n: usize) -> Option<f64> {
    const TABLE: [(usize, f64); 14] = [
        (1, 6.314),
        (2, 2.920),
        (3, 2.353),
        (4, 2.132),
        (5, 2.015),
        (6, 1.943),
        (7, 1.895),
        (8, 1.860),
        (9, 1.833),
        (10, 1.812),
        (15, 1.753),
        (19, 1.729),
        (30, 1.697),
        (60, 1.671),
    ];
    let degrees = n.checked_sub(1).filter(|degrees| *degrees > 0)?;
    TABLE.iter().rev().find(|(known, _)| *known <= degrees).map(|(_, t)| *t)
}

/// The mean of `values`, and how far above it the true mean may lie: the upper end of its one-sided 95 %
/// interval less it. None for fewer than two.
pub(crate) fn mean_and_reach(values: &[f64]) -> (f64, Option<f64>) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, student(values.len()).map(|t| t * (variance / n).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantile_of_students_t_is_never_too_small() {
        assert_eq!([student(1), student(2), student(20)], [None, Some(6.314), Some(1.729)]);
        assert_eq!(student(13), Some(1.812));
    }

    #[test]
    fn the_reach_is_that_of_the_formula() {
        let (mean, reach) = mean_and_reach(&[1.0, 2.0, 3.0]);
        assert!((mean - 2.0).abs() < 1e-12 && (reach.unwrap() - 2.920 / 3f64.sqrt()).abs() < 1e-12);
        assert_eq!(mean_and_reach(&[4.0]).1, None);
    }
}
