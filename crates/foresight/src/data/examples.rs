//! Labelled examples.

use crate::error::{Error, Result};
use crate::random::Random;

/// Examples of one shape with the class of each.
#[derive(Debug, Clone, PartialEq)]
pub struct Examples {
    /// Channels, rows, columns.
    shape: [usize; 3],
    classes: usize,
    inputs: Vec<f32>,
    labels: Vec<u16>,
}

impl Examples {
    /// Examples of `shape` (channels, rows, columns), one after the other. All of it is checked: a number
    /// that is not finite or a label without a class would otherwise show as a run that diverges.
    pub fn new(shape: [usize; 3], classes: usize, inputs: Vec<f32>, labels: Vec<u16>) -> Result<Self> {
        let size: usize = shape.iter().product();
        if labels.is_empty() || size == 0 {
            return Err(Error::data("it is empty: at least one example is needed"));
        }
        if inputs.len() != labels.len() * size {
            return Err(Error::data(format!(
                "{} numbers are not {} examples of {size}: images and labels do not belong together",
                inputs.len(),
                labels.len()
            )));
        }
        if let Some(at) = inputs.iter().position(|x| !x.is_finite()) {
            return Err(Error::data(format!(
                "example {} holds {}: only finite numbers can be learnt from",
                at / size,
                inputs[at]
            )));
        }
        if let Some(at) = labels.iter().position(|&label| usize::from(label) >= classes) {
            return Err(Error::data(format!(
                "example {at} has the label {}, and there are {classes} classes, numbered from 0",
                labels[at]
            )));
        }
        Ok(Self { shape, classes, inputs, labels })
    }

    /// How many there are: at least one.
    pub fn count(&self) -> usize {
        self.labels.len()
    }

    /// Channels, rows, columns of each.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// Numbers of each.
    pub fn size(&self) -> usize {
        self.shape.iter().product()
    }

    /// How many classes labels name.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The numbers of example `index`.
    pub fn input(&self, index: usize) -> &[f32] {
        &self.inputs[index * self.size()..][..self.size()]
    }

    /// The class of example `index`.
    pub fn label(&self, index: usize) -> usize {
        usize::from(self.labels[index])
    }

    /// The examples of these numbers.
    pub fn select(&self, indices: &[u32]) -> Result<Self> {
        let inputs = indices.iter().flat_map(|&index| self.input(index as usize)).copied().collect();
        let labels = indices.iter().map(|&index| self.labels[index as usize]).collect();
        Self::new(self.shape, self.classes, inputs, labels)
    }

    /// The same inputs with labels drawn anew, uniformly: nothing about them generalises.
    pub fn with_random_labels(mut self, seed: u64) -> Self {
        let mut random = Random::new(seed, "random labels");
        self.labels.iter_mut().for_each(|label| *label = random.below(self.classes) as u16);
        self
    }
}

/// What is trained on, what the engine probes with, and what a run is judged by. No example is in two of
/// them.
#[derive(Debug, Clone)]
pub struct Splits {
    /// Trained on.
    pub train: Examples,
    /// Held back for the engine: it accepts and rejects by these.
    pub probe: Examples,
    /// Held back from everybody: the comparison is made on these.
    pub validation: Examples,
}

impl Splits {
    /// Holds back the given numbers of examples, drawn by `seed`.
    pub fn hold_back(all: &Examples, probe: usize, validation: usize, seed: u64) -> Result<Self> {
        if all.count() <= probe + validation {
            return Err(Error::data(format!(
                "{} examples leave none to train on when {probe} are held back to probe and {validation} to validate",
                all.count()
            )));
        }
        let order = Random::new(seed, "splits").permutation(all.count());
        let (validation, rest) = order.split_at(validation);
        let (probe, train) = rest.split_at(probe);
        Ok(Self { train: all.select(train)?, probe: all.select(probe)?, validation: all.select(validation)? })
    }

    /// Holds back a probe of the training examples; what validates came apart.
    pub fn with_validation(all: &Examples, probe: usize, validation: Examples, seed: u64) -> Result<Self> {
        if all.count() <= probe {
            return Err(Error::data(format!(
                "{} examples leave none to train on when {probe} are held back to probe",
                all.count()
            )));
        }
        let order = Random::new(seed, "splits").permutation(all.count());
        let (probe, train) = order.split_at(probe);
        Ok(Self { train: all.select(train)?, probe: all.select(probe)?, validation })
    }

    /// Classes of all three.
    pub fn classes(&self) -> usize {
        self.train.classes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_examples_are_refused_with_what_is_wrong() {
        let refused = |inputs: Vec<f32>, labels: Vec<u16>| {
            Examples::new([1, 1, 2], 3, inputs, labels).unwrap_err().to_string()
        };
        assert!(refused(vec![], vec![]).contains("empty"));
        assert!(refused(vec![0.0; 3], vec![0, 1]).contains("do not belong together"));
        assert!(refused(vec![0.0, f32::NAN], vec![0]).contains("example 0 holds NaN"));
        assert!(refused(vec![0.0; 4], vec![0, 3]).contains("example 1 has the label 3"));
    }

    #[test]
    fn no_example_is_in_two_splits() {
        let all = Examples::new([1, 1, 1], 2, (0..50).map(|i| i as f32).collect(), vec![0; 50]).unwrap();
        let splits = Splits::hold_back(&all, 10, 15, 1).unwrap();
        let mut seen: Vec<i32> = [&splits.train, &splits.probe, &splits.validation]
            .iter()
            .flat_map(|part| (0..part.count()).map(|i| part.input(i)[0] as i32))
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..50).collect::<Vec<_>>());
        assert!(
            Splits::hold_back(&all, 25, 25, 1).unwrap_err().to_string().contains("leave none to train on")
        );
    }
}
