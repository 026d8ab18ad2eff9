//! The hyperbolic tangent.

use crate::error::{Error, Result};
use crate::evaluator::Evaluator;
use crate::reference;
use crate::ring::Ring;
use crate::table::{LARGEST_TABLE_BITS, Table};
use crate::tensor::{Share, Wire};

use super::clamp::clamp;

/// tanh x: x is clamped to [−2^e, 2^e) and looked up in full, so that the result is rounded and nothing else.
///
/// The table has 2^(e+1+f) entries, each of which both parties add up for every element. That is for a row or
/// two, as a pooler has it, not for whole layers.
///
/// ```text
/// round 1   the bits of the clamp       round 2   the clamped value       round 3   ±tanh
/// round 4   the result, by whoever opens it
/// ```
#[derive(Debug, Clone)]
pub struct Tanh {
    table: Table,
}

/// e: 1 − tanh 8 is below 2^−22.
const REACH: u32 = 3;

impl Tanh {
    /// The gate for numbers with `fraction` fractional bits.
    pub fn new(fraction: u32) -> Result<Self> {
        let domain = REACH + 1 + fraction;
        if fraction == 0 || domain > LARGEST_TABLE_BITS {
            let what =
                format!("{fraction} fractional bits: there may be 1 to {}", LARGEST_TABLE_BITS - REACH - 1);
            return Err(Error::Unsupported { gate: "a hyperbolic tangent", what });
        }
        let (index_ring, unit) = (Ring::new(domain)?, (1u64 << fraction) as f64);
        let entry =
            |index: u64| (reference::tanh(index_ring.signed(index) as f64 / unit) * unit).round() as i64;
        Ok(Self { table: Table::known("tanh", [fraction.into(), 0, 0], || Table::new(domain, entry))? })
    }

    /// tanh of every element, in the ring of `x`.
    pub async fn apply(&self, evaluator: &Evaluator, x: &Wire) -> Result<Share> {
        let domain = self.table.domain();
        if x.ring().bits() < domain {
            let what = format!("in a ring of {} bits: at least {domain} are needed", x.ring().bits());
            return Err(Error::Unsupported { gate: "a hyperbolic tangent", what });
        }
        let limit = 1i64 << (domain - 1);
        let clamped = evaluator.open(clamp(evaluator, x, -limit, limit - 1).await?).await?;
        let found = evaluator.lookup(&clamped.low_bits(domain)?, &self.table, x.ring()).await?;
        evaluator.looked_up(&found)
    }
}
