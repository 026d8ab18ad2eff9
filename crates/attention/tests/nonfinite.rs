//! NaN and infinities in queries, keys and values, and scores of any size: on the CPU and on the emulated
//! device, against double precision, which does what PyTorch does.

use float8::F8E4M3;
use gatework_attention::cuda::schedule::{Parts, Schedule};
use gatework_attention::cuda::{Granularity, Quantised};
use gatework_attention::reference::{self, relative_error};
use gatework_attention::workloads::codes;
use gatework_attention::{Attention, Element, HEAD_DIMENSIONS, Layout, Mask, Output, Result, Shape};
use gatework_gpu::{Device, Target};
use gatework_lab::Inputs;
use half::{bf16, f16};

/// Queries, keys and values in `[batch, heads, rows, dim]`.
#[derive(Clone)]
struct Case {
    shape: Shape,
    mask: Mask,
    tensors: [Vec<f32>; 3],
}

impl Case {
    fn new(shape: Shape, mask: Mask, seed: u64) -> Self {
        let mut inputs = Inputs::new(seed);
        let lengths = [shape.query_elements(), shape.key_elements(), shape.value_elements()];
        // No number that e4m3 would make a zero: times an infinity, zeros are not what small numbers are.
        let away = |x: f32| if x.abs() < 0.01 { 0.01 } else { x };
        Self {
            shape,
            mask,
            tensors: lengths.map(|count| inputs.normal(count).into_iter().map(away).collect()),
        }
    }

    fn exact(&self) -> (Vec<f64>, Vec<f64>) {
        let [q, k, v] = self.tensors.each_ref().map(|x| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
        reference::attention(&self.shape, self.mask, 1.0 / (self.shape.dim as f64).sqrt(), &q, &k, &v)
    }

    /// The same of what the quantiser makes of the inputs.
    fn quantised(&self) -> (Vec<f64>, Vec<f64>) {
        let [q, k, v] = codes::values(&self.shape, self.tensors.each_ref().map(Vec::as_slice));
        reference::attention(&self.shape, self.mask, 1.0 / (self.shape.dim as f64).sqrt(), &q, &k, &v)
    }

    fn run<T: Element>(&self, target: &Target, splits: Option<u32>) -> Result<Output<f32>> {
        let mut builder = Attention::builder(self.shape).mask(self.mask);
        if let (Some(splits), Target::Gpu(_)) = (splits, target) {
            let consumers = 1 + splits % 2;
            let (parts, usual) =
                (Parts::Count(splits), Schedule::usual(self.shape.dim, self.shape.value_dim)?);
            builder = builder.schedule(Schedule { parts, consumers, ..usual });
        }
        let [q, k, v] =
            self.tensors.each_ref().map(|x| x.iter().map(|&x| T::from_f32(x)).collect::<Vec<T>>());
        builder.build(target)?.forward_to(&q, &k, &v)
    }

    /// Where results are finite, NaN or infinite must be right everywhere; what is finite, to the accuracy of
    /// FP8.
    fn check(&self, Output { o, lse }: &Output<f32>, what: &str) {
        let (wanted, wanted_lse) = self.exact();
        let kind = |x: f64| {
            if x.is_nan() {
                'n'
            } else if x.is_finite() {
                'f'
            } else if x > 0.0 {
                '+'
            } else {
                '-'
            }
        };
        let mut finite = (Vec::new(), Vec::new());
        for (index, (&got, &wanted)) in o.iter().zip(&wanted).enumerate() {
            let (row, column) = (index / self.shape.value_dim, index % self.shape.value_dim);
            assert_eq!(
                kind(f64::from(got)),
                kind(wanted),
                "{what}: row {row} column {column}: {got} for {wanted}"
            );
            if wanted.is_finite() {
                finite.0.push(got);
                finite.1.push(wanted);
            }
        }
        for (row, (&got, &wanted)) in lse.iter().zip(&wanted_lse).enumerate() {
            assert_eq!(kind(f64::from(got)), kind(wanted), "{what}: lse of row {row}: {got} for {wanted}");
        }
        assert!(!finite.0.is_empty() || self.shape.rows == 1, "{what}: nothing is finite");
        if !finite.0.is_empty() {
            let error = relative_error(finite.0, &finite.1);
            assert!(error < 0.08, "{what}: {error}");
        }
    }
}

const WRONG: [f32; 3] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];

fn targets(seed: u64) -> Result<[Target; 2]> {
    Ok([Target::Cpu, Target::Gpu(Device::emulated(seed)?)])
}

#[test]
fn the_whole_table_matches_reference() -> Result<()> {
    let dims = HEAD_DIMENSIONS.iter().map(|known| (known.dim, known.value_dim)).chain([(40, 40)]);
    for (seed, (dim, value_dim)) in dims.enumerate() {
        let shape = Shape { batch: 1, heads: 2, key_heads: 2, rows: 70, keys: 150, dim, value_dim };
        let [cpu, device] = targets(seed as u64)?;
        for mask in [Mask::Full, Mask::Causal] {
            for tensor in 0..3 {
                for (place, wrong) in [(17, 0), (61, 1), (100, 2)].map(|(row, wrong)| (row, WRONG[wrong])) {
                    let mut case = Case::new(shape, mask, seed as u64);
                    let row = if tensor == 0 { place % 70 } else { place };
                    let length = if tensor == 2 { value_dim } else { dim };
                    case.tensors[tensor][row * length + place % length] = wrong;
                    let what = format!("{dim} {mask:?}, {wrong} in tensor {tensor}");
                    case.check(&case.run::<f32>(&cpu, None)?, &what);
                    case.check(&case.run::<f32>(&device, None)?, &what);
                }
            }
        }
    }
    Ok(())
}

/// Every kind in every tensor at every place of a tile's edge, from every format, in parts of the keys.
#[test]
fn several_at_odd_places_match_reference() -> Result<()> {
    let shape = Shape { batch: 2, heads: 2, key_heads: 2, rows: 130, keys: 1100, dim: 64, value_dim: 64 };
    for seed in 0..4 {
        let [cpu, device] = targets(seed)?;
        let mask = if seed % 2 == 0 { Mask::Full } else { Mask::Causal };
        let mut case = Case::new(shape, mask, seed);
        // One head has a NaN in its queries, one infinite keys, one values of both signs, and one nothing.
        let head = |tensor: usize, head: usize| head * if tensor == 0 { 130 } else { 1100 } * 64;
        let at = |tensor: usize, of: usize, row: usize, column: usize| head(tensor, of) + row * 64 + column;
        case.tensors[0][at(0, 0, 64, 5)] = WRONG[seed as usize % 3];
        case.tensors[1][at(1, 1, 1027, 63)] = f32::INFINITY;
        case.tensors[1][at(1, 1, 127, 0)] = f32::NEG_INFINITY;
        case.tensors[2][at(2, 2, 512, 7)] = f32::INFINITY;
        case.tensors[2][at(2, 2, 1099, 7)] = f32::NEG_INFINITY;
        case.tensors[2][at(2, 2, 3, 9)] = f32::NAN;
        for splits in [1, 2] {
            let what = format!("seed {seed}, {splits} parts");
            case.check(&case.run::<f32>(&cpu, None)?, &what);
            case.check(&case.run::<f16>(&device, Some(splits))?, &what);
            case.check(&case.run::<bf16>(&device, Some(splits))?, &what);
        }
    }
    Ok(())
}

/// Values of 256 columns under a window have code of their own for what is not finite.
#[test]
fn values_of_many_columns_are_poisoned_only_where_a_window_sees_them() -> Result<()> {
    let shape = Shape { rows: 140, keys: 300, ..Shape::square(1, 1, 1, 256) };
    let mut case = Case::new(shape, Mask::Window { left: 60, right: 4 }, 12);
    for (key, column, wrong) in [(170, 0, 0), (171, 255, 1), (230, 128, 2), (231, 67, 1), (299, 190, 0)] {
        case.tensors[2][key * 256 + column] = WRONG[wrong];
    }
    let [cpu, device] = targets(12)?;
    case.check(&case.run::<f32>(&cpu, None)?, "a window on the CPU");
    case.check(&case.run::<f16>(&device, None)?, "a window on the device");
    Ok(())
}

#[test]
fn infinities_against_one_key_weigh_nothing_or_poison() -> Result<()> {
    // One key: a score of minus infinity is all there is.
    let shape = Shape::square(1, 1, 1, 64);
    for target in targets(3)? {
        for (q, k) in
            [(f32::INFINITY, 1.0), (f32::INFINITY, -1.0), (-2.0, f32::NEG_INFINITY), (0.0, f32::INFINITY)]
        {
            let mut case = Case::new(shape, Mask::Full, 1);
            (case.tensors[0][9], case.tensors[1][9]) = (q, k);
            case.check(&case.run::<f32>(&target, None)?, &format!("{q} times {k} on {}", target.id()));
        }
    }
    Ok(())
}

#[test]
fn codes_and_scales_that_are_not_numbers_are_not_hidden() -> Result<()> {
    let shape = Shape { batch: 1, heads: 1, key_heads: 1, rows: 70, keys: 140, dim: 64, value_dim: 64 };
    let device = Device::emulated(4)?;
    let stream = device.stream()?;
    let attention = Attention::builder(shape).build_on(&device)?;
    let mut workspace = attention.workspace(&stream)?;
    let codes = |count: usize, seed: u64| -> Vec<u8> {
        Inputs::new(seed).normal(count).into_iter().map(|x| F8E4M3::from_f32(16.0 * x).to_bits()).collect()
    };
    let mut run = |nan_in_k: bool, q_scale: f32| -> Result<Vec<f32>> {
        let (q, mut k) = (codes(70 * 64, 1), codes(140 * 64, 2));
        if nan_in_k {
            k[130 * 64] = 0x7F;
        }
        let (q, k, v) = (stream.upload(&q)?, stream.upload(&k)?, stream.upload(&codes(140 * 64, 3))?);
        let (q_scale, scale) = (stream.upload(&[q_scale])?, stream.upload(&[1.0f32 / 16.0])?);
        let given = |codes, scales| Quantised { codes, scales, granularity: Granularity::Tensor };
        let mut o = stream.alloc::<f32>(70 * 64)?;
        attention.forward_quantised(
            &stream,
            &mut workspace,
            [given(&q, &q_scale), given(&k, &scale), given(&v, &scale)],
            &mut o,
        )?;
        Ok(stream.download(&o)?)
    };
    assert!(run(false, 0.1)?.iter().all(|x| x.is_finite()));
    assert!(run(true, 0.1)?.iter().all(|x| x.is_nan()), "a key with a NaN code");
    for scale in [f32::NAN, f32::INFINITY, -1.0] {
        assert!(run(false, scale)?.iter().all(|x| x.is_nan()), "scale {scale}");
    }
    Ok(())
}

/// Inputs times a factor: softmax becomes sharper and never stops to be one.
#[test]
fn scores_of_any_size_give_a_softmax() -> Result<()> {
    for (factor, bound) in [(1.0, 0.035), (4.0, 0.05), (100.0, 0.3), (1e4, 0.3), (1e12, 0.3)] {
        for (mask, dim, splits) in
            [(Mask::Full, 64, 1), (Mask::Causal, 128, 1), (Mask::Full, 128, 2), (Mask::Causal, 256, 1)]
        {
            let shape = Shape { batch: 1, heads: 1, key_heads: 1, rows: 100, keys: 700, dim, value_dim: dim };
            let mut case = Case::new(shape, mask, 7);
            // Tiles of keys of different sizes: each has another scale.
            for (tile, keys) in case.tensors[1].chunks_mut(128 * dim).enumerate() {
                keys.iter_mut().for_each(|k| *k *= factor * (1.0 + 0.3 * tile as f32));
            }
            case.tensors[0].iter_mut().for_each(|q| *q *= factor);
            let device = Target::Gpu(Device::emulated(8)?);
            let Output { o, lse } = case.run::<f32>(&device, Some(splits))?;
            let (wanted, wanted_lse) = case.quantised();
            let error = relative_error(o.iter().copied(), &wanted);
            println!("{factor} {mask:?} {dim}: {error:.3}");
            assert!(error < bound, "{factor} {mask:?} {dim} {splits}: {error}");
            for (row, o) in o.chunks(dim).enumerate() {
                let size = o.iter().map(|x| x * x).sum::<f32>();
                assert!(size > 1e-3 && size < 1e4, "{factor} {mask:?}: row {row} has size {size}");
            }
            // Scores are f16, and rounded after every 32 columns.
            let rounding = if dim > 128 { 2e-3 } else { 1e-3 };
            let largest = wanted_lse.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
            for (got, wanted) in lse.iter().zip(wanted_lse) {
                assert!(
                    (f64::from(*got) - wanted).abs() < 0.1 + rounding * largest,
                    "{factor}: {got} for {wanted}"
                );
            }
            let on_cpu = case.run::<f32>(&Target::Cpu, None)?;
            let close = relative_error(on_cpu.o, &case.exact().0);
            assert!(close < 1e-3, "{factor} on the CPU: {close}");
        }
    }
    Ok(())
}

/// All scores far below zero, and one tile far above the others.
#[test]
fn levels_far_apart_give_a_softmax() -> Result<()> {
    // The codes of 205 and 165 nearest to their limits are above them.
    for dim in [64, 41, 165, 205] {
        levels_far_apart(dim)?;
    }
    Ok(())
}

fn levels_far_apart(dim: usize) -> Result<()> {
    let shape = Shape { batch: 1, heads: 1, key_heads: 1, rows: 65, keys: 400, dim, value_dim: dim };
    for (low, high) in [(-30.0, -30.0), (-3000.0, -3000.0), (-3000.0, 1.0), (1.0, 3000.0), (3000.0, -3000.0)]
    {
        let mut case = Case::new(shape, Mask::Full, 3);
        // Queries of ones, keys that are constant: nothing but the range of scores is tried.
        case.tensors[0].fill(1.0);
        for (key, row) in case.tensors[1].chunks_mut(dim).enumerate() {
            row.fill(if key < 130 { low } else { high });
        }
        for target in targets(5)? {
            let Output { o, lse } = case.run::<f32>(&target, None)?;
            let (wanted, wanted_lse) =
                if matches!(target, Target::Cpu) { case.exact() } else { case.quantised() };
            let error = relative_error(o, &wanted);
            assert!(error < 0.04, "{dim}, {low} and {high} on {}: {error}", target.id());
            for (got, wanted) in lse.iter().zip(wanted_lse) {
                assert!(
                    (f64::from(*got) - wanted).abs() < 0.1 + 1e-3 * wanted.abs(),
                    "{low} {high}: {got} {wanted}"
                );
            }
        }
    }
    Ok(())
}

/// Numbers so small that their scale is at the end of f32.
#[test]
fn subnormal_inputs_are_finite() -> Result<()> {
    let mut case = Case::new(Shape::square(1, 1, 70, 64), Mask::Full, 2);
    case.tensors.iter_mut().flatten().for_each(|x| *x *= 1e-40);
    for target in targets(6)? {
        let Output { o, lse } = case.run::<f32>(&target, None)?;
        assert!(o.iter().all(|x| x.abs() < 1e-36) && lse.iter().all(|x| (x - 70f32.ln()).abs() < 0.1));
    }
    let rows_first = Attention::builder(case.shape).layout(Layout::RowsFirst).build(&Target::Cpu)?;
    let [q, k, v] = &case.tensors;
    assert!(rows_first.forward(q, k, v)?.iter().all(|x| x.is_finite()));
    Ok(())
}

/// A warpgroup whose tiles are all ordinary has a loop of its own, and it must give what the loop for any
/// tiles gives.
#[test]
fn what_a_row_does_not_see_changes_none_of_its_bits() -> Result<()> {
    for (seed, (rows, keys, dim)) in [(200, 200, 64), (80, 600, 128), (66, 300, 256)].into_iter().enumerate()
    {
        let shape = Shape { batch: 1, heads: 1, key_heads: 1, rows, keys, dim, value_dim: dim };
        let mut case = Case::new(shape, Mask::Causal, seed as u64);
        // The last key, which only the last row sees, has nothing that a scale depends on.
        let last = (keys - 1) * dim..keys * dim;
        case.tensors[1][last.clone()].fill(0.5);
        case.tensors[2][last.clone()].fill(0.5);
        let target = Target::Gpu(Device::emulated(seed as u64)?);
        let bits = |case: &Case| -> Result<Vec<u32>> {
            Ok(case.run::<f16>(&target, None)?.o.iter().map(|x| x.to_bits()).collect())
        };
        let ordinary = bits(&case)?;
        for tensor in [1, 2] {
            let mut marked = case.clone();
            marked.tensors[tensor][last.start + 3] = f32::INFINITY;
            let marked = bits(&marked)?;
            // The 16 rows of a warp raise their levels together, when a score of one of them outgrows its
            // own.
            let same = if tensor == 1 { (rows - 1) / 16 * 16 * dim } else { (rows - 1) * dim };
            let differs = |(ordinary, marked): (&u32, &u32)| ordinary != marked;
            let first = ordinary.iter().zip(&marked).position(differs).unwrap_or(ordinary.len());
            assert!(first >= same && first < ordinary.len(), "tensor {tensor} of {shape:?} from {first} on");
        }
    }
    Ok(())
}
