//! Entries for fuzzers: each reads bytes as a file or a peer hands them over, and returns whether they were
//! accepted.
//!
//! A format that ends in a hash is read twice, as it is and with the hash made right: an attacker can hash,
//! too, and nothing behind the hash would be reached otherwise. What is accepted must be written as it was
//! read, or the entry panics.

use std::path::Path;

use gatework_fss::{FixedPoint, Party};
use zeroize::Zeroizing;

use crate::disk::{self, KeyHeader, Ledger, SectionEntry};
use crate::model::{Checkpoint, Options, PublicModel};
use crate::net::Identity;
use crate::roles::message::{Hello, Message};

pub use crate::net::fuzzing::{frames, parcels};

/// The beginning of a key file.
pub fn key_header(bytes: &[u8]) -> bool {
    let reads_back = |bytes: &[u8]| {
        let Ok(header) = KeyHeader::parse(bytes) else { return false };
        assert_eq!(header.encode().as_slice(), bytes, "a header is written as it was read");
        let last = header.sections.len() - 1;
        assert!(header.offset_of(last) < header.file_bytes(), "the last section lies inside of the file");
        true
    };
    either(bytes, &resealed(bytes, |content| *blake3::hash(content).as_bytes()), reads_back)
}

/// The ledger of a key file with 19 sections.
pub fn ledger(bytes: &[u8]) -> bool {
    let ledger = sample_ledger();
    let sealed = resealed(bytes, |content| *ledger.hash(content).as_bytes());
    either(bytes, &sealed, |bytes| match ledger.parse(bytes) {
        Ok(used) => used.len() == SECTIONS,
        Err(_) => false,
    })
}

/// Masked weights that a client has kept, behind their hash.
pub fn kept_weights(bytes: &[u8]) -> bool {
    let Some(messages) = disk::messages(bytes) else { return false };
    assert_eq!(disk::kept_bytes(&messages), bytes, "kept weights are written as they were read");
    true
}

/// A message between client and server.
pub fn message(bytes: &[u8]) -> bool {
    let Ok(message) = Message::decode(bytes) else { return false };
    // A refusal is only shown: without control characters, and with what is no UTF-8 replaced.
    let is_refusal = matches!(message, Message::Refusal(_));
    assert!(is_refusal || message.encode() == bytes, "{message} is sent as it was received");
    true
}

/// The public description of a model.
pub fn public_model(bytes: &[u8]) -> bool {
    let Ok(model) = PublicModel::from_json(bytes) else { return false };
    let text = model.to_json().expect("a model that was read is written");
    assert_eq!(PublicModel::from_json(text.as_bytes()).ok(), Some(model.clone()), "{text}");
    assert!(model.network(1).is_ok(), "a model that was read can be evaluated");
    true
}

/// `config.json` and `model.safetensors` of a checkpoint, up to its public description for three tokens.
pub fn checkpoint(config: &[u8], safetensors: &[u8]) -> bool {
    let Ok(checkpoint) = Checkpoint::from_bytes(config, safetensors.to_vec()) else { return false };
    // Shapes that are not those of the file are refused here.
    checkpoint.public(3, &Options { bits: Some(60), ..Options::default() }).is_ok()
}

/// A PEM file that holds a certificate, its key and the authority.
pub fn identity(pem: &[u8]) -> bool {
    let file = (Path::new("all.pem"), pem);
    let Ok(identity) = Identity::from_pem(file, file, file) else { return false };
    let client = identity.client(b"fuzzing").is_ok();
    let server = identity.server().is_ok();
    client && server
}

/// Bytes of every kind that only this crate writes, by the name of their entry and a name of their own.
pub fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let hello = Hello {
        party: Party::One,
        session: [1; 32],
        model: [2; 32],
        weights: [3; 32],
        ledger: vec![0b101; 40],
        proof: [4; 32],
    };
    let messages = [
        ("hello", Message::Hello(hello)),
        ("refusal", Message::Refusal("the ledger has 9 sections more than é".into())),
        ("infer", Message::Infer((0..20).collect())),
        ("hold", Message::Hold(vec![1, u32::MAX])),
        ("set-up", Message::SetUp),
        ("begin", Message::Begin),
    ];
    let mut seeds: Vec<_> =
        messages.iter().map(|(name, message)| ("message", *name, message.encode())).collect();
    seeds.push(("key_header", "server", sample_header(1).encode().to_vec()));
    seeds.push(("key_header", "client", sample_header(SECTIONS).encode().to_vec()));
    seeds.push(("ledger", "unused", sample_ledger().encode()));
    seeds.push(("kept_weights", "none", disk::kept_bytes(&[])));
    seeds.push(("kept_weights", "three", disk::kept_bytes(&[vec![7; 40], Vec::new(), vec![0; 9]])));
    seeds.extend(crate::net::fuzzing::seeds());
    seeds
}

const SECTIONS: usize = 19;

fn sample_header(sections: usize) -> KeyHeader {
    let section = |number: usize| SectionEntry { tokens: number as u32, length: 1 << number };
    KeyHeader {
        party: if sections > 1 { Party::One } else { Party::Zero },
        format: FixedPoint::new(50, 12).expect("a number format of models"),
        session: [1; 32],
        model: [2; 32],
        weights: [3; 32],
        public_key: 4,
        pairing: Box::new(Zeroizing::new([5; 32])),
        sections: (0..sections).map(section).collect(),
    }
}

fn sample_ledger() -> Ledger {
    Ledger::empty(Path::new("client.keys"), &sample_header(SECTIONS))
}

/// The same bytes with the hash that they should end in.
fn resealed(bytes: &[u8], hash: impl Fn(&[u8]) -> [u8; 32]) -> Vec<u8> {
    let content = &bytes[..bytes.len().saturating_sub(32)];
    [content, &hash(content)].concat()
}

/// Whether one of both is accepted; both are read.
fn either(given: &[u8], sealed: &[u8], accepts: impl Fn(&[u8]) -> bool) -> bool {
    let [given, sealed] = [given, sealed].map(accepts);
    given || sealed
}
