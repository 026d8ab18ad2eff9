//! Which bytes of a run of memory somebody has written: one bit a byte.

/// A bit for each byte of a run of memory.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<u8>);

impl Marks {
    /// None of `bytes` bytes is marked.
    pub(super) fn new(bytes: usize) -> Self {
        Self(vec![0; bytes.div_ceil(8)])
    }

    /// Marks bytes, or takes their marks away.
    pub(super) fn set(&mut self, at: usize, len: usize, marked: bool) {
        for (byte, mask) in parts(at, len) {
            if marked {
                self.0[byte] |= mask;
            } else {
                self.0[byte] &= !mask;
            }
        }
    }

    /// Whether any of the bytes is marked.
    pub(super) fn has_some(&self, at: usize, len: usize) -> bool {
        parts(at, len).any(|(byte, mask)| self.0[byte] & mask != 0)
    }

    /// Whether all of the bytes are marked.
    pub(super) fn has(&self, at: usize, len: usize) -> bool {
        parts(at, len).all(|(byte, mask)| self.0[byte] & mask == mask)
    }
}

/// The bytes of the bits `at .. at + len`, each with a mask of those that are meant.
fn parts(at: usize, len: usize) -> impl Iterator<Item = (usize, u8)> {
    let end = at + len;
    (at / 8..end.div_ceil(8)).map(move |byte| {
        let low = if byte == at / 8 { 0xFFu8 << (at % 8) } else { 0xFF };
        let high = if byte == end / 8 { !(0xFFu8 << (end % 8)) } else { 0xFF };
        (byte, low & high)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_of_single_bytes() {
        for (at, len) in [(0, 1), (3, 4), (5, 8), (8, 8), (7, 30), (63, 1), (16, 0)] {
            let mut marks = Marks::new(64);
            marks.set(at, len, true);
            for byte in 0..64 {
                assert_eq!(marks.has(byte, 1), (at..at + len).contains(&byte), "{byte} of {at}, {len}");
            }
            assert!(marks.has(at, len));
            assert_eq!(marks.has_some(0, 64), len > 0);
            assert_eq!(marks.has(0, 64), len == 64);
            marks.set(at, len, false);
            assert!((0..64).all(|byte| !marks.has(byte, 1)));
        }
    }
}
