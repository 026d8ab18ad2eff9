//! Bytes as they arrive, in frames.

use crate::error::{Error, Result};

/// Bytes of the length in front of a message: the masked weights of a large model are more than four of them could say.
pub(crate) const LENGTH: usize = 8;

/// Bytes of a frame that has nothing in it: the transcript's hash.
pub(crate) const LEAST: usize = 16;

/// What has arrived and was not taken yet. It grows with what arrives, never with what is announced.
#[derive(Default)]
pub(crate) struct Assembler {
    bytes: Vec<u8>,
    /// How much of it was taken.
    start: usize,
}

impl Assembler {
    /// Room for what arrives next.
    pub(crate) fn room(&mut self, count: usize) -> &mut [u8] {
        self.bytes.drain(..self.start);
        self.start = 0;
        let old = self.bytes.len();
        self.bytes.resize(old + count, 0);
        &mut self.bytes[old..]
    }

    /// The next frame without its length, if it is whole. One that is announced to be longer than `most`, or too short for anything,
    /// is an error.
    pub(crate) fn next(&mut self, most: u64) -> Result<Option<Vec<u8>>> {
        let Some(length) = self.bytes[self.start..].first_chunk::<LENGTH>() else { return Ok(None) };
        let length = u64::from_le_bytes(*length);
        if length < LEAST as u64 {
            return Err(Error::OutOfStep { what: "a frame is too short for its transcript".into() });
        }
        if length > most {
            return Err(Error::Oversized { length, most });
        }
        let body = self.start + LENGTH..self.start + LENGTH + length as usize;
        let Some(frame) = self.bytes.get(body.clone()) else { return Ok(None) };
        let frame = frame.to_vec();
        self.start = body.end;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_whole_however_they_arrive() {
        let frames: [&[u8]; 3] = [&[1; LEAST], b"hello, this is a frame", &[7; 300]];
        let stream: Vec<u8> = frames
            .iter()
            .flat_map(|frame| [&(frame.len() as u64).to_le_bytes()[..], frame].concat())
            .collect();
        for piece in [1, 2, 3, 7, 100, stream.len()] {
            let mut assembler = Assembler::default();
            let mut found = Vec::new();
            for bytes in stream.chunks(piece) {
                assembler.room(bytes.len()).copy_from_slice(bytes);
                while let Some(frame) = assembler.next(300).unwrap() {
                    found.push(frame);
                }
            }
            assert_eq!(found, frames);
        }
    }

    #[test]
    fn what_is_announced_is_not_allocated() {
        let mut assembler = Assembler::default();
        assembler.room(8).copy_from_slice(&(1u64 << 40).to_le_bytes());
        assert!(assembler.next(1 << 40).unwrap().is_none());
        assert!(assembler.bytes.capacity() < 100);
        assert!(matches!(assembler.next(1000), Err(Error::Oversized { .. })));
        let mut assembler = Assembler::default();
        assembler.room(8).fill(0);
        assert!(matches!(assembler.next(1000), Err(Error::OutOfStep { .. })));
    }
}
