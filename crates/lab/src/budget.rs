//! How far an output may be from its reference, and how far it was.

use serde::{Deserialize, Serialize};

use crate::tensor::{Outputs, Tensor};

/// A floating-point format, for its unit roundoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// IEEE double precision.
    F64,
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// Brain floating point.
    Bf16,
    /// 8 bits, 4 of exponent, 3 of mantissa.
    E4m3,
    /// 8 bits, 5 of exponent, 2 of mantissa.
    E5m2,
    /// What Hopper's tensor cores keep of a sum of 8-bit products before it becomes an f32: 14 bits of
    /// significand.
    Fp8Accumulator,
}

impl Format {
    /// `u = 2^-p` for `p` bits of significand: the largest relative error of one rounding to nearest.
    pub fn unit_roundoff(self) -> f64 {
        let significand_bits = match self {
            Self::F64 => 53,
            Self::F32 => 24,
            Self::F16 => 11,
            Self::Bf16 => 8,
            Self::Fp8Accumulator => 14,
            Self::E4m3 => 4,
            Self::E5m2 => 3,
        };
        2f64.powi(-significand_bits)
    }
}

/// How a result is rounded on its way: what [`ErrorBudget::rounding`] derives its bounds from.
#[derive(Debug, Clone, Copy)]
pub struct Rounding {
    /// The format that every intermediate result is rounded to.
    pub format: Format,
    /// Roundings on the longest path from an input to an output: the depth of the sum, not its length.
    pub depth: usize,
    /// Largest size of the values on that path. Where terms cancel, this is larger than the outputs.
    pub magnitude: f64,
    /// Root mean square of the outputs: what relative errors are relative to.
    pub output_rms: f64,
    /// Number of outputs, over which errors of independent sign average out.
    pub outputs: usize,
}

/// How far an output may be from its reference. A NaN never passes, and integers are always exact.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ErrorBudget {
    /// The same bits.
    Exact,
    /// Three bounds, all of which must hold.
    Bounded(Bounds),
}

/// Bounds on `e = output - reference`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// On `|e|_2 / |reference|_2`.
    #[serde(with = "finite_or_null")]
    pub relative_frobenius: f64,
    /// On the largest `|e_i|`.
    #[serde(with = "finite_or_null")]
    pub max_abs: f64,
    /// On `|mean of e_i|`, which a biased conversion exceeds long before it exceeds the others.
    #[serde(with = "finite_or_null")]
    pub mean_bias: f64,
}

/// Standard deviations that a root mean square or a mean may lie out: one in 15 000 by chance.
const TYPICAL: f64 = 4.0;
/// Standard deviations that the largest of many errors may lie out: one in 10^15 by chance.
const EXTREME: f64 = 8.0;

/// Relative size of a change that shows in every floating-point format, ten of which are less than the number
/// itself.
const SMALLEST_STEP: f64 = 1.0 / 64.0;

impl ErrorBudget {
    /// Bounds for results that are rounded to nearest on their way.
    ///
    /// Rounding errors have independent signs, so `d` of them on a path add up like a random walk (Higham and
    /// Mary, 2019). With `u` the format's unit roundoff, `m` the magnitude and `n` the number of outputs, an
    /// output's error has a standard deviation of at most `s = u sqrt(d) m`, and
    ///
    /// * relative Frobenius `<= 4 s / output_rms`,
    /// * max abs `<= 8 s`,
    /// * mean bias `<= 4 s / sqrt(n)`.
    ///
    /// ```
    /// use gatework_lab::{ErrorBudget, Format, Rounding};
    /// let rounding = Rounding { format: Format::F32, depth: 4, magnitude: 1.0, output_rms: 1.0, outputs: 100 };
    /// let ErrorBudget::Bounded(bounds) = ErrorBudget::rounding(rounding) else { unreachable!() };
    /// assert_eq!(bounds.max_abs, 8.0 * 2.0 * 2f64.powi(-24));
    /// ```
    pub fn rounding(rounding: Rounding) -> Self {
        let depth = rounding.depth.max(1) as f64;
        let deviation = rounding.format.unit_roundoff() * depth.sqrt() * rounding.magnitude;
        Self::Bounded(Bounds {
            relative_frobenius: TYPICAL * deviation / rounding.output_rms,
            max_abs: EXTREME * deviation,
            mean_bias: TYPICAL * deviation / (rounding.outputs.max(1) as f64).sqrt(),
        })
    }

    /// The largest error that one element of a tensor may have: nothing at all where the same bits are asked
    /// for, in which case one unit (or the smallest change that shows) stands for it.
    pub(crate) fn largest_error(&self, reference: &Tensor) -> f64 {
        match self {
            Self::Bounded(bounds) if reference.is_float() => bounds.max_abs,
            _ if reference.is_float() => {
                let middle = reference.number(reference.len() / 2);
                middle.abs().max(f64::from(f32::MIN_POSITIVE)) * SMALLEST_STEP
            }
            _ => 1.0,
        }
    }

    /// Whether two sets of outputs have the same names, types and lengths.
    pub(crate) fn same_shape(outputs: &Outputs, reference: &Outputs) -> bool {
        shape_mismatch(outputs, reference).is_none()
    }

    /// Compares outputs with their reference.
    pub fn judge(&self, outputs: &Outputs, reference: &Outputs) -> Judgement {
        if let Some(why) = shape_mismatch(outputs, reference) {
            return Judgement { deviations: Vec::new(), refused: Some(why) };
        }
        let mut judgement = Judgement { deviations: Vec::new(), refused: None };
        for ((name, output), (_, expected)) in outputs.iter().zip(reference.iter()) {
            let deviation = Deviation::between(output, expected);
            let refused = match self {
                Self::Bounded(bounds) if expected.is_float() => bounds.refusal(&deviation),
                _ => deviation.inexactness(),
            };
            let place = |why| format!("output '{name}': {why}{}", deviation.worst(output, expected));
            judgement.refused = judgement.refused.or_else(|| refused.map(place));
            judgement.deviations.push((name.to_owned(), deviation));
        }
        judgement
    }
}

impl Bounds {
    fn refusal(&self, deviation: &Deviation) -> Option<String> {
        let measured = [
            ("the largest error", deviation.max_abs, self.max_abs),
            ("the relative Frobenius error", deviation.relative_frobenius, self.relative_frobenius),
            ("the mean error", deviation.mean_bias, self.mean_bias),
        ];
        // Written so that a NaN on either side is a refusal.
        let within = |value: f64, bound: f64| value <= bound;
        let (what, value, bound) = measured.into_iter().find(|&(_, value, bound)| !within(value, bound))?;
        Some(format!("{what} is {value:.3e}, {bound:.3e} at most"))
    }
}

fn shape_mismatch(outputs: &Outputs, reference: &Outputs) -> Option<String> {
    let names = |outputs: &Outputs| outputs.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    if names(outputs) != names(reference) {
        return Some(format!(
            "the outputs are {:?}, the reference has {:?}",
            names(outputs),
            names(reference)
        ));
    }
    for ((name, output), (_, expected)) in outputs.iter().zip(reference.iter()) {
        // A reference may be more precise than the output, so any two floats compare.
        let comparable =
            output.type_name() == expected.type_name() || (output.is_float() && expected.is_float());
        if !comparable || output.len() != expected.len() {
            let shape = |tensor: &Tensor| format!("{} of {}", tensor.len(), tensor.type_name());
            return Some(format!("output '{name}' is {}, the reference {}", shape(output), shape(expected)));
        }
    }
    None
}

/// The result of comparing an output with its reference.
#[derive(Debug, Clone)]
pub struct Judgement {
    /// How far each output was out. Empty if names, types or lengths did not match.
    pub deviations: Vec<(String, Deviation)>,
    /// Why it is not within the budget, as a sentence; `None` if it is.
    pub refused: Option<String>,
}

/// How far one output was from its reference. Not finite where a NaN or an infinity took part.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Deviation {
    /// `|e|_2 / |reference|_2`.
    #[serde(with = "finite_or_null")]
    pub relative_frobenius: f64,
    /// Largest `|e_i|`.
    #[serde(with = "finite_or_null")]
    pub max_abs: f64,
    /// `|mean of e_i|`.
    #[serde(with = "finite_or_null")]
    pub mean_bias: f64,
    /// Elements that are not the same value.
    pub mismatches: u64,
    #[serde(skip)]
    worst_index: Option<usize>,
}

impl Deviation {
    fn between(output: &Tensor, expected: &Tensor) -> Self {
        let same_type = output.type_name() == expected.type_name();
        let (mut squares, mut reference_squares, mut sum) = (0.0, 0.0, 0.0);
        let (mut max_abs, mut mismatches, mut worst_index) = (0.0, 0, None);
        // Integers whose bytes agree have no error, and nothing is relative to their size if none has one.
        let known = same_type && !expected.is_float() && output.bytes() == expected.bytes();
        for index in 0..if known { 0 } else { expected.len() } {
            let (value, wanted) = (output.number(index), expected.number(index));
            let error = value - wanted;
            let same =
                if same_type { output.element(index) == expected.element(index) } else { error == 0.0 };
            if !same || value.is_nan() {
                mismatches += 1;
                // The first NaN is the worst, and stays it.
                if worst_index.is_none() || error.is_nan() && !f64::is_nan(max_abs) || error.abs() > max_abs {
                    worst_index = Some(index);
                    max_abs = error.abs();
                }
            }
            squares += error * error;
            reference_squares += wanted * wanted;
            sum += error;
        }
        let count = expected.len().max(1) as f64;
        let relative = if squares == 0.0 { 0.0 } else { (squares / reference_squares).sqrt() };
        Self {
            relative_frobenius: relative,
            max_abs,
            mean_bias: (sum / count).abs(),
            mismatches,
            worst_index,
        }
    }

    /// The larger of two in every figure, a NaN being larger than anything.
    pub fn worse(self, other: Self) -> Self {
        let larger = |left: f64, right: f64| if left.is_nan() || left > right { left } else { right };
        Self {
            relative_frobenius: larger(self.relative_frobenius, other.relative_frobenius),
            max_abs: larger(self.max_abs, other.max_abs),
            mean_bias: larger(self.mean_bias, other.mean_bias),
            mismatches: self.mismatches.max(other.mismatches),
            worst_index: None,
        }
    }

    fn inexactness(&self) -> Option<String> {
        (self.mismatches > 0).then(|| format!("{} elements differ where none may", self.mismatches))
    }

    fn worst(&self, output: &Tensor, expected: &Tensor) -> String {
        self.worst_index.map_or_else(String::new, |index| {
            let (value, wanted) = (output.number(index), expected.number(index));
            format!("; element {index} is {value:e}, the reference {wanted:e}")
        })
    }
}

/// JSON has no NaN and no infinity: they become `null`, and come back as NaN.
mod finite_or_null {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        value.is_finite().then_some(value).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounded(bound: f64) -> ErrorBudget {
        ErrorBudget::Bounded(Bounds { relative_frobenius: bound, max_abs: bound, mean_bias: bound })
    }

    fn one(tensor: impl Into<Tensor>) -> Outputs {
        Outputs::new().with("x", tensor)
    }

    #[test]
    fn a_nan_never_passes() {
        let reference = one(vec![1.0f32, 2.0]);
        let broken = one(vec![1.0f32, f32::NAN]);
        assert!(bounded(f64::INFINITY).judge(&broken, &reference).refused.is_some());
        assert!(bounded(f64::INFINITY).judge(&broken, &broken).refused.is_some());
        assert!(ErrorBudget::Exact.judge(&broken, &broken).refused.is_some());
        assert!(bounded(f64::NAN).judge(&reference, &reference).refused.is_some());
    }

    #[test]
    fn a_nan_among_large_errors_is_the_one_named() {
        let reference = one(vec![0.0f32; 4]);
        let broken = one(vec![5.0f32, f32::NAN, 1e30, f32::NAN]);
        let why = ErrorBudget::Exact.judge(&broken, &reference).refused.unwrap();
        assert!(why.contains("4 elements differ") && why.contains("element 1 is NaN"), "{why}");
    }

    #[test]
    fn each_bound_refuses_alone() {
        let wide = Bounds { relative_frobenius: 1.0, max_abs: 1.0, mean_bias: 1.0 };
        let reference = one(vec![1.0f64; 4]);
        let output = one(vec![1.25f64, 1.0, 1.0, 1.0]);
        let judged = |bounds| ErrorBudget::Bounded(bounds).judge(&output, &reference).refused;
        assert_eq!(judged(wide), None);
        assert!(judged(Bounds { max_abs: 0.2, ..wide }).unwrap().contains("largest"));
        assert!(judged(Bounds { relative_frobenius: 0.1, ..wide }).unwrap().contains("Frobenius"));
        assert!(judged(Bounds { mean_bias: 0.05, ..wide }).unwrap().contains("mean"));
    }

    #[test]
    fn a_wider_reference_compares_with_a_narrower_output() {
        let third = 1.0 / 3.0;
        let budget = ErrorBudget::rounding(Rounding {
            format: Format::F32,
            depth: 1,
            magnitude: third,
            output_rms: third,
            outputs: 1,
        });
        assert_eq!(budget.judge(&one(vec![third as f32]), &one(vec![third])).refused, None);
        assert!(budget.judge(&one(vec![half::f16::from_f64(third)]), &one(vec![third])).refused.is_some());
    }

    #[test]
    fn integers_are_exact_under_any_budget() {
        assert!(bounded(10.0).judge(&one(vec![7u32]), &one(vec![8u32])).refused.is_some());
        assert!(bounded(10.0).judge(&one(vec![7u64]), &one(vec![7u32])).refused.is_some());
    }

    #[test]
    fn shapes_and_names_must_match() {
        let reference = one(vec![1.0f32]);
        let refused = |outputs| ErrorBudget::Exact.judge(&outputs, &reference).refused.unwrap();
        assert!(refused(one(vec![1.0f32, 1.0])).contains("2 of f32"));
        assert!(refused(Outputs::new().with("y", vec![1.0f32])).contains("\"y\""));
    }

    #[test]
    fn a_deviation_that_is_not_finite_survives_json() {
        let deviation = Deviation::between(&vec![f32::NAN].into(), &vec![1.0f32].into());
        let text = serde_json::to_string(&deviation).unwrap();
        let back: Deviation = serde_json::from_str(&text).unwrap();
        assert!(back.max_abs.is_nan() && back.mismatches == 1, "{text}");
        assert!(back.worse(Deviation::between(&vec![1.0f32].into(), &vec![1.0f32].into())).max_abs.is_nan());
    }
}
