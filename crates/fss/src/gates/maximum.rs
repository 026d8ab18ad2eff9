//! Maxima of rows.

use crate::error::{Error, Result};
use crate::evaluator::Evaluator;
use crate::formula::Places;
use crate::tensor::Wire;

use super::activation::relu;
use super::rows::Rows;

/// The largest element of every row, by a tree of max(a, b) = b + max(a − b, 0).
///
/// ⌈log2 w⌉ levels of two rounds for the longest row of w elements; in each level all pairs of all rows are one batch. Rows may
/// have different lengths, which are public.
pub async fn row_maxima(evaluator: &Evaluator, x: &Wire, rows: &Rows) -> Result<Wire> {
    if rows.elements() != x.len() {
        let what = format!("{x:?} and rows of {} elements together", rows.elements());
        return Err(Error::Shape { gate: "a maximum", what });
    }
    // What is left of each row, as places in `left`.
    let mut left = x.clone();
    let mut lengths = rows.lengths().to_vec();
    while lengths.iter().any(|&length| length > 1) {
        let (mut firsts, mut seconds, mut singles) = (Vec::new(), Vec::new(), Vec::new());
        let mut start = 0;
        for &length in &lengths {
            let pairs = length / 2;
            firsts.extend(start..start + pairs);
            seconds.extend(start + pairs..start + 2 * pairs);
            singles.extend(start + 2 * pairs..start + length);
            start += length;
        }
        let (first, second) = (left.gather(&Places::new(firsts)?)?, left.gather(&Places::new(seconds)?)?);
        let larger = relu(evaluator, &first.minus(&second)?).await?;
        let larger = evaluator.add_wire_in_ring(&larger, &second)?;
        let larger = evaluator.open(evaluator.claim("a maximum", larger, x.bound())?).await?;
        let all = Wire::concat(&[&larger, &left.gather(&Places::new(singles)?)?])?;
        // Row by row again: its pairs' maxima, then the element that had no partner.
        let (mut places, mut pair, mut single) = (Vec::new(), 0, larger.len());
        for length in &mut lengths {
            let pairs = *length / 2;
            places.extend(pair..pair + pairs);
            pair += pairs;
            if *length % 2 == 1 {
                places.push(single);
                single += 1;
            }
            *length = length.div_ceil(2);
        }
        left = all.gather(&Places::new(places)?)?;
    }
    Ok(left)
}
