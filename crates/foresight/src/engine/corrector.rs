//! What verdicts teach: how wrong predictions are, and how far actions can be trusted.

use serde::{Deserialize, Serialize};

/// Inputs of the ridge regression.
const INPUTS: usize = 5;
/// Old verdicts fade at this rate.
const FADING: f64 = 0.97;
/// Residuals that the spread is taken from.
const RESIDUALS: usize = 64;

/// What a prediction was made from.
pub(super) type Basis = [f64; INPUTS];

/// An online ridge regression of the residuals of predicted drops, how far they spread, and trust.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Corrector {
    coefficients: Basis,
    /// The inverse of `Σ x xᵀ + ridge`.
    inverse: [[f64; INPUTS]; INPUTS],
    /// Residuals of past verdicts, the newest last.
    residuals: Vec<f64>,
    trust: f64,
}

impl Default for Corrector {
    fn default() -> Self {
        let mut inverse = [[0.0; INPUTS]; INPUTS];
        (0..INPUTS).for_each(|i| inverse[i][i] = 1.0);
        Self { coefficients: [0.0; INPUTS], inverse, residuals: Vec::new(), trust: 0.5 }
    }
}

impl Corrector {
    /// How far actions of this kind are trusted, from 0 to 1.
    pub fn trust(&self) -> f64 {
        self.trust
    }

    /// Lost trust comes back slowly, so that what failed once is tried again.
    pub(super) fn recover(&mut self) {
        self.trust += 0.02 * (0.5 - self.trust).max(0.0);
    }

    /// What to add to a predicted drop.
    pub(super) fn bias(&self, basis: &Basis) -> f64 {
        self.coefficients.iter().zip(basis).map(|(c, x)| c * x).sum()
    }

    /// How far drops are off their predictions, in the mean square; `before` until there are three.
    pub(super) fn spread(&self, before: f64) -> f64 {
        let count = self.residuals.len();
        if count < 3 {
            return before;
        }
        (self.residuals.iter().map(|residual| residual * residual).sum::<f64>() / count as f64).sqrt()
    }

    /// Takes in what became of a prediction: the drop that was predicted, bias included, and the drop that
    /// came.
    pub(super) fn learn(&mut self, basis: &Basis, predicted: f64, found: f64, accepted: bool) {
        self.trust = if accepted { self.trust + 0.25 * (1.0 - self.trust) } else { 0.5 * self.trust };
        if self.residuals.len() == RESIDUALS {
            self.residuals.remove(0);
        }
        self.residuals.push(predicted - found);
        // Recursive least squares on what the bias should have been.
        let residual = found - predicted;
        let product: Basis =
            std::array::from_fn(|i| self.inverse[i].iter().zip(basis).map(|(a, x)| a * x).sum());
        let scale = FADING + product.iter().zip(basis).map(|(a, x)| a * x).sum::<f64>();
        for i in 0..INPUTS {
            self.coefficients[i] += product[i] / scale * residual;
            for j in 0..INPUTS {
                let next = (self.inverse[i][j] - product[i] * product[j] / scale) / FADING;
                // Directions that are never seen must not grow without end.
                self.inverse[i][j] = next.clamp(-1e3, 1e3);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn a_bias_is_learnt() {
        let mut corrector = Corrector::default();
        let mut random = Random::new(1, "corrector");
        for _ in 0..200 {
            let basis = [1.0, random.uniform(), random.uniform(), random.normal(), 0.1];
            let truth = 0.3 - 0.5 * basis[1] + 0.01 * random.normal();
            corrector.learn(&basis, corrector.bias(&basis), truth, true);
        }
        let found = corrector.bias(&[1.0, 0.5, 0.5, 0.0, 0.1]);
        assert!((found - 0.05).abs() < 0.03, "{found}");
    }

    #[test]
    fn trust_grows_and_shrinks_and_the_spread_is_that_of_residuals() {
        let mut corrector = Corrector::default();
        assert_eq!(corrector.spread(0.02), 0.02);
        (0..20).for_each(|i| corrector.learn(&[0.0; INPUTS], 0.01 * f64::from(i), 0.0, true));
        assert!(corrector.trust() > 0.9);
        let wanted = (0..20).map(|i| (0.01 * f64::from(i)).powi(2)).sum::<f64>() / 20.0;
        assert!((corrector.spread(0.0) - wanted.sqrt()).abs() < 1e-12, "{}", corrector.spread(0.0));
        corrector.learn(&[0.0; INPUTS], 0.0, 0.0, false);
        assert!(corrector.trust() < 0.5);
    }
}
