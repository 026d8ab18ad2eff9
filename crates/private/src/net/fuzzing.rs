//! Entries for fuzzers to what arrives on the connections of a link.

use crate::error::Result;

use super::inbox::{FromLane, FromMain, Inbox, STRIPED};
use super::parcel::{HEAD, Incoming};
use super::transcript::{HASH, Transcript};

const BINDING: [u8; 32] = [7; 32];
/// The longest message that the link lets through.
const LARGEST: u64 = 4096;
const LANES: usize = 2;

fn transcript() -> Transcript {
    Transcript::new(&BINDING, "to the server")
}

/// Bytes as they come on the main connection, in pieces whose length the first byte says. Accepted if a
/// message became whole.
pub fn frames(bytes: &[u8]) -> bool {
    let Some((&first, stream)) = bytes.split_first() else { return false };
    let (inbox, mut incoming) = (Inbox::new(LARGEST), Incoming::new(transcript()));
    let mut whole = 0;
    for piece in stream.chunks(1 + usize::from(first)) {
        let mut main = FromMain { inbox: &inbox, lanes: 0 };
        match incoming.take(piece, &mut main) {
            Ok(taken) if taken == piece.len() => {}
            Ok(_) | Err(_) => break,
        }
        while let Ok(Some((message, _))) = inbox.take() {
            assert!(
                message.len() as u64 + HASH as u64 <= LARGEST,
                "a message is longer than was let through"
            );
            whole += 1;
        }
    }
    whole > 0
}

/// Parcels of a peer that hashes rightly, on the main connection and two lanes: of each the connection (its
/// highest bit lets the receiver take messages), the head, and the body as far as there is one. Accepted if a
/// message became whole.
pub fn parcels(mut bytes: &[u8]) -> bool {
    let inbox = Inbox::new(LARGEST);
    let mut connections: [Connection; 1 + LANES] = std::array::from_fn(|_| Connection::new());
    let mut whole = 0;
    while let Some((&[which, head @ ..], rest)) = bytes.split_first_chunk::<{ 1 + HEAD }>() {
        let place = usize::from(which & 0x7f) % (1 + LANES);
        let head = u64::from_le_bytes(head);
        let wanted = if place == 0 && head & STRIPED != 0 {
            0
        } else {
            usize::try_from((head & !STRIPED).saturating_sub(HASH as u64)).unwrap_or(usize::MAX)
        };
        let (body, behind) = rest.split_at(wanted.min(rest.len()));
        bytes = behind;
        if connections[place].deliver(&inbox, place, head, body).is_err() {
            break;
        }
        while which & 0x80 != 0
            && let Ok(Some((message, _))) = inbox.take()
        {
            assert!(
                message.len() as u64 + HASH as u64 <= LARGEST,
                "a message is longer than was let through"
            );
            whole += 1;
        }
    }
    whole > 0
}

/// One connection, with what its sender hashes.
struct Connection {
    incoming: Incoming,
    sent: Transcript,
    parts: u64,
    stuck: bool,
}

impl Connection {
    fn new() -> Self {
        Self { incoming: Incoming::new(transcript()), sent: transcript(), parts: 0, stuck: false }
    }

    /// A lane carries its part of the body alone.
    fn deliver(&mut self, inbox: &Inbox, place: usize, head: u64, body: &[u8]) -> Result<()> {
        // A sender whose receiver has no room waits, and nothing more comes on its connection.
        if self.stuck {
            return Ok(());
        }
        let part = match place {
            0 => body,
            lane => &body[super::inbox::part_of(body.len(), LANES, lane - 1)],
        };
        self.sent.add(part);
        let hash = self.sent.end(head);
        let stream = [&head.to_le_bytes(), part, &hash].concat();
        let taken = match place {
            0 => self.incoming.take(&stream, &mut FromMain { inbox, lanes: LANES }),
            lane => {
                let before = &mut self.parts;
                self.incoming.take(&stream, &mut FromLane { inbox, lanes: LANES, lane: lane - 1, before })
            }
        }?;
        self.stuck = taken < stream.len();
        Ok(())
    }
}

/// What a well-behaved peer sends.
pub(crate) fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let mut sent = transcript();
    let mut stream = vec![96];
    for length in [0, 9, 24, 284] {
        let (head, body) = ((length + HASH) as u64, vec![length as u8; length]);
        sent.add(&body);
        stream.extend([&head.to_le_bytes()[..], &body, &sent.end(head)].concat());
    }
    let parcel =
        |place: u8, head: u64, body: usize| [&[place][..], &head.to_le_bytes(), &vec![place; body]].concat();
    let length = 1500 + HASH as u64;
    let striped = [
        parcel(0x80, 40 + HASH as u64, 40),
        parcel(0, length | STRIPED, 0),
        parcel(1, length, 1500),
        parcel(0x82, length, 1500),
    ];
    vec![("frames", "four", stream), ("parcels", "on-lanes", striped.concat())]
}
