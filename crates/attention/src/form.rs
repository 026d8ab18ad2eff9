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

/// What an attention gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Output<O> {
    /// The output, in the order of the queries.
    pub o: Vec<O>,
    /// Log-sum-exp of every query row, `[batch, heads, rows]`, natural logarithm; minus infinity for a row that sees no
    /// key.
    pub lse: Vec<f32>,
}
