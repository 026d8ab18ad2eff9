//! Sums over whole vectors, in double precision and in one order.

use super::lanes::Instructions;

/// Chains that run beside each other.
const CHAINS: usize = 8;

/// `Σ x_i y_i`.
pub fn dot(x: &[f32], y: &[f32]) -> f64 {
    dot_with(Instructions::detect(), x, y)
}

fn dot_with(instructions: Instructions, x: &[f32], y: &[f32]) -> f64 {
    match instructions {
        // SAFETY: the instructions were found on this machine.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => unsafe { dot_avx512(x, y) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => unsafe { dot_avx2(x, y) },
        Instructions::Portable => chains(x, y),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn dot_avx512(x: &[f32], y: &[f32]) -> f64 {
    chains(x, y)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn dot_avx2(x: &[f32], y: &[f32]) -> f64 {
    chains(x, y)
}

/// Products of single precision are exact in double precision, so that it does not matter whether they are
/// fused.
#[inline(always)]
fn chains(x: &[f32], y: &[f32]) -> f64 {
    let mut sums = [0.0f64; CHAINS];
    let (xs, ys) = (x.chunks_exact(CHAINS), y.chunks_exact(CHAINS));
    let rest: f64 =
        xs.remainder().iter().zip(ys.remainder()).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
    for (x, y) in xs.zip(ys) {
        for i in 0..CHAINS {
            sums[i] += f64::from(x[i]) * f64::from(y[i]);
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// `Σ x_i²`.
pub fn squares(x: &[f32]) -> f64 {
    dot(x, x)
}

/// `Σ x_i`.
pub fn sum(x: &[f32]) -> f64 {
    let mut sums = [0.0f64; CHAINS];
    let chunks = x.chunks_exact(CHAINS);
    let rest: f64 = chunks.remainder().iter().copied().map(f64::from).sum();
    for x in chunks {
        for i in 0..CHAINS {
            sums[i] += f64::from(x[i]);
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// The Euclidean norm.
pub fn norm(x: &[f32]) -> f64 {
    squares(x).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn sums_have_all_their_terms() {
        let x: Vec<f32> = (1..=19).map(|i| i as f32).collect();
        assert_eq!(squares(&x), (1..=19).map(|i| f64::from(i * i)).sum::<f64>());
        assert_eq!(sum(&x), 190.0);
    }

    #[test]
    fn all_instructions_give_the_same_bits() {
        let mut random = Random::new(5, "dot");
        let [x, y] = [(); 2].map(|()| (0..1003).map(|_| random.normal() as f32).collect::<Vec<f32>>());
        let found: Vec<u64> =
            Instructions::all_here().into_iter().map(|here| dot_with(here, &x, &y).to_bits()).collect();
        assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "{found:?}");
    }
}
