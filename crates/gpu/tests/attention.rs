//! A kernel of the size that engines will have, FP8 attention with 8 heads of 512 rows, is right on the emulated device
//! and runs there in seconds with every access checked.

mod support;

use std::time::{Duration, Instant};

use float8::F8E4M3;
use gatework_gpu::{Architecture, Device, Error, Grid, Result, Source, args, compile};

const HEADS: usize = 8;
const ROWS: usize = 512;
const DIM: usize = 64;

fn source() -> Source {
    Source::new("attention", include_str!("attention/attention.cuh"))
}

/// A matrix of all heads, quantised to e4m3 with one scale.
struct Quantised {
    codes: Vec<u8>,
    scale: f32,
}

impl Quantised {
    fn new(seed: u64) -> Self {
        // Sums of uniform numbers: close enough to normal for a softmax with some weight on many keys.
        let uniform = support::numbers(seed, 6 * HEADS * ROWS * DIM);
        let values: Vec<f32> = uniform.chunks(6).map(|six| six.iter().sum::<f32>() / 1.4).collect();
        let scale = values.iter().fold(0.0f32, |top, value| top.max(value.abs())) / 448.0;
        let codes = values.iter().map(|value| F8E4M3::from_f32(value / scale).to_bits()).collect();
        Self { codes, scale }
    }

    fn value(&self, head: usize, row: usize, column: usize) -> f64 {
        f64::from(F8E4M3::from_bits(self.codes[(head * ROWS + row) * DIM + column]).to_f32() * self.scale)
    }

    /// Every code at the place that `place(row, column)` gives within its head's image.
    fn image(&self, place: impl Fn(usize, usize) -> usize) -> Vec<u8> {
        let mut image = vec![0; self.codes.len()];
        for (index, &code) in self.codes.iter().enumerate() {
            let (head, row, column) = (index / (ROWS * DIM), index / DIM % ROWS, index % DIM);
            image[head * ROWS * DIM + place(row, column)] = code;
        }
        image
    }
}

fn swizzled(offset: usize, bits: usize) -> usize {
    offset ^ (offset >> 7 & bits) << 4
}

/// Keys of each 16 in the order of the accumulator's registers.
fn key_order(key: usize) -> usize {
    let (sixteen, n) = (key / 16, key % 16);
    sixteen * 16 + 4 * (n / 2 % 4) + 2 * (n / 8) + n % 2
}

fn run(device: &Device, [q, k, v]: &[Quantised; 3]) -> Result<Vec<f32>> {
    let q_image = q.image(|row, column| row / 64 * 4096 + swizzled(row % 64 * 64 + column, 3));
    let k_image = k.image(|row, column| row / 128 * 8192 + swizzled(row % 128 * 64 + column, 3));
    let v_image = v.image(|row, column| row / 128 * 8192 + swizzled(column * 128 + key_order(row % 128), 7));
    let stream = device.stream()?;
    let (q_image, k_image, v_image) =
        (stream.upload(&q_image)?, stream.upload(&k_image)?, stream.upload(&v_image)?);
    let mut o = stream.alloc::<f32>(HEADS * ROWS * DIM)?;
    let grid = Grid::new([(ROWS / 64) as u32, HEADS as u32, 1], [256, 1, 1])
        .shared(4096 + 2 * (8192 + 8192) + 7 * 8);
    let log2_scale = q.scale * k.scale * std::f32::consts::LOG2_E / (DIM as f32).sqrt();
    let arguments = args![&q_image, &k_image, &v_image, &mut o, (ROWS / 128) as u32, log2_scale, v.scale];
    device.kernel(&source())?.launch(&stream, &grid, &arguments)?;
    stream.download(&o)
}

/// Softmax attention in double precision, one head.
fn reference([q, k, v]: &[Quantised; 3], head: usize) -> Vec<f64> {
    let mut out = Vec::with_capacity(ROWS * DIM);
    for row in 0..ROWS {
        let score =
            |key: usize| (0..DIM).map(|d| q.value(head, row, d) * k.value(head, key, d)).sum::<f64>() / 8.0;
        let scores: Vec<f64> = (0..ROWS).map(score).collect();
        let top = scores.iter().fold(f64::MIN, |top, &score| top.max(score));
        let weights: Vec<f64> = scores.iter().map(|score| (score - top).exp()).collect();
        let total: f64 = weights.iter().sum();
        out.extend((0..DIM).map(|d| {
            weights.iter().enumerate().map(|(key, weight)| weight * v.value(head, key, d)).sum::<f64>()
                / total
        }));
    }
    out
}

#[test]
fn fp8_attention_matches_reference_in_seconds() -> Result<()> {
    let operands = [Quantised::new(1), Quantised::new(2), Quantised::new(3)];
    let device = Device::emulated(11)?;
    device.kernel(&source())?;
    let start = Instant::now();
    let got = run(&device, &operands)?;
    let took = start.elapsed();
    println!("emulated in {took:?}");
    let (mut error, mut norm) = (0.0, 0.0);
    for head in [0, HEADS - 1] {
        for (got, wanted) in got[head * ROWS * DIM..].iter().zip(reference(&operands, head)) {
            error += (f64::from(*got) - wanted).powi(2);
            norm += wanted * wanted;
        }
    }
    let relative = (error / norm).sqrt();
    // Rounding p to e4m3 alone gives 0.024.
    assert!(relative < 0.03, "relative Frobenius error {relative}");
    // A bound on the emulator, with room for a busy machine.
    assert!(took < Duration::from_secs(30), "the emulated attention took {took:?}");
    Ok(())
}

#[test]
fn fp8_attention_compiles_for_hopper() {
    match compile(&source(), &Architecture::Sm("sm_90a".into())) {
        Ok(binary) => {
            let resources =
                binary.resources.iter().find(|(name, _)| name == "attention").map(|(_, found)| *found);
            let resources = resources.expect("ptxas reports the kernel");
            assert_eq!(
                (resources.spill_stores, resources.spill_loads, resources.stack_bytes),
                (0, 0, 0),
                "{resources:?}"
            );
        }
        Err(Error::NoNvrtc { reason }) => eprintln!("skipped: NVRTC not found ({reason})"),
        Err(error) => panic!("{error}"),
    }
}
