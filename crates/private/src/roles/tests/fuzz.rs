//! A million altered inputs for every parser of bytes from outside: each must say yes or no, and nothing else.

use std::fs;

use bytes::BytesMut;
use gatework_fss::{Party, Randomness};

use crate::disk::{KeyHeader, Ledger};
use crate::model::{Checkpoint, Options, PublicModel};
use crate::net::parcel::{self, Destination, Incoming, body_bytes};

use super::super::message::{Hello, Message};
use super::{MODEL, Scene, small};

const INPUTS: u64 = 1_000_000;
/// Numbers at which arithmetic goes wrong.
const EDGES: [&str; 8] =
    ["0", "-1", "1e308", "18446744073709551615", "4294967296", "9007199254740993", "1e-320", "65537"];

/// One to four changes of the kinds that fuzzers make.
fn altered(input: &[u8], random: &mut Randomness) -> Vec<u8> {
    let mut bytes = input.to_vec();
    let place = |random: &mut Randomness, len: usize| (random.word() % (len as u64 + 1)) as usize;
    for _ in 0..1 + random.word() % 4 {
        let at = place(random, bytes.len());
        match random.word() % 8 {
            0 | 1 if at < bytes.len() => bytes[at] ^= 1 << (random.word() % 8),
            2 if at < bytes.len() => bytes[at] = random.word() as u8,
            3 => bytes.truncate(at),
            4 => bytes.insert(at, random.word() as u8),
            5 => {
                let end = (at + place(random, 40)).min(bytes.len());
                drop(bytes.drain(at..end));
            }
            6 => {
                let end = (at + place(random, 40)).min(bytes.len());
                let copied = bytes[at..end].to_vec();
                let to = place(random, bytes.len());
                bytes.splice(to..to, copied);
            }
            _ => {
                // A run of digits becomes another number; where there is none, eight bytes do.
                let digits = |byte: &u8| byte.is_ascii_digit();
                let edge = EDGES[(random.word() % 8) as usize].as_bytes();
                match bytes[at..].iter().position(digits).map(|start| at + start) {
                    Some(start) => {
                        let end = bytes[start..].iter().position(|byte| !digits(byte));
                        let end = end.map_or(bytes.len(), |end| start + end);
                        bytes.splice(start..end, edge.iter().copied());
                    }
                    None => {
                        let end = (at + 8).min(bytes.len());
                        bytes[at..end].fill(0xff);
                    }
                }
            }
        }
    }
    bytes
}

/// Feeds a parser, and returns how many inputs it took.
fn fed(seeds: &[Vec<u8>], mut parse: impl FnMut(u64, &[u8]) -> bool) -> u64 {
    let mut random = Randomness::insecure_from_seed_for_tests(7);
    (0..INPUTS)
        .filter(|&round| {
            let seed = &seeds[(random.word() % seeds.len() as u64) as usize];
            parse(round, &altered(seed, &mut random))
        })
        .count() as u64
}

#[test]
fn headers_of_key_files() {
    let scene = Scene::deal(&[2, 3]);
    let file = fs::read(&scene.client).unwrap();
    let header = file[..KeyHeader::length(&file).unwrap()].to_vec();
    assert!(KeyHeader::parse(&header).is_ok());
    let rehashed = |bytes: &[u8]| {
        // With the hash made right, so that what is behind it is reached too.
        let content = &bytes[..bytes.len().saturating_sub(32)];
        [content, blake3::hash(content).as_bytes()].concat()
    };
    let taken = fed(&[header], |round, bytes| {
        KeyHeader::parse(&if round % 2 == 0 { bytes.to_vec() } else { rehashed(bytes) }).is_ok()
    });
    assert!(taken < INPUTS / 2 && taken > 0, "{taken} of {INPUTS}");
}

#[test]
fn ledgers() {
    let scene = Scene::deal(&[2, 3]);
    let keys = crate::disk::KeyFile::open(&scene.client, Party::One).unwrap();
    let whole = fs::read(format!("{}.ledger", scene.client.display())).unwrap();
    assert!(keys.ledger.parse(&whole).is_ok());
    let ledger: &Ledger = &keys.ledger;
    let taken = fed(&[whole], |_, bytes| ledger.parse(bytes).is_ok());
    assert!(taken < INPUTS / 10, "{taken} of {INPUTS}");
}

#[test]
fn messages() {
    let hello = Hello {
        party: Party::One,
        session: [1; 32],
        model: [2; 32],
        weights: [3; 32],
        ledger: vec![0; 40],
        proof: [4; 32],
    };
    let messages = [
        Message::Hello(hello),
        Message::Refusal("because of 9 reasons".into()),
        Message::Infer((0..20).collect()),
        Message::SetUp,
        Message::Done,
    ];
    let seeds = messages.map(|message| message.encode());
    let taken = fed(&seeds, |_, bytes| {
        let decoded = Message::decode(bytes);
        // What is read says the same when it is written.
        decoded.is_ok_and(|message| Message::decode(&message.encode()).is_ok_and(|again| again == message))
    });
    assert!(taken > 0 && taken < INPUTS, "{taken} of {INPUTS}");
}

/// Takes what is at most 1000 bytes long, and has room for some.
#[derive(Default)]
struct Taken {
    parcels: usize,
}

impl Destination for Taken {
    fn begin(&mut self, head: u64) -> crate::Result<Option<BytesMut>> {
        Ok(Some(BytesMut::zeroed(body_bytes(head, 1000)?)))
    }

    fn end(&mut self, _: u64, body: BytesMut) -> crate::Result<()> {
        assert!(body.len() <= 1000);
        self.parcels += 1;
        Ok(())
    }
}

#[test]
fn frames() {
    let stream = parcel::stream_for_tests(&[7; 32], &[0, 9, 24, 284]);
    let taken = fed(&[stream], |round, bytes| {
        let (mut incoming, mut taken) = (Incoming::for_tests(&[7; 32]), Taken::default());
        let pieces = bytes.chunks(1 + (round % 97) as usize);
        let whole = pieces.map(|piece| incoming.take(piece, &mut taken)).all(|outcome| outcome.is_ok());
        // What is altered is noticed, at the latest when the parcel ends.
        whole && taken.parcels > 0
    });
    assert!(taken > 0 && taken < INPUTS, "{taken} of {INPUTS}");
}

#[test]
fn public_models() {
    let json = MODEL.0.to_json().unwrap().into_bytes();
    let taken = fed(&[json], |round, bytes| {
        let public = PublicModel::from_json(bytes);
        if let Ok(public) = &public
            && round % 100 == 0
        {
            assert!(public.network(1).is_ok());
        }
        public.is_ok()
    });
    assert!(taken > 0 && taken < INPUTS, "{taken} of {INPUTS}");
}

#[test]
fn configurations() {
    let (config, file) = small::files(1);
    let gpt2 =
        br#"{"model_type": "gpt2", "activation_function": "gelu_new", "n_embd": 8, "n_head": 2, "n_layer": 1,
        "n_positions": 8, "vocab_size": 24, "layer_norm_epsilon": 1e-5, "n_inner": null}"#;
    let taken = fed(&[config, gpt2.to_vec()], |round, bytes| {
        let checkpoint = Checkpoint::from_bytes(bytes, file.clone());
        if let Ok(checkpoint) = &checkpoint
            && round % 500 == 0
        {
            // Shapes that are not those of the file are refused here, whatever they are.
            let _ = checkpoint.public(3, &Options { bits: Some(60), ..Options::default() });
        }
        checkpoint.is_ok()
    });
    assert!(taken > 0 && taken < INPUTS, "{taken} of {INPUTS}");
}

#[test]
fn safetensors_headers() {
    let (config, file) = small::files(1);
    let length = 8 + u64::from_le_bytes(*file.first_chunk().unwrap()) as usize;
    let (header, tensors) = file.split_at(length);
    let taken = fed(&[header.to_vec()], |round, bytes| {
        let checkpoint = Checkpoint::from_bytes(&config, [bytes, tensors].concat());
        if let Ok(checkpoint) = &checkpoint
            && round % 500 == 0
        {
            let _ = checkpoint.public(3, &Options { bits: Some(60), ..Options::default() });
        }
        checkpoint.is_ok()
    });
    assert!(taken > 0 && taken < INPUTS, "{taken} of {INPUTS}");
}
