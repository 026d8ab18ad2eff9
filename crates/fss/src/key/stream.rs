//! The bytes of one party's keys.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::party::Party;
use crate::prg::{PrgId, TreeHash};
use crate::ring::Ring;
use crate::secret::Secret;

const MAGIC: [u8; 8] = *b"GWFSSKEY";
const VERSION: u16 = 1;

/// Bytes before the table of sections.
pub const HEADER_BYTES: usize = 56;

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

/// A part of a key stream, which stays where it is: gates read their correction words from it.
#[derive(Clone)]
pub(crate) struct SharedBytes {
    bytes: Arc<Secret<u8>>,
    range: Range<usize>,
}

impl SharedBytes {
    #[cfg(test)]
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self { range: 0..bytes.len(), bytes: Arc::new(Secret::new(bytes)) }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }

    /// `count` bytes from `start` on, all of which exist.
    pub(crate) fn part(&self, start: usize, count: usize) -> Self {
        let start = self.range.start + start;
        debug_assert!(start + count <= self.range.end);
        Self { bytes: self.bytes.clone(), range: start..start + count }
    }
}

/// One party's key stream: secret, and wiped when it goes.
pub struct KeyStream {
    bytes: Arc<Secret<u8>>,
    party: Party,
    format: FixedPoint,
    public_key: u128,
    seed: u128,
    /// Where each section begins, and where the last one ends.
    bounds: Vec<usize>,
}

impl Drop for KeyStream {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.seed);
    }
}

impl KeyStream {
    /// The header and the table of sections, with room for the sections themselves: a buffer that grew would leave secrets behind.
    pub(crate) fn begin(
        party: Party,
        format: FixedPoint,
        public_key: u128,
        seed: u128,
        lengths: &[u64],
    ) -> Secret<u8> {
        let total = lengths.iter().sum::<u64>() as usize;
        let mut bytes = Secret::with_capacity(HEADER_BYTES + 8 * lengths.len() + total);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(PrgId::Aes128CircularRobust as u16).to_le_bytes());
        bytes.extend_from_slice(&[party.index() as u8, format.ring.bits() as u8, format.fraction as u8, 0]);
        bytes.extend_from_slice(&(lengths.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&public_key.to_le_bytes());
        bytes.extend_from_slice(&seed.to_le_bytes());
        lengths.iter().for_each(|length| bytes.extend_from_slice(&length.to_le_bytes()));
        bytes
    }

    /// Reads a stream that [`KeyStream::bytes`] gave. Everything in it is checked before it is used.
    pub fn parse(bytes: Vec<u8>) -> Result<Self> {
        Self::read(Secret::new(bytes))
    }

    pub(crate) fn read(bytes: Secret<u8>) -> Result<Self> {
        let unusable = |what: String| Error::Key { what };
        if bytes.len() < HEADER_BYTES {
            return Err(unusable(format!(
                "it has {} bytes, its header alone takes {HEADER_BYTES}",
                bytes.len()
            )));
        }
        let number = |at: usize, width: usize| {
            let mut number = [0; 16];
            number[..width].copy_from_slice(&bytes[at..at + width]);
            u128::from_le_bytes(number)
        };
        if bytes[..8] != MAGIC {
            return Err(unusable("it does not begin as a key stream does".into()));
        }
        let version = number(8, 2) as u16;
        if version != VERSION {
            return Err(unusable(format!("it has version {version}, this program reads {VERSION}")));
        }
        PrgId::from_code(number(10, 2) as u16)?;
        let party = match bytes[12] {
            0 => Party::Zero,
            1 => Party::One,
            other => return Err(unusable(format!("it is for party {other}, there are 0 and 1"))),
        };
        let format = FixedPoint::new(bytes[13].into(), bytes[14].into())?;
        let count = number(16, 8) as u64;
        let room = (bytes.len() - HEADER_BYTES) as u64 / 8;
        if count > room {
            return Err(unusable(format!("it claims {count} sections and has room for {room}")));
        }
        let mut bounds = vec![HEADER_BYTES + 8 * count as usize];
        for section in 0..count as usize {
            let length = number(HEADER_BYTES + 8 * section, 8) as u64;
            let end = bounds[section].checked_add(length as usize).filter(|&end| end <= bytes.len());
            bounds.push(end.ok_or_else(|| unusable(format!("section {section} ends behind its last byte")))?);
        }
        if bounds[count as usize] != bytes.len() {
            return Err(unusable("bytes follow its last section".into()));
        }
        let (public_key, seed) = (number(24, 16), number(40, 16));
        Ok(Self { bytes: Arc::new(bytes), party, format, public_key, seed, bounds })
    }

    /// The stream as it is stored.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whose it is.
    pub fn party(&self) -> Party {
        self.party
    }

    /// The number format it was dealt for.
    pub fn format(&self) -> FixedPoint {
        self.format
    }

    /// Its sections.
    pub fn sections(&self) -> usize {
        self.bounds.len() - 1
    }

    /// Bytes of key material, without the header and the table of sections.
    pub fn key_bytes(&self) -> usize {
        self.bytes.len() - self.bounds[0]
    }

    pub(crate) fn section(&self, index: usize) -> Result<SharedBytes> {
        let what = || format!("it has {} sections, section {index} was asked for", self.sections());
        let bounds = self.bounds.get(index..index + 2).ok_or_else(|| Error::Key { what: what() })?;
        Ok(SharedBytes { bytes: self.bytes.clone(), range: bounds[0]..bounds[1] })
    }

    /// The hash of its trees, for a backend.
    pub fn tree_hash(&self) -> TreeHash {
        TreeHash::new(self.public_key)
    }

    pub(crate) fn seed(&self) -> u128 {
        self.seed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> KeyStream {
        let format = FixedPoint::new(50, 12).unwrap();
        let mut bytes = KeyStream::begin(Party::One, format, 7, 9, &[3, 0, 5]);
        bytes.extend_from_slice(b"abcdefgh");
        KeyStream::read(bytes).unwrap()
    }

    #[test]
    fn a_stream_reads_back() {
        let stream = stream();
        assert_eq!(stream.bytes().len(), HEADER_BYTES + 24 + 8);
        let back = KeyStream::parse(stream.bytes().to_vec()).unwrap();
        assert_eq!((back.party(), back.format(), back.sections()), (Party::One, stream.format(), 3));
        assert_eq!((back.public_key, back.seed()), (7, 9));
        assert_eq!(back.section(2).unwrap().as_slice(), b"defgh");
        assert!(back.section(3).is_err());
    }

    #[test]
    fn damaged_headers_are_refused() {
        let whole = stream().bytes().to_vec();
        let refused = |alter: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = whole.clone();
            alter(&mut bytes);
            KeyStream::parse(bytes).is_err()
        };
        assert!(!refused(&|_| ()));
        assert!((0..whole.len()).all(|len| refused(&|bytes| bytes.truncate(len))));
        assert!(refused(&|bytes| bytes.push(0)));
        for (place, value) in
            [(0, 0), (8, 9), (10, 7), (12, 2), (13, 0), (13, 65), (14, 50), (23, 255), (63, 255)]
        {
            assert!(refused(&|bytes| bytes[place] = value), "byte {place} set to {value}");
        }
    }
}
