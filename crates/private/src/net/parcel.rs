//! Parcels as they arrive on one connection.
//!
//! ```text
//! bytes
//!     8   n + 16, with the highest bit set if the message itself comes on the lanes
//!     n   the body
//!    16   the first half of the transcript's hash
//! ```

use bytes::BytesMut;

use crate::error::{Error, Result};

use super::transcript::{HASH, Transcript};

/// Bytes of the head: the masked weights of a large model are more than four of them could say.
pub(crate) const HEAD: usize = 8;
/// Bytes that are hashed at a time.
const BLOCK: usize = 1 << 16;

/// Where parcels go. Nothing is handed over before its hash is right.
pub(crate) trait Destination {
    /// Room for the body of a parcel with this head, none if there is no room now. A head that belongs to
    /// nothing is an error.
    fn begin(&mut self, head: u64) -> Result<Option<BytesMut>>;

    /// A whole parcel, verified.
    fn end(&mut self, head: u64, body: BytesMut) -> Result<()>;
}

/// What has arrived of the parcel that is under way.
pub(crate) struct Incoming {
    transcript: Transcript,
    stage: Stage,
    /// The head, and later the hash, as far as they are here.
    small: [u8; HASH],
    filled: usize,
}

enum Stage {
    Head,
    Body { head: u64, body: BytesMut, at: usize, hashed: usize },
    Hash { head: u64, body: BytesMut, expected: [u8; HASH] },
}

impl Incoming {
    pub(super) fn new(transcript: Transcript) -> Self {
        Self { transcript, stage: Stage::Head, small: [0; HASH], filled: 0 }
    }

    #[cfg(test)]
    pub(crate) fn for_tests(binding: &[u8; 32]) -> Self {
        Self::new(Transcript::new(binding, "to the server"))
    }

    /// Takes some bytes, and returns how many: fewer than there are if there is no room for the next parcel.
    pub(crate) fn take(&mut self, bytes: &[u8], to: &mut impl Destination) -> Result<usize> {
        let mut rest = bytes;
        loop {
            match &mut self.stage {
                Stage::Head => {
                    let (filled, small) = (&mut self.filled, &mut self.small[..HEAD]);
                    if !fill(small, filled, &mut rest) {
                        break;
                    }
                    let mut head = [0; HEAD];
                    head.copy_from_slice(small);
                    let head = u64::from_le_bytes(head);
                    let Some(body) = to.begin(head)? else { break };
                    self.filled = 0;
                    self.stage = Stage::Body { head, body, at: 0, hashed: 0 };
                }
                Stage::Body { head, body, at, hashed } => {
                    let count = rest.len().min(body.len() - *at);
                    body[*at..*at + count].copy_from_slice(&rest[..count]);
                    (*at, rest) = (*at + count, &rest[count..]);
                    let whole = *at == body.len();
                    if whole || *at - *hashed >= BLOCK {
                        let end = if whole { *at } else { *at - (*at - *hashed) % BLOCK };
                        self.transcript.add(&body[*hashed..end]);
                        *hashed = end;
                    }
                    if !whole {
                        break;
                    }
                    let (head, body) = (*head, std::mem::take(body));
                    self.stage = Stage::Hash { head, body, expected: self.transcript.end(head) };
                }
                Stage::Hash { head, body, expected } => {
                    if !fill(&mut self.small, &mut self.filled, &mut rest) {
                        break;
                    }
                    if self.small != *expected {
                        let what = "the transcript differs: a message was lost, repeated or altered".into();
                        return Err(Error::OutOfStep { what });
                    }
                    let (head, body) = (*head, std::mem::take(body));
                    (self.stage, self.filled) = (Stage::Head, 0);
                    to.end(head, body)?;
                }
            }
        }
        Ok(bytes.len() - rest.len())
    }
}

/// Whether all of `small` is there.
fn fill(small: &mut [u8], filled: &mut usize, rest: &mut &[u8]) -> bool {
    let count = rest.len().min(small.len() - *filled);
    small[*filled..*filled + count].copy_from_slice(&rest[..count]);
    (*filled, *rest) = (*filled + count, &rest[count..]);
    *filled == small.len()
}

/// Bytes of the body of a parcel with this head, if that is at most `most`.
pub(crate) fn body_bytes(length: u64, most: u64) -> Result<usize> {
    if length < HASH as u64 {
        return Err(Error::OutOfStep { what: "a frame is too short for its transcript".into() });
    }
    if length > most {
        return Err(Error::Oversized { length, most });
    }
    Ok(length as usize - HASH)
}

/// Parcels of bodies of these lengths as they lie on a connection.
#[cfg(test)]
pub(crate) fn stream_for_tests(binding: &[u8; 32], lengths: &[usize]) -> Vec<u8> {
    use std::sync::Arc;

    use super::outgoing::{Outgoing, Parcel};

    let mut outgoing = Outgoing::new(Transcript::new(binding, "to the server"));
    for &length in lengths {
        let head = (length + HASH) as u64;
        outgoing.push(Parcel {
            head,
            message: Arc::new(vec![length as u8; length].into()),
            range: 0..length,
        });
    }
    let mut stream = Vec::new();
    while !outgoing.is_empty() {
        outgoing.write_piece(&mut stream).unwrap_or_default();
    }
    stream
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps what comes, and has no room for a while if it is asked to.
    #[derive(Default)]
    struct Kept {
        bodies: Vec<Vec<u8>>,
        refusals: usize,
    }

    impl Destination for Kept {
        fn begin(&mut self, head: u64) -> Result<Option<BytesMut>> {
            if self.refusals > 0 {
                self.refusals -= 1;
                return Ok(None);
            }
            Ok(Some(BytesMut::zeroed(body_bytes(head, 1 << 20)?)))
        }

        fn end(&mut self, _: u64, body: BytesMut) -> Result<()> {
            self.bodies.push(body.into());
            Ok(())
        }
    }

    const LENGTHS: [usize; 5] = [0, 1, 300, 200_000, 7];

    #[test]
    fn parcels_come_out_whole_however_they_arrive() {
        let stream = stream_for_tests(&[1; 32], &LENGTHS);
        assert_eq!(stream.len(), LENGTHS.iter().map(|length| length + HEAD + HASH).sum::<usize>());
        for piece in [1, 2, 3, 7, 100, 16_384, stream.len()] {
            let (mut incoming, mut kept) = (Incoming::for_tests(&[1; 32]), Kept::default());
            for bytes in stream.chunks(piece) {
                assert_eq!(incoming.take(bytes, &mut kept).unwrap(), bytes.len());
            }
            let expected = LENGTHS.map(|length| vec![length as u8; length]);
            assert_eq!(kept.bodies, expected);
        }
    }

    #[test]
    fn what_there_is_no_room_for_stays() {
        let stream = stream_for_tests(&[1; 32], &LENGTHS);
        let (mut incoming, mut kept) =
            (Incoming::for_tests(&[1; 32]), Kept { refusals: 2, ..Kept::default() });
        let head = incoming.take(&stream, &mut kept).unwrap();
        assert_eq!(head, HEAD, "the head is read, and nothing behind it");
        assert_eq!(incoming.take(&stream[head..], &mut kept).unwrap(), 0);
        assert_eq!(incoming.take(&stream[head..], &mut kept).unwrap(), stream.len() - head);
        assert_eq!(kept.bodies.len(), LENGTHS.len());
    }

    #[test]
    fn what_is_altered_lost_repeated_or_exchanged_is_not_handed_over() {
        let stream = stream_for_tests(&[1; 32], &[40, 40, 40]);
        let parcel = 40 + HEAD + HASH;
        let mut altered = stream.clone();
        altered[parcel + HEAD + 3] ^= 1;
        let lost = [&stream[..parcel], &stream[2 * parcel..]].concat();
        let repeated = [&stream[..parcel], &stream[..2 * parcel]].concat();
        for bytes in [altered, lost, repeated] {
            let (mut incoming, mut kept) = (Incoming::for_tests(&[1; 32]), Kept::default());
            assert!(matches!(incoming.take(&bytes, &mut kept), Err(Error::OutOfStep { .. })));
            assert_eq!(kept.bodies.len(), 1);
        }
        let mut elsewhere = Incoming::for_tests(&[2; 32]);
        assert!(elsewhere.take(&stream, &mut Kept::default()).is_err(), "of another connection");
        let mut announced = Kept::default();
        let long = (1u64 << 40).to_le_bytes();
        let refused = Incoming::for_tests(&[1; 32]).take(&long, &mut announced);
        assert!(matches!(refused, Err(Error::Oversized { .. })));
    }
}
