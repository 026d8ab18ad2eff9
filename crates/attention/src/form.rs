//! What is asked of an attention and what it gives, wherever it runs.

use std::sync::Arc;

use crate::shape::{Layout, Mask, Shape};
use crate::{Error, Result};

/// A combination that was checked: any target can compute it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Form {
    pub(crate) shape: Shape,
    pub(crate) mask: Mask,
    pub(crate) layout: Layout,
    /// The factor of scores.
    pub(crate) scale: f32,
    /// Scores become `cap tanh(score / cap)`.
    pub(crate) soft_cap: Option<f32>,
    /// A logit for each query head that takes part in the softmax and has no value.
    pub(crate) sinks: Option<Arc<[f32]>>,
}

/// Scores that are capped above this would leave the f16 of a device.
const LARGEST_SOFT_CAP: f32 = 2000.0;

impl Form {
    /// Full attention with heads first, scaled by `1 / sqrt(dim)`.
    pub(crate) fn new(shape: Shape) -> Self {
        let (mask, layout) = (Mask::default(), Layout::default());
        Self { shape, mask, layout, scale: 1.0 / (shape.dim as f32).sqrt(), soft_cap: None, sinks: None }
    }

    /// Says what cannot be computed.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::Unsupported { what });
        self.shape.check()?;
        let scale = self.scale;
        if !(scale > 0.0 && scale.is_finite()) {
            return refuse(format!("scale {scale}; it must be positive and finite"));
        }
        if let Some(cap) = self.soft_cap.filter(|cap| !(*cap > 0.0 && *cap <= LARGEST_SOFT_CAP)) {
            return refuse(format!("soft cap {cap}; it must be positive and at most {LARGEST_SOFT_CAP}"));
        }
        let sinks = self.sinks.as_deref().unwrap_or_default();
        if self.sinks.is_some() && sinks.len() != self.shape.heads {
            let (found, needed) = (sinks.len(), self.shape.heads);
            return Err(Error::Length { tensor: "sinks", found, needed });
        }
        if let Some(head) = sinks.iter().position(|sink| sink.is_nan() || *sink == f32::INFINITY) {
            let sink = sinks[head];
            return refuse(format!(
                "sink {sink} of head {head}; it must be a number, or minus infinity for none"
            ));
        }
        Ok(())
    }

    /// The logit of a query head's sink; minus infinity, which has no weight, where there is none.
    pub(crate) fn sink(&self, head: usize) -> f32 {
        self.sinks.as_ref().map_or(f32::NEG_INFINITY, |sinks| sinks[head])
    }
}

/// What the bits of a result may depend on. The same call always gives the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bits {
    /// On the whole call and the device too: where rows are few, keys are cut into as many parts as the
    /// device has room for.
    #[default]
    Repeatable,
    /// A row's bits depend on its own sequence and head alone: not on the batch, on other heads, or on the
    /// number of multiprocessors. Up to 64 rows, parts of the keys have a fixed length; more rows have no
    /// parts.
    BatchInvariant,
}

/// The result of an attention.
#[derive(Debug, Clone, PartialEq)]
pub struct Output<O> {
    /// The output, in the order of the queries.
    pub o: Vec<O>,
    /// Log-sum-exp of every query row, `[batch, heads, rows]`, natural logarithm, with the head's sink if it
    /// has one; minus infinity for a row that sees no key and has no sink.
    pub lse: Vec<f32>,
}
