//! What the two sides say before and between evaluations.

use std::fmt;

use gatework_fss::Party;

use crate::error::{Error, Result};

/// The version of everything on the wire.
pub(super) const VERSION: u16 = 3;
/// Longest refusal, in bytes.
const MOST_WORDS: usize = 1 << 10;
/// Most sections of one request.
pub(super) const MOST_SECTIONS: usize = 1 << 12;

/// Who speaks, and for which keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) party: Party,
    pub(crate) session: [u8; 32],
    pub(crate) model: [u8; 32],
    pub(crate) weights: [u8; 32],
    /// A bit for every section that was used.
    pub(crate) ledger: Vec<u8>,
    pub(crate) proof: [u8; 32],
}

impl Hello {
    /// The hash that shows possession of the pairing secret, for this connection and these words.
    pub(super) fn prove(&self, pairing: &[u8; 32], binding: &[u8; 32]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(pairing);
        hasher.update(b"gatework-fss pairing").update(binding).update(&self.said());
        hasher.finalize()
    }

    /// All but the proof.
    fn said(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        bytes.push(self.party.index() as u8);
        for id in [&self.session, &self.model, &self.weights] {
            bytes.extend_from_slice(id);
        }
        bytes.extend_from_slice(&(self.ledger.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.ledger);
        bytes
    }
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// The first of either side.
    Hello(Hello),
    /// The last of either side: why it does not go on.
    Refusal(String),
    /// The client wants the masked weights.
    SetUp,
    /// The client wants inferences with these sections.
    Infer(Vec<u32>),
    /// The server is about to evaluate, or holds the keys.
    Ready,
    /// The client wants nothing more.
    Done,
    /// The client wants the server to hold the keys of these sections in memory.
    Hold(Vec<u32>),
    /// The client wants inferences with the keys that are held, and begins itself.
    Begin,
    /// The client has kept the masked weights of this deal: the server gets ready without sending them.
    SetUpAgain,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hello(_) => "a greeting",
            Self::Refusal(_) => "a refusal",
            Self::SetUp => "a request for weights",
            Self::Infer(_) => "a request for inferences",
            Self::Ready => "its consent",
            Self::Done => "its farewell",
            Self::Hold(_) => "a request to hold keys",
            Self::Begin => "a request to begin",
            Self::SetUpAgain => "a request to set up again",
        })
    }
}

impl Message {
    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => 1,
            Self::Refusal(_) => 2,
            Self::SetUp => 3,
            Self::Infer(_) => 4,
            Self::Ready => 5,
            Self::Done => 6,
            Self::Hold(_) => 7,
            Self::Begin => 8,
            Self::SetUpAgain => 9,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.kind()];
        match self {
            Self::Hello(hello) => {
                bytes.extend_from_slice(&hello.said());
                bytes.extend_from_slice(&hello.proof);
            }
            Self::Refusal(why) => {
                let end = (0..=why.len().min(MOST_WORDS)).rev().find(|&end| why.is_char_boundary(end));
                bytes.extend_from_slice(&why.as_bytes()[..end.unwrap_or(0)]);
            }
            Self::Infer(sections) | Self::Hold(sections) => {
                sections.iter().for_each(|section| bytes.extend_from_slice(&section.to_le_bytes()));
            }
            Self::SetUp | Self::Ready | Self::Done | Self::Begin | Self::SetUpAgain => {}
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut rest = Rest(bytes);
        let [kind] = rest.array()?;
        let message = match kind {
            1 => {
                // Everything behind the version may look different in another one.
                let version = u16::from_le_bytes(rest.array()?);
                if version != VERSION {
                    let what = format!("it speaks version {version}, this program speaks {VERSION}");
                    return Err(Error::Peer { what });
                }
                let party = match rest.array()? {
                    [0] => Party::Zero,
                    [1] => Party::One,
                    [other] => return Err(garbled(format!("party {other}"))),
                };
                let [session, model, weights] = [rest.array()?, rest.array()?, rest.array()?];
                let length = u32::from_le_bytes(rest.array()?) as usize;
                let ledger = rest.take(length)?.to_vec();
                Self::Hello(Hello { party, session, model, weights, ledger, proof: rest.array()? })
            }
            2 => {
                let words = rest.take(rest.0.len().min(MOST_WORDS))?;
                Self::Refusal(String::from_utf8_lossy(words).chars().filter(|c| !c.is_control()).collect())
            }
            3 => Self::SetUp,
            4 => Self::Infer(rest.sections()?),
            5 => Self::Ready,
            6 => Self::Done,
            7 => Self::Hold(rest.sections()?),
            8 => Self::Begin,
            9 => Self::SetUpAgain,
            other => return Err(garbled(format!("a message of kind {other}"))),
        };
        if rest.0.is_empty() { Ok(message) } else { Err(garbled(format!("{message} with more behind it"))) }
    }
}

fn garbled(what: String) -> Error {
    Error::Peer { what: format!("it sent {what}") }
}

/// What is left of a message.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) =
            self.0.split_at_checked(count).ok_or_else(|| garbled("a message that is cut short".into()))?;
        self.0 = rest;
        Ok(taken)
    }

    /// All that is left, as numbers of sections.
    fn sections(&mut self) -> Result<Vec<u32>> {
        let bytes = self.0.len();
        if bytes > 4 * MOST_SECTIONS || !bytes.is_multiple_of(4) {
            return Err(garbled(format!("a request of {bytes} bytes")));
        }
        (0..bytes / 4).map(|_| Ok(u32::from_le_bytes(self.array()?))).collect()
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> Vec<Message> {
        let hello = Hello {
            party: Party::One,
            session: [1; 32],
            model: [2; 32],
            weights: [3; 32],
            ledger: vec![0b101, 1],
            proof: [4; 32],
        };
        let refusal = Message::Refusal("the ledger says no".into());
        let others = [Message::SetUp, Message::Infer(vec![1, 7]), Message::Ready, Message::Done];
        let held = [Message::Hold(vec![2, 3]), Message::Begin, Message::SetUpAgain];
        [Message::Hello(hello), refusal].into_iter().chain(others).chain(held).collect()
    }

    #[test]
    fn messages_read_back() {
        for message in messages() {
            assert_eq!(Message::decode(&message.encode()).unwrap(), message);
        }
    }

    #[test]
    fn messages_that_are_cut_or_longer_are_refused() {
        for message in messages().into_iter().filter(|message| !matches!(message, Message::Refusal(_))) {
            let whole = message.encode();
            assert!(Message::decode(&[&whole[..], &[0]].concat()).is_err(), "{message}");
            // A shorter list of sections is a request too.
            let cuts = (0..whole.len())
                .filter(|cut| !matches!(message, Message::Infer(_) | Message::Hold(_)) || cut % 4 != 1);
            for cut in cuts {
                assert!(Message::decode(&whole[..cut]).is_err(), "{message} of {cut} bytes");
            }
        }
        let mut other_version = messages()[0].encode();
        other_version[1] = 9;
        let error = Message::decode(&other_version).unwrap_err().to_string();
        assert!(error.contains("version 9"), "{error}");
    }

    #[test]
    fn a_refusal_is_cut_between_characters_and_shows_no_controls() {
        let long = "é".repeat(MOST_WORDS);
        let Message::Refusal(read) = Message::decode(&Message::Refusal(long).encode()).unwrap() else {
            panic!("a refusal");
        };
        assert_eq!(read, "é".repeat(MOST_WORDS / 2));
        let sneaky = [&[2][..], b"\x1b[2Jno\n"].concat();
        assert_eq!(Message::decode(&sneaky).unwrap(), Message::Refusal("[2Jno".into()));
    }

    #[test]
    fn a_proof_is_of_the_words_the_secret_and_the_connection() {
        let Message::Hello(hello) = messages().remove(0) else { panic!("a greeting") };
        let proof = hello.prove(&[7; 32], &[8; 32]);
        assert_eq!(proof, hello.prove(&[7; 32], &[8; 32]));
        let mut other = hello.clone();
        other.ledger[0] ^= 0b10;
        let others = [
            hello.prove(&[6; 32], &[8; 32]),
            hello.prove(&[7; 32], &[9; 32]),
            other.prove(&[7; 32], &[8; 32]),
        ];
        assert!(others.iter().all(|other| *other != proof));
    }
}
