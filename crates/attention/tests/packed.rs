//! Packed sequences against each sequence alone on the CPU, and against the CPU on the emulated device.

use gatework_attention::cuda::Rotation;
use gatework_attention::reference::{self, Scores, relative_error};
use gatework_attention::{Attention, Builder, Element, Layout, Lengths, Mask, Output, Result, Shape};
use gatework_gpu::{Device, Target};
use gatework_lab::Inputs;
use half::f16;

const SHAPE: Shape = Shape { batch: 1, heads: 4, key_heads: 2, rows: 1, keys: 1, dim: 64, value_dim: 64 };

fn normal(count: usize, seed: u64) -> Vec<f32> {
    Inputs::new(seed).normal(count)
}

/// Random lengths, of which one is zero.
fn starts(sequences: usize, longest: usize, empty: usize, seed: u64) -> Vec<usize> {
    let lengths = Inputs::new(seed).uniform(sequences, 0.0..1.0);
    let ends = lengths.iter().enumerate().scan(0, |end, (sequence, length)| {
        *end += if sequence == empty { 0 } else { 1 + (length * longest as f32) as usize };
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

#[test]
fn each_sequence_is_as_if_it_were_alone_on_the_cpu() -> Result<()> {
    let sinks = [0.5, f32::NEG_INFINITY, -2.0, 3.0];
    for (seed, mask) in [(0, Mask::Causal), (1, Mask::Full), (2, Mask::Window { left: 20, right: 2 })] {
        let (rows, keys) = (starts(5, 80, 1, seed), starts(5, 150, 3, seed + 50));
        let lengths = Lengths::new(&rows, &keys)?;
        assert_eq!(lengths.sequences(), 5);
        let (query, key) = (4 * 64, 2 * 64);
        let q = normal(lengths.rows() * query, seed + 1);
        let (k, v) = (normal(lengths.keys() * key, seed + 2), normal(lengths.keys() * key, seed + 3));
        let builder = || Attention::builder(SHAPE).mask(mask).sinks(sinks).scale(0.2);
        {
            let target = Target::Cpu;
            let packed = builder().build_packed(&lengths, &target)?;
            let Output { o, lse } = packed.forward_to::<f32, _>(&q, &k, &v)?;
            assert_eq!((o.len(), lse.len()), (q.len(), 4 * lengths.rows()));
            for sequence in 0..5 {
                let (of_rows, of_keys) =
                    (rows[sequence]..rows[sequence + 1], keys[sequence]..keys[sequence + 1]);
                let got = &o[of_rows.start * query..of_rows.end * query];
                let row_lse = |head: usize| &lse[head * lengths.rows()..][of_rows.clone()];
                if of_keys.is_empty() {
                    assert!(got.iter().all(|x| *x == 0.0));
                    assert!((0..4).all(|head| row_lse(head).iter().all(|x| *x == sinks[head])));
                } else if !of_rows.is_empty() {
                    let shape = Shape { rows: of_rows.len(), keys: of_keys.len(), ..SHAPE };
                    let alone = Attention::builder(shape).mask(mask).sinks(sinks).scale(0.2);
                    let alone = alone.layout(Layout::RowsFirst).build(&target)?;
                    let part = of_keys.start * key..of_keys.end * key;
                    let queries = &q[of_rows.start * query..of_rows.end * query];
                    let wanted = alone.forward_to::<f32, _>(queries, &k[part.clone()], &v[part])?;
                    assert_eq!(got, wanted.o, "sequence {sequence} on {}", target.id());
                    let wanted_lse = |head: usize| &wanted.lse[head * shape.rows..][..shape.rows];
                    assert!((0..4).all(|head| row_lse(head) == wanted_lse(head)));
                }
            }
        }
    }
    Ok(())
}

/// Against the oracle itself, with one head, where layouts are the same.
#[test]
fn packed_sequences_match_reference() -> Result<()> {
    let shape = Shape { heads: 1, key_heads: 1, ..SHAPE };
    let starts = [0, 33, 33, 34, 120];
    let lengths = Lengths::square(&starts)?;
    let [q, k, v] = [1, 2, 3].map(|seed| normal(120 * 64, seed));
    let packed = Attention::builder(shape).mask(Mask::Causal).build_packed(&lengths, &Target::Cpu)?;
    let o = packed.forward(&q, &k, &v)?;
    let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
    for pair in starts.windows(2).filter(|pair| pair[0] < pair[1]) {
        let part = pair[0] * 64..pair[1] * 64;
        let shape = Shape::square(1, 1, pair[1] - pair[0], 64);
        let scores = Scores { mask: Mask::Causal, scale: 0.125, soft_cap: None, sinks: &[] };
        let [q, k, v] = [&q, &k, &v].map(|x| wide(&x[part.clone()]));
        let (wanted, _) = reference::attention_of(&shape, &scores, &q, &k, &v);
        assert!(relative_error(o[part].iter().copied(), &wanted) < 1e-6);
    }
    Ok(())
}

#[test]
fn lengths_that_are_none_are_refused_with_a_sentence() -> Result<()> {
    let told = |rows: &[usize], keys: &[usize]| Lengths::new(rows, keys).unwrap_err().to_string();
    assert!(told(&[], &[0]).contains("rows are empty; without a sequence they are [0]"));
    assert!(told(&[0, 4], &[1, 4]).contains("keys begin with 1; they must begin with 0"));
    assert!(told(&[0, 7, 3], &[0, 1, 2]).contains("rows go down from 7 to 3 after sequence 1"));
    assert!(told(&[0, 7], &[0, 1, 2]).contains("rows of 1 sequences and keys of 2"));
    let lengths = Lengths::square(&[0, 3, 5])?;
    let wrong =
        Attention::builder(Shape { dim: 300, ..SHAPE }).build_packed(&Lengths::square(&[0])?, &Target::Cpu);
    assert!(wrong.unwrap_err().to_string().contains("head dimension 300"));
    let packed = Attention::builder(SHAPE).build_packed(&lengths, &Target::Cpu)?;
    let (q, k) = (vec![0.0f32; 5 * 256], vec![0.0f32; 5 * 128]);
    assert_eq!(
        packed.forward(&q, &k[1..], &k).unwrap_err().to_string(),
        "'k' has 639 elements, the shape needs 640"
    );
    assert_eq!(packed.forward(&q, &k, &k)?.len(), q.len());
    let none = Attention::builder(SHAPE).build_packed(&Lengths::square(&[0])?, &Target::Cpu)?;
    assert!(none.forward::<f32>(&[], &[], &[])?.is_empty());
    Ok(())
}

/// Queries, keys and values of packed sequences, in f16 as both targets are given them.
struct Packed {
    shape: Shape,
    lengths: Lengths,
    tensors: [Vec<f16>; 3],
}

impl Packed {
    fn new(shape: Shape, rows: &[usize], keys: &[usize], seed: u64) -> Result<Self> {
        let lengths = Lengths::new(rows, keys)?;
        let Shape { heads, key_heads, dim, value_dim, .. } = shape;
        let counts = [
            lengths.rows() * heads * dim,
            lengths.keys() * key_heads * dim,
            lengths.keys() * key_heads * value_dim,
        ];
        let mut inputs = Inputs::new(seed);
        let tensors = counts.map(|count| inputs.normal(count).into_iter().map(f16::from_f32).collect());
        Ok(Self { shape, lengths, tensors })
    }

    fn run(&self, builder: Builder, target: &Target) -> Result<Output<f32>> {
        let [q, k, v] = &self.tensors;
        builder.build_packed(&self.lengths, target)?.forward_to(q, k, v)
    }

    /// Sequence `index` by itself.
    fn alone(&self, index: usize, rows: &[usize], keys: &[usize]) -> Result<Self> {
        let Shape { heads, key_heads, dim, value_dim, .. } = self.shape;
        let part = |x: &[f16], starts: &[usize], row: usize| {
            x[starts[index] * row..starts[index + 1] * row].to_vec()
        };
        let [q, k, v] = &self.tensors;
        Ok(Self {
            shape: self.shape,
            lengths: Lengths::new(&[0, rows[index + 1] - rows[index]], &[0, keys[index + 1] - keys[index]])?,
            tensors: [
                part(q, rows, heads * dim),
                part(k, keys, key_heads * dim),
                part(v, keys, key_heads * value_dim),
            ],
        })
    }
}

fn shape(heads: usize, key_heads: usize, dim: usize, value_dim: usize) -> Shape {
    Shape { batch: 1, heads, key_heads, rows: 1, keys: 1, dim, value_dim }
}

/// The CPU was compared with the oracle.
#[test]
fn packed_sequences_on_the_emulated_device_match_the_cpu() -> Result<()> {
    let window = Mask::Window { left: 70, right: 3 };
    for (seed, shape, mask, starts) in [
        (0, shape(4, 2, 64, 64), Mask::Causal, ([0, 65, 65, 200, 201, 230], [0, 65, 90, 225, 226, 900])),
        (1, shape(2, 2, 128, 128), Mask::Full, ([0, 1, 70, 70, 199, 212], [0, 300, 300, 310, 439, 440])),
        (2, shape(2, 1, 64, 64), window, ([0, 150, 151, 300, 300, 420], [0, 150, 790, 860, 860, 900])),
        (3, shape(2, 1, 40, 24), Mask::Causal, ([0, 33, 40, 41, 41, 170], [0, 33, 40, 300, 301, 330])),
        (4, shape(2, 1, 192, 128), Mask::Causal, ([0, 70, 71, 71, 90, 130], [0, 70, 210, 211, 211, 251])),
        (5, shape(1, 1, 256, 256), Mask::Full, ([0, 20, 20, 21, 90, 91], [0, 150, 151, 151, 220, 230])),
    ] {
        let packed = Packed::new(shape, &starts.0, &starts.1, seed)?;
        let sinks: Vec<f32> = (0..shape.heads).map(|head| head as f32 - 1.0).collect();
        let builder = || {
            let builder = Attention::builder(shape).mask(mask).scale(0.11);
            if seed % 2 == 0 { builder.sinks(sinks.clone()) } else { builder }
        };
        let wanted = packed.run(builder(), &Target::Cpu)?;
        let device = Target::Gpu(Device::emulated(seed)?);
        let got = packed.run(builder(), &device)?;
        assert_eq!((got.o.len(), got.lse.len()), (wanted.o.len(), wanted.lse.len()));
        let wide: Vec<f64> = wanted.o.iter().map(|&x| f64::from(x)).collect();
        let error = relative_error(got.o.iter().copied(), &wide);
        println!("{shape:?} {mask:?}: {error:.4}");
        assert!(error < 0.075, "{shape:?} {mask:?}: {error}");
        for (row, (got, wanted)) in got.lse.iter().zip(&wanted.lse).enumerate() {
            assert!(
                got == wanted || (got - wanted).abs() < 0.25,
                "{shape:?}: row {row} has {got} for {wanted}"
            );
        }
        // Half of the first sequence's keys with the second must be far off.
        let mut later = starts.1;
        later[1] /= 2;
        let moved = Packed {
            lengths: Lengths::new(&starts.0, &later)?,
            ..Packed::new(shape, &starts.0, &starts.1, seed)?
        };
        let moved = moved.run(builder(), &device)?;
        assert!(relative_error(moved.o, &wide) > 0.1, "{shape:?}");
    }
    Ok(())
}

#[test]
fn a_packed_rows_bits_depend_on_its_own_sequence_alone() -> Result<()> {
    let (rows, keys) = ([0, 40, 41, 200], [0, 530, 531, 690]);
    for (seed, dims) in [(0, (64, 64)), (1, (192, 128))] {
        let shape = shape(2, 1, dims.0, dims.1);
        let packed = Packed::new(shape, &rows, &keys, seed)?;
        let device = Target::Gpu(Device::emulated(seed)?);
        let builder = || Attention::builder(shape).mask(Mask::Causal).rotation(Rotation::Hadamard);
        let all = packed.run(builder(), &device)?;
        for index in 0..3 {
            let alone = packed.alone(index, &rows, &keys)?.run(builder(), &device)?;
            let row = shape.heads * shape.value_dim;
            assert_eq!(all.o[rows[index] * row..rows[index + 1] * row], alone.o, "sequence {index}");
            for head in 0..shape.heads {
                let of_all = &all.lse[head * 200 + rows[index]..head * 200 + rows[index + 1]];
                let count = rows[index + 1] - rows[index];
                assert_eq!(of_all, &alone.lse[head * count..(head + 1) * count], "sequence {index}");
            }
        }
    }
    Ok(())
}

/// What is not finite stays in its sequence.
#[test]
fn a_nan_stays_in_its_sequence() -> Result<()> {
    let starts = [0, 70, 130];
    for tensor in 0..3 {
        let mut packed = Packed::new(shape(1, 1, 64, 64), &starts, &starts, 9)?;
        packed.tensors[tensor][69 * 64 + 5] = f16::NAN;
        let device = Target::Gpu(Device::emulated(9)?);
        let got = packed.run(Attention::builder(packed.shape), &device)?;
        assert!(got.o[..70 * 64].iter().any(|x| x.is_nan()), "tensor {tensor}");
        assert!(got.o[70 * 64..].iter().all(|x| x.is_finite()), "tensor {tensor}");
    }
    Ok(())
}

#[test]
fn packed_sequences_in_buffers_of_a_device() -> Result<()> {
    let shape = shape(2, 1, 64, 64);
    let starts = [0, 30, 30, 100];
    let packed = Packed::new(shape, &starts, &starts, 4)?;
    let device = Device::emulated(4)?;
    let stream = device.stream()?;
    let attention = Attention::builder(shape).mask(Mask::Causal).build_packed_on(&packed.lengths, &device)?;
    assert_eq!(attention.lengths(), &packed.lengths);
    assert_eq!(attention.elements(), [100 * 128, 100 * 64, 100 * 64, 100 * 128]);
    let mut workspace = attention.workspace(&stream)?;
    let [q, k, v] = packed.tensors.each_ref().map(|x| stream.upload(x));
    let (q, k, v) = (q?, k?, v?);
    let mut o = stream.alloc::<f16>(100 * 128)?;
    attention.forward(&stream, &mut workspace, [&q, &k, &v], &mut o)?;
    let wanted = packed.run(Attention::builder(shape).mask(Mask::Causal), &Target::Gpu(device.clone()))?;
    let got: Vec<f32> = stream.download(&o)?.into_iter().map(Element::to_f32).collect();
    assert!(got.iter().zip(&wanted.o).all(|(got, wanted)| *got == f16::from_f32(*wanted).to_f32()));
    assert_eq!(stream.download(workspace.lse())?, wanted.lse);
    let error = attention.forward(&stream, &mut workspace, [&k, &k, &v], &mut o).unwrap_err();
    assert_eq!(error.to_string(), "'q' has 6400 elements, the shape needs 12800");
    // Sequences without rows, and none at all.
    for starts in [&[0usize][..], &[0, 0, 0]] {
        let none = Packed::new(shape, starts, starts, 1)?;
        let nothing = none.run(Attention::builder(shape), &Target::Gpu(device.clone()))?;
        assert!(nothing.o.is_empty() && nothing.lse.is_empty());
    }
    let longer = Lengths::square(&[0, 30, 31, 200])?;
    let other = Attention::builder(shape).mask(Mask::Causal).build_packed_on(&longer, &device)?;
    let refused = other.forward(&stream, &mut workspace, [&q, &k, &v], &mut o).unwrap_err().to_string();
    assert!(refused.contains("the workspace is of an attention of other sequences"), "{refused}");
    attention.clone().forward(&stream, &mut workspace, [&q, &k, &v], &mut o)?;
    // Sizes that no machine holds are refused before anything is made for them.
    for target in [Target::Cpu, Target::Gpu(device.clone())] {
        for rows in [1 << 56, (1 << 30) - 1] {
            let huge = Lengths::new(&[0, rows], &[0, 0])?;
            let heads = Shape { heads: 2048, key_heads: 1, ..shape };
            assert!(Attention::builder(heads).build_packed(&huge, &target).is_err(), "{rows}");
        }
    }
    let wrong = Attention::builder(Shape { dim: 300, ..shape }).build_packed_on(&packed.lengths, &device);
    assert!(wrong.unwrap_err().to_string().contains("head dimension 300"));
    Ok(())
}
