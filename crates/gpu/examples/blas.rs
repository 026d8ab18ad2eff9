//! Products by cuBLASLt on a card, compared with the definition: `cargo run --release --example blas
//! --features blas`.

use bytemuck::Pod;
use gatework_gpu::blas::{Blas, BlasElement, E4m3, E5m2, Product, reference};
use gatework_gpu::{Buffer, Device, Result, Stream};

/// Numbers that every format has, so that only sums are rounded.
fn numbers(len: usize, seed: usize) -> Vec<f64> {
    (0..len).map(|i| [-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0][(i * 31 + seed * 17 + i / 7) % 7]).collect()
}

/// The bits of one of [`numbers`] in e4m3.
fn e4m3(x: f64) -> E4m3 {
    let magnitude = match x.abs() {
        0.5 => 0x30,
        1.0 => 0x38,
        1.5 => 0x3c,
        2.0 => 0x40,
        _ => 0,
    };
    E4m3(magnitude | if x < 0.0 { 0x80 } else { 0 })
}

/// The bits of one of [`numbers`] in e5m2.
fn e5m2(x: f64) -> E5m2 {
    let magnitude = match x.abs() {
        0.5 => 0x38,
        1.0 => 0x3c,
        1.5 => 0x3e,
        2.0 => 0x40,
        _ => 0,
    };
    E5m2(magnitude | if x < 0.0 { 0x80 } else { 0 })
}

fn upload<T: Pod>(stream: &Stream, numbers: &[f64], convert: impl Fn(f64) -> T) -> Result<Buffer<T>> {
    stream.upload(&numbers.iter().map(|&x| convert(x)).collect::<Vec<T>>())
}

/// Multiplies on the card and by the definition, and says how far apart they are.
fn compare<A: BlasElement, B: BlasElement>(
    name: &str,
    stream: &Stream,
    blas: &Blas,
    product: &Product,
    left: impl Fn(f64) -> A,
    right: impl Fn(f64) -> B,
) -> Result<bool> {
    let Product { m, n, k, .. } = *product;
    let (a, b, c) = (numbers(m * k, 1), numbers(k * n, 2), numbers(m * n, 3));
    let (device_a, device_b) = (upload(stream, &a, left)?, upload(stream, &b, right)?);
    let mut device_c = upload(stream, &c, |x| x as f32)?;
    blas.multiply(stream, product, &device_a, &device_b, &mut device_c)?;
    let (found, wanted) = (stream.download(&device_c)?, reference(product, &a, &b, &c)?);
    let worst = found.iter().zip(&wanted).map(|(f, w)| (f64::from(*f) - w).abs()).fold(0.0, f64::max);
    // Sums of so many halves are exact in f32; 8-bit tensor cores keep a few bits less.
    let allowed = 1e-3 * k as f64;
    println!("{name:<24} {m} x {n} x {k}: at most {worst:e} off, {allowed:e} allowed");
    Ok(worst <= allowed)
}

fn main() -> Result<()> {
    let device = Device::open("cuda")?;
    let stream = device.stream()?;
    let blas = Blas::new(&stream)?;
    println!("cuBLASLt {} on {}", blas.version(), device.properties().name);
    let f32_of = |x: f64| x as f32;
    let mut good = true;
    for (m, n, k) in [(1, 1, 1), (3, 5, 7), (64, 48, 32), (257, 129, 511), (1024, 1024, 1024)] {
        let rows = Product::new(m, n, k).scaled(0.5, 2.0).deterministic();
        let columns = Product::new(m, n, k).right_in_columns();
        good &= compare("f32 by rows", &stream, &blas, &rows, f32_of, f32_of)?;
        good &= compare("f32 by columns", &stream, &blas, &columns, f32_of, f32_of)?;
        let both = columns.left_in_columns();
        good &= compare("f32, both by columns", &stream, &blas, &both, f32_of, f32_of)?;
    }
    for (m, n, k) in [(16, 16, 16), (128, 80, 512), (1024, 1024, 1024)] {
        let rows = Product::new(m, n, k).deterministic();
        let columns = Product::new(m, n, k).right_in_columns();
        let left = Product::new(m, n, k).left_in_columns();
        good &=
            compare("f16, left by columns", &stream, &blas, &left, half::f16::from_f64, half::f16::from_f64)?;
        good &= compare("f16 by rows", &stream, &blas, &rows, half::f16::from_f64, half::f16::from_f64)?;
        good &=
            compare("bf16 by columns", &stream, &blas, &columns, half::bf16::from_f64, half::bf16::from_f64)?;
        good &= compare("e4m3 by columns", &stream, &blas, &columns, e4m3, e4m3)?;
        good &= compare("e4m3 by e5m2, columns", &stream, &blas, &columns, e4m3, e5m2)?;
    }
    let refused = compare("e4m3 of odd sizes", &stream, &blas, &Product::new(3, 5, 7), e4m3, e4m3);
    match refused {
        Err(error) => println!("refused, as it should be: {error}"),
        Ok(_) => good = false,
    }
    // In a graph too.
    let (a, b) = (stream.upload(&[1.0f32; 64])?, stream.upload(&[2.0f32; 64])?);
    let mut c = stream.alloc_zeros::<f32>(64)?;
    let product = Product::new(8, 8, 8).scaled(1.0, 1.0);
    blas.multiply(&stream, &product, &a, &b, &mut c)?;
    let graph = stream.capture(|stream| blas.multiply(stream, &product, &a, &b, &mut c))?;
    graph.launch(&stream)?;
    graph.launch(&device.stream()?)?;
    good &= stream.download(&c)?.iter().all(|&sum| sum == 48.0);
    if good {
        println!("all products are right");
        return Ok(());
    }
    Err(gatework_gpu::Error::Blas { message: "a product is wrong".into() })
}
