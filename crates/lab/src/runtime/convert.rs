//! Conversions between number formats, of every code of the small ones and of f32 values in between.

use gatework_gpu::{Device, Grid, Kind, Stream, args};
use half::{bf16, f16};

use super::rounding::{Rule, SmallFormat};
use crate::kernels;
use crate::{Case, Control, ErrorBudget, Inputs, KernelSpec, Outputs, RunError, Work, Workload, poisoned};

const ENTRIES: [&str; 3] = ["convert_f32", "convert_halves", "convert_bytes"];
const THREADS: u32 = 128;
const BLOCKS: u32 = 4;
/// What NaNs are compared as where the hardware's payload is not documented.
const F32_NAN: u32 = 0x7fc0_0000;
const F16_NAN: u16 = 0x7fff;
/// Random f32 values, NaNs and infinities among them.
const RANDOM_WORDS: usize = 4096;

/// `gpu/convert`.
pub(super) struct Convert;

/// What a case converts.
#[derive(Clone, Copy)]
enum Subject {
    /// Every code of the 8- and 16-bit formats.
    Codes,
    /// f32 values around every `step`-th code of the small formats, and random ones.
    Between { step: usize },
}

fn subject(case: &Case) -> Subject {
    match case.dimensions.get("step") {
        Some(&step) => Subject::Between { step: step as usize },
        None => Subject::Codes,
    }
}

impl Subject {
    /// The f32 values that are rounded to the small formats: a multiple of four.
    fn singles(self, seed: u64) -> Vec<f32> {
        match self {
            Self::Codes => {
                let halves = (0..=u16::MAX).map(|code| f16::from_bits(code).to_f32());
                halves.chain((0..=u16::MAX).map(|code| bf16::from_bits(code).to_f32())).collect()
            }
            Self::Between { step } => between(step, seed),
        }
    }

    /// Whether the small formats are also converted, to each other and to f32.
    fn has_small_inputs(self) -> bool {
        matches!(self, Self::Codes)
    }
}

/// For neighbours `a < b` of a format: the values next to `a` on both sides, the middle of `a` and `b`, and
/// the values next to that. Signs alternate. Which codes are taken depends on the seed.
fn between(step: usize, seed: u64) -> Vec<f32> {
    let formats = [SmallFormat::f16(), SmallFormat::bf16(), SmallFormat::e4m3(), SmallFormat::e5m2()];
    let mut singles = Vec::new();
    for format in &formats {
        let values = format.values();
        // The 8-bit formats have few: all of theirs are taken.
        let step = if values.len() < 256 { 1 } else { step };
        for (number, pair) in values.windows(2).enumerate().skip(seed as usize % step).step_by(step) {
            let sign = if number % 2 == 0 { 1.0 } else { -1.0 };
            let middle = ((pair[0] + pair[1]) / 2.0) as f32;
            let around = [pair[0] as f32, middle].map(|value| [value.next_down(), value, value.next_up()]);
            singles.extend(around.into_iter().flatten().map(|value| sign * value));
        }
        // Around the largest value, and where overflow begins.
        let largest = values[values.len() - 1];
        let limit = (largest + (largest - values[values.len() - 2]) / 2.0) as f32;
        singles.extend(
            [largest as f32, limit].iter().flat_map(|value| [value.next_down(), *value, value.next_up()]),
        );
    }
    singles.extend(Inputs::new(seed).words(RANDOM_WORDS).into_iter().map(f32::from_bits));
    singles.resize(singles.len().next_multiple_of(4), 0.0);
    singles
}

/// Every f16 and every bf16, two a word.
fn all_pairs() -> Vec<u32> {
    (0..=u16::MAX).step_by(2).map(|code| pack([u32::from(code), u32::from(code) + 1], 16)).collect()
}

/// Every e4m3 and every e5m2, in both halves of a pair.
fn all_byte_pairs() -> Vec<u16> {
    (0..=u8::MAX).map(|code| u16::from(code) | u16::from(!code) << 8).collect()
}

fn pack<const N: usize>(codes: [u32; N], bits: u32) -> u32 {
    codes.into_iter().rev().fold(0, |word, code| word << bits | code)
}

fn pack_all(codes: impl IntoIterator<Item = u32>, bits: u32) -> Vec<u32> {
    let codes: Vec<u32> = codes.into_iter().collect();
    let word = |codes: &[u32]| codes.iter().rev().fold(0u32, |word, code| word.wrapping_shl(bits) | code);
    codes.chunks((32 / bits) as usize).map(word).collect()
}

fn one_f32_nan(values: Vec<f32>) -> Vec<u32> {
    values.into_iter().map(|value| if value.is_nan() { F32_NAN } else { value.to_bits() }).collect()
}

fn one_f16_nan(words: Vec<u32>) -> Vec<u32> {
    let half = |bits: u16| if f16::from_bits(bits).is_nan() { F16_NAN } else { bits };
    words
        .into_iter()
        .map(|word| pack([half(word as u16), half((word >> 16) as u16)].map(u32::from), 16))
        .collect()
}

/// What the device should compute, if it rounds by `rule`.
fn converted(subject: Subject, seed: u64, rule: Rule) -> Outputs {
    let [f16s, bf16s] = [SmallFormat::f16(), SmallFormat::bf16()];
    let [e4m3s, e5m2s] = [SmallFormat::e4m3(), SmallFormat::e5m2()];
    let singles = subject.singles(seed);
    let rounded = |format: &SmallFormat, bits: u32| {
        pack_all(singles.iter().map(|&value| format.round(value, rule)), bits)
    };
    let outputs = Outputs::new()
        .with("f32 to f16", rounded(&f16s, 16))
        .with("f32 to bf16", rounded(&bf16s, 16))
        .with("f32 to e4m3", rounded(&e4m3s, 8))
        .with("f32 to e5m2", rounded(&e5m2s, 8));
    if !subject.has_small_inputs() {
        return outputs;
    }
    let halves: Vec<f32> = (0..=u16::MAX).map(|code| f16::from_bits(code).to_f32()).collect();
    let narrowed = |format: &SmallFormat| -> Vec<u32> {
        halves
            .chunks_exact(2)
            .map(|pair| pack([pair[0], pair[1]].map(|value| format.round(value, rule)), 8))
            .collect()
    };
    // Both formats fit into f16: the nearest value is the value itself, whatever the rule.
    let widened = |decode: fn(u8) -> f32| -> Vec<u32> {
        let half = |code: u16| f16s.round(decode(code as u8), Rule::Hardware);
        all_byte_pairs().into_iter().map(|pair| pack([half(pair & 0xff), half(pair >> 8)], 16)).collect()
    };
    outputs
        .with("f16 to e4m3", narrowed(&e4m3s))
        .with("f16 to e5m2", narrowed(&e5m2s))
        .with("f16 to f32", one_f32_nan(halves))
        .with("bf16 to f32", (0..=u16::MAX).map(|code| u32::from(code) << 16).collect::<Vec<_>>())
        .with("e4m3 to f16", widened(|code| float8::F8E4M3::from_bits(code).to_f32()))
        .with("e5m2 to f16", widened(|code| float8::F8E5M2::from_bits(code).to_f32()))
}

fn grid() -> Grid {
    Grid::new([BLOCKS, 1, 1], [THREADS, 1, 1])
}

fn round_singles(device: &Device, stream: &Stream, singles: &[f32]) -> Result<Outputs, RunError> {
    let kernel = device.kernel_of(&kernels::CONVERT_FORMATS, ENTRIES[0])?;
    let n = singles.len();
    let from = stream.upload(singles)?;
    let (mut f16s, mut bf16s) = (poisoned::<u32>(stream, n / 2)?, poisoned::<u32>(stream, n / 2)?);
    let (mut e4m3s, mut e5m2s) = (poisoned::<u32>(stream, n / 4)?, poisoned::<u32>(stream, n / 4)?);
    let arguments = args![&from, &mut f16s, &mut bf16s, &mut e4m3s, &mut e5m2s, n as u32];
    kernel.launch(stream, &grid(), &arguments)?;
    Ok(Outputs::new()
        .with("f32 to f16", stream.download(&f16s)?)
        .with("f32 to bf16", stream.download(&bf16s)?)
        .with("f32 to e4m3", stream.download(&e4m3s)?)
        .with("f32 to e5m2", stream.download(&e5m2s)?))
}

fn convert_small(device: &Device, stream: &Stream, outputs: Outputs) -> Result<Outputs, RunError> {
    let widen = |pairs: Vec<u16>| pairs.into_iter().map(u32::from).collect::<Vec<_>>();

    let pairs = all_pairs();
    let kernel = device.kernel_of(&kernels::CONVERT_FORMATS, ENTRIES[1])?;
    let from = stream.upload(&pairs)?;
    let (mut f32s, mut bf32s) =
        (poisoned::<f32>(stream, 2 * pairs.len())?, poisoned::<f32>(stream, 2 * pairs.len())?);
    let (mut e4m3s, mut e5m2s) =
        (poisoned::<u16>(stream, pairs.len())?, poisoned::<u16>(stream, pairs.len())?);
    let arguments = args![&from, &mut f32s, &mut bf32s, &mut e4m3s, &mut e5m2s, pairs.len() as u32];
    kernel.launch(stream, &grid(), &arguments)?;
    let outputs = outputs
        .with("f16 to e4m3", widen(stream.download(&e4m3s)?))
        .with("f16 to e5m2", widen(stream.download(&e5m2s)?))
        .with("f16 to f32", one_f32_nan(stream.download(&f32s)?))
        .with("bf16 to f32", stream.download(&bf32s)?.into_iter().map(f32::to_bits).collect::<Vec<_>>());

    let byte_pairs = all_byte_pairs();
    let kernel = device.kernel_of(&kernels::CONVERT_FORMATS, ENTRIES[2])?;
    let from = stream.upload(&byte_pairs)?;
    let (mut from_e4m3, mut from_e5m2) =
        (poisoned::<u32>(stream, byte_pairs.len())?, poisoned::<u32>(stream, byte_pairs.len())?);
    kernel.launch(stream, &grid(), &args![&from, &mut from_e4m3, &mut from_e5m2, byte_pairs.len() as u32])?;
    Ok(outputs
        .with("e4m3 to f16", one_f16_nan(stream.download(&from_e4m3)?))
        .with("e5m2 to f16", one_f16_nan(stream.download(&from_e5m2)?)))
}

impl Workload for Convert {
    fn name(&self) -> &str {
        "gpu/convert"
    }

    fn summary(&self) -> &str {
        "f32, f16, bf16, e4m3 and e5m2 into each other, for every code and the values between codes"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        vec![
            KernelSpec::new(kernels::CONVERT_FORMATS.source())
                .entries(ENTRIES)
                .require("F2FP")
                .threads(THREADS),
        ]
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let step = match kind {
            Kind::Emulated => 16,
            Kind::Cuda => 1,
        };
        vec![Case::new("codes"), Case::new("between").with("step", step)]
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let subject = subject(case);
        let stream = device.stream()?;
        let outputs = round_singles(device, &stream, &subject.singles(seed))?;
        if subject.has_small_inputs() { convert_small(device, &stream, outputs) } else { Ok(outputs) }
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        converted(subject(case), seed, Rule::Hardware)
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let wrong = |name, rule| Control::new(name, converted(subject(case), seed, rule));
        vec![
            Control::zeros(reference),
            wrong("ties are rounded away from zero", Rule::TiesAway),
            wrong("subnormal results are flushed", Rule::FlushSubnormals),
            wrong("overflow saturates where it should not, and not where it should", Rule::OtherOverflow),
            Control::one_off(reference, "f32 to e5m2", 0, 1.0),
        ]
    }

    fn work(&self, case: &Case) -> Work {
        let subject = subject(case);
        let singles = subject.singles(0).len() as u64;
        let small = if subject.has_small_inputs() { 1 << 16 } else { 0 };
        Work {
            operations: 4 * (singles + small),
            bytes: singles * (4 + 2 + 2 + 1 + 1) + small * (2 + 4 + 4 + 1 + 1),
        }
    }
}
