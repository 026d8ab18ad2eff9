//! Text as tokens, in one file: what `gatework train fetch text` writes.
//!
//! The file is 64 bytes of header and then tokens of 16 bits, those to train on first:
//!
//! ```text
//! "GWTOKENS"  version u32  vocabulary u32  training tokens u64  validation tokens u64  BLAKE3 of all tokens, 32 bytes
//! ```
//!
//! All numbers are little-endian.

use std::path::Path;

use crate::error::{Error, Result};

const MAGIC: &[u8; 8] = b"GWTOKENS";
const VERSION: u32 = 1;
const HEADER: usize = 64;

/// Tokens to train on and tokens to validate with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    vocabulary: u32,
    train: Vec<u16>,
    validation: Vec<u16>,
}

/// Which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Those to train on.
    Train,
    /// Those to validate with.
    Validation,
}

impl Tokens {
    /// Tokens below `vocabulary`.
    pub fn new(vocabulary: u32, train: Vec<u16>, validation: Vec<u16>) -> Result<Self> {
        if vocabulary == 0 || vocabulary > 1 << 16 {
            return Err(Error::data(format!(
                "a vocabulary of {vocabulary} does not fit tokens of 16 bits: it has from 1 to 65536"
            )));
        }
        for (name, tokens) in [("training", &train), ("validation", &validation)] {
            if tokens.is_empty() {
                return Err(Error::data(format!("there are no {name} tokens")));
            }
            let beyond = tokens.iter().position(|token| u32::from(*token) >= vocabulary);
            if let Some(place) = beyond {
                return Err(Error::data(format!(
                    "{name} token {place} is {}, and the vocabulary has {vocabulary}",
                    tokens[place]
                )));
            }
        }
        Ok(Self { vocabulary, train, validation })
    }

    /// Reads a file whole, and checks it.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|source| {
            Error::data(format!(
                "{} cannot be read ({source}); 'gatework train fetch text --into FOLDER' makes such a file",
                path.display()
            ))
        })?;
        Self::parse(&bytes).map_err(|error| match error {
            Error::Data { what } => Error::data(format!("{}: {what}", path.display())),
            other => other,
        })
    }

    /// Reads the bytes of a file.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        if bytes.len() < HEADER || &bytes[..8] != MAGIC {
            return Err(Error::data(
                "it is no file of tokens; 'gatework train fetch text --into FOLDER' makes one",
            ));
        }
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if word(8) != VERSION {
            return Err(Error::data(format!(
                "it is of version {}, and this program reads version {VERSION}: fetch it again",
                word(8)
            )));
        }
        let (vocabulary, counts) = (word(12), [long(16), long(24)]);
        let body = &bytes[HEADER..];
        let wanted = counts[0].checked_add(counts[1]).and_then(|tokens| tokens.checked_mul(2));
        if wanted != Some(body.len() as u64) {
            return Err(Error::data(format!(
                "it says {} training and {} validation tokens and holds {} bytes of them: it is cut short or damaged",
                counts[0],
                counts[1],
                body.len()
            )));
        }
        if blake3::hash(body).as_bytes() != &bytes[32..64] {
            return Err(Error::data("its tokens have another checksum than its header: it is damaged"));
        }
        let tokens: Vec<u16> =
            body.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        // The sum fits, so that each does.
        let (train, validation) = tokens.split_at(counts[0] as usize);
        Self::new(vocabulary, train.to_vec(), validation.to_vec())
    }

    /// The bytes of a file.
    pub fn bytes(&self) -> Vec<u8> {
        let body: Vec<u8> = self.train.iter().chain(&self.validation).flat_map(|t| t.to_le_bytes()).collect();
        let mut bytes = Vec::with_capacity(HEADER + body.len());
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.vocabulary.to_le_bytes());
        bytes.extend((self.train.len() as u64).to_le_bytes());
        bytes.extend((self.validation.len() as u64).to_le_bytes());
        bytes.extend(blake3::hash(&body).as_bytes());
        bytes.extend(body);
        bytes
    }

    /// All tokens are below it.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary as usize
    }

    /// How many there are in both parts.
    pub fn count(&self) -> usize {
        self.train.len() + self.validation.len()
    }

    /// The tokens of a part.
    pub fn part(&self, part: Part) -> &[u16] {
        match part {
            Part::Train => &self.train,
            Part::Validation => &self.validation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: &[u8] = include_bytes!("../../data/rust-slice.tokens");

    #[test]
    fn a_file_is_read_and_written_to_the_same_bytes() {
        let tokens = Tokens::parse(SLICE).unwrap();
        assert_eq!(tokens.vocabulary(), 50_257);
        assert_eq!(tokens.bytes(), SLICE);
        let gone = Tokens::read(Path::new("nowhere.tokens")).unwrap_err().to_string();
        assert!(gone.contains("nowhere.tokens") && gone.contains("train fetch text"), "{gone}");
    }

    #[test]
    fn what_is_no_whole_file_is_refused_with_a_sentence() {
        let said = |bytes: &[u8]| Tokens::parse(bytes).unwrap_err().to_string();
        assert!(said(&[]).contains("no file of tokens"));
        assert!(said(&[0; 100]).contains("no file of tokens"));
        assert!(said(&SLICE[..SLICE.len() - 1]).contains("cut short"));
        let spoilt = |at: usize, byte: u8| {
            let mut bytes = SLICE.to_vec();
            bytes[at] ^= byte;
            bytes
        };
        assert!(said(&spoilt(8, 2)).contains("version 3"));
        assert!(said(&spoilt(70, 1)).contains("another checksum"));
        assert!(said(&spoilt(23, 255)).contains("cut short"));
        assert!(said(&spoilt(15, 1)).contains("does not fit"));
        // A vocabulary that is too small for what is there.
        let small = [&SLICE[..12], &2u32.to_le_bytes(), &SLICE[16..]].concat();
        assert!(said(&small).contains("the vocabulary has 2"));
        assert!(Tokens::new(10, vec![], vec![1]).unwrap_err().to_string().contains("no training tokens"));
        assert!(Tokens::new(10, vec![10], vec![1]).unwrap_err().to_string().contains("token 0 is 10"));
    }
}
