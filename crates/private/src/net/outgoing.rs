//! Parcels that leave on one connection.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::ops::Range;
use std::sync::Arc;

use gatework_fss::Message;

use super::parcel::HEAD;
use super::transcript::{HASH, Transcript};

/// Bytes that are hashed and encrypted at a time: they should still be in a cache the second time.
const PIECE: usize = 1 << 17;

/// A message, or a part of one.
pub(super) struct Parcel {
    pub(super) head: u64,
    pub(super) message: Arc<Message>,
    pub(super) range: Range<usize>,
}

impl Parcel {
    /// Bytes on the connection.
    pub(super) fn bytes(&self) -> u64 {
        (HEAD + self.range.len() + HASH) as u64
    }
}

/// Parcels that wait, and how far the first of them is.
pub(super) struct Outgoing {
    waiting: VecDeque<Parcel>,
    at: usize,
    transcript: Transcript,
}

impl Outgoing {
    pub(super) fn new(transcript: Transcript) -> Self {
        Self { waiting: VecDeque::new(), at: 0, transcript }
    }

    pub(super) fn push(&mut self, parcel: Parcel) {
        self.waiting.push_back(parcel);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Writes the next piece, and returns its bytes, none if nothing waits; and the message, if that was its
    /// last piece.
    pub(super) fn write_piece(&mut self, writer: &mut impl Write) -> io::Result<(u64, Option<Arc<Message>>)> {
        let Some(parcel) = self.waiting.front() else { return Ok((0, None)) };
        let body = &parcel.message[parcel.range.clone()];
        let end = body.len().min(self.at + PIECE);
        let piece = &body[self.at..end];
        self.transcript.add(piece);
        let head = parcel.head.to_le_bytes();
        let (starts, ends) = (self.at == 0, end == body.len());
        let hash = if ends { self.transcript.end(parcel.head) } else { [0; HASH] };
        // One call, so that a short parcel is one record of TLS.
        let parts: [&[u8]; 3] = [if starts { &head } else { &[] }, piece, if ends { &hash } else { &[] }];
        write_all(writer, parts)?;
        let written = parts.iter().map(|part| part.len() as u64).sum();
        self.at = end;
        if !ends {
            return Ok((written, None));
        }
        self.at = 0;
        Ok((written, self.waiting.pop_front().map(|parcel| parcel.message)))
    }
}

fn write_all(writer: &mut impl Write, parts: [&[u8]; 3]) -> io::Result<()> {
    let mut slices = parts.map(IoSlice::new);
    let mut rest = &mut slices[..];
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match writer.write_vectored(rest)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => IoSlice::advance_slices(&mut rest, written),
        }
    }
    Ok(())
}
