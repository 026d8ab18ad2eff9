//! Attend over slices in host memory: causal, with grouped heads, and held against double precision.
//!
//! ```sh
//! cargo run -p gatework-attention --example 03_attend                  # the CPU, in f32
//! cargo run -p gatework-attention --example 03_attend -- emulated      # the kernels of a GPU, in FP8, without one
//! cargo run -p gatework-attention --example 03_attend -- cuda          # an NVIDIA Hopper GPU
//! ```

use gatework_attention::{Attention, Mask, Result, Shape, reference};
use gatework_gpu::Target;

/// Eight query heads share two heads of keys and values. The last of 100 rows sees all of 157 keys.
const SHAPE: Shape = Shape { batch: 1, heads: 8, key_heads: 2, rows: 100, keys: 157, dim: 64, value_dim: 64 };

/// Random numbers between -2 and 2 in place of what a model would project.
fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 22) as f32 - 2.0
    };
    (0..count).map(|_| next()).collect()
}

/// The error of the output over its size.
fn show(target: &Target) -> Result<f64> {
    let q = noise(SHAPE.query_elements(), 3);
    let (k, v) = (noise(SHAPE.key_elements(), 5), noise(SHAPE.key_elements(), 7));
    // Building checks the shape and, on a device, compiles and loads the kernels: build once, attend often.
    let attention = Attention::builder(SHAPE).mask(Mask::Causal).build(target)?;
    // Slices may be f16, bf16 or f32, and the output is of the same kind.
    let o = attention.forward(&q, &k, &v)?;
    println!("o = softmax(q k^T / 8) v on {}: {} numbers, {:?} ...", target.id(), o.len(), &o[..3]);

    let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
    let (exact, _) = reference::attention(&SHAPE, Mask::Causal, 1.0 / 8.0, &wide(&q), &wide(&k), &wide(&v));
    let error = reference::relative_error(o, &exact);
    println!("double precision is {error:.1e} of the output's size away");
    // Three bits of mantissa of FP8 on a device, 24 of f32 on the CPU.
    assert!(error < if target.device().is_some() { 0.08 } else { 1e-5 });
    Ok(error)
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
        assert!(show(&Target::Cpu).unwrap() < 1e-6);
        assert!(show(&Target::open("emulated").unwrap()).unwrap() > 1e-3, "FP8 is not exact");
    }
}
