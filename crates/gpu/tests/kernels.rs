//! The runtime's own kernels on the emulated device, through the public API, against plain Rust.

mod support;

use gatework_gpu::{Device, Grid, Result, args, kernels};
use support::{fp8, numbers};

#[test]
fn saxpy_matches_reference() -> Result<()> {
    for (seed, n) in [(0, 1usize), (1, 31), (2, 256), (3, 1000)] {
        let device = Device::emulated(seed)?;
        let stream = device.stream()?;
        let (x, y) = (numbers(seed, n), numbers(seed + 100, n));
        let x_device = stream.upload(&x)?;
        let mut y_device = stream.upload(&y)?;
        let saxpy = device.kernel(&kernels::saxpy())?;
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
            let reduce = device.kernel(&kernels::reduce())?;
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
        device.kernel(&kernels::transpose())?.launch(
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

#[test]
fn fp8_tile_matches_reference() -> Result<()> {
    for (seed, m_tiles, n_tiles, k_tiles) in [(0, 1usize, 1usize, 1usize), (1, 2, 1, 2), (2, 1, 2, 7)] {
        let device = Device::emulated(seed)?;
        let (a, b) = (
            fp8::matrix(seed, 64 * m_tiles, 128 * k_tiles),
            fp8::matrix(seed + 9, 128 * n_tiles, 128 * k_tiles),
        );
        let got = fp8::run(&device, &kernels::fp8_tile(), &a, &b)?;
        let wanted = fp8::reference(&a, &b);
        for (got, wanted) in got.iter().zip(&wanted) {
            assert!((f64::from(*got) - wanted).abs() <= 1e-3, "{got} {wanted}");
        }
    }
    Ok(())
}

#[test]
fn fill_and_gather_match_reference_for_every_width() -> Result<()> {
    let device = Device::emulated(3)?;
    let stream = device.stream()?;
    fn round<T: bytemuck::Pod + PartialEq + std::fmt::Debug>(
        stream: &gatework_gpu::Stream,
        make: impl Fn(usize) -> T,
    ) -> Result<()> {
        let source: Vec<T> = (0..50).map(&make).collect();
        let indices: Vec<u32> = (0..37).map(|i| (i * 29 + 3) % 50).collect();
        let from = stream.upload(&source)?;
        let mut to = stream.alloc::<T>(indices.len())?;
        stream.fill(&mut to, make(7))?;
        assert!(stream.download(&to)?.iter().all(|x| *x == make(7)));
        stream.gather(&from, &stream.upload(&indices)?, &mut to)?;
        let wanted: Vec<T> = indices.iter().map(|&i| source[i as usize]).collect();
        assert_eq!(stream.download(&to)?, wanted);
        let beyond = stream.upload(&vec![50u32; indices.len()])?;
        stream.gather(&from, &beyond, &mut to)?;
        assert!(bytemuck::cast_slice::<T, u8>(&stream.download(&to)?).iter().all(|&byte| byte == 0xFF));
        Ok(())
    }
    round(&stream, |i| i as u8)?;
    round(&stream, |i| i as u16)?;
    round(&stream, |i| i as f32)?;
    round(&stream, |i| i as u64)?;
    round(&stream, |i| [i as u32; 3])?;
    round(&stream, |i| i as u128)?;
    round(&stream, |i| [i as u16; 13])?;
    round(&stream, |i| [i as u64; 8])
}
