//! Matrices as `wgmma` wants them in shared memory.
//!
//! An operand is made of atoms: 8 lines of 16, 32, 64 or 128 bytes, one after the other. A line holds a run
//! of the contiguous index: of K, or of M or N when transposed. Inside an atom the swizzle moves 16-byte
//! chunk `c` of line `l` to place `c ^ l` (128-byte lines), `c ^ (l / 2)` (64) or `c ^ (l / 4)` (32).

/// Bytes of K that an image holds: four products of 32.
pub(super) const DEPTH_BYTES: usize = 128;

const CHUNK_BYTES: usize = 16;
const ATOM_LINES: usize = 8;

/// The length of a line, and with it how its chunks are exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Swizzle {
    None,
    Bytes32,
    Bytes64,
    Bytes128,
}

impl Swizzle {
    /// All of them.
    pub(super) const ALL: [Self; 4] = [Self::None, Self::Bytes32, Self::Bytes64, Self::Bytes128];

    /// Bytes of a line.
    pub(super) fn line_bytes(self) -> usize {
        match self {
            Self::None => 16,
            Self::Bytes32 => 32,
            Self::Bytes64 => 64,
            Self::Bytes128 => 128,
        }
    }

    /// The descriptor's code.
    fn code(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Bytes128 => 1,
            Self::Bytes64 => 2,
            Self::Bytes32 => 3,
        }
    }

    fn place(self, line: usize, chunk: usize) -> usize {
        match self {
            Self::None => chunk,
            Self::Bytes32 => chunk ^ (line / 4),
            Self::Bytes64 => chunk ^ (line / 2),
            Self::Bytes128 => chunk ^ line,
        }
    }
}

/// The index that is contiguous in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contiguous {
    /// K: as stored.
    Depth,
    /// M of A, or N of B: transposed.
    Rows,
}

/// An operand's bytes, and the numbers that describe them to the kernel.
pub(super) struct OperandImage {
    pub(super) bytes: Vec<u8>,
    /// Swizzle code, stride offset, leading offset, then how far products 1 and 2 start from product 0.
    pub(super) layout: [u32; 6],
}

impl OperandImage {
    /// Lays out a row-major matrix of `DEPTH_BYTES` a row. Rows count along M or N; atoms that follow each
    /// other along the lines are neighbours in memory.
    pub(super) fn new(matrix: &[u8], element_bytes: usize, contiguous: Contiguous, swizzle: Swizzle) -> Self {
        let rows = matrix.len() / DEPTH_BYTES;
        let depth = DEPTH_BYTES / element_bytes;
        let (lines, run_bytes) = match contiguous {
            Contiguous::Depth => (rows, DEPTH_BYTES),
            Contiguous::Rows => (depth, rows * element_bytes),
        };
        let line_bytes = swizzle.line_bytes();
        assert!(lines.is_multiple_of(ATOM_LINES) && run_bytes.is_multiple_of(line_bytes), "atoms are whole");
        let atom_bytes = ATOM_LINES * line_bytes;
        let atom_column_bytes = lines * line_bytes;
        let mut bytes = vec![0; matrix.len()];
        for line in 0..lines {
            for at in (0..run_bytes).step_by(element_bytes) {
                let (row, k) = match contiguous {
                    Contiguous::Depth => (line, at / element_bytes),
                    Contiguous::Rows => (at / element_bytes, line),
                };
                let chunk = swizzle.place(line % ATOM_LINES, at % line_bytes / CHUNK_BYTES);
                let to = at / line_bytes * atom_column_bytes
                    + line / ATOM_LINES * atom_bytes
                    + line % ATOM_LINES * line_bytes
                    + chunk * CHUNK_BYTES
                    + at % CHUNK_BYTES;
                let from = row * DEPTH_BYTES + k * element_bytes;
                bytes[to..to + element_bytes].copy_from_slice(&matrix[from..from + element_bytes]);
            }
        }
        // Without swizzle the two offsets of a transposed operand change places.
        let (stride, leading) = match (contiguous, swizzle) {
            (Contiguous::Rows, Swizzle::None) => (atom_column_bytes, atom_bytes),
            _ => (atom_bytes, atom_column_bytes),
        };
        let product_start = |product: usize| match contiguous {
            Contiguous::Depth => {
                let byte = product * 32;
                byte / line_bytes * atom_column_bytes + byte % line_bytes
            }
            Contiguous::Rows => product * (32 / element_bytes) / ATOM_LINES * atom_bytes,
        };
        let numbers =
            [stride, leading, product_start(1), product_start(2), bytes.len()].map(|number| number as u32);
        let [stride, leading, inner, outer, len] = numbers;
        Self { bytes, layout: [swizzle.code(), stride, leading, inner, outer, len] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_128_byte_swizzle_rotates_the_chunks_of_a_row() {
        let matrix: Vec<u8> = (0..16 * DEPTH_BYTES).map(|at| (at / CHUNK_BYTES) as u8).collect();
        let image = OperandImage::new(&matrix, 1, Contiguous::Depth, Swizzle::Bytes128);
        let chunks = |row: usize| -> Vec<u8> {
            (0..8).map(|chunk| image.bytes[row * 128 + chunk * CHUNK_BYTES] - 8 * row as u8).collect()
        };
        assert_eq!(chunks(0), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(chunks(1), [1, 0, 3, 2, 5, 4, 7, 6]);
        assert_eq!(chunks(15), [7, 6, 5, 4, 3, 2, 1, 0]);
        assert_eq!(image.layout, [1, 1024, 2048, 32, 64, 2048]);
    }

    #[test]
    fn without_swizzle_every_16_bytes_of_8_lines_lie_together() {
        let matrix: Vec<u8> = (0..64 * DEPTH_BYTES).map(|at| (at / 2 % 251) as u8).collect();
        let element = |row: usize, k: usize| &matrix[row * DEPTH_BYTES + 2 * k..][..2];
        let stored = OperandImage::new(&matrix, 2, Contiguous::Depth, Swizzle::None);
        let [_, stride, leading, ..] = stored.layout.map(|number| number as usize);
        assert_eq!(
            &stored.bytes[2 * stride + 3 * leading + 5 * 16 + 2 * 7..][..2],
            element(2 * 8 + 5, 3 * 8 + 7)
        );
        let transposed = OperandImage::new(&matrix, 2, Contiguous::Rows, Swizzle::None);
        let [_, stride, leading, ..] = transposed.layout.map(|number| number as usize);
        assert_eq!(
            &transposed.bytes[2 * stride + 3 * leading + 5 * 16 + 2 * 7..][..2],
            element(2 * 8 + 7, 3 * 8 + 5)
        );
    }
}
