//! Which examples of a batch are worth a backward pass.
//!
//! The gradient of an example is `J δ` with `δ = softmax − label`, so that `|δ|` bounds its length up to a
//! factor that examples share more or less (Katharopoulos and Fleuret, 2018). Late in training most examples
//! are right and have next to nothing to say. Each is kept with probability `p = min(1, c |δ|)` and then
//! weighs `1 / p`: the gradient's mean is that of the whole batch, whatever `c` is. By how much it scatters
//! more follows from how many are kept for each of the `n_eff = (Σ|δ|)² / Σ|δ|²` that count.

use crate::random::Random;

/// Fewest examples that are kept, of a batch: no number of few is worth its noise.
const LEAST: f64 = 0.12;
/// Above this part of a batch leaving out the rest is not worth its noise.
const MOST: f64 = 0.8;

/// An example that is kept: its place among those that were asked about, and what it weighs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kept {
    /// Its place.
    pub place: usize,
    /// One over the probability with which it is kept.
    pub weight: f32,
}

/// Chooses about `times` as many examples as count by their lengths `|δ|`. None if nearly all would stay.
pub fn choose(lengths: &[f32], times: f64, random: &mut Random) -> Option<Vec<Kept>> {
    let (sum, squares) = lengths.iter().fold((0.0, 0.0), |(sum, squares), &length| {
        let length = f64::from(length);
        (sum + length, squares + length * length)
    });
    let count = lengths.len() as f64;
    let effective = sum * sum / squares;
    let wanted = (times * effective).max(LEAST * count);
    // Lengths that are no numbers, or all zero, say nothing of which count.
    if !effective.is_finite() || times <= 0.0 || wanted >= MOST * count {
        return None;
    }
    let scale = scale(lengths, wanted);
    let mut kept = Vec::with_capacity(2 * wanted as usize);
    for (place, &length) in lengths.iter().enumerate() {
        let probability = (scale * f64::from(length)).min(1.0);
        // Drawn for every example, so that one does not depend on another.
        if random.uniform() < probability {
            kept.push(Kept { place, weight: (1.0 / probability) as f32 });
        }
    }
    Some(kept)
}

/// `c` with `Σ min(1, c |δ|) = wanted`: from the `c` that it would be if none were cut off at 1, each round
/// takes those out that are. None comes back in, so that it ends, as a rule after two or three rounds.
fn scale(lengths: &[f32], wanted: f64) -> f64 {
    let mut scale = 0.0;
    let mut whole = usize::MAX;
    loop {
        let (mut cut, mut sum) = (0, 0.0);
        for &length in lengths {
            let length = f64::from(length);
            if scale * length >= 1.0 { cut += 1 } else { sum += length }
        }
        if cut == whole || sum <= 0.0 {
            return scale;
        }
        (whole, scale) = (cut, (wanted - cut as f64) / sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths() -> Vec<f32> {
        (0..128).map(|i| if i % 9 == 0 { 0.9 } else { 0.01 + (i % 5) as f32 * 0.002 }).collect()
    }

    #[test]
    fn weighted_sums_are_those_of_all_in_the_mean() {
        let (lengths, random) = (lengths(), Random::new(7, "test"));
        let whole: f64 = lengths.iter().map(|&length| f64::from(length)).sum();
        let (mut mean, mut share) = (0.0, 0.0);
        const TRIES: usize = 4000;
        for index in 0..TRIES {
            let kept = choose(&lengths, 2.0, &mut random.fork(index as u64)).unwrap();
            assert!(kept.windows(2).all(|pair| pair[0].place < pair[1].place));
            let sum = kept.iter().map(|kept| f64::from(lengths[kept.place] * kept.weight)).sum::<f64>();
            mean += sum / TRIES as f64;
            share += kept.len() as f64 / (128 * TRIES) as f64;
        }
        assert!((mean / whole - 1.0).abs() < 0.01, "{mean} for {whole}");
        assert!((0.12..0.4).contains(&share), "{share}");
    }

    #[test]
    fn the_scale_keeps_as_many_as_are_wanted() {
        for wanted in [16.0, 40.0, 90.0] {
            let scale = scale(&lengths(), wanted);
            let kept: f64 = lengths().iter().map(|&length| (scale * f64::from(length)).min(1.0)).sum();
            assert!((kept - wanted).abs() < 1e-9, "{kept} for {wanted}");
        }
    }

    #[test]
    fn where_all_count_all_stay() {
        let mut random = Random::new(7, "test");
        for lengths in [vec![0.5; 64], vec![0.0; 64], vec![f32::NAN; 64], vec![0.3]] {
            assert_eq!(choose(&lengths, 3.0, &mut random), None, "{lengths:?}");
        }
        assert_eq!(choose(&lengths(), 0.0, &mut random), None);
    }

    #[test]
    fn the_same_stream_chooses_the_same() {
        let random = Random::new(7, "test");
        let chosen = |index| choose(&lengths(), 2.0, &mut random.fork(index));
        assert_eq!(chosen(3), chosen(3));
        assert_ne!(chosen(3), chosen(4));
    }
}
