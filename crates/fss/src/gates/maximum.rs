//! Maxima of rows.

use crate::error::{Error, Result};
use crate::evaluator::Evaluator;
use crate::formula::Places;
use crate::ops::{GROUP, OTHERS};
use crate::tensor::Wire;

use super::activation::{negatives, relu};
use super::rows::Rows;

/// Rows of up to so many elements are cut down by groups, longer ones by pairs: a group of four has twice the
/// comparisons of its pairs, and half the rounds.
const SHORT: usize = GROUP;

/// The largest element of every row, by a tree: of pairs as max(a, b) = b + max(a − b, 0), of short rows in
/// groups of four, whose elements are all compared with each other.
///
/// Two rounds a level; in each level all pairs, or all groups, of all rows are one batch. Rows may have
/// different lengths, which are public.
pub async fn row_maxima(evaluator: &Evaluator, x: &Wire, rows: &Rows) -> Result<Wire> {
    if rows.elements() != x.len() {
        let what = format!("{x:?} and rows of {} elements together", rows.elements());
        return Err(Error::Shape { gate: "a maximum", what });
    }
    // What is left of each row, as places in `left`.
    let mut left = x.clone();
    let mut lengths = rows.lengths().to_vec();
    loop {
        let step = match lengths.iter().copied().max() {
            None | Some(0 | 1) => return Ok(left),
            // Two have one comparison either way.
            Some(2) => 2,
            Some(longest) if longest <= SHORT => GROUP,
            Some(_) => 2,
        };
        left = match step {
            2 => of_pairs(evaluator, &left, &lengths).await?,
            _ => of_groups(evaluator, &left, &lengths).await?,
        };
        lengths.iter_mut().for_each(|length| *length = length.div_ceil(step));
    }
}

/// Half of every row.
async fn of_pairs(evaluator: &Evaluator, left: &Wire, lengths: &[usize]) -> Result<Wire> {
    // Of every row its first half, its second, and the element that has no partner.
    let pairs = |length: usize| length / 2;
    let firsts = parts_of("first halves", lengths, |length| 0..pairs(length))?;
    let seconds = parts_of("second halves", lengths, |length| pairs(length)..2 * pairs(length))?;
    let singles = parts_of("elements without a partner", lengths, |length| 2 * pairs(length)..length)?;
    let (first, second) = (left.gather(&firsts)?, left.gather(&seconds)?);
    let larger = relu(evaluator, &first.minus(&second)?).await?;
    let larger = evaluator.add_wire_in_ring(&larger, &second)?;
    let larger = evaluator.open(evaluator.claim("a maximum", larger, left.bound())?).await?;
    let all = Wire::concat(&[&larger, &left.gather(&singles)?])?;
    all.gather(&next_rows(lengths, larger.len())?)
}

/// A quarter of every row: the elements g, g + G, g + 2 G and g + 3 G of a row of 4 G, as far as they are
/// there, are the group g.
async fn of_groups(evaluator: &Evaluator, left: &Wire, lengths: &[usize]) -> Result<Wire> {
    let table = Places::of_shape("elements of groups", lengths, || {
        let groups = groups_of(lengths);
        Places::of((0..GROUP).flat_map(|place| groups.iter().map(move |group| group[place])))
    })?;
    let firsts = Places::of_shape("first elements of pairs in groups", lengths, || {
        Places::new(pairs_of(lengths).iter().map(|pair| pair.elements[0]))
    })?;
    let seconds = Places::of_shape("second elements of pairs in groups", lengths, || {
        Places::new(pairs_of(lengths).iter().map(|pair| pair.elements[1]))
    })?;
    let differences = left.gather(&firsts)?.minus(&left.gather(&seconds)?)?;
    let second_is_larger = evaluator.open(negatives(evaluator, &differences, &[0])?.remove(0)).await?;
    // Of two equal elements the first counts as the larger one.
    let first_is_larger = evaluator.offset_in_ring(&second_is_larger, 1)?;
    let both = Wire::concat(&[&second_is_larger, &first_is_larger])?;
    let names = ["first bits of groups", "second bits of groups", "third bits of groups"];
    let mut larger = Vec::with_capacity(OTHERS);
    for (index, name) in names.into_iter().enumerate() {
        let places = Places::of_shape(name, lengths, || Places::of(bits_of(lengths, index)))?;
        larger.push(both.gather(&places)?);
    }
    let elements = left.gather(&table)?;
    let groups = elements.len() / GROUP;
    let largest = evaluator.largest(&elements, [&larger[0], &larger[1], &larger[2]], groups)?;
    evaluator.open(evaluator.claim("a maximum", largest, left.bound())?).await
}

/// Two elements of a group that are compared: which group, which of its elements, and their places.
struct PairOfGroup {
    group: usize,
    members: [usize; 2],
    elements: [usize; 2],
}

/// Every group's elements, by their places.
fn groups_of(lengths: &[usize]) -> Vec<[Option<usize>; GROUP]> {
    let mut groups = Vec::new();
    let mut start = 0;
    for &length in lengths {
        let count = length.div_ceil(GROUP);
        let element = |place: usize| (place < length).then_some(start + place);
        groups.extend((0..count).map(|group| std::array::from_fn(|member| element(member * count + group))));
        start += length;
    }
    groups
}

fn pairs_of(lengths: &[usize]) -> Vec<PairOfGroup> {
    let mut pairs = Vec::new();
    for (group, members) in groups_of(lengths).iter().enumerate() {
        for first in 0..GROUP {
            for second in first + 1..GROUP {
                if let (Some(one), Some(two)) = (members[first], members[second]) {
                    pairs.push(PairOfGroup { group, members: [first, second], elements: [one, two] });
                }
            }
        }
    }
    pairs
}

/// Where the bit is that says whether a member's other number `index` is larger: among the pairs' bits for
/// the first of a pair, and behind them for the second. All groups' first members, then all second ones.
fn bits_of(lengths: &[usize], index: usize) -> Vec<Option<usize>> {
    let (groups, pairs) = (groups_of(lengths).len(), pairs_of(lengths));
    let mut bits = vec![None; GROUP * groups];
    for (place, PairOfGroup { group, members: [first, second], .. }) in pairs.iter().enumerate() {
        // A member's others in their order, itself left out.
        if second - 1 == index {
            bits[first * groups + group] = Some(place);
        }
        if *first == index {
            bits[second * groups + group] = Some(pairs.len() + place);
        }
    }
    bits
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

/// Row by row again, behind all pairs' maxima and all elements without a partner: a row's maxima, then its
/// single element.
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
