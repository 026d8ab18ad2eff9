//! The engine on the CPU against double precision, through the API that a device shares.

use gatework_attention::reference::{self, relative_error};
use gatework_attention::{Attention, Element, Error, HEAD_DIMENSIONS, Layout, Mask, Output, Result, Shape};
use gatework_gpu::Target;
use gatework_lab::Inputs;
use half::{bf16, f16};

/// Inputs of one case in `[batch, heads, rows, dim]`.
struct Case {
    shape: Shape,
    mask: Mask,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

impl Case {
    fn new(shape: Shape, mask: Mask, seed: u64) -> Self {
        let mut inputs = Inputs::new(seed);
        let lengths = [shape.query_elements(), shape.key_elements(), shape.value_elements()];
        let [q, k, v] = lengths.map(|count| inputs.normal(count));
        Self { shape, mask, q, k, v }
    }

    /// Attention in double precision of the inputs as format `T` has them.
    fn exact<T: Element>(&self) -> (Vec<f64>, Vec<f64>) {
        let wide = |x: &[f32]| x.iter().map(|&x| f64::from(T::from_f32(x).to_f32())).collect::<Vec<_>>();
        let scale = 1.0 / (self.shape.dim as f64).sqrt();
        reference::attention(&self.shape, self.mask, scale, &wide(&self.q), &wide(&self.k), &wide(&self.v))
    }

    fn run<T: Element, O: Element>(&self, layout: Layout) -> Result<Output<O>> {
        let Shape { heads, key_heads, rows, keys, dim, value_dim, .. } = self.shape;
        let attention = Attention::builder(self.shape).mask(self.mask).layout(layout).build(&Target::Cpu)?;
        let q = arrange::<T>(&self.q, layout, heads, rows, dim);
        let k = arrange::<T>(&self.k, layout, key_heads, keys, dim);
        let v = arrange::<T>(&self.v, layout, key_heads, keys, value_dim);
        attention.forward_to(&q, &k, &v)
    }
}

/// `[batch, heads, rows, dim]` in another layout, and in another format.
fn arrange<T: Element>(x: &[f32], layout: Layout, heads: usize, rows: usize, dim: usize) -> Vec<T> {
    let mut arranged = vec![T::from_f32(0.0); x.len()];
    for (index, &value) in x.iter().enumerate() {
        let (d, row, head, batch) =
            (index % dim, index / dim % rows, index / dim / rows % heads, index / dim / rows / heads);
        let at = match layout {
            Layout::HeadsFirst => index,
            Layout::RowsFirst => ((batch * rows + row) * heads + head) * dim + d,
        };
        arranged[at] = T::from_f32(value);
    }
    arranged
}

/// Around the sizes of tiles, blocks and groups of rows, and far from them.
fn shapes() -> Vec<Shape> {
    let mut shapes = Vec::new();
    let dims = HEAD_DIMENSIONS.iter().map(|known| (known.dim, known.value_dim));
    for (dim, value_dim) in dims.chain([(40, 40), (200, 200), (50, 90)]) {
        for (batch, heads, key_heads, rows, keys) in [
            (1, 1, 1, 1, 1),
            (1, 1, 1, 1, 64),
            (1, 2, 2, 1, 65),
            (1, 8, 1, 1, 300),
            (1, 9, 1, 1, 300),
            (2, 4, 2, 4, 150),
            (2, 2, 1, 5, 63),
            (1, 3, 3, 6, 64),
            (1, 4, 2, 7, 129),
            (2, 2, 2, 47, 48),
            (1, 1, 1, 48, 47),
            (1, 2, 1, 49, 200),
            (1, 1, 1, 97, 191),
            (3, 3, 1, 31, 33),
            (1, 1, 1, 200, 70),
            (1, 1, 1, 250, 513),
        ] {
            shapes.push(Shape { batch, heads, key_heads, rows, keys, dim, value_dim });
        }
    }
    shapes
}

#[test]
fn the_cpu_matches_reference() -> Result<()> {
    for (seed, shape) in shapes().into_iter().enumerate() {
        for mask in [Mask::Full, Mask::Causal] {
            for layout in [Layout::HeadsFirst, Layout::RowsFirst] {
                let case = Case::new(shape, mask, seed as u64);
                let (wanted, wanted_lse) = case.exact::<f32>();
                let Output { o, lse } = case.run::<f32, f32>(layout)?;
                // The two layouts are each other's inverse with heads and rows exchanged.
                let o = match layout {
                    Layout::HeadsFirst => o,
                    Layout::RowsFirst => arrange::<f32>(&o, layout, shape.rows, shape.heads, shape.value_dim),
                };
                let error = relative_error(o.iter().copied(), &wanted);
                assert!(error < 1e-6, "{shape:?} {mask:?} {layout:?}: {error}");
                for (got, wanted) in lse.iter().zip(wanted_lse) {
                    let same = f64::from(*got) == wanted || (f64::from(*got) - wanted).abs() < 1e-5;
                    assert!(same, "{shape:?} {mask:?} {got} {wanted}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn half_precision_matches_reference() -> Result<()> {
    let shape = Shape { batch: 2, heads: 4, key_heads: 2, rows: 50, keys: 130, dim: 64, value_dim: 64 };
    let case = Case::new(shape, Mask::Causal, 3);
    let plain = |Output { o, .. }: Output<f32>| o;
    // Outputs in f32: what is left is the arithmetic, not the format.
    assert!(relative_error(plain(case.run::<f16, f32>(Layout::HeadsFirst)?), &case.exact::<f16>().0) < 1e-6);
    assert!(
        relative_error(plain(case.run::<bf16, f32>(Layout::HeadsFirst)?), &case.exact::<bf16>().0) < 1e-6
    );
    let narrow: Vec<f32> = case.run::<f16, f16>(Layout::HeadsFirst)?.o.iter().map(|x| x.to_f32()).collect();
    assert!(relative_error(narrow, &case.exact::<f16>().0) < 5e-4);
    Ok(())
}

#[test]
fn rows_without_a_key_are_zeros_and_large_scores_do_not_overflow() -> Result<()> {
    let shape = Shape { rows: 100, keys: 30, ..Shape::square(1, 1, 1, 64) };
    let case = Case::new(shape, Mask::Causal, 1);
    let Output { o, lse } = case.run::<f32, f32>(Layout::HeadsFirst)?;
    assert!(o[..70 * 64].iter().all(|x| *x == 0.0) && lse[..70].iter().all(|x| *x == f32::NEG_INFINITY));
    assert!(o[70 * 64..].iter().all(|x| *x != 0.0));

    let mut large = Case::new(Shape::square(1, 1, 80, 64), Mask::Full, 2);
    large.q.iter_mut().for_each(|x| *x *= 1e4);
    let Output { o, .. } = large.run::<f32, f32>(Layout::HeadsFirst)?;
    let (wanted, _) = large.exact::<f32>();
    assert!(
        relative_error(o.iter().copied(), &wanted) < 1e-3,
        "{}",
        relative_error(o.iter().copied(), &wanted)
    );
    Ok(())
}

#[test]
fn what_is_no_number_stays_none() -> Result<()> {
    let mut case = Case::new(Shape::square(1, 1, 70, 64), Mask::Causal, 2);
    case.k[65 * 64] = f32::NAN;
    let Output { o, lse } = case.run::<f32, f32>(Layout::HeadsFirst)?;
    let rows: Vec<bool> = o.chunks(64).map(|row| row.iter().all(|x| x.is_nan())).collect();
    assert!(rows[..65].iter().all(|nan| !nan) && rows[65..].iter().all(|nan| *nan));
    assert!(lse[65..].iter().all(|x| x.is_nan()));
    Ok(())
}

#[test]
fn wrong_lengths_and_shapes_are_sentences() {
    let attention = Attention::builder(Shape::square(1, 1, 8, 64)).build(&Target::Cpu).unwrap();
    let right = vec![0.0f32; 512];
    let error = attention.forward(&right, &right[..500], &right).unwrap_err();
    assert_eq!(error.to_string(), "'k' has 500 elements, the shape needs 512");
    let refused = |shape| Attention::builder(shape).build(&Target::Cpu).unwrap_err();
    assert!(matches!(refused(Shape::square(1, 1, 8, 257)), Error::Unsupported { .. }));
    assert!(matches!(refused(Shape::square(1, 1, 0, 64)), Error::Unsupported { .. }));
}
