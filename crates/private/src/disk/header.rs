//! What stands at the beginning of a key file.

use gatework_fss::{FixedPoint, Party, PrgId};
use zeroize::Zeroizing;

use crate::error::{Error, Result};

use super::{HASH, stored_bytes};

const MAGIC: [u8; 8] = *b"GWFSSKEY";
/// Of the layout, and of what gates ask of their keys.
const VERSION: u16 = 3;
/// Bytes before the list of sections, and of each entry.
const FIXED: usize = 164;
const ENTRY: usize = 12;
/// Most sections of a file.
pub(super) const MOST_SECTIONS: usize = 1 << 16;
/// Bytes of key material that no section reaches, and all of them together do not.
const MOST_BYTES: u64 = 1 << 48;

/// Bytes of the header of a file of so many sections.
pub(super) fn bytes_of(sections: usize) -> usize {
    FIXED + ENTRY * sections + HASH
}

/// One section of a key file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectionEntry {
    /// Tokens of its inference; none for the section that masks the weights.
    pub tokens: u32,
    /// Bytes of key material.
    pub length: u64,
}

/// The purpose of a key file: party, model, lengths.
#[derive(Clone)]
pub struct KeyHeader {
    /// Whose it is.
    pub party: Party,
    /// The number format.
    pub format: FixedPoint,
    /// Identifies the deal: equal in both parties' files, and in no other deal.
    pub session: [u8; 32],
    /// The hash of the model's public description.
    pub model: [u8; 32],
    /// The hash of the model's weights.
    pub weights: [u8; 32],
    pub(crate) public_key: u128,
    /// In one place, however often the header moves.
    pub(crate) pairing: Box<Zeroizing<[u8; 32]>>,
    /// The first masks the weights, every other one is an inference.
    pub sections: Vec<SectionEntry>,
}

impl KeyHeader {
    pub(crate) fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(bytes_of(self.sections.len())));
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(PrgId::Aes128CircularRobust as u16).to_le_bytes());
        let (bits, fraction) = (self.format.ring.bits() as u8, self.format.fraction as u8);
        bytes.extend_from_slice(&[self.party.index() as u8, bits, fraction, 0]);
        for id in [&self.session, &self.model, &self.weights] {
            bytes.extend_from_slice(id);
        }
        bytes.extend_from_slice(&self.public_key.to_le_bytes());
        bytes.extend_from_slice(&self.pairing[..]);
        bytes.extend_from_slice(&(self.sections.len() as u32).to_le_bytes());
        for section in &self.sections {
            bytes.extend_from_slice(&section.tokens.to_le_bytes());
            bytes.extend_from_slice(&section.length.to_le_bytes());
        }
        let hash = blake3::hash(&bytes);
        bytes.extend_from_slice(hash.as_bytes());
        bytes
    }

    /// What the ledger is hashed with: only who has the key file can write one.
    pub(super) fn ledger_key(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(blake3::derive_key("gatework-fss key file, hash of the ledger", &self.encode()))
    }

    /// What masked weights that are kept are hashed with.
    pub(super) fn weights_key(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(blake3::derive_key("gatework-fss key file, masked weights", &self.encode()))
    }

    /// The key under which chunks are hashed.
    pub(super) fn chunk_key(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(blake3::derive_key("gatework-fss key file, hashes of chunks", &self.encode()))
    }

    /// Bytes of the whole file.
    pub(crate) fn file_bytes(&self) -> u64 {
        let sections = self.sections.iter().map(|section| stored_bytes(section.length));
        bytes_of(self.sections.len()) as u64 + sections.sum::<u64>()
    }

    /// Where a section begins.
    pub(crate) fn offset_of(&self, section: usize) -> u64 {
        let before = self.sections[..section].iter().map(|section| stored_bytes(section.length));
        bytes_of(self.sections.len()) as u64 + before.sum::<u64>()
    }

    /// How long the header is that begins with `start`, of which [`KeyHeader::PREFIX`] bytes are enough.
    pub(crate) fn length(start: &[u8]) -> Result<usize> {
        let start = start.get(..Self::PREFIX).ok_or_else(|| {
            refused(format!("it has {} bytes, its header alone takes more than {FIXED}", start.len()))
        })?;
        if start[..8] != MAGIC {
            return Err(refused("it does not begin as a key file does"));
        }
        let version = u16::from_le_bytes([start[8], start[9]]);
        if version != VERSION {
            let what = format!("it has version {version}, this program reads {VERSION}: have new keys dealt");
            return Err(refused(what));
        }
        let count = u32::from_le_bytes([start[160], start[161], start[162], start[163]]) as usize;
        if !(1..=MOST_SECTIONS).contains(&count) {
            return Err(refused(format!("it claims {count} sections, there are 1 to {MOST_SECTIONS}")));
        }
        Ok(bytes_of(count))
    }

    /// Bytes that tell how long the header is.
    pub(crate) const PREFIX: usize = FIXED;

    /// Reads a header, which is all of `bytes`. Everything in it is checked before it is used.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        if bytes.len() != Self::length(bytes)? {
            return Err(refused("its header is cut short"));
        }
        let (content, hash) = bytes.split_at(bytes.len() - HASH);
        if blake3::hash(content).as_bytes() != hash {
            return Err(refused("its header was altered"));
        }
        PrgId::from_code(u16::from_le_bytes([bytes[10], bytes[11]]))?;
        let party = match bytes[12] {
            0 => Party::Zero,
            1 => Party::One,
            other => return Err(refused(format!("it is for party {other}, there are 0 and 1"))),
        };
        if bytes[15] != 0 {
            return Err(refused("a byte of its header that is zero in every key file is not"));
        }
        let format = FixedPoint::new(bytes[13].into(), bytes[14].into())?;
        let mut sections = Vec::with_capacity((content.len() - FIXED) / ENTRY);
        for entry in content[FIXED..].chunks_exact(ENTRY) {
            let (tokens, length) = (array::<4>(entry, 0), array::<8>(entry, 4));
            let length = u64::from_le_bytes(length);
            if length >= MOST_BYTES {
                return Err(refused(format!("section {} claims {length} bytes", sections.len())));
            }
            sections.push(SectionEntry { tokens: u32::from_le_bytes(tokens), length });
        }
        if sections.iter().map(|section| section.length).sum::<u64>() >= MOST_BYTES {
            return Err(refused(format!(
                "its {} sections claim more bytes than any disk has",
                sections.len()
            )));
        }
        let inferences = sections.iter().filter(|section| section.tokens > 0).count();
        if sections[0].tokens != 0 || inferences + 1 != sections.len() {
            return Err(refused("its first section must be the only one without tokens"));
        }
        Ok(Self {
            party,
            format,
            session: array(bytes, 16),
            model: array(bytes, 48),
            weights: array(bytes, 80),
            public_key: u128::from_le_bytes(array(bytes, 112)),
            pairing: Box::new(Zeroizing::new(array(bytes, 128))),
            sections,
        })
    }
}

/// `N` bytes from `start` on, all of which exist.
fn array<const N: usize>(bytes: &[u8], start: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[start..start + N]);
    array
}

fn refused(what: impl Into<String>) -> Error {
    Error::Key { what: what.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> KeyHeader {
        KeyHeader {
            party: Party::One,
            format: FixedPoint::new(50, 12).unwrap(),
            session: [1; 32],
            model: [2; 32],
            weights: [3; 32],
            public_key: 4,
            pairing: Box::new(Zeroizing::new([5; 32])),
            sections: [(0, 7), (16, 9), (3, 0)]
                .map(|(tokens, length)| SectionEntry { tokens, length })
                .into(),
        }
    }

    #[test]
    fn a_header_reads_back() {
        let bytes = header().encode();
        assert_eq!(bytes.len(), bytes_of(3));
        assert_eq!(KeyHeader::length(&bytes).unwrap(), bytes.len());
        let back = KeyHeader::parse(&bytes).unwrap();
        assert_eq!(back.encode(), bytes);
        assert_eq!((back.party, back.public_key, **back.pairing), (Party::One, 4, [5; 32]));
        assert_eq!(back.sections, header().sections);
    }

    #[test]
    fn any_change_is_refused() {
        let whole = header().encode();
        for len in 0..whole.len() {
            assert!(KeyHeader::parse(&whole[..len]).is_err());
        }
        for bit in 0..8 * whole.len() {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(KeyHeader::parse(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn what_a_hash_cannot_tell_is_refused_too() {
        let refused = |place: usize, value: u8| {
            let mut bytes = header().encode().to_vec();
            bytes[place] = value;
            let content = bytes.len() - HASH;
            let hash = blake3::hash(&bytes[..content]);
            bytes[content..].copy_from_slice(hash.as_bytes());
            KeyHeader::parse(&bytes).is_err()
        };
        for (place, value) in
            [(8, 9), (10, 7), (12, 2), (13, 0), (13, 65), (14, 50), (15, 8), (164, 1), (176, 0), (186, 1)]
        {
            assert!(refused(place, value), "byte {place} set to {value}");
        }
        assert!(!refused(16, 9));
    }

    #[test]
    fn sections_that_are_too_long_together_are_refused() {
        let section = |tokens| SectionEntry { tokens, length: MOST_BYTES - 1 };
        let sections = (0..MOST_SECTIONS as u32).map(section).collect();
        let error = KeyHeader::parse(&KeyHeader { sections, ..header() }.encode()).err().unwrap();
        assert!(error.to_string().contains("65536 sections claim more bytes"), "{error}");
    }
}
