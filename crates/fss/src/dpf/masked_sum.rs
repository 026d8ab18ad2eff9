//! Σ_j e(j) w(j) for secret bits e and a public window w: no load and no branch depends on a bit.

/// The sum modulo 2^64. `window` has as many words as there are bits, or fewer than 64.
pub(super) fn masked_sum(bits: &[u64], window: &[u64]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if window.len() >= 64 && is_x86_feature_detected!("avx512f") {
        // SAFETY: the instructions are there.
        return unsafe { wide(bits, window) };
    }
    plain(bits, window)
}

fn plain(bits: &[u64], window: &[u64]) -> u64 {
    let in_word = |word: u64, values: &[u64]| {
        values
            .iter()
            .enumerate()
            .fold(0u64, |sum, (bit, value)| sum.wrapping_add(value & (word >> bit & 1).wrapping_neg()))
    };
    bits.iter().zip(window.chunks(64)).fold(0, |sum, (&word, values)| sum.wrapping_add(in_word(word, values)))
}

/// Eight words at a time, under the mask registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn wide(bits: &[u64], window: &[u64]) -> u64 {
    use std::arch::x86_64::*;
    let mut sums = [_mm512_setzero_si512(); 4];
    for (&word, values) in bits.iter().zip(window.chunks_exact(64)) {
        for step in 0..8 {
            // SAFETY: a chunk has 64 words, of which these are eight.
            let eight = unsafe { _mm512_loadu_si512(values.as_ptr().add(8 * step).cast()) };
            let sum = &mut sums[step % 4];
            *sum = _mm512_mask_add_epi64(*sum, (word >> (8 * step)) as __mmask8, *sum, eight);
        }
    }
    let [a, b, c, d] = sums;
    _mm512_reduce_add_epi64(_mm512_add_epi64(_mm512_add_epi64(a, b), _mm512_add_epi64(c, d))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_sums_match_plain_ones() {
        for words in [1usize, 2, 8, 32] {
            let spread = |i: usize, by: u64| (i as u64 + 1).wrapping_mul(by);
            let bits: Vec<u64> = (0..words).map(|i| spread(i, 0x9e37_79b9_7f4a_7c15)).collect();
            let window: Vec<u64> = (0..64 * words).map(|i| spread(i, 0xd134_2543_de82_ef95)).collect();
            let expected = (0..64 * words)
                .filter(|bit| bits[bit / 64] >> (bit % 64) & 1 == 1)
                .fold(0u64, |sum, bit| sum.wrapping_add(window[bit]));
            assert_eq!(plain(&bits, &window), expected);
            assert_eq!(masked_sum(&bits, &window), expected);
        }
        assert_eq!(masked_sum(&[0b101], &[7, 9, 11, 13]), 18);
    }
}
