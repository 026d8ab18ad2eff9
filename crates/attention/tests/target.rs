//! One program on the CPU and on a device: only the target's name differs.

use gatework_attention::{Attention, Mask, Output, Result, Shape};
use gatework_gpu::Target;
use gatework_lab::Inputs;
use half::f16;

fn attend(target: &str) -> Result<[Output<f32>; 2]> {
    let shape = Shape { batch: 1, heads: 4, key_heads: 2, rows: 70, keys: 140, dim: 64, value_dim: 64 };
    let attention = Attention::builder(shape).mask(Mask::Causal).build(&Target::open(target)?)?;
    assert_eq!(attention.shape(), &shape);
    let run = |seed: u64| -> Result<Output<f32>> {
        let mut inputs = Inputs::new(seed);
        let mut normal =
            |count: usize| inputs.normal(count).into_iter().map(f16::from_f32).collect::<Vec<_>>();
        let (q, k) = (normal(shape.query_elements()), normal(shape.key_elements()));
        let v = normal(shape.key_elements());
        let output = attention.forward_to::<f32, _>(&q, &k, &v)?;
        let same: Vec<f16> = output.o.iter().map(|x| f16::from_f32(*x)).collect();
        assert_eq!(attention.forward(&q, &k, &v)?, same, "a second call, in the inputs' format");
        Ok(output)
    };
    Ok([run(1)?, run(2)?])
}

#[test]
fn a_device_matches_the_cpu() -> Result<()> {
    for (exact, got) in attend("cpu")?.into_iter().zip(attend("emulated")?) {
        let (mut error, mut norm) = (0.0, 0.0);
        for (got, wanted) in got.o.iter().zip(&exact.o) {
            error += f64::from(got - wanted).powi(2);
            norm += f64::from(*wanted).powi(2);
        }
        assert!((error / norm).sqrt() < 0.075, "{}", (error / norm).sqrt());
        assert!(got.lse.iter().zip(&exact.lse).all(|(got, wanted)| (got - wanted).abs() < 0.1));
        assert_eq!((got.o.len(), got.lse.len()), (exact.o.len(), exact.lse.len()));
    }
    Ok(())
}
