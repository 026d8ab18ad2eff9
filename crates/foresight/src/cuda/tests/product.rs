//! Products, and what lies between them, against plain loops in double precision.

use gatework_gpu::Stream;
use half::bf16;

use super::{numbers, stream, upload};
use crate::cuda::mixed;
use crate::cuda::{Products, ProductsBy, Turned, Write};
use crate::random::Random;

fn rounded(random: &mut Random, count: usize) -> Vec<bf16> {
    numbers(random, count).into_iter().map(bf16::from_f32).collect()
}

/// The product, in which `a` and `b` lie as `turned` says.
fn plain(turned: Turned, [m, n, k]: [usize; 3], a: &[bf16], b: &[bf16]) -> Vec<f64> {
    let a = |i: usize, p: usize| if turned == Turned::Left { a[p * m + i] } else { a[i * k + p] }.to_f64();
    let b = |p: usize, j: usize| if turned == Turned::Right { b[j * k + p] } else { b[p * n + j] }.to_f64();
    let of = |i: usize, j: usize| (0..k).map(|p| a(i, p) * b(p, j)).sum();
    (0..m * n).map(|at| of(at / n, at % n)).collect()
}

/// They agree as far as sums of so many numbers in single precision can.
fn require(found: &[f32], wanted: &[f64], what: &str) {
    let size = wanted.iter().fold(1.0f64, |most, x| most.max(x.abs()));
    let close = |found: &[f32]| {
        found.iter().zip(wanted).all(|(found, wanted)| (f64::from(*found) - wanted).abs() <= 2e-6 * size)
    };
    assert!(found.len() == wanted.len() && close(found), "{what}: {found:?}\n{wanted:?}");
    let mut other = found.to_vec();
    *other.last_mut().unwrap() += 1e-4 * size as f32;
    assert!(!close(&other), "{what}: a wrong last number passes");
}

#[test]
fn products_match_double_precision_in_every_layout_and_size() {
    // Wide and odd; below, at and beyond a tile; one number; sums of less and more than a step.
    let sizes = [[1, 1, 1], [7, 33, 5], [64, 64, 32], [65, 8, 72], [16, 130, 33], [40, 24, 48]];
    for (seed, size) in (0..).zip(sizes) {
        let stream = stream(seed);
        let products = Products::new(&stream, ProductsBy::Own).unwrap();
        let mut random = Random::new(seed, "products");
        let [m, n, k] = size;
        let (a, b) = (rounded(&mut random, m * k), rounded(&mut random, k * n));
        let before = numbers(&mut random, m * n);
        let [a_there, b_there] = [&a, &b].map(|list| stream.upload(list).unwrap());
        for turned in [Turned::Neither, Turned::Left, Turned::Right] {
            let what = format!("{size:?} {turned:?}");
            let mut wanted = plain(turned, size, &a, &b);
            let mut c = stream.alloc(m * n).unwrap();
            products.multiply(turned, size, &a_there, &b_there, &mut c, Write::Over).unwrap();
            require(&stream.download(&c).unwrap(), &wanted, &what);
            let mut c = upload(&stream, &before);
            products.multiply(turned, size, &a_there, &b_there, &mut c, Write::Onto).unwrap();
            wanted.iter_mut().zip(&before).for_each(|(sum, before)| *sum += f64::from(*before));
            require(&stream.download(&c).unwrap(), &wanted, &what);
        }
    }
}

#[test]
fn products_have_the_same_bits_under_every_schedule() {
    let size = [70, 40, 100];
    let mut random = Random::new(1, "schedules");
    let (a, b) = (rounded(&mut random, 70 * 100), rounded(&mut random, 100 * 40));
    let bits = |seed| {
        let stream = stream(seed);
        let (a, b) = (stream.upload(&a).unwrap(), stream.upload(&b).unwrap());
        let mut c = stream.alloc(70 * 40).unwrap();
        let products = Products::new(&stream, ProductsBy::Own).unwrap();
        products.multiply(Turned::Neither, size, &a, &b, &mut c, Write::Over).unwrap();
        let found = stream.download(&c).unwrap();
        found.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    let first = bits(1);
    assert!((2..5).all(|seed| bits(seed) == first));
}

#[test]
fn roundings_biases_and_averages_match_cpu() {
    for (seed, (rows, width)) in (0..).zip([(1, 1), (3, 33), (40, 34)]) {
        let stream = stream(seed);
        let mut random = Random::new(seed, "mixed");
        let (x, bias) = (numbers(&mut random, rows * width), numbers(&mut random, width));
        let [x_there, bias_there] = [&x, &bias].map(|list| upload(&stream, list));
        let mut to = stream.alloc(rows * width).unwrap();
        let to_bits = |x: Vec<bf16>| x.into_iter().map(bf16::to_bits).collect::<Vec<u16>>();
        let sums: Vec<f32> = x.iter().zip(bias.iter().cycle()).map(|(x, bias)| x + bias).collect();
        mixed::round(&stream, &x_there, &mut to).unwrap();
        let all: Vec<bf16> = x.iter().map(|x| bf16::from_f32(*x)).collect();
        assert_eq!(to_bits(stream.download(&to).unwrap()), to_bits(all));
        mixed::round_with_bias(&stream, &x_there, &bias_there, &mut to).unwrap();
        let wanted = sums.iter().map(|x| bf16::from_f32(*x)).collect();
        assert_eq!(to_bits(stream.download(&to).unwrap()), to_bits(wanted));
        let mut with_bias = stream.alloc(rows * width).unwrap();
        mixed::with_bias(&stream, &x_there, &bias_there, &mut with_bias).unwrap();
        assert_eq!(stream.download(&with_bias).unwrap(), sums);
        let mut average = upload(&stream, &sums);
        mixed::average(&stream, &mut average, &x_there, 0.9).unwrap();
        let mut wanted: Vec<f32> =
            sums.iter().zip(&x).map(|(a, x)| 0.9f32 * a + (1.0 - 0.9f32) * x).collect();
        assert_eq!(stream.download(&average).unwrap(), wanted);
        mixed::add_scaled(&stream, &mut average, &x_there, -0.7).unwrap();
        wanted.iter_mut().zip(&x).for_each(|(sum, x)| *sum += -0.7 * x);
        assert_eq!(stream.download(&average).unwrap(), wanted);
    }
}

/// Matrices with a tile for every multiprocessor have larger ones, and every number the same bits.
#[test]
fn large_tiles_match_double_precision_and_small_tiles_bit_for_bit() {
    // Rows of either matrix are whole groups however it lies; once they are not.
    for [m, n, k] in [[304, 264, 72], [301, 263, 71]] {
        large_tiles([m, n, k]);
    }
}

fn large_tiles([m, n, k]: [usize; 3]) {
    let mut random = Random::new(5, "tiles");
    let (a, b) = (rounded(&mut random, m * k), rounded(&mut random, k * n));
    let stream = stream(5);
    let most = stream.device().properties().multiprocessors as usize;
    assert!(m.div_ceil(128) * n.div_ceil(128) >= most, "{most} multiprocessors");
    let [a_there, b_there] = [&a, &b].map(|list| stream.upload(list).unwrap());
    let products = Products::new(&stream, ProductsBy::Own).unwrap();
    for turned in [Turned::Neither, Turned::Left, Turned::Right] {
        let mut c = stream.alloc(m * n).unwrap();
        products.multiply(turned, [m, n, k], &a_there, &b_there, &mut c, Write::Over).unwrap();
        let found = stream.download(&c).unwrap();
        require(&found, &plain(turned, [m, n, k], &a, &b), &format!("{turned:?}"));
        // Sixteen rows alone, which are columns where the left matrix lies as its transpose.
        let (from, rows) = (136, 16);
        let part: Vec<bf16> = match turned {
            Turned::Left => a.chunks_exact(m).flat_map(|row| row[from..from + rows].to_vec()).collect(),
            _ => a[from * k..(from + rows) * k].to_vec(),
        };
        let part = stream.upload(&part).unwrap();
        let mut alone = stream.alloc(rows * n).unwrap();
        products.multiply(turned, [rows, n, k], &part, &b_there, &mut alone, Write::Over).unwrap();
        let to_bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
        let (alone, wanted) = (stream.download(&alone).unwrap(), &found[from * n..(from + rows) * n]);
        assert!(to_bits(&alone) == to_bits(wanted), "{turned:?}");
    }
}

#[test]
fn gelu_and_its_slope_match_double_precision() {
    // Below, at and beyond four numbers; rows that fours run across.
    for (seed, (rows, width)) in (0..).zip([(1, 1), (1, 255), (40, 25), (3, 7)]) {
        let (stream, count) = (stream(seed), rows * width);
        let mut random = Random::new(seed, "gelu");
        let x: Vec<f32> = numbers(&mut random, count).iter().map(|x| 2.0 * x).collect();
        let (d, bias) = (numbers(&mut random, count), numbers(&mut random, width));
        let mut there = upload(&stream, &x);
        let mut y = stream.alloc(count).unwrap();
        let gelu = |x: f64| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044715 * x.powi(3))).tanh());
        let slope = |x: f64| (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5;
        // To the next bf16, and a little for the function.
        let close = |found: Vec<bf16>, wanted: Vec<f64>| {
            for (found, wanted) in found.into_iter().zip(wanted) {
                assert!((found.to_f64() - wanted).abs() <= wanted.abs() / 250.0 + 1e-6, "{found} {wanted}");
            }
        };
        let of = |f: &dyn Fn(f64) -> f64, x: &[f32]| x.iter().map(|x| f(f64::from(*x))).collect::<Vec<f64>>();
        mixed::round_gelu(&stream, &there, &mut y).unwrap();
        close(stream.download(&y).unwrap(), of(&gelu, &x));
        mixed::bias_gelu(&stream, &mut there, &upload(&stream, &bias), &mut y).unwrap();
        let sums: Vec<f32> = x.iter().zip(bias.iter().cycle()).map(|(x, bias)| x + bias).collect();
        assert_eq!(stream.download(&there).unwrap(), sums);
        close(stream.download(&y).unwrap(), of(&gelu, &sums));
        mixed::gelu_back(&stream, &there, &upload(&stream, &d), &mut y).unwrap();
        let back = of(&slope, &sums).into_iter().zip(&d).map(|(slope, d)| slope * f64::from(*d)).collect();
        close(stream.download(&y).unwrap(), back);
    }
}

fn says<T>(result: crate::Result<T>, part: &str) {
    let said = result.err().expect("it is refused").to_string();
    assert!(said.contains(part), "{said}");
}

#[test]
fn products_that_do_not_fit_are_refused_with_a_sentence() {
    let stream: Stream = stream(0);
    let products = Products::new(&stream, ProductsBy::Own).unwrap();
    let six = stream.upload(&[bf16::ONE; 6]).unwrap();
    let mut four = stream.alloc(4).unwrap();
    let mut product = |size| products.multiply(Turned::Neither, size, &six, &six, &mut four, Write::Over);
    says(product([2, 3, 3]), "'b' has 6 numbers where 9 are needed");
    says(product([3, 3, 2]), "'c' has 4 numbers where 9 are needed");
    says(product([0, 0, 0]), "'a' has 6 numbers where 0 are needed");
    says(ProductsBy::named("mkl"), "'run.products' is 'mkl': it is own or cublaslt");
    // On the emulated device, and in a program without the library, nobody steps in for it.
    says(
        Products::new(&stream, ProductsBy::CublasLt),
        if cfg!(feature = "blas") { "a card only" } else { "feature 'blas'" },
    );
}
