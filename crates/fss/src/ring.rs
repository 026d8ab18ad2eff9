//! The rings Z_2^n, and words packed to their effective bits.

use std::fmt;

use crate::error::{Error, Result};
use crate::secret::Secret;

/// The integers modulo 2^n, 1 ≤ n ≤ 64. A word holds the residue in its low n bits and zeros above.
///
/// ```
/// use gatework_fss::Ring;
/// let ring = Ring::new(10)?;
/// assert_eq!(ring.encode(-3), 1021);
/// assert_eq!(ring.signed(1021), -3);
/// # Ok::<(), gatework_fss::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ring(u8);

impl Ring {
    /// Z_2: bits, with XOR as the sum.
    pub const BIT: Self = Self(1);

    /// Z_2^64: whole machine words.
    pub const WORD: Self = Self(64);

    /// The ring of n-bit integers.
    pub fn new(bits: u32) -> Result<Self> {
        match bits {
            1..=64 => Ok(Self(bits as u8)),
            _ => Err(Error::RingBits { bits }),
        }
    }

    /// n.
    pub fn bits(self) -> u32 {
        u32::from(self.0)
    }

    /// 2^n - 1.
    pub fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }

    /// The residue of a word.
    pub fn reduce(self, word: u64) -> u64 {
        word & self.mask()
    }

    /// The residue of an integer.
    pub fn encode(self, value: i128) -> u64 {
        self.reduce(value as u64)
    }

    /// The representative in [-2^(n-1), 2^(n-1)).
    pub fn signed(self, word: u64) -> i64 {
        let unused = 64 - self.bits();
        ((word << unused) as i64) >> unused
    }

    /// The top bit of a residue.
    pub fn msb(self, word: u64) -> u64 {
        (word >> (self.bits() - 1)) & 1
    }

    /// 2^n.
    pub fn size(self) -> i128 {
        1i128 << self.bits()
    }
}

/// The number format of a model: n-bit words with f fractional bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedPoint {
    /// Z_2^n.
    pub ring: Ring,
    /// f.
    pub fraction: u32,
}

impl FixedPoint {
    /// `bits`-bit words of which `fraction` are behind the point.
    pub fn new(bits: u32, fraction: u32) -> Result<Self> {
        let ring = Ring::new(bits)?;
        if fraction >= bits {
            let what = format!("{fraction} fractional bits in a ring of {bits}");
            return Err(Error::Unsupported { gate: "number format", what });
        }
        Ok(Self { ring, fraction })
    }
}

impl fmt::Display for FixedPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bits of which {} are fractional", self.ring.bits(), self.fraction)
    }
}

/// Bytes of `count` words of `bits` bits, packed without gaps.
pub fn packed_bytes(count: usize, bits: u32) -> usize {
    (count as u128 * u128::from(bits)).div_ceil(8) as usize
}

/// Packs the low `bits` bits of each word, least significant bit first. The last byte is filled up with
/// zeros.
pub fn pack(words: &[u64], bits: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(packed_bytes(words.len(), bits));
    pack_into(words, bits, &mut bytes);
    bytes
}

/// Appends what [`pack`] makes.
pub(crate) fn pack_into(words: &[u64], bits: u32, bytes: &mut Vec<u8>) {
    bytes.reserve(packed_bytes(words.len(), bits));
    let mask = u64::MAX >> (64 - bits);
    let (mut pending, mut held) = (0u128, 0u32);
    for &word in words {
        pending |= u128::from(word & mask) << held;
        held += bits;
        if held >= 64 {
            bytes.extend_from_slice(&(pending as u64).to_le_bytes());
            pending >>= 64;
            held -= 64;
        }
    }
    let rest = (pending as u64).to_le_bytes();
    bytes.extend_from_slice(&rest[..held.div_ceil(8) as usize]);
}

/// Appends what [`pack`] packed to `words`. `bytes` holds exactly [`packed_bytes`] bytes.
pub fn unpack(bytes: &[u8], count: usize, bits: u32, words: &mut Vec<u64>) -> Result<()> {
    let needed = packed_bytes(count, bits);
    if bytes.len() != needed {
        let what = format!("{count} words of {bits} bits take {needed} bytes, there are {}", bytes.len());
        return Err(Error::Key { what });
    }
    words.reserve(count);
    let mask = u64::MAX >> (64 - bits);
    // A word of up to 64 bits lies in 9 bytes; the last few are read from a padded copy. Of the others, words
    // start at bits that leave 16 bytes.
    let inner = bytes.len().checked_sub(16).map_or(0, |last| count.min((8 * last + 7) / bits as usize + 1));
    let window = |bytes: &[u8], at: usize| {
        let mut window = [0; 16];
        window.copy_from_slice(&bytes[at..at + 16]);
        u128::from_le_bytes(window)
    };
    words.extend((0..inner).map(|index| {
        let bit = index * bits as usize;
        (window(bytes, bit / 8) >> (bit % 8)) as u64 & mask
    }));
    let start = (inner * bits as usize) / 8;
    let mut tail = Secret::with_capacity(bytes.len() - start + 16);
    tail.extend_from_slice(&bytes[start..]);
    tail.resize(bytes.len() - start + 16, 0);
    words.extend((inner..count).map(|index| {
        let bit = index * bits as usize;
        (window(&tail, bit / 8 - start) >> (bit % 8)) as u64 & mask
    }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packing_round_trips(words in prop::collection::vec(any::<u64>(), 0..70), bits in 1u32..=64) {
            let packed = pack(&words, bits);
            prop_assert_eq!(packed.len(), packed_bytes(words.len(), bits));
            let mut back = Vec::new();
            unpack(&packed, words.len(), bits, &mut back).unwrap();
            let ring = Ring::new(bits).unwrap();
            prop_assert_eq!(back, words.iter().map(|&word| ring.reduce(word)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn packing_starts_with_the_lowest_bit() {
        assert_eq!(pack(&[1, 0, 1, 1], 1), [0b1101]);
        assert_eq!(pack(&[0b101, 0b011], 3), [0b01_1101]);
    }

    #[test]
    fn a_wrong_length_is_an_error() {
        assert!(unpack(&[0; 3], 2, 8, &mut Vec::new()).is_err());
        assert!(Ring::new(0).is_err() && Ring::new(65).is_err());
    }
}
