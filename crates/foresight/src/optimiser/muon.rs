//! Muon's step of a matrix: the nearest matrix with orthogonal rows or columns, nearly.

use crate::dense::{Strided, add_product, add_product_transposed, norm};

/// Newton–Schulz iterations.
pub(crate) const ROUNDS: usize = 5;
// Coefficients of `X ← a X + b (X Xᵀ) X + c (X Xᵀ)² X`, chosen for a steep slope at zero (Jordan 2024):
// singular values end between about 0.7 and 1.2, which is all that a direction needs.
pub(crate) const A: f32 = 3.4445;
pub(crate) const B: f32 = -4.7750;
pub(crate) const C: f32 = 2.0315;
/// Added to the length that a matrix is divided by first: one of zeros stays one.
pub(crate) const TINY: f32 = 1e-7;

/// Replaces `matrix` of `rows × columns` by `U Vᵀ` of its singular value decomposition `U S Vᵀ`, nearly.
pub(crate) fn orthogonalise(matrix: &mut [f32], [rows, columns]: [usize; 2]) {
    let scale = 1.0 / (norm(matrix) as f32 + TINY);
    // X Xᵀ is the smaller of the two products when X is wide.
    let wide = rows <= columns;
    let (m, n) = if wide { (rows, columns) } else { (columns, rows) };
    let mut x: Vec<f32> = if wide { matrix.to_vec() } else { transpose(matrix, rows, columns) };
    x.iter_mut().for_each(|x| *x *= scale);
    let mut gram = vec![0.0; m * m];
    let mut square = vec![0.0; m * m];
    let mut next = vec![0.0; m * n];
    for _ in 0..ROUNDS {
        gram.fill(0.0);
        add_product_transposed([m, m, n], &x, &x, &mut gram);
        square.fill(0.0);
        add_product([m, m, m], Strided::rows(&gram, m), &gram, &mut square);
        gram.iter_mut().zip(&square).for_each(|(gram, square)| *gram = B * *gram + C * square);
        next.iter_mut().zip(&x).for_each(|(next, x)| *next = A * x);
        add_product([m, n, m], Strided::rows(&gram, m), &x, &mut next);
        std::mem::swap(&mut x, &mut next);
    }
    if wide {
        matrix.copy_from_slice(&x);
    } else {
        matrix.copy_from_slice(&transpose(&x, columns, rows));
    }
}

/// Bytes of a step of `rows × columns` while it becomes a direction: the step itself, `X` twice and transposed,
/// and two squares.
pub(super) fn scratch_bytes([rows, columns]: [usize; 2]) -> usize {
    let square = rows.min(columns).pow(2);
    (4 * rows * columns + 2 * square) * size_of::<f32>()
}

fn transpose(matrix: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..rows * columns).map(|at| matrix[at % rows * columns + at / rows]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn singular_values_come_close_to_one() {
        let mut random = Random::new(1, "muon");
        for [rows, columns] in [[6, 20], [20, 6], [8, 8]] {
            let mut matrix: Vec<f32> = (0..rows * columns).map(|_| random.normal() as f32).collect();
            orthogonalise(&mut matrix, [rows, columns]);
            // The mean of squared singular values is the squared norm over their number.
            let mean = norm(&matrix).powi(2) / rows.min(columns) as f64;
            assert!((0.6..1.4).contains(&mean), "{rows}x{columns}: {mean}");
            let mut gram = vec![0.0; rows * rows];
            add_product_transposed([rows, rows, columns], &matrix, &matrix, &mut gram);
            if rows <= columns {
                let off = (0..rows * rows).filter(|at| at % rows != at / rows).map(|at| gram[at].abs());
                assert!(off.fold(0.0, f32::max) < 0.45, "{rows}x{columns}");
            }
        }
    }
}
