//! Sums over whole vectors, in double precision and in one order.

/// Chains that run beside each other.
const CHAINS: usize = 8;

/// `Σ x_i y_i`.
pub fn dot(x: &[f32], y: &[f32]) -> f64 {
    let mut sums = [0.0f64; CHAINS];
    let (xs, ys) = (x.chunks_exact(CHAINS), y.chunks_exact(CHAINS));
    let rest: f64 =
        xs.remainder().iter().zip(ys.remainder()).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
    for (x, y) in xs.zip(ys) {
        for (sum, (x, y)) in sums.iter_mut().zip(x.iter().zip(y)) {
            *sum += f64::from(*x) * f64::from(*y);
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// `Σ x_i²`.
pub fn squares(x: &[f32]) -> f64 {
    dot(x, x)
}

/// The Euclidean norm.
pub fn norm(x: &[f32]) -> f64 {
    squares(x).sqrt()
}

#[cfg(test)]
mod tests {
    #[test]
    fn sums_have_all_their_terms() {
        let x: Vec<f32> = (1..=19).map(|i| i as f32).collect();
        assert_eq!(super::squares(&x), (1..=19).map(|i| f64::from(i * i)).sum::<f64>());
    }
}
