//! Masks and scores that models have, on the CPU and on the emulated device, against double precision.

use gatework_attention::cuda::schedule::{Parts, Schedule};
use gatework_attention::reference::{self, Scores, relative_error};
use gatework_attention::workloads::codes;
use gatework_attention::{Attention, Bits, Builder, HEAD_DIMENSIONS, Mask, Output, Result, Shape};
use gatework_gpu::{Device, Target};
use gatework_lab::Inputs;

/// An attention, its inputs in `[batch, heads, rows, dim]`, and what is asked of its scores.
#[derive(Clone)]
struct Case {
    shape: Shape,
    mask: Mask,
    scale: Option<f32>,
    soft_cap: Option<f32>,
    sinks: Vec<f32>,
    tensors: [Vec<f32>; 3],
}

impl Case {
    fn new(shape: Shape, mask: Mask, seed: u64) -> Self {
        let mut inputs = Inputs::new(seed);
        let lengths = [shape.query_elements(), shape.key_elements(), shape.value_elements()];
        let tensors = lengths.map(|count| inputs.normal(count));
        Self { shape, mask, scale: None, soft_cap: None, sinks: Vec::new(), tensors }
    }

    fn builder(&self) -> Builder {
        let mut builder = Attention::builder(self.shape).mask(self.mask);
        if let Some(scale) = self.scale {
            builder = builder.scale(scale);
        }
        if let Some(cap) = self.soft_cap {
            builder = builder.soft_cap(cap);
        }
        if self.sinks.is_empty() { builder } else { builder.sinks(self.sinks.clone()) }
    }

    fn run(&self, builder: Builder, target: &Target) -> Result<Output<f32>> {
        let [q, k, v] = &self.tensors;
        builder.build(target)?.forward_to(q, k, v)
    }

    fn reference(&self, [q, k, v]: [Vec<f64>; 3]) -> (Vec<f64>, Vec<f64>) {
        let sinks: Vec<f64> = self.sinks.iter().map(|&sink| f64::from(sink)).collect();
        let scores = Scores {
            mask: self.mask,
            scale: self.scale.map_or(1.0 / (self.shape.dim as f64).sqrt(), f64::from),
            soft_cap: self.soft_cap.map(f64::from),
            sinks: &sinks,
        };
        reference::attention_of(&self.shape, &scores, &q, &k, &v)
    }

    fn check_cpu(&self, what: &str) -> Result<()> {
        let wide = self.tensors.each_ref().map(|x| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
        self.check(&self.run(self.builder(), &Target::Cpu)?, self.reference(wide), 2e-6, 1e-5, what);
        Ok(())
    }

    fn check_device(&self, builder: Builder, device: &Device, what: &str) -> Result<()> {
        let wanted = self.reference(codes::values(&self.shape, self.tensors.each_ref().map(Vec::as_slice)));
        self.check(&self.run(builder, &Target::Gpu(device.clone()))?, wanted, 0.035, 0.08, what);
        Ok(())
    }

    fn check(
        &self,
        got: &Output<f32>,
        (o, lse): (Vec<f64>, Vec<f64>),
        bound: f64,
        lse_bound: f64,
        what: &str,
    ) {
        let error = relative_error(got.o.iter().copied(), &o);
        assert!(error <= bound, "{what}: {error}");
        for (row, (&got, &wanted)) in got.lse.iter().zip(&lse).enumerate() {
            let got = f64::from(got);
            assert!(
                got == wanted || (got - wanted).abs() < lse_bound + 1e-6 * wanted.abs(),
                "{what}, row {row}: {got} for {wanted}"
            );
        }
    }
}

fn window(left: usize, right: usize) -> Mask {
    Mask::Window { left, right }
}

#[test]
fn windows_match_reference() -> Result<()> {
    for (seed, (rows, keys, mask)) in [
        (300, 300, window(127, 0)),
        (130, 900, window(63, 0)),
        (200, 700, window(150, 40)),
        (70, 1000, window(0, 0)),
        (190, 100, window(20, 5)),
        (1, 1500, window(99, 0)),
        (64, 800, window(usize::MAX, 0)),
        (129, 640, window(10, usize::MAX)),
        (65, 1300, window(700, 3)),
    ]
    .into_iter()
    .enumerate()
    {
        let known = &HEAD_DIMENSIONS[seed % HEAD_DIMENSIONS.len()];
        let (dim, value_dim) = (known.dim, known.value_dim);
        let shape = Shape { batch: 1, heads: 2, key_heads: 1, rows, keys, dim, value_dim };
        let case = Case::new(shape, mask, seed as u64);
        let what = format!("{rows} over {keys} of {dim}, {mask:?}");
        case.check_cpu(&what)?;
        case.check_device(case.builder(), &Device::emulated(seed as u64)?, &what)?;
    }
    Ok(())
}

/// A window without a left end is a causal mask, and one of everything is none: to the bit.
#[test]
fn endless_windows_are_the_other_masks() -> Result<()> {
    let shape = Shape { batch: 1, heads: 1, key_heads: 1, rows: 130, keys: 300, dim: 64, value_dim: 64 };
    for (wide, plain) in [(window(usize::MAX, 0), Mask::Causal), (window(usize::MAX, usize::MAX), Mask::Full)]
    {
        let (wide, plain) = (Case::new(shape, wide, 3), Case::new(shape, plain, 3));
        for target in [Target::Cpu, Target::Gpu(Device::emulated(3)?)] {
            assert_eq!(
                wide.run(wide.builder(), &target)?,
                plain.run(plain.builder(), &target)?,
                "{}",
                target.id()
            );
        }
    }
    Ok(())
}

#[test]
fn windows_in_blocks_and_parts_match_reference() -> Result<()> {
    let device = Device::emulated(4)?;
    // Several warpgroups a block, whose windows start in different tiles; parts that start within a window.
    for (rows, keys, mask, consumers, parts) in [
        (400, 500, window(100, 0), 3, Parts::Count(1)),
        (400, 700, window(64, 130), 2, Parts::Count(1)),
        (20, 3000, window(1400, 0), 1, Parts::Count(3)),
        (130, 1500, window(900, 20), 2, Parts::OfTiles(4)),
    ] {
        let shape = Shape { batch: 1, heads: 1, key_heads: 1, rows, keys, dim: 64, value_dim: 64 };
        let case = Case::new(shape, mask, 9);
        for turns in [false, true] {
            let schedule = Schedule { consumers, parts, turns, ..Schedule::usual(64, 64)? };
            let what = format!("{rows} over {keys}, {mask:?} {schedule:?}");
            case.check_device(case.builder().schedule(schedule), &device, &what)?;
        }
    }
    Ok(())
}

#[test]
fn sinks_take_their_weight() -> Result<()> {
    let device = Device::emulated(5)?;
    for (seed, (rows, keys, mask)) in
        [(70, 150, Mask::Causal), (5, 1200, Mask::Full), (130, 400, window(40, 0)), (60, 20, Mask::Causal)]
            .into_iter()
            .enumerate()
    {
        let shape = Shape { batch: 2, heads: 4, key_heads: 2, rows, keys, dim: 64, value_dim: 64 };
        let mut case = Case::new(shape, mask, seed as u64);
        // None, a small one, one that outweighs all keys, and one as large as scores.
        case.sinks = vec![f32::NEG_INFINITY, -1.0, 8.0, 1.5];
        let what = format!("{rows} over {keys}, {mask:?}");
        case.check_cpu(&what)?;
        case.check_device(case.builder(), &device, &what)?;
        case.check_device(case.builder().bits(Bits::BatchInvariant), &device, &what)?;
    }
    // Far from all scores: nothing is left, or nothing happens.
    let shape = Shape { batch: 1, heads: 2, key_heads: 1, rows: 70, keys: 150, dim: 64, value_dim: 64 };
    let mut case = Case::new(shape, Mask::Full, 8);
    let plain = case.run(case.builder(), &Target::Gpu(device.clone()))?;
    case.sinks = vec![-1e6, 1e6];
    for target in [Target::Cpu, Target::Gpu(device)] {
        let Output { o, lse } = case.run(case.builder(), &target)?;
        let (unmoved, nothing) = o.split_at(70 * 64);
        assert!(nothing.iter().all(|x| x.abs() < 1e-30) && lse[70..].iter().all(|x| (x - 1e6).abs() < 1.0));
        if let Target::Gpu(_) = target {
            assert_eq!(unmoved, &plain.o[..70 * 64]);
        }
    }
    Ok(())
}

#[test]
fn scores_are_capped_and_scaled() -> Result<()> {
    for (seed, (dim, mask, cap, scale)) in [
        (64, Mask::Causal, Some(5.0), None),
        (128, Mask::Full, Some(50.0), Some(1.0)),
        (64, window(90, 10), Some(20.0), Some(0.5)),
        (128, Mask::Causal, None, Some(0.3)),
        (64, Mask::Full, Some(1000.0), None),
        (256, Mask::Causal, Some(50.0), None),
        (192, window(50, 0), Some(30.0), None),
    ]
    .into_iter()
    .enumerate()
    {
        let shape = Shape { batch: 1, heads: 2, key_heads: 1, rows: 100, keys: 333, dim, value_dim: dim };
        let mut case = Case::new(shape, mask, seed as u64);
        (case.soft_cap, case.scale, case.sinks) = (cap, scale, vec![0.5, -0.5]);
        let what = format!("{dim} {mask:?}, cap {cap:?}, scale {scale:?}");
        case.check_cpu(&what)?;
        case.check_device(case.builder(), &Device::emulated(seed as u64)?, &what)?;
    }
    Ok(())
}

/// An infinite score is the cap itself, a NaN stays one; keys outside of the window do not matter.
#[test]
fn what_is_not_finite_stays_where_it_is_seen() -> Result<()> {
    let shape = Shape { batch: 1, heads: 1, key_heads: 1, rows: 200, keys: 200, dim: 64, value_dim: 64 };
    let mut case = Case::new(shape, window(30, 0), 2);
    case.tensors.iter_mut().flatten().filter(|x| x.abs() < 0.01).for_each(|x| *x = 0.01);
    case.tensors[1][50 * 64 + 3] = f32::NAN;
    case.tensors[2][120 * 64 + 9] = f32::INFINITY;
    for target in [Target::Cpu, Target::Gpu(Device::emulated(1)?)] {
        let Output { o, .. } = case.run(case.builder(), &target)?;
        for (row, o) in o.chunks(64).enumerate() {
            let (nan, infinite) = ((50..=80).contains(&row), (120..=150).contains(&row));
            assert!(o.iter().all(|x| x.is_nan() == nan), "row {row} on {}", target.id());
            assert_eq!(o[9] == f32::INFINITY, infinite, "row {row} on {}", target.id());
        }
    }
    let mut capped = Case::new(Shape { keys: 90, ..shape }, Mask::Full, 4);
    capped.tensors.iter_mut().flatten().filter(|x| x.abs() < 0.01).for_each(|x| *x = 0.01);
    capped.soft_cap = Some(2.0);
    capped.tensors[1][70 * 64 + 3] = f32::INFINITY;
    let wide = capped.tensors.each_ref().map(|x| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
    let (wanted, _) = capped.reference(wide);
    for (target, bound) in [(Target::Cpu, 1e-5), (Target::Gpu(Device::emulated(2)?), 0.08)] {
        let error = relative_error(capped.run(capped.builder(), &target)?.o, &wanted);
        assert!(error < bound, "{error} on {}", target.id());
    }
    Ok(())
}

#[test]
fn bad_scores_are_refused_with_a_sentence() {
    let shape = Shape::square(1, 2, 8, 64);
    let told = |builder: Builder| builder.build(&Target::Cpu).err().map(|error| error.to_string()).unwrap();
    let builder = || Attention::builder(shape);
    for scale in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        assert!(told(builder().scale(scale)).contains("it must be positive and finite"), "{scale}");
    }
    for cap in [0.0, -50.0, f32::NAN, f32::INFINITY, 1e6] {
        assert!(told(builder().soft_cap(cap)).contains("it must be positive and at most 2000"), "{cap}");
    }
    assert!(told(builder().sinks([0.0, f32::NAN])).contains("sink NaN of head 1"));
    assert!(told(builder().sinks([f32::INFINITY, 0.0])).contains("sink inf of head 0"));
    assert_eq!(told(builder().sinks([0.0; 3])), "'sinks' has 3 elements, the shape needs 2");
    assert!(Mask::sliding(0).unwrap_err().to_string().contains("a window of 0 keys"));
    assert_eq!(Mask::sliding(128).unwrap(), window(127, 0));
}
