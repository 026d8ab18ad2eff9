//! The cache on the emulated device.

use gatework_attention::reference::{self, Scores};
use gatework_attention::{Attention, KvCache, Mask, Result, Shape};
use gatework_gpu::{Device, Target};
use gatework_lab::Inputs;
use half::f16;

fn numbers(inputs: &mut Inputs, count: usize) -> Vec<f16> {
    inputs.normal(count).into_iter().map(f16::from_f32).collect()
}

fn wide(x: &[f16]) -> Vec<f64> {
    x.iter().map(|x| f64::from(x.to_f32())).collect()
}

/// `[rows, heads, dim]` as `[heads, rows, dim]`.
fn heads_first(x: &[f16], heads: usize, dim: usize) -> Vec<f64> {
    let head = |head: usize| x.chunks(heads * dim).flat_map(move |row| &row[head * dim..][..dim]).copied();
    wide(&(0..heads).flat_map(head).collect::<Vec<_>>())
}

#[test]
fn lengths_masks_and_groups_match_reference() -> Result<()> {
    let mut inputs = Inputs::new(3);
    for (seed, (heads, key_heads, dim, rows, keys, mask)) in [
        (4, 2, 64, 1, 300, Mask::Causal),
        (2, 1, 128, 3, 1500, Mask::Causal),
        (3, 1, 64, 30, 129, Mask::Causal),
        (2, 2, 64, 5, 2, Mask::Causal),
        (6, 2, 64, 2, 1290, Mask::Window { left: 1100, right: 0 }),
        (1, 1, 128, 70, 200, Mask::Full),
    ]
    .into_iter()
    .enumerate()
    {
        let device = Target::Gpu(Device::emulated(seed as u64)?);
        let shape = Shape { batch: 1, heads, key_heads, rows, keys, dim };
        let (k, v) = (numbers(&mut inputs, shape.key_elements()), numbers(&mut inputs, shape.key_elements()));
        let q = numbers(&mut inputs, shape.query_elements());
        let mut cache = KvCache::new(key_heads, dim, keys.div_ceil(128), &device)?;
        let sequence = cache.begin();
        cache.append(sequence, &k, &v)?;
        let attention = Attention::builder(shape).mask(mask).build_cached()?;
        let got = attention.forward_to::<f32, _>(&cache, &[(sequence, rows)], &q)?;
        let scores = Scores { mask, scale: 1.0 / (dim as f64).sqrt(), soft_cap: None, sinks: &[] };
        let (wanted, lse) = reference::attention_of(
            &shape,
            &scores,
            &heads_first(&q, heads, dim),
            &heads_first(&k, key_heads, dim),
            &heads_first(&v, key_heads, dim),
        );
        let o: Vec<f32> = {
            let o: Vec<f16> = got.o.iter().map(|&x| f16::from_f32(x)).collect();
            heads_first(&o, heads, dim).iter().map(|&x| x as f32).collect()
        };
        let error = reference::relative_error(o, &wanted);
        println!("{heads}/{key_heads} {dim} {rows} over {keys}: {error}");
        assert!(error < 0.08);
        let finite = |x: &[f64]| x.iter().map(|&x| if x.is_finite() { x } else { -1e3 }).collect::<Vec<_>>();
        let got_lse: Vec<f64> = got.lse.iter().map(|&x| f64::from(x)).collect();
        let got_lse: Vec<f32> = finite(&got_lse).iter().map(|&x| x as f32).collect();
        assert!(reference::relative_error(got_lse, &finite(&lse)) < 0.02);
    }
    Ok(())
}
