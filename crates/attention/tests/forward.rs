//! The engine on the emulated device against double precision.

use float8::F8E4M3;
use gatework_attention::cuda::schedule::{Parts, Schedule};
use gatework_attention::cuda::{Granularity, Quantised, Rotation};
use gatework_attention::reference::{self, relative_error};
use gatework_attention::workloads::codes;
use gatework_attention::{Attention, Element, HEAD_DIMENSIONS, Layout, Mask, Result, Shape};
use gatework_gpu::Device;
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

    fn scale(&self) -> f64 {
        1.0 / (self.shape.dim as f64).sqrt()
    }

    /// Attention in double precision on the inputs as they are.
    fn exact(&self) -> (Vec<f64>, Vec<f64>) {
        let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
        reference::attention(
            &self.shape,
            self.mask,
            self.scale(),
            &wide(&self.q),
            &wide(&self.k),
            &wide(&self.v),
        )
    }

    /// Attention in double precision on what the quantiser makes of the inputs: what the kernel is given.
    fn quantised(&self) -> (Vec<f64>, Vec<f64>) {
        let [q, k, v] = codes::values(&self.shape, [&self.q, &self.k, &self.v]);
        reference::attention(&self.shape, self.mask, self.scale(), &q, &k, &v)
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

fn run<T: Element, O: Element>(
    device: &Device,
    case: &Case,
    layout: Layout,
    schedule: Option<Schedule>,
) -> Result<(Vec<f32>, Vec<f32>)> {
    let Shape { heads, key_heads, rows, keys, dim, value_dim, .. } = case.shape;
    let stream = device.stream()?;
    let mut builder = Attention::builder(case.shape).mask(case.mask).layout(layout);
    if let Some(schedule) = schedule {
        builder = builder.schedule(schedule);
    }
    let attention = builder.build_on(device)?;
    let mut workspace = attention.workspace(&stream)?;
    let q = stream.upload(&arrange::<T>(&case.q, layout, heads, rows, dim))?;
    let k = stream.upload(&arrange::<T>(&case.k, layout, key_heads, keys, dim))?;
    let v = stream.upload(&arrange::<T>(&case.v, layout, key_heads, keys, value_dim))?;
    let mut o = stream.alloc::<O>(case.shape.output_elements())?;
    attention.forward(&stream, &mut workspace, [&q, &k, &v], &mut o)?;
    let out = stream.download(&o)?;
    // Back to heads first: the two layouts are each other's inverse with heads and rows exchanged.
    let plain: Vec<f32> = out.iter().map(|x| x.to_f32()).collect();
    let plain = match layout {
        Layout::HeadsFirst => plain,
        Layout::RowsFirst => arrange::<f32>(&plain, layout, rows, heads, value_dim),
    };
    Ok((plain, stream.download(workspace.lse())?))
}

fn shapes() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for (dim, value_dim) in HEAD_DIMENSIONS.iter().map(|known| (known.dim, known.value_dim)) {
        let shape = |batch, heads, key_heads, rows, keys| Shape {
            batch,
            heads,
            key_heads,
            rows,
            keys,
            dim,
            value_dim,
        };
        shapes.extend([
            shape(1, 1, 1, 1, 1),
            shape(1, 2, 1, 64, 129),
            shape(2, 2, 2, 65, 127),
            shape(1, 1, 1, 200, 70),
            shape(1, 1, 1, 128, 640),
        ]);
        // Long rows take the emulated device long.
        if dim <= 128 {
            shapes.extend([shape(1, 1, 1, 1, 128), shape(1, 4, 2, 130, 300), shape(1, 3, 1, 31, 33)]);
        }
    }
    shapes
}

#[test]
fn every_shape_and_mask_matches_reference_on_the_emulated_device() -> Result<()> {
    let mut checked = 0;
    for (seed, shape) in shapes().into_iter().enumerate() {
        for mask in [Mask::Full, Mask::Causal] {
            let case = Case::new(shape, mask, seed as u64);
            let device = Device::emulated(seed as u64)?;
            let (got, lse) = run::<f16, f32>(&device, &case, Layout::HeadsFirst, None)?;
            assert!(got.iter().all(|x| x.is_finite()), "{shape:?} {mask:?}");
            let (wanted, wanted_lse) = case.quantised();
            // The inputs were f16 before they were quantised, which may move a code to its neighbour.
            let error = relative_error(got.iter().copied(), &wanted);
            assert!(error <= 0.035, "{shape:?} {mask:?}: {error}");
            assert!(relative_error(got, &case.exact().0) <= 0.075, "{shape:?} {mask:?}");
            for (got, wanted) in lse.iter().zip(wanted_lse) {
                assert!(
                    (f64::from(*got) - wanted).abs() < 0.08 || f64::from(*got) == wanted,
                    "{shape:?} {mask:?} {got} {wanted}"
                );
            }
            checked += 1;
        }
    }
    assert!(checked >= 30, "{checked}");
    Ok(())
}

#[test]
fn rows_of_other_lengths_are_padded_where_kernels_read_them() -> Result<()> {
    // Whole runs of 16 numbers and others, even and odd, below and above 64 and 128; every format and layout.
    let square = [1, 8, 33, 48, 63, 65, 72, 80, 96, 127, 129, 200, 255].map(|dim| (dim, dim));
    // Values of another length than keys.
    let others = [(150, 70), (192, 128), (64, 100), (161, 33), (40, 160)];
    for (seed, (dim, value_dim)) in square.into_iter().chain(others).enumerate() {
        let shape = Shape { batch: 2, heads: 2, key_heads: 1, rows: 70, keys: 150, dim, value_dim };
        let mask = [Mask::Full, Mask::Causal, Mask::Window { left: 40, right: 3 }][seed % 3];
        let layout = [Layout::HeadsFirst, Layout::RowsFirst][seed / 2 % 2];
        let case = Case::new(shape, mask, seed as u64);
        let device = Device::emulated(seed as u64)?;
        let (got, lse) = match seed % 4 {
            0 => run::<f16, f32>(&device, &case, layout, None)?,
            1 => run::<f32, bf16>(&device, &case, layout, None)?,
            2 => run::<f32, f16>(&device, &case, layout, None)?,
            _ => run::<f16, f16>(&device, &case, layout, None)?,
        };
        let (wanted, wanted_lse) = case.quantised();
        let error = relative_error(got, &wanted);
        assert!(error <= 0.040, "{dim} {value_dim} {mask:?} {layout:?}: {error}");
        for (got, wanted) in lse.iter().zip(wanted_lse) {
            assert!((f64::from(*got) - wanted).abs() < 0.08, "{dim} {value_dim} {mask:?}: {got} {wanted}");
        }
    }
    Ok(())
}

#[test]
fn fidelity_is_that_of_the_codes() -> Result<()> {
    for (mask, limit) in [(Mask::Full, 0.030), (Mask::Causal, 0.025)] {
        for (dim, value_dim) in HEAD_DIMENSIONS.iter().map(|known| (known.dim, known.value_dim)) {
            let heads = if dim > 128 { 1 } else { 2 };
            let case = Case::new(Shape { value_dim, ..Shape::square(1, heads, 512, dim) }, mask, 5);
            let (got, _) = run::<f32, f32>(&Device::emulated(1)?, &case, Layout::HeadsFirst, None)?;
            let (wanted, _) = case.quantised();
            let error = relative_error(got.iter().copied(), &wanted);
            println!("{mask:?} {dim}: {error:.4}");
            assert!(error <= limit, "{mask:?} {dim}: {error}");
            let rms = (wanted.iter().map(|x| x * x).sum::<f64>() / wanted.len() as f64).sqrt();
            let mean =
                got.iter().zip(&wanted).map(|(got, wanted)| f64::from(*got) - wanted).sum::<f64>() / rms;
            assert!(mean.abs() / wanted.len() as f64 <= 0.02);
        }
    }
    Ok(())
}

#[test]
fn parts_of_the_keys_give_what_all_of_them_give() -> Result<()> {
    for (mask, layout, rows, dim, value_dim) in [
        (Mask::Full, Layout::HeadsFirst, 1100, 64, 64),
        (Mask::Causal, Layout::RowsFirst, 1100, 64, 64),
        (Mask::Causal, Layout::HeadsFirst, 1100, 128, 128),
        (Mask::Full, Layout::RowsFirst, 1100, 40, 40),
        (Mask::Causal, Layout::RowsFirst, 70, 192, 128),
        (Mask::Full, Layout::HeadsFirst, 70, 256, 256),
    ] {
        // Under the causal mask most rows see nothing of the last part, and the first 40 see no key at all.
        let shape = Shape { batch: 1, heads: 2, key_heads: 1, rows, keys: 1060, dim, value_dim };
        let case = Case::new(shape, mask, 21);
        let device = Device::emulated(5)?;
        let whole = Schedule { consumers: 1, ..Schedule::usual(dim, value_dim)? };
        let (plain, plain_lse) = run::<f16, f32>(&device, &case, layout, Some(whole))?;
        for splits in [2, 3] {
            let schedule = Schedule { parts: Parts::Count(splits), ..whole };
            let (parts, lse) = run::<f16, f32>(&device, &case, layout, Some(schedule))?;
            let wide: Vec<f64> = plain.iter().map(|&x| f64::from(x)).collect();
            // Weights are rounded against another maximum.
            assert!(relative_error(parts, &wide) < 0.03, "{mask:?} {splits}");
            for (part, whole) in lse.iter().zip(&plain_lse) {
                assert!(part == whole || (part - whole).abs() < 0.01, "{mask:?} {splits}: {part} {whole}");
            }
        }
    }
    Ok(())
}

#[test]
fn codes_with_scales_of_any_granularity_match_reference() -> Result<()> {
    for (granularity, dim) in [
        (Granularity::Tensor, 64),
        (Granularity::Head, 64),
        (Granularity::Block, 64),
        (Granularity::Head, 40),
        (Granularity::Block, 96),
        (Granularity::Block, 200),
    ] {
        let shape = Shape { batch: 2, heads: 2, key_heads: 1, rows: 200, keys: 700, dim, value_dim: dim };
        let Shape { batch, heads, key_heads, rows, keys, .. } = shape;
        let mut case = Case::new(shape, Mask::Full, 31);
        let device = Device::emulated(6)?;
        let stream = device.stream()?;
        // Codes of the whole range, and scales that make numbers of about 1 of them.
        let mut inputs = Vec::new();
        for (x, heads, rows) in
            [(&mut case.q, heads, rows), (&mut case.k, key_heads, keys), (&mut case.v, key_heads, keys)]
        {
            let blocks = rows.div_ceil(128);
            let scale_of = |head: usize, row: usize| match granularity {
                Granularity::Tensor => 0.01,
                Granularity::Head => 0.01 + 0.003 * head as f32,
                Granularity::Block => 0.01 * 2f32.powi((row / 128 + head) as i32 % 3),
            };
            let codes: Vec<F8E4M3> = (0..x.len())
                .map(|i| F8E4M3::from_f32(x[i] / scale_of(i / dim / rows, i / dim % rows)))
                .collect();
            for (i, x) in x.iter_mut().enumerate() {
                *x = codes[i].to_f32() * scale_of(i / dim / rows, i / dim % rows);
            }
            let scales: Vec<f32> = match granularity {
                Granularity::Tensor => vec![scale_of(0, 0)],
                Granularity::Head => (0..batch * heads).map(|head| scale_of(head, 0)).collect(),
                Granularity::Block => (0..batch * heads * blocks)
                    .map(|block| scale_of(block / blocks, block % blocks * 128))
                    .collect(),
            };
            let bits: Vec<u8> = codes.iter().map(|code| code.to_bits()).collect();
            inputs.push((stream.upload(&bits)?, stream.upload(&scales)?));
        }
        let given = |i: usize| Quantised { codes: &inputs[i].0, scales: &inputs[i].1, granularity };
        let attention = Attention::builder(shape).build_on(&device)?;
        let mut workspace = attention.workspace(&stream)?;
        let mut o = stream.alloc::<f32>(shape.output_elements())?;
        let [q, k, v] = [given(0), given(1), given(2)];
        attention.forward_quantised(&stream, &mut workspace, [q, k, v], &mut o)?;
        // No quantiser between: the error is that of the weights alone.
        let error = relative_error(stream.download(&o)?, &case.exact().0);
        assert!(error < 0.030, "{granularity:?}: {error}");

        let short = stream.upload(&[1.0f32; 5])?;
        let wrong = Quantised { scales: &short, ..v };
        let refused = attention.arrange(&stream, &mut workspace, [q, k, wrong]).unwrap_err();
        assert!(refused.to_string().contains("scales of v"), "{refused}");
    }
    Ok(())
}

#[test]
fn schedules_that_cannot_run_are_refused() -> Result<()> {
    let device = Device::emulated(0)?;
    let usual = Schedule::usual(128, 128)?;
    for (schedule, named) in [
        (Schedule { consumers: 3, ..usual }, "3 consumers"),
        (Schedule { consumers: 0, ..usual }, "0 consumers"),
        (Schedule { stages: 1, ..usual }, "1 stages"),
        (Schedule { stages: 100, ..usual }, "100 stages"),
        (Schedule { parts: Parts::Count(0), ..usual }, "0 parts"),
        (Schedule { parts: Parts::Count(3), ..usual }, "3 parts of 1000 keys"),
        (Schedule { parts: Parts::OfTiles(0), ..usual }, "parts of 0 tiles"),
        (Schedule { parts: Parts::OfTiles(6), ..usual }, "parts of 6 tiles; it must be a multiple of 4"),
    ] {
        let shape = Shape { keys: 1000, ..Shape::square(1, 1, 64, 128) };
        let error = Attention::builder(shape).schedule(schedule).build_on(&device).unwrap_err();
        assert!(error.to_string().contains(named), "{error}");
    }
    Ok(())
}

#[test]
fn layouts_formats_and_schedules_agree() -> Result<()> {
    let shape = Shape { batch: 2, heads: 4, key_heads: 2, rows: 70, keys: 150, dim: 64, value_dim: 64 };
    let case = Case::new(shape, Mask::Causal, 9);
    let device = Device::emulated(3)?;
    let (plain, _) = run::<f32, f32>(&device, &case, Layout::HeadsFirst, None)?;
    assert_eq!(
        run::<f32, f32>(&device, &case, Layout::RowsFirst, None)?.0,
        plain,
        "the layout changes no bit"
    );
    for consumers in 1..=3 {
        for (stages, turns, persistent) in
            [(2, true, true), (2, false, true), (3, true, false), (4, false, false)]
        {
            let schedule =
                Some(Schedule { consumers, stages, turns, persistent, ..Schedule::usual(64, 64)? });
            assert_eq!(
                run::<f32, f32>(&device, &case, Layout::HeadsFirst, schedule)?.0,
                plain,
                "{schedule:?}"
            );
        }
    }
    let wide: Vec<f64> = plain.iter().map(|&x| f64::from(x)).collect();
    assert!(relative_error(run::<f32, f16>(&device, &case, Layout::HeadsFirst, None)?.0, &wide) < 1e-3);
    assert!(relative_error(run::<f32, bf16>(&device, &case, Layout::HeadsFirst, None)?.0, &wide) < 4e-3);
    assert!(relative_error(run::<bf16, f32>(&device, &case, Layout::HeadsFirst, None)?.0, &wide) < 0.05);
    Ok(())
}

#[test]
fn rotation_and_blocks_tame_outliers() -> Result<()> {
    for dim in [128, 112] {
        outliers_are_tamed(dim)?;
    }
    Ok(())
}

fn outliers_are_tamed(dim: usize) -> Result<()> {
    let shape = Shape::square(1, 1, 512, dim);
    let mut case = Case::new(shape, Mask::Full, 4);
    let mut inputs = Inputs::new(77);
    for matrix in [&mut case.q, &mut case.k, &mut case.v] {
        let (size, rare) = (inputs.normal(matrix.len()), inputs.uniform(matrix.len(), 0.0..1.0));
        for ((x, size), rare) in matrix.iter_mut().zip(size).zip(rare) {
            if rare < 0.001 {
                *x += 10.0 * size;
            }
        }
    }
    let (wanted, _) = case.exact();
    let device = Device::emulated(2)?;
    let stream = device.stream()?;
    let rmse = |rotation: Rotation| -> Result<f64> {
        let attention = Attention::builder(shape).rotation(rotation).build_on(&device)?;
        let mut workspace = attention.workspace(&stream)?;
        let mut o = stream.alloc::<f32>(shape.output_elements())?;
        let (q, k, v) = (stream.upload(&case.q)?, stream.upload(&case.k)?, stream.upload(&case.v)?);
        attention.forward(&stream, &mut workspace, [&q, &k, &v], &mut o)?;
        let errors: f64 = stream
            .download(&o)?
            .iter()
            .zip(&wanted)
            .map(|(got, wanted)| (f64::from(*got) - wanted).powi(2))
            .sum();
        Ok((errors / wanted.len() as f64).sqrt())
    };
    let (plain, rotated) = (rmse(Rotation::None)?, rmse(Rotation::Hadamard)?);
    println!("{dim}: RMSE {plain:.2e} as they are, {rotated:.2e} rotated");
    assert!(rotated < 9.1e-3 && rotated < plain, "{dim}: {rotated}");
    Ok(())
}

#[test]
fn what_is_not_supported_is_named() {
    let device = Device::emulated(0).unwrap();
    let told = |shape: Shape| {
        Attention::builder(shape).build_on(&device).err().map(|error| error.to_string()).unwrap()
    };
    assert!(told(Shape::square(1, 1, 8, 257)).contains("head dimension 257; 1 to 256 are supported"));
    let no_values = Shape { value_dim: 0, ..Shape::square(1, 1, 8, 64) };
    assert!(told(no_values).contains("value dimension 0; 1 to 256 are supported"));
    assert!(told(Shape::square(1, 1, 0, 64)).contains("empty"));
    let more_keys = Shape { key_heads: 4, ..Shape::square(1, 2, 8, 64) };
    assert!(told(more_keys).contains("2 query heads over 4 key heads"));
    let stream = device.stream().unwrap();
    let attention = Attention::builder(Shape::square(1, 1, 8, 64)).build_on(&device).unwrap();
    let mut workspace = attention.workspace(&stream).unwrap();
    let (short, right) = (stream.alloc_zeros::<f32>(3).unwrap(), stream.alloc_zeros::<f32>(512).unwrap());
    let error = attention.quantise(&stream, &mut workspace, [&right, &short, &right]).unwrap_err();
    assert_eq!(error.to_string(), "'k' has 3 elements, the shape needs 512");
}
