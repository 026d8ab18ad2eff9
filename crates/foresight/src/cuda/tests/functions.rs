//! Functions and random numbers of kernels against the CPU's, bit for bit.

use gatework_gpu::{Grid, Source, args};

use super::{stream, upload};
use crate::cuda::kernels::HEADERS;
use crate::dense::{exp, ln, sigmoid, tanh};
use crate::random::Random;
use crate::world::inside::gumbel;

/// What the CPU does to every number.
type Function = fn(&mut [f32]);

const TEXT: &str = r#"
#include "functions.cuh"
// found[function][i] <- function(x[i]); bits[i] <- number i of a stream, noise[i] <- the Gumbel noise of it.
GW_KERNEL(functions_of)(const f32* x, f32* found, u64* bits, f32* noise, u64 base, u32 n) {
    const u32 i = gw::global_thread();
    if (i >= n) return;
    found[i] = functions::exp(x[i]);
    found[n + i] = functions::ln(x[i]);
    found[2 * n + i] = functions::sigmoid(x[i]);
    found[3 * n + i] = functions::tanh(x[i]);
    bits[i] = functions::random_bits(base, i);
    noise[i] = functions::gumbel(bits[i]);
}
"#;

#[test]
fn functions_and_random_numbers_are_the_same_bits_as_the_cpus() {
    let stream = stream(1);
    let mut random = Random::new(8, "kernels");
    let mut x: Vec<f32> =
        [0.0, -0.0, 1.0, 0.625, -0.625, 88.5, -88.0, 1e30, -1e30, 1e-30, f32::INFINITY, f32::MIN_POSITIVE]
            .to_vec();
    x.extend((0..4000).map(|i| (random.normal() * 10f64.powi(i % 8 - 5)) as f32));
    let n = x.len();
    let source = Source::new("functions_of", TEXT).include_all(&HEADERS);
    let (mut found, mut bits) = (stream.alloc::<f32>(4 * n).unwrap(), stream.alloc::<u64>(n).unwrap());
    let mut noise = stream.alloc::<f32>(n).unwrap();
    let on_device = upload(&stream, &x);
    let arguments = args![&on_device, &mut found, &mut bits, &mut noise, random.base(), n as u32];
    stream.device().kernel(&source).unwrap().launch(&stream, &Grid::covering(n, 128), &arguments).unwrap();
    let found = stream.download(&found).unwrap();
    let on_cpu: [(&str, Function); 4] = [("exp", exp), ("ln", ln), ("sigmoid", sigmoid), ("tanh", tanh)];
    for ((name, function), found) in on_cpu.into_iter().zip(found.chunks(n)) {
        let mut wanted = x.clone();
        function(&mut wanted);
        for ((x, found), wanted) in x.iter().zip(found).zip(&wanted) {
            assert_eq!(found.to_bits(), wanted.to_bits(), "{name}({x}) = {found}, not {wanted}");
        }
    }
    let bits = stream.download(&bits).unwrap();
    let noise = stream.download(&noise).unwrap();
    let mut drawn = random.clone();
    for (i, (bits, noise)) in bits.iter().zip(&noise).enumerate() {
        assert_eq!(*bits, random.numbered(i as u64));
        assert_eq!(noise.to_bits(), gumbel(*bits).to_bits());
        assert_eq!(*bits, drawn.bits());
    }
    // Gumbel's distribution has the mean γ = 0.577 and the variance π²/6 = 1.645.
    let mean = noise.iter().map(|g| f64::from(*g)).sum::<f64>() / n as f64;
    let variance = noise.iter().map(|g| (f64::from(*g) - mean).powi(2)).sum::<f64>() / n as f64;
    assert!((mean - 0.577).abs() < 0.08 && (variance - 1.645).abs() < 0.25, "{mean} {variance}");
    assert!([0, 1 << 63, u64::MAX].iter().all(|bits| gumbel(*bits).is_finite()));
}
