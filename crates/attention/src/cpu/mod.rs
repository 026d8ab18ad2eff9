//! Attention on the CPU, in f32: key tiles with a running maximum, blocks of query rows in parallel.
//!
//! A block of rows passes over the tiles of its keys. Each tile gives `s = q kᵀ`, then row by row the new
//! maximum `m`, weights `p = exp(s - m)` and their sum, then `o <- o exp(m_old - m) + p v`. Keys lie
//! transposed in their tiles (`[dim][TILE]`), values as they are (`[TILE][dim]`), so that both products are
//! the same loop. For a few rows alone, as in decoding, transposing would take longer than all the rest: keys
//! then lie as they are, too.

mod vector;

use rayon::prelude::*;

use crate::dimensions::MOST_DIM;
use crate::form::{Form, Output};
use crate::shape::{Layout, Shape, Strides};
use crate::{Element, Error, Result};
use vector::{GROUP, Instructions, Look};

/// Keys of a tile: their scores with a block of rows stay in the first-level cache.
const TILE: usize = 64;
/// Up to so many rows, a dot product for each score takes less time than to transpose the keys.
const FEW: usize = 8;
/// Numbers of the widest vector.
const WIDEST: usize = 16;
/// Query rows of a block, which share what a tile loads.
const BLOCK: usize = 8 * GROUP;

/// An attention of one shape on the CPU.
#[derive(Debug, Clone)]
pub struct CpuAttention {
    form: Form,
}

/// Where the rows of keys and values lie. Heads are counted over all batches.
pub(crate) trait Rows<T>: Sync {
    fn key(&self, key_head: usize, key: usize) -> &[T];
    fn value(&self, key_head: usize, key: usize) -> &[T];
}

/// Tensors in the layout of the attention.
struct Tensors<'a, T> {
    k: &'a [T],
    v: &'a [T],
    k_strides: Strides,
    v_strides: Strides,
    shape: Shape,
}

impl<T: Element> Rows<T> for Tensors<'_, T> {
    fn key(&self, key_head: usize, key: usize) -> &[T] {
        &self.k[row_at(self.k_strides, self.shape.key_heads, key_head, key)..][..self.shape.dim]
    }

    fn value(&self, key_head: usize, key: usize) -> &[T] {
        &self.v[row_at(self.v_strides, self.shape.key_heads, key_head, key)..][..self.shape.value_dim]
    }
}

/// Writes a tile: its keys, transposed if they are to be, and its values.
type Pack<'a> = dyn Fn(usize, &mut [f32], &mut [f32]) + Sync + 'a;

/// Keys and values of one head, as tiles. Those past the last key are zeros, and so are numbers past a row's
/// last.
struct Tiles<'a> {
    /// Numbers of a row of keys, and of values: whole vectors.
    width: usize,
    value_width: usize,
    of_keys: Order,
    pack: &'a Pack<'a>,
    /// All of them, if more than one block of rows passes over them. One block alone packs a tile when it
    /// comes to it, and it is still in the cache when it is used.
    packed: Option<(Vec<f32>, Vec<f32>)>,
}

/// How a tile lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// `[TILE][width]`.
    AsTheyAre,
    /// `[width][TILE]`.
    Transposed,
}

/// Numbers of a row in a tile: a multiple of the widest vector.
fn width_of(dim: usize) -> usize {
    dim.next_multiple_of(WIDEST)
}

/// Room for one tile.
struct Scratch {
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl CpuAttention {
    pub(crate) fn new(form: Form) -> Self {
        Self { form }
    }

    /// `softmax(scale q k^T + mask) v` and the log-sum-exp of every row.
    pub fn forward<O: Element, T: Element>(&self, q: &[T], k: &[T], v: &[T]) -> Result<Output<O>> {
        self.forward_with(Instructions::detect(), q, k, v)
    }

    /// With instructions that the machine has.
    fn forward_with<O: Element, T: Element>(
        &self,
        instructions: Instructions,
        q: &[T],
        k: &[T],
        v: &[T],
    ) -> Result<Output<O>> {
        self.form.shape.check_lengths(q.len(), k.len(), v.len())?;
        let shape @ Shape { key_heads, keys, dim, value_dim, .. } = self.form.shape;
        let strides = |length: usize| self.form.layout.strides(key_heads, keys, length);
        let (k_strides, v_strides) = (strides(dim), strides(value_dim));
        self.attend_all(instructions, q, &Tensors { k, v, k_strides, v_strides, shape })
    }

    /// The same over keys and values that lie anywhere.
    pub(crate) fn forward_over<O: Element, Q: Element, T: Element>(
        &self,
        q: &[Q],
        rows: &impl Rows<T>,
    ) -> Result<Output<O>> {
        let (found, needed) = (q.len(), self.form.shape.query_elements());
        if found != needed {
            return Err(Error::Length { tensor: "q", found, needed });
        }
        self.attend_all(Instructions::detect(), q, rows)
    }

    fn attend_all<O: Element, Q: Element, T: Element>(
        &self,
        instructions: Instructions,
        q: &[Q],
        from: &impl Rows<T>,
    ) -> Result<Output<O>> {
        let shape @ Shape { heads, key_heads, rows, value_dim, .. } = self.form.shape;
        let group = heads / key_heads;
        let mut o = vec![O::from_f32(0.0); shape.output_elements()];
        let mut lse = vec![0.0; shape.query_rows()];
        // All query rows of a key head are one run, whichever query head they are of: they see the same keys.
        let runs = o.par_chunks_mut(group * rows * value_dim).zip(lse.par_chunks_mut(group * rows));
        runs.enumerate().for_each(|(key_head, (o, lse))| {
            let of_keys = if group * rows <= FEW { Order::AsTheyAre } else { Order::Transposed };
            let pack_tile = |tile: usize, keys: &mut [f32], values: &mut [f32]| {
                pack(|key| from.key(key_head, key), shape.keys, tile, of_keys, keys);
                pack(|key| from.value(key_head, key), shape.keys, tile, Order::AsTheyAre, values);
            };
            let tiles = Tiles::new(&shape, &pack_tile, of_keys, group * rows > BLOCK);
            let blocks = o.par_chunks_mut(BLOCK * value_dim).zip(lse.par_chunks_mut(BLOCK));
            blocks.enumerate().for_each(|(block, (o, lse))| {
                let first = key_head * group * rows + block * BLOCK;
                self.attend(instructions, q, &tiles, first, o, lse);
            });
        });
        Ok(Output { o: self.in_layout(o), lse })
    }

    /// Rows from `first`, counted over all heads and batches.
    fn attend<O: Element, T: Element>(
        &self,
        instructions: Instructions,
        q: &[T],
        tiles: &Tiles<'_>,
        first: usize,
        o: &mut [O],
        lse: &mut [f32],
    ) {
        let Form { shape, mask, layout, scale, soft_cap, .. } = self.form;
        let Shape { heads, rows, dim, value_dim, .. } = shape;
        let strides = layout.strides(heads, rows, dim);
        // Whole groups: rows past the last are zeros, and nobody reads what they give.
        let padded = lse.len().next_multiple_of(GROUP);
        let (width, value_width) = (tiles.width, tiles.value_width);
        let mut queries = vec![0.0f32; padded * width];
        for (row, query) in (first..).zip(queries.chunks_mut(width).take(lse.len())) {
            let query = &mut query[..dim];
            T::widen(&q[row_at(strides, heads, row / rows, row % rows)..][..dim], query);
            query.iter_mut().for_each(|x| *x *= scale);
        }
        let look = |row: usize| Look {
            keys: shape.visible(row % rows, mask),
            sink: self.form.sink(row / rows % heads),
            soft_cap,
        };
        let looks: Vec<Look> = (first..first + lse.len()).map(look).collect();
        let mut sums = vec![0.0f32; padded * value_width];
        instructions.attend(&queries, tiles, &looks, &mut sums, lse);
        for (sums, o) in sums.chunks_exact(value_width).zip(o.chunks_exact_mut(value_dim)) {
            O::narrow(&sums[..value_dim], o);
        }
    }

    /// From `[batch, heads, rows, value_dim]` to the layout asked for.
    fn in_layout<O: Element>(&self, o: Vec<O>) -> Vec<O> {
        if self.form.layout == Layout::HeadsFirst {
            return o;
        }
        let Shape { heads, rows, value_dim, .. } = self.form.shape;
        let strides = self.form.layout.strides(heads, rows, value_dim);
        let mut arranged = vec![O::from_f32(0.0); o.len()];
        for (index, row) in o.chunks(value_dim).enumerate() {
            arranged[row_at(strides, heads, index / rows, index % rows)..][..value_dim].copy_from_slice(row);
        }
        arranged
    }
}

/// One tile of the `keys` keys or values of a key head, whose rows `of` gives.
fn pack<'b, T: Element>(
    of: impl Fn(usize) -> &'b [T],
    keys: usize,
    tile: usize,
    order: Order,
    to: &mut [f32],
) {
    let here = TILE.min(keys - tile * TILE);
    let row = |place: usize| of(tile * TILE + place);
    let width = to.len() / TILE;
    match order {
        Order::AsTheyAre => {
            for (place, to) in to.chunks_exact_mut(width).take(here).enumerate() {
                let row = row(place);
                let (numbers, padding) = to.split_at_mut(row.len());
                T::widen(row, numbers);
                padding.fill(0.0);
            }
            to[here * width..].fill(0.0);
        }
        Order::Transposed => {
            let mut wide = [0.0; MOST_DIM];
            for place in 0..here {
                let row = row(place);
                T::widen(row, &mut wide[..row.len()]);
                for (column, x) in to.chunks_exact_mut(TILE).zip(&wide) {
                    column[place] = *x;
                }
            }
            to.chunks_exact_mut(TILE).for_each(|column| column[here..].fill(0.0));
        }
    }
}

/// Where a row of a head begins, heads being counted over all batches.
fn row_at(strides: Strides, heads: usize, head: usize, row: usize) -> usize {
    head / heads * strides.batch + head % heads * strides.head + row * strides.row
}

impl<'a> Tiles<'a> {
    fn new(shape: &Shape, pack: &'a Pack<'a>, of_keys: Order, shared: bool) -> Self {
        let (width, value_width) = (width_of(shape.dim), width_of(shape.value_dim));
        let packed = shared.then(|| {
            let rows = shape.keys.next_multiple_of(TILE);
            let (mut keys, mut values) = (vec![0.0; rows * width], vec![0.0; rows * value_width]);
            let tiles = keys.par_chunks_mut(TILE * width).zip(values.par_chunks_mut(TILE * value_width));
            tiles.enumerate().for_each(|(tile, (keys, values))| pack(tile, keys, values));
            (keys, values)
        });
        Self { width, value_width, of_keys, pack, packed }
    }

    fn scratch(&self) -> Scratch {
        let rows = if self.packed.is_some() { 0 } else { TILE };
        Scratch { keys: vec![0.0; rows * self.width], values: vec![0.0; rows * self.value_width] }
    }

    /// Keys and values of a tile.
    fn get<'b>(&'b self, tile: usize, scratch: &'b mut Scratch) -> (&'b [f32], &'b [f32]) {
        let (size, value_size) = (TILE * self.width, TILE * self.value_width);
        match &self.packed {
            Some((keys, values)) => {
                (&keys[tile * size..][..size], &values[tile * value_size..][..value_size])
            }
            None => {
                (self.pack)(tile, &mut scratch.keys, &mut scratch.values);
                (&scratch.keys, &scratch.values)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mask;

    /// Numbers in (-2, 2) with no pattern that a sum over keys would cancel.
    fn noise(count: usize, mut state: u64) -> Vec<f32> {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 22) as f32 - 2.0
        };
        (0..count).map(|_| next()).collect()
    }

    /// The machine's best instructions are not the only ones that users' machines have.
    #[test]
    fn every_kind_of_instructions_matches_reference() {
        let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
        let square = [64, 128, 1, 15, 24, 80, 96, 200, 256].map(|dim| (dim, dim));
        for (dim, value_dim) in square.into_iter().chain([(192, 128), (33, 90)]) {
            let shape = Shape { batch: 1, heads: 2, key_heads: 1, rows: 53, keys: 131, dim, value_dim };
            let (q, k) = (noise(shape.query_elements(), 1), noise(shape.key_elements(), 2));
            let v = noise(shape.value_elements(), 3);
            let scale = 1.0 / (dim as f64).sqrt();
            let (wanted, wanted_lse) =
                crate::reference::attention(&shape, Mask::Causal, scale, &wide(&q), &wide(&k), &wide(&v));
            let form = Form { mask: Mask::Causal, ..Form::new(shape) };
            let attention = CpuAttention { form };
            let kinds = Instructions::all_here();
            assert!(kinds.contains(&Instructions::Portable) && kinds.contains(&Instructions::detect()));
            for kind in kinds {
                let got: Output<f32> = attention.forward_with(kind, &q, &k, &v).unwrap();
                let close = |got: &[f32], wanted: &[f64]| {
                    got.len() == wanted.len()
                        && got.iter().zip(wanted).all(|(got, wanted)| (f64::from(*got) - wanted).abs() < 2e-6)
                };
                assert!(close(&got.o, &wanted) && close(&got.lse, &wanted_lse), "{kind:?}");
            }
        }
    }
}
