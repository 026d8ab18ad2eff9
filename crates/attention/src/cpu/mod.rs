//! Attention on the CPU, in f32: key tiles with a running maximum, rows in parallel.

use rayon::prelude::*;

use crate::shape::{Layout, Mask, Shape};
use crate::{Element, Error, Result};

/// Keys that are worked on at a time: their scores stay in the first-level cache.
const TILE: usize = 64;

/// `softmax(scale q k^T + mask) v`. All tensors have `layout`; the output has the format asked for.
pub fn attention<T: Element, O: Element>(
    shape: &Shape,
    mask: Mask,
    layout: Layout,
    scale: f32,
    [q, k, v]: [&[T]; 3],
) -> Result<Vec<O>> {
    shape.check()?;
    for (tensor, found, needed) in [
        ("q", q.len(), shape.query_elements()),
        ("k", k.len(), shape.key_elements()),
        ("v", v.len(), shape.key_elements()),
    ] {
        if found != needed {
            return Err(Error::Length { tensor, found, needed });
        }
    }
    let dim = shape.dim;
    let key_strides = layout.strides(shape.key_heads, shape.keys, dim);
    let gather = |matrix: &[T], batch: usize, head: usize| -> Vec<f32> {
        let base = batch * key_strides.batch + head * key_strides.head;
        let row = |key: usize| &matrix[base + key * key_strides.row..][..dim];
        (0..shape.keys).flat_map(|key| row(key).iter().map(|x| x.to_f32())).collect()
    };
    let mut out = vec![O::from_f32(0.0); q.len()];
    let query_strides = layout.strides(shape.heads, shape.rows, dim);
    for batch in 0..shape.batch {
        for key_head in 0..shape.key_heads {
            let (keys, values) = (gather(k, batch, key_head), gather(v, batch, key_head));
            let group = shape.heads / shape.key_heads;
            let rows: Vec<(usize, Vec<f32>)> = (key_head * group..(key_head + 1) * group)
                .flat_map(|head| (0..shape.rows).map(move |row| (head, row)))
                .collect::<Vec<_>>()
                .into_par_iter()
                .map(|(head, row)| {
                    let at =
                        batch * query_strides.batch + head * query_strides.head + row * query_strides.row;
                    let query: Vec<f32> = q[at..at + dim].iter().map(|x| x.to_f32() * scale).collect();
                    let seen = shape.last_key(row, mask).map_or(0, |last| last + 1);
                    (at, attend_row(&query, &keys[..seen * dim], &values[..seen * dim]))
                })
                .collect();
            for (at, row) in rows {
                for (o, value) in out[at..at + dim].iter_mut().zip(row) {
                    *o = O::from_f32(value);
                }
            }
        }
    }
    Ok(out)
}

/// One query row over its keys.
fn attend_row(query: &[f32], keys: &[f32], values: &[f32]) -> Vec<f32> {
    let dim = query.len();
    let (mut top, mut sum, mut out) = (f32::NEG_INFINITY, 0.0f32, vec![0.0f32; dim]);
    let mut scores = [0.0f32; TILE];
    for (keys, values) in keys.chunks(TILE * dim).zip(values.chunks(TILE * dim)) {
        let scores = &mut scores[..keys.len() / dim];
        for (score, key) in scores.iter_mut().zip(keys.chunks_exact(dim)) {
            *score = dot(query, key);
        }
        let highest = scores.iter().copied().fold(top, f32::max);
        let correction = (top - highest).exp();
        top = highest;
        sum *= correction;
        out.iter_mut().for_each(|o| *o *= correction);
        for (score, value) in scores.iter().zip(values.chunks_exact(dim)) {
            let weight = (score - top).exp();
            sum += weight;
            out.iter_mut().zip(value).for_each(|(o, v)| *o += weight * v);
        }
    }
    if sum > 0.0 {
        out.iter_mut().for_each(|o| *o /= sum);
    }
    out
}

/// Eight sums side by side, which the compiler puts into vector registers.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 8];
    for (a, b) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    sums.iter().sum()
}
