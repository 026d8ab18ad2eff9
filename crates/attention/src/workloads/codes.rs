//! What the quantiser makes of numbers: the values of their codes, for an oracle of the kernel alone.

use float8::F8E4M3;

use crate::cuda::{KEY_TILE, score_limit, value_group};
use crate::shared::{LARGEST_CODE, QUERY_TILE};
use crate::{Element, Shape};

/// Queries, keys and values in `[batch, heads, rows, dim]` as the attention kernel is given them.
pub fn values<T: Element>(shape: &Shape, [q, k, v]: [&[T]; 3]) -> [Vec<f64>; 3] {
    let Shape { rows, keys, dim, value_dim, .. } = *shape;
    let limit = score_limit(dim);
    [
        of_blocks(q, rows * dim, QUERY_TILE as usize * dim, limit),
        of_blocks(k, keys * dim, KEY_TILE * dim, limit),
        of_blocks(v, keys * value_dim, value_group(keys) * KEY_TILE * value_dim, LARGEST_CODE),
    ]
}

/// Block by block of each head: a block's largest number becomes `limit`.
pub(super) fn of_blocks<T: Element>(x: &[T], head: usize, block: usize, limit: f32) -> Vec<f64> {
    let mut values = Vec::with_capacity(x.len());
    for block in x.chunks(head).flat_map(|head| head.chunks(block)) {
        let largest = block.iter().fold(0.0f32, |largest, x| largest.max(x.to_f32().abs()));
        let (factor, scale) = (limit / largest, largest / limit);
        let value = |x: &T| F8E4M3::from_f32(x.to_f32() * factor).to_f32() * scale;
        values.extend(block.iter().map(|x| f64::from(value(x))));
    }
    values
}
