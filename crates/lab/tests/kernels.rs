//! Kernels of the runtime's workloads on the emulated device, through the public API, against plain Rust.

use gatework_gpu::{Device, Error, Fault, FaultKind, Grid, Result, args};
use gatework_lab::kernels;

/// Deterministic numbers in (-1, 1).
fn numbers(seed: u64, len: usize) -> Vec<f32> {
    words(seed, len).into_iter().map(|word| (word >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}

/// Deterministic words.
fn words(seed: u64, len: usize) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32
    };
    (0..len).map(|_| next()).collect()
}

/// The FP8 tile product: matrices, their tile images, the launch and the oracle.
mod fp8 {
    use gatework_gpu::{Device, Grid, Result, Source, args};
    use gatework_lab::kernels::FP8_TILE_SHARED_BYTES;

    /// A row-major e4m3 matrix whose columns are a multiple of 128.
    pub struct Matrix {
        pub rows: usize,
        pub columns: usize,
        pub codes: Vec<u8>,
    }

    pub fn matrix(seed: u64, rows: usize, columns: usize) -> Matrix {
        // Exponents around 1, so that sums neither vanish nor saturate; never the NaN code.
        let codes = super::words(seed, rows * columns)
            .into_iter()
            .map(|w| (w & 0x87) as u8 | 0x30 | (w >> 8 & 8) as u8);
        Matrix { rows, columns, codes: codes.collect() }
    }

    /// Tiles of `tile_rows` x 128 bytes, each with the 128-byte swizzle.
    fn images(matrix: &Matrix, tile_rows: usize) -> Vec<u8> {
        let k_tiles = matrix.columns / 128;
        let mut image = vec![0; matrix.codes.len()];
        for row in 0..matrix.rows {
            for column in 0..matrix.columns {
                let tile = row / tile_rows * k_tiles + column / 128;
                let offset = row % tile_rows * 128 + column % 128;
                let swizzled = offset ^ (offset >> 7 & 7) << 4;
                image[tile * tile_rows * 128 + swizzled] = matrix.codes[row * matrix.columns + column];
            }
        }
        image
    }

    pub fn run(device: &Device, source: &Source, a: &Matrix, b: &Matrix) -> Result<Vec<f32>> {
        let stream = device.stream()?;
        let (a_image, b_image) = (stream.upload(&images(a, 64))?, stream.upload(&images(b, 128))?);
        let mut c = stream.alloc::<f32>(a.rows * b.rows)?;
        let grid = Grid::new([b.rows as u32 / 128, a.rows as u32 / 64, 1], [256, 1, 1])
            .shared(FP8_TILE_SHARED_BYTES);
        let k_tiles = (a.columns / 128) as u32;
        device.kernel(source)?.launch(&stream, &grid, &args![&a_image, &b_image, &mut c, k_tiles])?;
        stream.download(&c)
    }

    pub fn reference(a: &Matrix, b: &Matrix) -> Vec<f64> {
        let value = |code: u8| f64::from(float8::F8E4M3::from_bits(code).to_f32());
        let mut c = Vec::new();
        for row in a.codes.chunks(a.columns) {
            for column in b.codes.chunks(b.columns) {
                c.push(row.iter().zip(column).map(|(&x, &y)| value(x) * value(y)).sum());
            }
        }
        c
    }
}

#[test]
fn saxpy_matches_reference() -> Result<()> {
    for (seed, n) in [(0, 1usize), (1, 31), (2, 256), (3, 1000)] {
        let device = Device::emulated(seed)?;
        let stream = device.stream()?;
        let (x, y) = (numbers(seed, n), numbers(seed + 100, n));
        let x_device = stream.upload(&x)?;
        let mut y_device = stream.upload(&y)?;
        let saxpy = device.kernel_of(&kernels::SAXPY, "saxpy")?;
        saxpy.launch(
            &stream,
            &Grid::covering(n.div_ceil(4), 256),
            &args![&x_device, &mut y_device, 1.5f32, n as u64],
        )?;
        let wanted: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 1.5 * x + y).collect();
        assert_eq!(stream.download(&y_device)?, wanted);
    }
    Ok(())
}

#[test]
fn reduce_matches_reference_and_repeats_bitwise() -> Result<()> {
    for (blocks, n) in [(1u32, 1usize), (3, 700), (7, 5000), (300, 3)] {
        let x = numbers(n as u64, n);
        let wanted: f64 = x.iter().map(|&x| f64::from(x)).sum();
        let mut sums = Vec::new();
        for seed in 0..5 {
            let device = Device::emulated(seed)?;
            let stream = device.stream()?;
            let x = stream.upload(&x)?;
            let (mut partials, mut out) = (stream.alloc::<f32>(blocks as usize)?, stream.alloc::<f32>(1)?);
            let mut ticket = stream.alloc_zeros::<u32>(1)?;
            let grid = Grid::new([blocks, 1, 1], [256, 1, 1]).shared(36);
            let reduce = device.kernel_of(&kernels::REDUCE, "reduce")?;
            reduce.launch(&stream, &grid, &args![&x, &mut partials, &mut ticket, &mut out, n as u64])?;
            sums.push(stream.download(&out)?[0]);
            assert_eq!(stream.download(&ticket)?, [0]);
        }
        assert!(sums.iter().all(|sum| sum.to_bits() == sums[0].to_bits()), "{sums:?}");
        assert!((f64::from(sums[0]) - wanted).abs() < 1e-4 * n as f64, "{} {wanted}", sums[0]);
    }
    Ok(())
}

#[test]
fn transpose_matches_reference() -> Result<()> {
    for (rows, columns) in [(1u32, 1u32), (64, 64), (33, 70), (5, 129), (68, 132)] {
        let device = Device::emulated(u64::from(rows))?;
        let stream = device.stream()?;
        let x = numbers(7, (rows * columns) as usize);
        let input = stream.upload(&x)?;
        let mut out = stream.alloc::<f32>(x.len())?;
        let grid = Grid::new([columns.div_ceil(64), rows.div_ceil(64), 1], [16, 16, 1]).shared(64 * 65 * 4);
        device.kernel_of(&kernels::TRANSPOSE, "transpose")?.launch(
            &stream,
            &grid,
            &args![&input, &mut out, rows, columns],
        )?;
        let out = stream.download(&out)?;
        for row in 0..rows as usize {
            for column in 0..columns as usize {
                assert_eq!(out[column * rows as usize + row], x[row * columns as usize + column]);
            }
        }
    }
    Ok(())
}

/// How far sums of some hundred products of e4m3 may be off: tensor cores cut terms off 13 bits below the
/// largest.
const TILE_ERROR: f64 = 1.0;

#[test]
fn fp8_tile_matches_reference() -> Result<()> {
    for (seed, m_tiles, n_tiles, k_tiles) in [(0, 1usize, 1usize, 1usize), (1, 2, 1, 2), (2, 1, 2, 7)] {
        let device = Device::emulated(seed)?;
        let (a, b) = (
            fp8::matrix(seed, 64 * m_tiles, 128 * k_tiles),
            fp8::matrix(seed + 9, 128 * n_tiles, 128 * k_tiles),
        );
        let got = fp8::run(&device, &kernels::FP8_TILE.source(), &a, &b)?;
        let wanted = fp8::reference(&a, &b);
        for (got, wanted) in got.iter().zip(&wanted) {
            assert!((f64::from(*got) - wanted).abs() <= TILE_ERROR, "{got} {wanted}");
        }
    }
    Ok(())
}

/// The FP8 tile kernel with one thing changed by hand.
fn broken_tile(from: &str, to: &str) -> std::result::Result<bool, Box<Fault>> {
    let source = kernels::FP8_TILE.source();
    let text = source.text().replacen(from, to, 1);
    assert_ne!(text, source.text(), "the kernel no longer has '{from}'");
    let mut right = true;
    for seed in 0..20 {
        let (a, b) = (fp8::matrix(seed, 64, 128 * 5), fp8::matrix(seed + 9, 128, 128 * 5));
        match fp8::run(&Device::emulated(seed).unwrap(), &source.with_text(text.clone()), &a, &b) {
            Ok(got) => {
                let close = |(got, wanted): (&f32, &f64)| (f64::from(*got) - wanted).abs() <= TILE_ERROR;
                right &= got.iter().zip(&fp8::reference(&a, &b)).all(close);
            }
            Err(Error::Fault(fault)) => return Err(fault),
            Err(other) => panic!("not a fault: {other}"),
        }
    }
    Ok(right)
}

#[test]
fn tensor_core_classics() {
    assert!(broken_tile("a b^T", "a b^T.").is_ok_and(|right| right), "a comment changes nothing");
    let wrong = [
        (
            "wrong swizzle",
            "gw::SWIZZLE_128, 8 * 128);\n        const u64 b",
            "gw::SWIZZLE_64, 8 * 128);\n        const u64 b",
        ),
        (
            "wrong stride",
            "stage + A_BYTES, gw::SWIZZLE_128, 8 * 128",
            "stage + A_BYTES, gw::SWIZZLE_128, 4 * 128",
        ),
        ("wrong step", "b_tile + 2 * step", "b_tile + step"),
        ("unwritten output", "corner[8 * width + 8 * j + 1] = d[4 * j + 3];", ""),
        ("no accumulation", "b_tile + 2 * step, true", "b_tile + 2 * step, false"),
    ];
    for (name, from, to) in wrong {
        match broken_tile(from, to) {
            Ok(right) => assert!(!right, "{name} went unseen"),
            Err(fault) => println!("{name}: {fault}"),
        }
    }
    let early = "gw::wgmma_commit();\n        gw::mbarrier_arrive(empty + s);\n        gw::wgmma_wait<0>();";
    let released = broken_tile(
        "gw::wgmma_commit();\n        gw::wgmma_wait<0>();\n        gw::mbarrier_arrive(empty + s);",
        early,
    );
    assert_eq!(released.unwrap_err().kind, FaultKind::Race, "an early buffer release");
    let parity = broken_tile("(k / STAGES) & 1", "(k / STAGES + 1) & 1");
    assert!(parity.is_err(), "a wrong parity");
}
