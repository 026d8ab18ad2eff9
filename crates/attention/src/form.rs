//! What is asked of an attention and what it gives, wherever it runs.

use crate::shape::{Layout, Mask, Shape};
use crate::{Error, Result};

/// A combination that was checked: any target can compute it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) shape: Shape,
    pub(crate) mask: Mask,
    pub(crate) layout: Layout,
    /// What scores are multiplied with.
    pub(crate) scale: f32,
}

impl Form {
    /// Checks the combination. Without a scale it is `1 / sqrt(dim)`.
    pub(crate) fn new(shape: Shape, mask: Mask, layout: Layout, scale: Option<f32>) -> Result<Self> {
        shape.check()?;
        let scale = scale.unwrap_or_else(|| 1.0 / (shape.dim as f32).sqrt());
        if !(scale > 0.0 && scale.is_finite()) {
            return Err(Error::Unsupported {
                what: format!("scale {scale}; it must be positive and finite"),
            });
        }
        Ok(Self { shape, mask, layout, scale })
    }
}

/// What the bits of a result depend on. The same call gives the same bits, always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bits {
    /// On the whole call and the device too: where rows are few, keys are cut into as many parts as the device has room for.
    #[default]
    Repeatable,
    /// A row's bits depend on its own sequence and head alone: not on the batch, on other heads, or on the number of
    /// multiprocessors. Up to 64 rows, parts of the keys have a fixed length; more rows have no parts.
    BatchInvariant,
}

/// What an attention gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Output<O> {
    /// The output, in the order of the queries.
    pub o: Vec<O>,
    /// Log-sum-exp of every query row, `[batch, heads, rows]`, natural logarithm; minus infinity for a row that sees no
    /// key.
    pub lse: Vec<f32>,
}
