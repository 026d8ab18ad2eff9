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
        // Of every row its first half, its second, and the element that has no partner.
        let pairs = |length: usize| length / 2;
        let firsts = parts_of("first halves", &lengths, |length| 0..pairs(length))?;
        let seconds = parts_of("second halves", &lengths, |length| pairs(length)..2 * pairs(length))?;
        let singles = parts_of("elements without a partner", &lengths, |length| 2 * pairs(length)..length)?;
        let (first, second) = (left.gather(&firsts)?, left.gather(&seconds)?);
        let larger = relu(evaluator, &first.minus(&second)?).await?;
        let larger = evaluator.add_wire_in_ring(&larger, &second)?;
        let larger = evaluator.open(evaluator.claim("a maximum", larger, x.bound())?).await?;
        let all = Wire::concat(&[&larger, &left.gather(&singles)?])?;
        left = all.gather(&next_rows(&lengths, larger.len())?)?;
        lengths.iter_mut().for_each(|length| *length = length.div_ceil(2));
    }
    Ok(left)
}

/// A part of every row, which follows from the row's length.
fn parts_of(
    what: &'static str,
    lengths: &[usize],
    part: impl Fn(usize) -> std::ops::Range<usize>,
) -> Result<Places> {
    Places::of_shape(what, lengths, || {
        let mut start = 0;
        Places::new(lengths.iter().flat_map(|&length| {
            let first = start;
            start += length;
            part(length).map(move |place| first + place)
        }))
    })
}

/// Row by row again, behind all pairs' maxima and all elements without a partner: a row's maxima, then its single element.
fn next_rows(lengths: &[usize], maxima: usize) -> Result<Places> {
    Places::of_shape("maxima of pairs", lengths, || {
        let (mut places, mut pair, mut single) = (Vec::new(), 0, maxima);
        for length in lengths {
            let pairs = length / 2;
            places.extend(pair..pair + pairs);
            pair += pairs;
            if length % 2 == 1 {
                places.push(single);
                single += 1;
            }
        }
        Places::new(places)
    })
}
