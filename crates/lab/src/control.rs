//! Negative controls: wrong outputs that a sound gate refuses.

use std::iter;

use crate::budget::ErrorBudget;
use crate::tensor::Outputs;

/// A named wrong output. If the correctness gate accepts it, the gate is blind.
#[derive(Debug, Clone)]
pub struct Control {
    /// The mistake that it contains.
    pub name: String,
    /// The wrong outputs.
    pub outputs: Outputs,
}

impl Control {
    /// A wrong output of one's own.
    pub fn new(name: impl Into<String>, outputs: Outputs) -> Self {
        Self { name: name.into(), outputs }
    }

    /// Nothing was computed. No control for a reference that is zero.
    pub fn zeros(reference: &Outputs) -> Self {
        Self::altered("zeros", reference, |outputs| {
            for (_, tensor) in outputs.iter_mut() {
                tensor.bytes_mut().fill(0);
            }
        })
    }

    /// The last `count` elements of every output were never written.
    pub fn unwritten_tail(reference: &Outputs, count: usize) -> Self {
        Self::altered("unwritten tail", reference, |outputs| {
            for (_, tensor) in outputs.iter_mut() {
                let from = tensor.len().saturating_sub(count) * tensor.element_bytes();
                tensor.bytes_mut()[from..].fill(0xff);
            }
        })
    }

    /// Element `index` of `output` is out by `delta`.
    pub fn one_off(reference: &Outputs, output: &str, index: usize, delta: f64) -> Self {
        Self::altered("one element off", reference, |outputs| {
            for (_, tensor) in outputs.iter_mut().filter(|(name, _)| *name == output) {
                tensor.shift(index, delta);
            }
        })
    }

    /// Every element of every output is out by `delta`, as after a biased conversion.
    pub fn biased(reference: &Outputs, delta: f64) -> Self {
        Self::altered("biased", reference, |outputs| {
            for (_, tensor) in outputs.iter_mut() {
                (0..tensor.len()).for_each(|index| tensor.shift(index, delta));
            }
        })
    }

    /// Elements `left` and `right` of `output` are exchanged.
    pub fn swapped(reference: &Outputs, output: &str, left: usize, right: usize) -> Self {
        Self::altered("swapped order", reference, |outputs| {
            for (_, tensor) in outputs.iter_mut().filter(|(name, _)| *name == output) {
                tensor.swap(left, right);
            }
        })
    }

    /// The controls that the lab adds to a workload's own, for `budget`: zeros, everything half as large
    /// again, an element that is off by ten times its bound, and two elements exchanged that differ by more
    /// than it.
    ///
    /// What a reference cannot be altered to is left out: zeros stay zeros, and equal elements can change
    /// places. One at a time, since each is as large as the reference.
    pub(crate) fn of_the_lab<'a>(
        reference: &'a Outputs,
        budget: &'a ErrorBudget,
    ) -> impl Iterator<Item = Self> + 'a {
        let zeros = || {
            Self::altered("the lab's zeros", reference, |outputs| {
                outputs.iter_mut().for_each(|(_, tensor)| tensor.bytes_mut().fill(0));
            })
        };
        let larger = || {
            Self::altered("the lab's half as large again", reference, |outputs| {
                outputs.iter_mut().for_each(|(_, tensor)| tensor.enlarge());
            })
        };
        let whole = iter::once_with(zeros).chain(iter::once_with(larger));
        let tensors = reference.iter().filter(|(_, tensor)| !tensor.is_empty());
        let of_each = tensors.flat_map(move |(name, tensor)| {
            let bound = budget.largest_error(tensor);
            let off = move || {
                Self::altered("the lab's ten bounds off", reference, |outputs| {
                    let middle = tensor.len() / 2;
                    outputs
                        .tensor_mut(name)
                        .into_iter()
                        .for_each(|tensor| tensor.shift(middle, 10.0 * bound));
                })
            };
            let differs = move |index: &usize| (tensor.number(*index) - tensor.number(0)).abs() > bound;
            let exchange = move |other: usize| {
                Self::altered("the lab's exchange", reference, |outputs| {
                    outputs.tensor_mut(name).into_iter().for_each(|tensor| tensor.swap(0, other));
                })
            };
            iter::once_with(off).chain((1..tensor.len()).find(differs).map(exchange))
        });
        whole.chain(of_each).filter(move |control| control.outputs != *reference)
    }

    fn altered(name: &str, reference: &Outputs, alter: impl FnOnce(&mut Outputs)) -> Self {
        let mut outputs = reference.clone();
        alter(&mut outputs);
        Self::new(name, outputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorBudget;

    #[test]
    fn every_constructor_makes_a_wrong_output() {
        let reference = Outputs::new().with("x", vec![1.0f32, 2.0, 3.0]).with("count", vec![7u32]);
        let controls = [
            Control::zeros(&reference),
            Control::unwritten_tail(&reference, 1),
            Control::one_off(&reference, "x", 1, 0.5),
            Control::one_off(&reference, "count", 0, -1.0),
            Control::biased(&reference, 1.0),
            Control::swapped(&reference, "x", 0, 2),
        ];
        for control in controls {
            let refused = ErrorBudget::Exact.judge(&control.outputs, &reference).refused;
            assert!(refused.is_some(), "{} was accepted", control.name);
        }
    }
}
