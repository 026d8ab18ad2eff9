//! Symmetric positive definite matrices, as vectors of rows.

/// Rows of a matrix.
pub(super) type Matrix = Vec<Vec<f64>>;

/// `L` with `L Lᵀ = A`; a pivot that rounding made too small counts as a little.
fn cholesky(a: &Matrix) -> Matrix {
    const LEAST: f64 = 1e-12;
    let n = a.len();
    let mut lower = vec![vec![0.0; n]; n];
    for i in 0..n {
        for j in 0..=i {
            let sum: f64 = (0..j).map(|k| lower[i][k] * lower[j][k]).sum();
            lower[i][j] =
                if i == j { (a[i][i] - sum).max(LEAST).sqrt() } else { (a[i][j] - sum) / lower[j][j] };
        }
    }
    lower
}

fn solve_with(lower: &Matrix, b: &[f64]) -> Vec<f64> {
    let n = b.len();
    let mut x = b.to_vec();
    for i in 0..n {
        let sum: f64 = (0..i).map(|k| lower[i][k] * x[k]).sum();
        x[i] = (x[i] - sum) / lower[i][i];
    }
    for i in (0..n).rev() {
        let sum: f64 = (i + 1..n).map(|k| lower[k][i] * x[k]).sum();
        x[i] = (x[i] - sum) / lower[i][i];
    }
    x
}

/// `x` with `A x = b`.
pub(super) fn solve(a: &Matrix, b: &[f64]) -> Vec<f64> {
    solve_with(&cholesky(a), b)
}

/// `A⁻¹`.
pub(super) fn inverse(a: &Matrix) -> Matrix {
    let lower = cholesky(a);
    let unit = |i: usize| (0..a.len()).map(|j| f64::from(u8::from(i == j))).collect::<Vec<_>>();
    (0..a.len()).map(|i| solve_with(&lower, &unit(i))).collect()
}

/// `Σ x_i y_i`.
pub(super) fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inverse_and_a_solution_belong_to_their_matrix() {
        let a = vec![vec![4.0, 1.0, 0.5], vec![1.0, 3.0, -0.2], vec![0.5, -0.2, 2.0]];
        let inverse = inverse(&a);
        for (i, row) in a.iter().enumerate() {
            for (j, column) in inverse.iter().enumerate() {
                assert!((dot(row, column) - f64::from(u8::from(i == j))).abs() < 1e-12);
            }
        }
        let x = solve(&a, &[1.0, 2.0, 3.0]);
        assert!((dot(&a[1], &x) - 2.0).abs() < 1e-12);
    }
}
