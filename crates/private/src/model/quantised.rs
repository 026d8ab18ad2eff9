//! Weights as integers.

use gatework_fss::Ring;
use gatework_fss::secret::Secret;

use crate::error::Result;
use crate::graph::{Graph, Weight, WeightKind};
use crate::range::{Facts, Knowledge};

use super::exact::ExactWeights;
use super::refused;
use super::salt::Salt;

/// All weights of a model as integers, in the order of [`Graph::weights`]: f fractional bits, 2 f for a bias.
pub struct QuantisedWeights {
    tensors: Vec<Secret<i32>>,
    salt: Salt,
}

impl QuantisedWeights {
    pub(super) fn new(tensors: Vec<Secret<i32>>) -> Self {
        Self { tensors, salt: Salt::default() }
    }

    /// The same with the salt of their hash.
    pub fn salted(self, salt: Salt) -> Self {
        Self { salt, ..self }
    }

    /// BLAKE3 of the salt and all integers, each tensor after its length.
    pub fn hash(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key("gatework-fss 2026 quantised weights");
        hasher.update(self.salt.bytes());
        for tensor in &self.tensors {
            hasher.update(&(tensor.len() as u64).to_le_bytes());
            hasher.update(bytemuck::cast_slice(tensor.as_slice()));
        }
        hasher.finalize().into()
    }

    /// The integers, as [`crate::range::Proved::holds_for`] takes them.
    pub fn integers(&self) -> Vec<Vec<i64>> {
        let widened = |tensor: &Secret<i32>| tensor.iter().map(|&value| value.into()).collect();
        self.tensors.iter().map(widened).collect()
    }

    /// The words of a ring, as a network's set-up asks for them.
    pub(super) fn words(&self, ring: Ring) -> Vec<Vec<u64>> {
        let encode = |&value: &i32| ring.encode(i128::from(value));
        self.tensors.iter().map(|tensor| tensor.iter().map(encode).collect()).collect()
    }

    /// What range analysis needs of them.
    pub(super) fn facts(&self, graph: &Graph) -> Result<Facts> {
        let tensor = |index: usize| -> Vec<i64> {
            self.tensors
                .get(index)
                .map_or(Vec::new(), |tensor| tensor.iter().map(|&value| value.into()).collect())
        };
        Knowledge::measured(graph, tensor)
    }
}

/// What is kept of tensors beside their integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeps {
    /// Nothing.
    Integers,
    /// The numbers as the checkpoint has them, too.
    Exact,
}

/// Rounds tensors, one after the other as a graph names them.
pub(super) struct Quantiser<'a> {
    fraction: u32,
    expected: std::slice::Iter<'a, Weight>,
    tensors: Vec<Secret<i32>>,
    /// The same before they are rounded.
    exact: Vec<Vec<f64>>,
    keeps_exact: bool,
}

impl<'a> Quantiser<'a> {
    pub(super) fn new(graph: &'a Graph, keeps: Keeps) -> Self {
        Self {
            fraction: graph.format().fraction,
            expected: graph.weights().iter(),
            tensors: Vec::with_capacity(graph.weights().len()),
            exact: Vec::new(),
            keeps_exact: keeps == Keeps::Exact,
        }
    }

    /// The next weight of the graph, row by row, times `scale`.
    pub(super) fn push(&mut self, name: &str, entries: &[f32], scale: f64) -> Result<()> {
        let next = self.expected.next();
        let weight = next.ok_or_else(|| refused(format!("'{name}' has no place in the graph")))?;
        if weight.len() != entries.len() {
            let (len, expected) = (entries.len(), weight.len());
            return Err(refused(format!(
                "'{name}' has {len} entries, the graph's '{}' {expected}",
                weight.name
            )));
        }
        let fraction = if weight.kind == WeightKind::Bias { 2 * self.fraction } else { self.fraction };
        let unit = scale * 2f64.powi(fraction as i32);
        let most = Knowledge::ENTRY * 2f64.powi(fraction as i32);
        let mut tensor = Secret::with_capacity(entries.len());
        for &entry in entries {
            let rounded = (f64::from(entry) * unit).round();
            if !(-most..=most).contains(&rounded) || most > f64::from(i32::MAX) {
                return Err(refused(format!("'{name}' has an entry of {entry}, above {}", Knowledge::ENTRY)));
            }
            tensor.push(rounded as i32);
        }
        self.tensors.push(tensor);
        if self.keeps_exact {
            self.exact.push(entries.iter().map(|&entry| f64::from(entry) * scale).collect());
        }
        Ok(())
    }

    /// All weights, if none is missing, and as they were if they were kept.
    pub(super) fn finish(mut self) -> Result<(QuantisedWeights, ExactWeights)> {
        match self.expected.next() {
            None => Ok((QuantisedWeights::new(self.tensors), ExactWeights::new(self.exact))),
            Some(weight) => Err(refused(format!("the graph's '{}' is not in the checkpoint", weight.name))),
        }
    }
}

/// columns × rows of a matrix that lies rows × columns.
pub(super) fn transposed(entries: &[f32], columns: usize) -> Vec<f32> {
    let rows = entries.len() / columns.max(1);
    let mut turned = Vec::with_capacity(entries.len());
    for column in 0..columns {
        turned.extend((0..rows).map(|row| entries[row * columns + column]));
    }
    turned
}
