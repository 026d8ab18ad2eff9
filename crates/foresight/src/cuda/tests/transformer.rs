//! Kernels of a transformer's step against plain loops in double precision.

use half::bf16;

use super::{numbers, stream, upload};
use crate::cuda::{DeviceOptimiser, RowKernels, Rows, Sorted};
use crate::network::{Architecture, Transformer};
use crate::optimiser::{Method, Optimiser, OptimiserOptions};
use crate::random::Random;

fn double(x: &[f32]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x)).collect()
}

/// Whether all numbers are within single precision of `wanted`, whose size they are measured by.
fn close(found: &[f32], wanted: &[f64]) -> bool {
    let size = wanted.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    found.len() == wanted.len()
        && found
            .iter()
            .zip(wanted)
            .all(|(found, wanted)| (f64::from(*found) - wanted).abs() <= 1e-5 * (wanted.abs() + 0.1 * size))
}

/// They are close, and would not be if one number was another: the first, the last, or one in the middle.
fn require(found: &[f32], wanted: &[f64], what: &str) {
    assert!(close(found, wanted), "{what}: {found:?}\n{wanted:?}");
    let size = wanted.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    for at in [0, wanted.len() / 2, wanted.len() - 1] {
        let mut other = wanted.to_vec();
        other[at] += 1e-4 * (size + other[at].abs());
        assert!(!close(found, &other), "{what}: a wrong number at {at} passes");
    }
}

/// The same of what was rounded: within a unit in the last place of each, and a little for what came before.
fn require_rounded(found: &[bf16], wanted: &[f64], what: &str) {
    let size = wanted.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    let close =
        |found: &bf16, wanted: &f64| (found.to_f64() - wanted).abs() <= wanted.abs() / 250.0 + 1e-5 * size;
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (at, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert!(close(found, wanted), "{what}: {found} and not {wanted} at {at}");
    }
}

const SHAPES: [(usize, usize); 5] = [(1, 1), (3, 33), (9, 64), (300, 7), (17, 130)];

/// Mean, and one over the deviation.
fn moments(x: &[f64]) -> [f64; 2] {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
    [mean, 1.0 / (variance + 1e-5).sqrt()]
}

#[test]
fn normalisations_match_double_precision() {
    for (seed, (count, width)) in (0..).zip(SHAPES) {
        let (stream, rows) = (stream(seed), Rows { count, width });
        let mut random = Random::new(seed, "normalise");
        let x: Vec<f32> = numbers(&mut random, count * width).iter().map(|x| 3.0 * x + 1.0).collect();
        let (gains, dy) = (numbers(&mut random, 2 * width), numbers(&mut random, count * width));
        let (start, of_start) = (numbers(&mut random, count * width), numbers(&mut random, 2 * width));
        let [x_there, gains_there, dy_there] = [&x, &gains, &dy].map(|list| upload(&stream, list));
        let (mut y, mut found) = (stream.alloc(count * width).unwrap(), stream.alloc(2 * count).unwrap());
        let (mut dx, mut of_gains) = (upload(&stream, &start), upload(&stream, &of_start));
        let mut kernels = RowKernels::new(&stream);
        kernels.normalise(rows, &x_there, &gains_there, &mut y, &mut found).unwrap();
        kernels
            .normalise_back(rows, &x_there, &gains_there, &found, &dy_there, &mut dx, &mut of_gains)
            .unwrap();
        let (mut wanted, mut wanted_dx, mut wanted_gains) = (Vec::new(), Vec::new(), double(&of_start));
        for (row, x) in x.chunks_exact(width).enumerate() {
            let (x, at) = (double(x), row * width);
            let [mean, scale] = moments(&x);
            let n: Vec<f64> = x.iter().map(|x| (x - mean) * scale).collect();
            let [gain, dy]: [Vec<f64>; 2] = [double(&gains[..width]), double(&dy[at..at + width])];
            let g: Vec<f64> = gain.iter().zip(&dy).map(|(gain, dy)| gain * dy).collect();
            let whole = g.iter().sum::<f64>() / width as f64;
            let along = g.iter().zip(&n).map(|(g, n)| g * n).sum::<f64>() / width as f64;
            for i in 0..width {
                wanted.push(n[i] * gain[i] + f64::from(gains[width + i]));
                wanted_dx.push(f64::from(start[at + i]) + (g[i] - whole - n[i] * along) * scale);
                wanted_gains[i] += dy[i] * n[i];
                wanted_gains[width + i] += dy[i];
            }
        }
        let what = format!("{count} x {width}");
        // A row of one number is its own mean: its gradient is what is left of a difference.
        if width > 1 {
            require_rounded(&stream.download(&y).unwrap(), &wanted, &what);
            require(&stream.download(&dx).unwrap(), &wanted_dx, &what);
        }
        require(&stream.download(&of_gains).unwrap(), &wanted_gains, &what);
        let mut of_bias = upload(&stream, &of_start[..width]);
        let rounded: Vec<bf16> = dy.iter().map(|dy| bf16::from_f32(*dy)).collect();
        kernels.bias_back(rows, &stream.upload(&rounded).unwrap(), &mut of_bias).unwrap();
        let mut wanted_bias = double(&of_start[..width]);
        rounded
            .chunks_exact(width)
            .for_each(|dy| wanted_bias.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy.to_f64()));
        require(&stream.download(&of_bias).unwrap(), &wanted_bias, &what);
    }
}

#[test]
fn cross_entropies_match_double_precision() {
    for (seed, (count, vocabulary, width)) in
        (0..).zip([(1, 1, 1), (5, 37, 64), (3, 1000, 1024), (2, 300, 300), (3, 50, 51), (1, 2051, 2052)])
    {
        let stream = stream(seed);
        let mut random = Random::new(seed, "judge");
        let logits: Vec<f32> = numbers(&mut random, count * width).iter().map(|x| 4.0 * x).collect();
        let targets: Vec<u32> = (0..count).map(|_| random.below(vocabulary) as u32).collect();
        let kernels = RowKernels::new(&stream);
        let (there, mut deltas) = (upload(&stream, &logits), stream.alloc(count * width).unwrap());
        let rows = Rows { count, width };
        let judged = kernels.cross_entropy(rows, vocabulary, &targets, &there, &mut deltas, 0.5).unwrap();
        let (mut losses, mut right, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
        for (logits, &target) in logits.chunks_exact(width).zip(&targets) {
            let logits = double(&logits[..vocabulary]);
            let target = target as usize;
            let sum: f64 = logits.iter().map(|x| x.exp()).sum();
            losses.push(sum.ln() - logits[target]);
            right.push(u32::from(logits.iter().all(|x| *x <= logits[target])));
            let of = |i: usize| (logits[i].exp() / sum - f64::from(u8::from(i == target))) * 0.5;
            wanted.extend((0..width).map(|i| if i < vocabulary { of(i) } else { 0.0 }));
        }
        assert_eq!(stream.download(&judged.right).unwrap(), right);
        if vocabulary > 1 {
            require(&stream.download(&judged.losses).unwrap(), &losses, "losses");
            require_rounded(&stream.download(&deltas).unwrap(), &wanted, "gradient");
        }
    }
    // Of equal logits the first is the largest, and what is no number is none anywhere.
    let stream = stream(7);
    let kernels = RowKernels::new(&stream);
    let rows = Rows { count: 3, width: 300 };
    let mut logits = vec![1.0; 900];
    logits[700] = f32::NAN;
    let (there, mut deltas) = (upload(&stream, &logits), stream.alloc(900).unwrap());
    let judged = kernels.cross_entropy(rows, 300, &[0, 299, 0], &there, &mut deltas, 1.0).unwrap();
    assert_eq!(stream.download(&judged.right).unwrap()[..2], [1, 0]);
    let losses = stream.download(&judged.losses).unwrap();
    assert!((losses[1] - 300f32.ln()).abs() < 1e-5 && losses[2].is_nan(), "{losses:?}");
    let deltas = stream.download(&deltas).unwrap();
    assert!(deltas[..600].iter().all(|x| x.is_finite()) && deltas[600..].iter().all(|x| x.is_nan()));
}

/// The largest number is the first of its kind, wherever in a row it is, and far above and below others.
#[test]
fn the_largest_logit_is_found_wherever_it_is() {
    let (vocabulary, width) = (1030, 1032);
    let stream = stream(3);
    let kernels = RowKernels::new(&stream);
    let targets = [0u32, 3, 4, 255, 1023, 1024, 1028, 1029];
    let mut logits = vec![-3e4f32; targets.len() * width];
    for (row, target) in targets.iter().enumerate() {
        logits[row * width + *target as usize] = 60.0;
        // A later one of the same size, and what stands for no token.
        logits[row * width + vocabulary - 1] = 60.0;
        logits[row * width + vocabulary] = 1e30;
    }
    let rows = Rows { count: targets.len(), width };
    let (there, mut deltas) = (upload(&stream, &logits), stream.alloc(logits.len()).unwrap());
    let judged = kernels.cross_entropy(rows, vocabulary, &targets, &there, &mut deltas, 1.0).unwrap();
    assert_eq!(stream.download(&judged.right).unwrap(), [1; 8]);
    let losses = stream.download(&judged.losses).unwrap();
    let wanted = |row: usize| if row == 7 { 0.0 } else { 2f32.ln() };
    assert!(losses.iter().enumerate().all(|(row, loss)| (loss - wanted(row)).abs() < 1e-6), "{losses:?}");
}

#[test]
fn embeddings_and_their_gradient_match_double_precision_under_every_schedule() {
    let (count, width, context, vocabulary) = (21, 35, 7, 11);
    let mut random = Random::new(1, "embed");
    // Most rows are of one token, one token has none.
    let tokens: Vec<u32> = (0..count).map(|i| if i % 3 == 0 { random.below(10) as u32 } else { 4 }).collect();
    let [table, start] = [(); 2].map(|()| numbers(&mut random, vocabulary * width));
    let places = numbers(&mut random, context * width);
    let dx = numbers(&mut random, count * width);
    let mut wanted: Vec<f64> = double(&start);
    for (row, &token) in tokens.iter().enumerate() {
        for i in 0..width {
            wanted[token as usize * width + i] += f64::from(dx[row * width + i]);
        }
    }
    let rows = Rows { count, width };
    let mut seen: Option<Vec<u32>> = None;
    for seed in 0..6 {
        let stream = stream(seed);
        let kernels = RowKernels::new(&stream);
        let (table, places) = (upload(&stream, &table), upload(&stream, &places));
        let mut x = stream.alloc(count * width).unwrap();
        kernels.embed(rows, context, &tokens, &table, &places, &mut x).unwrap();
        let [table, places] = [table, places].map(|there| double(&stream.download(&there).unwrap()));
        let of = |at: usize| {
            let (row, i) = (at / width, at % width);
            table[tokens[row] as usize * width + i] + places[row % context * width + i]
        };
        require(&stream.download(&x).unwrap(), &(0..count * width).map(of).collect::<Vec<_>>(), "embedding");
        let sorted = Sorted::new(&stream, &tokens).unwrap();
        let mut of_table = upload(&stream, &start);
        kernels.embed_back(rows, &sorted, &upload(&stream, &dx), &mut of_table).unwrap();
        let found = stream.download(&of_table).unwrap();
        require(&found, &wanted, "its gradient");
        let bits: Vec<u32> = found.iter().map(|x| x.to_bits()).collect();
        assert_eq!(*seen.get_or_insert_with(|| bits.clone()), bits, "seed {seed}");
    }
}

#[test]
fn what_does_not_fit_is_refused_with_a_sentence() {
    let stream = stream(0);
    let mut kernels = RowKernels::new(&stream);
    let says = |result: crate::Result<()>, part: &str| {
        let said = result.unwrap_err().to_string();
        assert!(said.contains(part), "{said}");
    };
    let (six, mut other, mut two) =
        (upload(&stream, &[1.0; 6]), upload(&stream, &[1.0; 6]), upload(&stream, &[1.0; 2]));
    let rows = Rows { count: 2, width: 3 };
    let mut half = stream.upload(&[bf16::ONE; 6]).unwrap();
    says(kernels.bias_back(rows, &half, &mut two), "'of_bias' has 2 numbers where 3 are needed");
    says(kernels.bias_back(Rows { count: 0, width: 3 }, &half, &mut two), "0 rows of 3 numbers");
    let mut judge = |vocabulary, targets: &[u32]| {
        kernels.cross_entropy(rows, vocabulary, targets, &six, &mut half, 1.0).map(drop)
    };
    says(judge(3, &[0, 3]), "a target is 3, and the vocabulary has 3");
    says(judge(4, &[0, 0]), "a vocabulary of 4 in rows of 3");
    says(judge(3, &[0]), "'targets' has 1");
    let mut short = stream.alloc(5).unwrap();
    says(
        kernels.cross_entropy(rows, 3, &[0, 0], &six, &mut short, 1.0).map(drop),
        "'deltas' has 5 numbers where 6 are needed",
    );
    says(Sorted::new(&stream, &[]).map(drop), "no tokens to sort");
    let sorted = Sorted::new(&stream, &[0, 2]).unwrap();
    says(kernels.embed_back(rows, &sorted, &six, &mut other), "a token is 2, and the table has 2 rows of 3");
}

/// The optimiser of the CPU steps matrices that are empty, and vectors beside biases; so does the device's.
#[test]
fn steps_of_a_transformer_match_cpu_bit_for_bit() {
    let shape = Transformer::new(5, 3, [6, 1, 2]).unwrap();
    let groups = Architecture::Transformer(shape).parameters();
    let count = groups.last().unwrap().bias.end;
    for (seed, method) in (0..).zip([Method::AdamW, Method::Muon]) {
        let stream = stream(seed);
        let mut random = Random::new(seed, "steps");
        let (mut weights, gradient) = (numbers(&mut random, count), numbers(&mut random, count));
        let options = OptimiserOptions { method, ..OptimiserOptions::default() };
        let mut device = DeviceOptimiser::new(&stream, options, &groups, 0).unwrap();
        let (mut there, on_device) = (upload(&stream, &weights), upload(&stream, &gradient));
        device.begin(&stream, &on_device).unwrap();
        device.adamw(&stream, &mut there, &on_device, 1e-2, true).unwrap();
        let mut optimiser = Optimiser::new(options, count);
        optimiser.step(&groups, &mut weights, &mut gradient.clone(), 1e-2, 0, false);
        let found = stream.download(&there).unwrap();
        for (place, group) in groups.iter().enumerate() {
            // Muon's matrices wait for their products.
            let hidden = method == Method::Muon && place > 0 && place + 1 < groups.len();
            let range = if hidden { group.bias.clone() } else { group.range() };
            assert_eq!(found[range.clone()], weights[range], "{method:?} {place}");
        }
    }
}
