//! A decoder's loop with a cache: a prompt that two answers share, and steps that append a row to each and attend.
//!
//! `cargo run --example decode_loop` runs on the CPU, `cargo run --example decode_loop -- emulated` or `-- cuda` on a device, where the
//! launches of a step are captured once and launched as a graph.

use gatework_attention::{Attention, CachedAttention, KvCache, Mask, Result, Sequence, Shape, StepSize};
use gatework_gpu::{Device, Target};

const HEADS: Shape = Shape { batch: 1, heads: 4, key_heads: 2, rows: 1, keys: 1, dim: 64 };
const PROMPT: usize = 150;
const STEPS: usize = 4;

/// What a model would compute of a token: its query, key or value.
fn projection(elements: usize, token: usize, which: usize) -> Vec<f32> {
    (0..elements).map(|i| ((i * (7 + which) + token * 31) as f32).sin()).collect()
}

/// Projections of one token of each of two answers.
fn tokens(step: usize) -> [Vec<f32>; 3] {
    let of_heads = |heads: usize, which: usize| {
        (0..2).flat_map(|answer| projection(heads * HEADS.dim, 2 * step + answer, which)).collect()
    };
    [of_heads(HEADS.heads, 0), of_heads(HEADS.key_heads, 1), of_heads(HEADS.key_heads, 2)]
}

fn main() -> Result<()> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "cpu".into());
    let target = Target::open(&name)?;
    let mut cache = KvCache::new(HEADS.key_heads, HEADS.dim, 16, &target)?;
    let attention = Attention::builder(HEADS).mask(Mask::Causal).build_cached()?;

    let prompt = cache.begin();
    let row = HEADS.key_heads * HEADS.dim;
    cache.append(prompt, &projection(PROMPT * row, 0, 1), &projection(PROMPT * row, 0, 2))?;
    let answers = [cache.fork(prompt, PROMPT)?, cache.fork(prompt, PROMPT)?];

    match &target {
        Target::Cpu => on_cpu(&attention, &mut cache, answers)?,
        Target::Gpu(device) => on_device(&attention, &mut cache, answers, device)?,
    }
    println!("{:?}", cache.statistics());
    Ok(())
}

fn on_cpu(attention: &CachedAttention, cache: &mut KvCache, answers: [Sequence; 2]) -> Result<()> {
    let rows = answers.map(|answer| (answer, 1));
    for step in 0..STEPS {
        let [q, k, v] = tokens(step);
        cache.append_all(&rows, &k, &v)?;
        let output = attention.forward_to::<f32, _>(cache, &rows, &q)?;
        show(step, &output.o);
    }
    Ok(())
}

fn on_device(
    attention: &CachedAttention,
    cache: &mut KvCache,
    answers: [Sequence; 2],
    device: &Device,
) -> Result<()> {
    let rows = answers.map(|answer| (answer, 1));
    let stream = device.stream()?;
    let most = StepSize { sequences: 2, rows: 1, keys: PROMPT + STEPS };
    let steps = attention.steps(cache, &stream, most)?;
    let [mut q, mut k, mut v] = {
        let [q, k, v] = tokens(0);
        [stream.upload(&q)?, stream.upload(&k)?, stream.upload(&v)?]
    };
    let mut o = stream.alloc_zeros::<f32>(q.len())?;
    let mut graph = attention.capture(&stream, steps, cache, [&q, &k, &v], &mut o)?;
    for step in 0..STEPS {
        let [new_q, new_k, new_v] = tokens(step);
        stream.copy_from_host(&new_q, &mut q)?;
        stream.copy_from_host(&new_k, &mut k)?;
        stream.copy_from_host(&new_v, &mut v)?;
        graph.step(&stream, cache, &rows)?;
        show(step, &stream.download(&o)?);
    }
    Ok(())
}

/// The first numbers of the first answer's row.
fn show(step: usize, o: &[f32]) {
    println!("step {step}: {:?}", &o[..4]);
}
