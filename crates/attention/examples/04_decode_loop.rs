//! A decoder's loop with a cache: a prompt that two answers share, and steps that append a row to each and
//! attend.
//!
//! ```sh
//! cargo run -p gatework-attention --example 04_decode_loop                # the CPU
//! cargo run -p gatework-attention --example 04_decode_loop -- emulated    # a device: cuda, or the emulated one
//! ```
//!
//! On a device the launches of a step are captured once and launched as a graph. Each step is compared with
//! attention over all keys so far without a cache.

use gatework_attention::reference::relative_error;
use gatework_attention::{
    Attention, CachedAttention, KvCache, Layout, Mask, Result, Sequence, Shape, StepSize,
};
use gatework_gpu::{Device, Target};

const HEADS: Shape = Shape { batch: 1, heads: 4, key_heads: 2, rows: 1, keys: 1, dim: 64, value_dim: 64 };
const PROMPT: usize = 150;
const STEPS: usize = 4;
/// Stands for the tokens of the prompt, which are no answer's.
const OF_PROMPT: usize = 1000;

/// What a model would compute of a token, its query, key or value: here random numbers between -2 and 2.
fn projection(elements: usize, token: usize, which: usize) -> Vec<f32> {
    let mut state = (3 * token + which) as u64 + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 22) as f32 - 2.0
    };
    (0..elements).map(|_| next()).collect()
}

/// Projections of one token of each of two answers.
fn tokens(step: usize) -> [Vec<f32>; 3] {
    let of_heads = |heads: usize, which: usize| {
        (0..2).flat_map(|answer| projection(heads * HEADS.dim, 2 * step + answer, which)).collect()
    };
    [of_heads(HEADS.heads, 0), of_heads(HEADS.key_heads, 1), of_heads(HEADS.key_heads, 2)]
}

/// The largest error of a step over the size of its output.
fn show(target: &Target) -> Result<f64> {
    // Keys and values of all sequences lie in pages of the cache; forks share the pages of what they have in
    // common.
    let mut cache = KvCache::new(HEADS.key_heads, HEADS.dim, 16, target)?;
    let attention = Attention::builder(HEADS).mask(Mask::Causal).build_cached()?;
    let prompt = cache.begin();
    let row = HEADS.key_heads * HEADS.dim;
    cache.append(prompt, &projection(PROMPT * row, OF_PROMPT, 1), &projection(PROMPT * row, OF_PROMPT, 2))?;
    let answers = [cache.fork(prompt, PROMPT)?, cache.fork(prompt, PROMPT)?];
    let outputs = match target {
        Target::Cpu => on_cpu(&attention, &mut cache, answers)?,
        Target::Gpu(device) => on_device(&attention, &mut cache, answers, device)?,
    };
    println!("{:?}", cache.statistics());
    let mut worst = 0.0f64;
    for (step, output) in outputs.iter().enumerate() {
        let error = relative_error(output[..HEADS.heads * HEADS.dim].to_vec(), &without_cache(step)?);
        println!("step {step}: {:?} ..., {error:.1e} from attention without a cache", &output[..3]);
        worst = worst.max(error);
    }
    // The cache keeps e4m3 on a device, and f16 on the CPU.
    assert!(worst < if target.device().is_some() { 0.1 } else { 2e-3 });
    Ok(worst)
}

/// What the first answer's row must be: its query over the prompt and all of its own tokens so far, in f32.
fn without_cache(step: usize) -> Result<Vec<f64>> {
    let shape = Shape { keys: PROMPT + step + 1, ..HEADS };
    let row = HEADS.key_heads * HEADS.dim;
    let all = |which: usize| {
        let own = (0..=step).flat_map(|step| projection(row, 2 * step, which));
        projection(PROMPT * row, OF_PROMPT, which).into_iter().chain(own).collect::<Vec<f32>>()
    };
    let attention =
        Attention::builder(shape).mask(Mask::Causal).layout(Layout::RowsFirst).build(&Target::Cpu)?;
    let o = attention.forward(&projection(HEADS.heads * HEADS.dim, 2 * step, 0), &all(1), &all(2))?;
    Ok(o.into_iter().map(f64::from).collect())
}

fn on_cpu(attention: &CachedAttention, cache: &mut KvCache, answers: [Sequence; 2]) -> Result<Vec<Vec<f32>>> {
    let rows = answers.map(|answer| (answer, 1));
    let step = |step| {
        let [q, k, v] = tokens(step);
        cache.append_all(&rows, &k, &v)?;
        Ok(attention.forward_to::<f32, _>(cache, &rows, &q)?.o)
    };
    (0..STEPS).map(step).collect()
}

fn on_device(
    attention: &CachedAttention,
    cache: &mut KvCache,
    answers: [Sequence; 2],
    device: &Device,
) -> Result<Vec<Vec<f32>>> {
    let rows = answers.map(|answer| (answer, 1));
    let stream = device.stream()?;
    let most = StepSize { sequences: 2, rows: 1, keys: PROMPT + STEPS };
    let steps = attention.steps(cache, &stream, most)?;
    let [q, k, v] = tokens(0);
    let [mut q, mut k, mut v] = [stream.upload(&q)?, stream.upload(&k)?, stream.upload(&v)?];
    let mut o = stream.alloc_zeros::<f32>(q.len())?;
    let mut graph = attention.capture(&stream, steps, cache, [&q, &k, &v], &mut o)?;
    let mut outputs = Vec::new();
    for step in 0..STEPS {
        let [new_q, new_k, new_v] = tokens(step);
        stream.copy_from_host(&new_q, &mut q)?;
        stream.copy_from_host(&new_k, &mut k)?;
        stream.copy_from_host(&new_v, &mut v)?;
        graph.step(&stream, cache, &rows)?;
        outputs.push(stream.download(&o)?);
    }
    Ok(outputs)
}

fn main() -> Result<()> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "cpu".into());
    show(&Target::open(&name)?).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_shows_what_it_says() {
        for target in ["cpu", "emulated"] {
            show(&Target::open(target).unwrap()).unwrap();
        }
    }
}
