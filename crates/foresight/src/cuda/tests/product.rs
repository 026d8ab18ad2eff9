//! Products, and what lies between them, against plain loops in double precision.

use gatework_gpu::{Stream, View as _};
use half::bf16;

use super::{numbers, stream, upload};
use crate::cuda::mixed;
use crate::cuda::product::{Part, Strides, batched};
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
        let mut products = Products::new(&stream, ProductsBy::Own).unwrap();
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
        let mut products = Products::new(&stream, ProductsBy::Own).unwrap();
        products.multiply(Turned::Neither, size, &a, &b, &mut c, Write::Over).unwrap();
        let found = stream.download(&c).unwrap();
        found.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    let first = bits(1);
    assert!((2..5).all(|seed| bits(seed) == first));
}

/// One head of one window of rows in which queries, keys and values lie beside each other.
fn of_head(mixed: &[bf16], [window, head, kind]: [usize; 3], shape: [usize; 4]) -> Vec<bf16> {
    let [_, heads, context, width] = shape;
    let row = 3 * heads * width;
    let at = |place: usize| (window * context + place) * row + (kind * heads + head) * width;
    (0..context).flat_map(|place| mixed[at(place)..at(place) + width].to_vec()).collect()
}

#[test]
fn heads_are_multiplied_where_they_lie_and_causal_parts_alone() {
    // Widths that can be read in groups and one that cannot; a context of more than a tile.
    for (seed, shape) in (0..).zip([[2, 3, 5, 4], [1, 2, 70, 8]]) {
        let [windows, heads, context, width] = shape;
        let stream = stream(seed);
        let mut random = Random::new(seed, "heads");
        let stride = 3 * heads * width;
        let mixed = rounded(&mut random, windows * context * stride);
        let there = stream.upload(&mixed).unwrap();
        let beside = Strides { row: stride, outer: context * stride, inner: width };
        let square = Strides { row: context, outer: heads * context * context, inner: context * context };
        let kind = |kind: usize| there.slice(kind * heads * width..);
        let mut scores = stream.alloc_zeros(windows * heads * context * context).unwrap();
        let size = [context, context, width];
        let batch = [windows, heads];
        let (q, k) = ((kind(0), beside), (kind(1), beside));
        batched(&stream, Turned::Right, Part::Below, size, batch, q, k, (&mut scores, square), Write::Over)
            .unwrap();
        let scores = stream.download(&scores).unwrap();
        // Shares: zeros above the diagonal, which the products that follow may rely on.
        let shares = rounded(&mut random, windows * heads * context * context);
        let lower = |at: usize| at % context <= at / context % context;
        let shares: Vec<bf16> =
            shares.iter().enumerate().map(|(at, x)| if lower(at) { *x } else { bf16::ZERO }).collect();
        let shares_there = stream.upload(&shares).unwrap();
        let rows = Strides { row: heads * width, outer: context * heads * width, inner: width };
        let mut found = Vec::new();
        for (turned, part) in [(Turned::Neither, Part::Rows), (Turned::Left, Part::Columns)] {
            let mut c = stream.alloc(windows * context * heads * width).unwrap();
            let (p, v) = ((shares_there.view(), square), (kind(2), beside));
            let size = [context, width, context];
            batched(&stream, turned, part, size, batch, p, v, (&mut c, rows), Write::Over).unwrap();
            found.push((turned, stream.download(&c).unwrap()));
        }
        for (window, head) in (0..windows).flat_map(|window| (0..heads).map(move |head| (window, head))) {
            let [q, k, v] = [0, 1, 2].map(|kind| of_head(&mixed, [window, head, kind], shape));
            let at = (window * heads + head) * context * context;
            let here = |x: &[f64]| {
                (0..context * context).filter(|at| lower(*at)).map(|at| x[at]).collect::<Vec<f64>>()
            };
            let of_here: Vec<f64> =
                scores[at..at + context * context].iter().map(|x| f64::from(*x)).collect();
            let single: Vec<f32> = here(&of_here).iter().map(|x| *x as f32).collect();
            require(&single, &here(&plain(Turned::Right, size, &q, &k)), "scores");
            for (turned, found) in &found {
                let wanted =
                    plain(*turned, [context, width, context], &shares[at..at + context * context], &v);
                let from = |place: usize| (window * context + place) * heads * width + head * width;
                let here: Vec<f32> =
                    (0..context).flat_map(|place| found[from(place)..from(place) + width].to_vec()).collect();
                require(&here, &wanted, "heads");
            }
        }
    }
}

#[test]
fn roundings_biases_transposes_and_averages_match_cpu() {
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
        assert_eq!(to_bits(stream.download(&to).unwrap()), to_bits(all.clone()));
        let mut across = stream.alloc(rows * width).unwrap();
        mixed::turn(&stream, [rows, width], &to, &mut across).unwrap();
        let turned = (0..rows * width).map(|at| all[at % rows * width + at / rows]).collect();
        assert_eq!(to_bits(stream.download(&across).unwrap()), to_bits(turned));
        mixed::round_with_bias(&stream, &x_there, &bias_there, &mut to).unwrap();
        let wanted = sums.iter().map(|x| bf16::from_f32(*x)).collect();
        assert_eq!(to_bits(stream.download(&to).unwrap()), to_bits(wanted));
        let mut with_bias = stream.alloc(rows * width).unwrap();
        mixed::with_bias(&stream, &x_there, &bias_there, &mut with_bias).unwrap();
        assert_eq!(stream.download(&with_bias).unwrap(), sums);
        mixed::round_gelu(&stream, &x_there, &mut to).unwrap();
        let gelu = |x: f64| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044715 * x.powi(3))).tanh());
        for (found, x) in stream.download(&to).unwrap().iter().zip(&x) {
            let wanted = gelu(f64::from(*x));
            assert!((found.to_f64() - wanted).abs() <= 4.1e-3 * wanted.abs() + 1e-7, "{found} {wanted}");
        }
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

fn says<T>(result: crate::Result<T>, part: &str) {
    let said = result.err().expect("it is refused").to_string();
    assert!(said.contains(part), "{said}");
}

#[test]
fn products_that_do_not_fit_are_refused_with_a_sentence() {
    let stream: Stream = stream(0);
    let mut products = Products::new(&stream, ProductsBy::Own).unwrap();
    let six = stream.upload(&[bf16::ONE; 6]).unwrap();
    let mut four = stream.alloc(4).unwrap();
    let mut product = |size| products.multiply(Turned::Neither, size, &six, &six, &mut four, Write::Over);
    says(product([2, 3, 3]), "'b' has 6 numbers where 9 are needed");
    says(product([3, 3, 2]), "'c' has 4 numbers where 9 are needed");
    says(product([0, 0, 0]), "'a' has 6 numbers where 0 are needed");
    let rows = Strides { row: 3, outer: 3, inner: 0 };
    let (a, b) = ((six.view(), rows), (six.view(), rows));
    says(
        batched(
            &stream,
            Turned::Neither,
            Part::Whole,
            [2, 2, 3],
            [2, 1],
            a,
            b,
            (&mut four, rows),
            Write::Over,
        ),
        "'a' has 6 numbers where 9 are needed",
    );
    says(
        batched(
            &stream,
            Turned::Neither,
            Part::Whole,
            [1, 0, 1],
            [1, 1],
            a,
            b,
            (&mut four, rows),
            Write::Over,
        ),
        "takes sides from 1",
    );
    says(ProductsBy::named("mkl"), "'run.products' is 'mkl': it is own or cublaslt");
    // On the emulated device, and in a program without the library, nobody steps in for it.
    says(
        Products::new(&stream, ProductsBy::CublasLt),
        if cfg!(feature = "blas") { "a card only" } else { "feature 'blas'" },
    );
}
