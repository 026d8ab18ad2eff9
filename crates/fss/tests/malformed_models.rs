//! What is read from outside and is not what it should be: a typed error, never a panic.
//!
//! `GATEWORK_FUZZ` sets the number of inputs of each parser; some thousands are tried without it.

use std::path::{Path, PathBuf};

use gatework_fss::Error;
use gatework_fss::model::{Checkpoint, Options, PublicModel};

fn inputs() -> u64 {
    std::env::var("GATEWORK_FUZZ").map_or(4000, |count| count.parse().expect("a number of inputs"))
}

struct Draw(u64);

impl Draw {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % below.max(1)
    }

    /// A few changes: other bytes, cuts, repetitions, and numbers that are larger than anyone means.
    fn mutate(&mut self, seed: &[u8]) -> Vec<u8> {
        const NUMBERS: [&str; 10] = [
            "0",
            "1",
            "-1",
            "65536",
            "16777216",
            "4294967295",
            "18446744073709551615",
            "1e308",
            "null",
            "[]",
        ];
        let mut bytes = seed.to_vec();
        for _ in 0..=self.next(4) {
            let at = self.next(bytes.len());
            match self.next(6) {
                0 => bytes[at] = self.next(256) as u8,
                1 => bytes[at] ^= 1 << self.next(8),
                2 => bytes.truncate(at.max(1)),
                3 => {
                    let end = (at + 1 + self.next(20)).min(bytes.len());
                    bytes.extend_from_within(at..end);
                }
                4 => {
                    bytes.remove(at);
                    if bytes.is_empty() {
                        bytes.push(b'{');
                    }
                }
                _ => {
                    // A number of the document becomes another one.
                    let Some(from) = (at..bytes.len()).find(|&place| bytes[place].is_ascii_digit()) else {
                        continue;
                    };
                    let digits = bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                    let number = NUMBERS[self.next(NUMBERS.len())];
                    bytes.splice(from..from + digits, number.bytes());
                }
            }
        }
        bytes
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

#[test]
fn public_models_are_read_or_refused() {
    let checkpoint = Checkpoint::load(&fixture("bert")).unwrap();
    let plain = checkpoint.public(8, &Options::default()).unwrap();
    let clamped = checkpoint.public(8, &Options { bits: Some(37), head: None }).unwrap();
    assert!(clamped.clamps() > 0);
    let (mut draw, mut read) = (Draw(1), 0);
    for public in [plain, clamped] {
        let seed = public.to_json().unwrap();
        assert_eq!(PublicModel::from_json(seed.as_bytes()).unwrap(), public);
        for _ in 0..inputs() / 2 {
            match PublicModel::from_json(&draw.mutate(seed.as_bytes())) {
                // What is still a model can be used.
                Ok(public) => {
                    read += 1;
                    public.network(public.longest()).unwrap();
                    assert!(public.network(0).is_err() && public.network(public.longest() + 1).is_err());
                }
                Err(Error::Model { .. }) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
    }
    assert!(read > 0, "some changes leave a model, as white space does");
}

#[test]
fn checkpoints_are_read_or_refused() {
    let read = |name: &str| {
        let directory = fixture(name);
        [std::fs::read(directory.join("config.json")), std::fs::read(directory.join("model.safetensors"))]
            .map(Result::unwrap)
    };
    let mut draw = Draw(2);
    for name in ["bert", "gpt2"] {
        let [config, file] = read(name);
        for _ in 0..inputs() / 2 {
            // A checkpoint with a broken configuration and no tensors, and one with a broken header.
            let empty = [&2u64.to_le_bytes()[..], b"{}"].concat();
            if let Ok(checkpoint) = Checkpoint::from_bytes(&draw.mutate(&config), empty) {
                assert!(checkpoint.public(4, &Options::default()).is_err(), "there are no weights");
            }
        }
        let header = 8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
        for _ in 0..inputs() / 2 {
            let mut broken = draw.mutate(&file[..header]);
            broken.extend_from_slice(&file[header..header + 64]);
            assert!(Checkpoint::from_bytes(&config, broken).is_err(), "its tensors are not all there");
        }
    }
}

#[test]
fn other_mathematics_is_refused_by_name() {
    let config = |name: &str| std::fs::read_to_string(fixture(name).join("config.json")).unwrap();
    let empty = || [&2u64.to_le_bytes()[..], b"{}"].concat();
    let cases = [
        ("bert", "\"hidden_act\": \"gelu\"", "\"hidden_act\": \"relu\"", "hidden_act"),
        ("bert", "\"is_decoder\": false", "\"is_decoder\": true", "is_decoder"),
        ("bert", "\"model_type\": \"bert\"", "\"model_type\": \"roberta\"", "roberta"),
        ("bert", "\"use_cache\": true", "\"position_embedding_type\": \"relative_key\"", "relative_key"),
        ("gpt2", "\"gelu_new\"", "\"gelu\"", "activation_function"),
        ("gpt2", "\"scale_attn_weights\": true", "\"scale_attn_weights\": false", "scale_attn_weights"),
        (
            "gpt2",
            "\"scale_attn_by_inverse_layer_idx\": false",
            "\"scale_attn_by_inverse_layer_idx\": true",
            "scale_attn_by_inverse_layer_idx",
        ),
        ("gpt2", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false", "tie_word_embeddings"),
    ];
    for (name, from, to, named) in cases {
        let text = config(name);
        assert!(text.contains(from), "{name}: {from}");
        let changed = text.replace(from, to);
        let error = Checkpoint::from_bytes(changed.as_bytes(), empty()).err().unwrap().to_string();
        assert!(error.contains(named), "{error}");
    }
    let missing = Checkpoint::load(Path::new("no such directory")).err().unwrap().to_string();
    assert!(missing.contains("config.json"), "{missing}");
}
