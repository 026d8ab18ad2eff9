//! Inputs and oracles that several test files share.
#![allow(dead_code, reason = "every test file uses its own part")]

/// Deterministic numbers in (-1, 1).
pub fn numbers(seed: u64, len: usize) -> Vec<f32> {
    words(seed, len).into_iter().map(|word| (word >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}

/// Deterministic words.
pub fn words(seed: u64, len: usize) -> Vec<u32> {
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
pub mod fp8 {
    use gatework_gpu::kernels::FP8_TILE_SHARED_BYTES;
    use gatework_gpu::{Device, Grid, Result, Source, args};

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
