//! The real functions that tables approximate, from additions, multiplications, divisions and square roots
//! alone: those are the same bits on every machine, and so are the tables of both parties.

/// e^x.
pub fn exp(x: f64) -> f64 {
    if x < -700.0 {
        return 0.0;
    }
    let halvings = (x / std::f64::consts::LN_2).round();
    let rest = x - halvings * std::f64::consts::LN_2;
    let (mut term, mut sum) = (1.0, 1.0);
    for k in 1..30 {
        term *= rest / f64::from(k);
        sum += term;
    }
    let factor = if halvings < 0.0 { 0.5 } else { 2.0 };
    (0..halvings.abs() as u32).fold(sum, |sum, _| sum * factor)
}

/// Φ(x), the distribution function of the standard normal: ½ + φ(x) (x + x³/3 + x⁵/(3·5) + ..).
pub fn normal_cdf(x: f64) -> f64 {
    if x < 0.0 {
        return 1.0 - normal_cdf(-x);
    }
    if x > 8.0 {
        return 1.0;
    }
    let (mut term, mut sum) = (x, x);
    for k in 1..200 {
        term *= x * x / f64::from(2 * k + 1);
        sum += term;
    }
    0.5 + sum * exp(-x * x / 2.0) / (2.0 * std::f64::consts::PI).sqrt()
}

/// x Φ(x).
pub fn gelu(x: f64) -> f64 {
    x * normal_cdf(x)
}

/// tanh x.
pub fn tanh(x: f64) -> f64 {
    // Beyond this the difference from ±1 is lost to rounding.
    if x.abs() > 20.0 { 1f64.copysign(x) } else { 1.0 - 2.0 / (exp(2.0 * x) + 1.0) }
}

/// x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2.
pub fn gelu_tanh(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + tanh(inner))
}

/// x / (1 + e^−x).
pub fn silu(x: f64) -> f64 {
    if x < -700.0 {
        return 0.0;
    }
    x / (1.0 + exp(-x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_match_known_values() {
        for x in [-30.0, -1.5, -0.0625, 0.0, 0.3, 2.0, 11.0f64] {
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-13, "{x}");
        }
        // Abramowitz and Stegun, table 26.1.
        for (x, phi) in
            [(0.0, 0.5), (0.5, 0.691_462_461_274), (1.0, 0.841_344_746_069), (3.0, 0.998_650_101_968)]
        {
            assert!((normal_cdf(x) - phi).abs() < 1e-11, "{x}");
            assert!((normal_cdf(-x) - (1.0 - phi)).abs() < 1e-11);
        }
        assert!((gelu(1.0) - 0.841_344_746_069).abs() < 1e-11);
        assert!((silu(1.0) - 0.731_058_578_630).abs() < 1e-11);
        for x in [-30.0, -4.0, -0.5, 0.0, 1e-3, 2.5, 19.0f64] {
            assert!((tanh(x) - x.tanh()).abs() < 1e-14, "{x}");
        }
        // torch.nn.functional.gelu(torch.tensor([1.0]), approximate="tanh").
        assert!((gelu_tanh(1.0) - 0.841_191_990_608).abs() < 1e-11);
    }
}
