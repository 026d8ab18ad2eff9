//! Public angles of rotary positions.

use gatework_fss::reference;

/// 10000^(−2 i / d) a token: the base of LLaMA's angles.
const BASE: f64 = 10000.0;

/// (cos, sin) of token t's angle for pair i of a head of `head` columns, with `fraction` fractional bits.
///
/// From basic operations alone, so that both parties have the same bits.
pub(super) fn turn(token: usize, pair: usize, head: usize, fraction: u32) -> (i64, i64) {
    let step = reference::exp(-2.0 * pair as f64 / head as f64 * natural_logarithm(BASE));
    let (sine, cosine) = sine_and_cosine(token as f64 * step);
    let unit = (1u64 << fraction) as f64;
    ((cosine * unit).round() as i64, (sine * unit).round() as i64)
}

/// ln x for x ≥ 1, from 2 artanh((m − 1) / (m + 1)) of its mantissa m.
fn natural_logarithm(x: f64) -> f64 {
    let (mut mantissa, mut halvings) = (x, 0);
    while mantissa > 1.5 {
        mantissa /= 2.0;
        halvings += 1;
    }
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let (mut power, mut sum) = (ratio, 0.0);
    for k in 0..40 {
        sum += power / f64::from(2 * k + 1);
        power *= ratio * ratio;
    }
    2.0 * sum + f64::from(halvings) * std::f64::consts::LN_2
}

/// By their series, after whole turns are taken off.
fn sine_and_cosine(angle: f64) -> (f64, f64) {
    let turns = (angle / std::f64::consts::TAU).round();
    let rest = angle - turns * std::f64::consts::TAU;
    let (mut term, mut sine, mut cosine) = (1.0, 0.0, 0.0);
    for k in 0..40 {
        match k % 4 {
            0 => cosine += term,
            1 => sine += term,
            2 => cosine -= term,
            _ => sine -= term,
        }
        term *= rest / f64::from(k + 1);
    }
    (sine, cosine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn angles_match_the_standard_library() {
        for (token, pair) in [(0, 0), (1, 0), (5, 3), (127, 31), (4095, 1), (77, 63)] {
            let angle = token as f64 * BASE.powf(-2.0 * pair as f64 / 128.0);
            let (cosine, sine) = turn(token, pair, 128, 12);
            assert!((cosine as f64 / 4096.0 - angle.cos()).abs() < 1.3e-4, "{token} {pair}");
            assert!((sine as f64 / 4096.0 - angle.sin()).abs() < 1.3e-4, "{token} {pair}");
        }
    }
}
