//! What is known about weights.

use std::collections::HashMap;

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::graph::{Graph, Weight, WeightId, WeightKind};

use super::spectral::{frobenius, spectral_norm};
use super::upper::Upper;

/// Upper bounds of a weight tensor, in units of one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WeightFacts {
    /// The largest magnitude.
    pub(crate) entry: Upper,
    /// The largest sum of magnitudes of a column.
    pub(crate) column_sum: Upper,
    /// The largest ℓ2 norm of a column.
    pub(crate) column_norm: Upper,
    /// The largest ℓ2 norm of a row.
    pub(crate) row_norm: Upper,
    /// The spectral norm.
    pub(crate) spectral: Upper,
}

/// Facts of every weight of a graph. They depend on its fraction, not on its ring.
pub(crate) type Facts = HashMap<WeightId, WeightFacts>;

impl WeightFacts {
    /// From the magnitude of the entries alone.
    fn of_entries(rows: usize, columns: usize, entry: Upper) -> Self {
        let (rows, columns) = (Upper::exactly(rows as f64), Upper::exactly(columns as f64));
        Self {
            entry,
            column_sum: rows.times(entry),
            column_norm: rows.root().times(entry),
            row_norm: columns.root().times(entry),
            spectral: rows.times(columns).root().times(entry),
        }
    }

    /// From a spectral norm: no entry, row or column is longer.
    fn of_spectral(rows: usize, spectral: Upper) -> Self {
        let column_sum = Upper::exactly(rows as f64).root().times(spectral);
        Self { entry: spectral, column_sum, column_norm: spectral, row_norm: spectral, spectral }
    }

    /// Both hold.
    fn and(self, other: Self) -> Self {
        Self {
            entry: self.entry.min(other.entry),
            column_sum: self.column_sum.min(other.column_sum),
            column_norm: self.column_norm.min(other.column_norm),
            row_norm: self.row_norm.min(other.row_norm),
            spectral: self.spectral.min(other.spectral),
        }
    }

    /// Of the integers themselves, with `fraction` fractional bits: nothing is lost to their rounding.
    fn measured(values: &[i64], columns: usize, fraction: u32, kind: WeightKind) -> Self {
        let unit = 2f64.powi(-(fraction as i32));
        // Entries of more than 53 bits are rounded away from zero.
        let entries: Vec<f64> = values
            .iter()
            .map(|&value| {
                Upper::integer(i128::from(value.unsigned_abs())).value().copysign(value as f64) * unit
            })
            .collect();
        // Row by row, as they lie; every partial sum is rounded up.
        let over_columns = |term: &dyn Fn(f64) -> Upper| {
            let mut sums = vec![Upper::ZERO; columns];
            for row in entries.chunks(columns) {
                for (sum, &entry) in sums.iter_mut().zip(row) {
                    *sum = sum.plus(term(entry));
                }
            }
            sums.into_iter().fold(Upper::ZERO, Upper::max)
        };
        let magnitude = |entry: f64| Upper::exactly(entry.abs());
        Self {
            entry: entries.iter().map(|&entry| magnitude(entry)).fold(Upper::ZERO, Upper::max),
            column_sum: over_columns(&magnitude),
            column_norm: over_columns(&|entry| magnitude(entry).times(magnitude(entry))).root(),
            row_norm: entries.chunks(columns).map(frobenius).fold(Upper::ZERO, Upper::max),
            // Only of matrices does anything depend on how close it is.
            spectral: match kind {
                WeightKind::Matrix => spectral_norm(&entries, columns),
                _ => frobenius(&entries),
            },
        }
    }
}

/// Norms that someone states about a model's weights, without the weights.
///
/// They are inputs of the analysis, not of the protocol: what becomes public is which truncations and clamps
/// it chose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StatedNorms {
    /// Largest magnitude of a gain γ.
    pub gain: f64,
    /// Largest ℓ2 norm of a bias or a shift β.
    pub bias: f64,
    /// Largest spectral norm of a matrix.
    pub spectral: f64,
    /// Largest ℓ2 norm of a row of an embedding.
    pub embedding: f64,
}

impl Default for StatedNorms {
    fn default() -> Self {
        Self { gain: 2.0, bias: 4.0, spectral: 3.0, embedding: 32.0 }
    }
}

/// Where the facts about weights come from. Every entry is below [`Knowledge::ENTRY`] in any case: inputs are
/// checked for that.
#[derive(Debug, Clone)]
pub enum Knowledge {
    /// Nothing but that.
    Entries,
    /// Norms that were stated.
    Stated(StatedNorms),
    /// The weights themselves, as integers with f fractional bits (2 f for a bias), in the order of
    /// [`Graph::weights`].
    Measured(Vec<Vec<i64>>),
}

impl Knowledge {
    /// No weight is larger than this: what an owner's input is checked against.
    pub const ENTRY: f64 = 16.0;

    /// Facts of every weight.
    pub(crate) fn facts(&self, graph: &Graph) -> Result<Facts> {
        if let Self::Measured(values) = self
            && values.len() != graph.weights().len()
        {
            let what = format!("{} weight tensors, the graph has {}", values.len(), graph.weights().len());
            return Err(gatework_fss::Error::Shape { gate: "range analysis", what }.into());
        }
        if let Self::Stated(norms) = self {
            let all = [norms.gain, norms.bias, norms.spectral, norms.embedding];
            if !all.iter().all(|norm| norm.is_finite() && *norm >= 0.0) {
                let what = format!("{norms:?}: norms are numbers from zero on");
                return Err(Error::Unsupported { gate: "range analysis", what });
            }
        }
        let weights = graph.weights().iter().enumerate();
        weights.map(|(index, weight)| Ok((WeightId(index), self.fact(graph, index, weight)?))).collect()
    }

    fn fact(&self, graph: &Graph, index: usize, weight: &Weight) -> Result<WeightFacts> {
        let (rows, columns) = (weight.rows, weight.columns);
        let declared = WeightFacts::of_entries(rows, columns, Upper::exactly(Self::ENTRY));
        Ok(match self {
            Self::Entries => declared,
            Self::Stated(norms) => declared.and(match weight.kind {
                WeightKind::Matrix => WeightFacts::of_spectral(rows, Upper::exactly(norms.spectral)),
                WeightKind::Gain => WeightFacts::of_entries(rows, columns, Upper::exactly(norms.gain)),
                WeightKind::Bias | WeightKind::Shift => {
                    WeightFacts::of_spectral(rows, Upper::exactly(norms.bias))
                }
                WeightKind::Table => WeightFacts {
                    entry: Upper::exactly(norms.embedding),
                    row_norm: Upper::exactly(norms.embedding),
                    ..declared
                },
            }),
            Self::Measured(values) => measure(graph, weight, &values[index])?,
        })
    }

    /// Facts of weights of which each thread has only one in memory at a time.
    pub(crate) fn measured(graph: &Graph, values: impl Fn(usize) -> Vec<i64> + Sync) -> Result<Facts> {
        let weights = graph.weights().par_iter().enumerate();
        weights
            .map(|(index, weight)| Ok((WeightId(index), measure(graph, weight, &values(index))?)))
            .collect()
    }
}

fn measure(graph: &Graph, weight: &Weight, values: &[i64]) -> Result<WeightFacts> {
    if values.len() != weight.len() {
        let what = format!("'{}' has {} elements, not {}", weight.name, weight.len(), values.len());
        return Err(gatework_fss::Error::Shape { gate: "range analysis", what }.into());
    }
    let f = graph.format().fraction;
    let fraction = if weight.kind == WeightKind::Bias { 2 * f } else { f };
    let facts = WeightFacts::measured(values, weight.columns, fraction, weight.kind);
    if facts.entry.value() > Knowledge::ENTRY {
        let what = format!("'{}' has an entry above {}", weight.name, Knowledge::ENTRY);
        return Err(Error::Unsupported { gate: "range analysis", what });
    }
    Ok(facts)
}
