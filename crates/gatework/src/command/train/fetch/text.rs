//! Rust sources of pinned crates as tokens of GPT-2.
//!
//! Crates come in the order of [`CRATES`], the files of each in the order of their paths, and the token of
//! the end of a text after every file. A file trains or validates by the checksum of its path. Files of more
//! than [`LARGEST`] are left out: most are tables that a program wrote.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use gatework_foresight::data::{Part, Tokens};
use serde::Serialize;
use tiktoken_rs::CoreBPE;

use super::{Package, create};
use crate::command::ending::{Ending, Failure};
use crate::command::files::{write_file, write_json};
use crate::command::schema;
use crate::command::shell::Shell;

/// Names, versions and BLAKE3 of the packages.
const CRATES: [(&str, &str, &str); 17] = [
    ("candle-core", "0.10.2", "4774f9d77b997b2cc71bf76906e8f7572203f1188d39952b43014f239eda57f0"),
    ("gimli", "0.34.0", "a245e9b4f303c4fc33dadd48a56bda75e58c1600e8f4903e888e9648d3d88fad"),
    ("naga", "29.0.4", "f4bbf50fec94dfa1ba60bd9978a7d1cbe561846a37afff0acab99f28078c1d72"),
    ("ndarray", "0.17.2", "c9f6fe0511a322007c863f936624769c2e56837d1c06b361b43e4d99434af3ca"),
    ("nix", "0.31.3", "1475066bd2e7b591fffd77564b8d8912407e820d4cf9044142f12d2e4648c423"),
    ("object", "0.40.0", "9b67311ccfc20092e590a7dad37b2ce108d982da7a03c9828faaea92a00218e4"),
    ("petgraph", "0.8.3", "0a662b6eac33d8cb1769a8be6bca1b21a3fc619d60ca367519d234ff5f7a0159"),
    ("ratatui", "0.29.0", "3758e786d9d230fcfca1f7e8884524e92d4b80c0bba16f26b82fca404766fcac"),
    ("regex-automata", "0.4.18", "7aa79715f5c8b9599334b1debc840205f4dc61f0a57f914e0b27ec3842b16a16"),
    ("regex-syntax", "0.8.11", "dee7bcdb17c175a89f1bb00503a68cb1febd8b878adba022db868e44e875fb8e"),
    ("rustix", "1.1.6", "f55a5fe718b434bbef6f1876b7955db784413ade460ec12d201f5b57a1fbe5e2"),
    ("rustls", "0.23.46", "73cfd9c915b64f70f278bad12ca4c69e00db3e41014f192562af0636aa47e616"),
    ("time", "0.3.55", "22d9ee14c9f4b7e50472040fe33e913b4854dd125305f9977ac57e8266a5aee1"),
    ("tokio", "1.54.1", "64dac2f70f9ed21fe1e32e370da462e9603d3bc7eb069bd330945b79ed0eef86"),
    ("wgpu-core", "29.0.4", "91a198d278b330c11cb6f136f0b0966003735bb19a16edc3ceb4e942c9abd1d9"),
    ("wgpu-hal", "29.0.4", "8c6f24dd2b127e080841f1bb707335ae43e016b37cacb0af63aacfda31aca3c2"),
    ("zerocopy", "0.8.63", "ac783835e6f84658d8eccddb4fcb1e7a67df75ace5283edf646de814d72b9256"),
];
/// BLAKE3 of the file that they make.
const TOKENS_CHECKSUM: &str = "e30978851e6605d72029ed66185b97655dd5f005fc49c92e21ef3fa5d15a191d";

const VOCABULARY: u32 = 50_257;
/// GPT-2's `<|endoftext|>`.
const END_OF_TEXT: u16 = 50_256;
/// Bytes of the largest file that is taken.
const LARGEST: u64 = 128 << 10;
/// One file of so many validates.
const ONE_OF: u8 = 20;

/// What is beside the tokens.
#[derive(Debug, Serialize)]
struct Manifest {
    tokenizer: &'static str,
    vocabulary: u32,
    training_tokens: usize,
    validation_tokens: usize,
    checksum: String,
    crates: Vec<Taken>,
}

impl schema::Document for Manifest {
    const SCHEMA: schema::Schema = schema::TRAIN_TEXT;
}

/// What came of a crate.
#[derive(Debug, Serialize)]
struct Taken {
    name: &'static str,
    version: &'static str,
    files: usize,
    tokens: usize,
    left_out: usize,
}

#[derive(Serialize)]
struct Fetched {
    file: PathBuf,
    manifest: Manifest,
}

impl schema::Document for Fetched {
    const SCHEMA: schema::Schema = schema::TRAIN_FETCH_TEXT;
}

pub(super) fn run(into: &Path, from: Option<&Path>, shell: &Shell) -> Result<Ending, Failure> {
    if let Some(from) = from.filter(|from| !from.is_dir()) {
        return Err(Failure::input(format!(
            "--from {}: for text it is the folder with the crates as NAME-VERSION.crate",
            from.display()
        )));
    }
    let jobs = shell.progress.start(CRATES.len());
    let mut text = Text::new()?;
    for (name, version, checksum) in CRATES {
        let file_name = format!("{name}-{version}.crate");
        let url = format!("https://static.crates.io/crates/{name}/{file_name}");
        jobs.doing(format!("fetching {name} {version}"));
        let package = Package { name: format!("{name} {version}"), url, checksum };
        let bytes = package.bytes(from.map(|folder| folder.join(&file_name)).as_deref())?;
        text.take(name, version, &bytes)?;
        jobs.done();
    }
    drop(jobs);
    let (bytes, manifest) = text.finish()?;
    if manifest.checksum != TOKENS_CHECKSUM {
        return Err(Failure::input(format!(
            "the crates are the right ones, and their tokens are not: the checksum is {}, not {TOKENS_CHECKSUM}; this program \
             was built with another tokenizer",
            manifest.checksum
        )));
    }
    create(into)?;
    let file = into.join("text.tokens");
    write_file(&file, &bytes)?;
    write_json(&into.join("text.json"), &manifest)?;
    let fetched = Fetched { file, manifest };
    shell.output.show(&fetched, || said(&fetched))?;
    Ok(Ending::Done)
}

fn said(fetched: &Fetched) -> String {
    let Manifest { training_tokens, validation_tokens, crates, checksum, .. } = &fetched.manifest;
    format!(
        "{training_tokens} tokens to train on and {validation_tokens} to validate with, of {} crates, are in {}\nBLAKE3 {checksum}",
        crates.len(),
        fetched.file.display()
    )
}

/// Tokens so far.
struct Text {
    tokenizer: CoreBPE,
    train: Vec<u16>,
    validation: Vec<u16>,
    crates: Vec<Taken>,
}

impl Text {
    fn new() -> Result<Self, Failure> {
        let tokenizer = tiktoken_rs::r50k_base()
            .map_err(|error| Failure::input(format!("the tokenizer cannot be made: {error}")))?;
        Ok(Self { tokenizer, train: Vec::new(), validation: Vec::new(), crates: Vec::new() })
    }

    /// Adds the Rust sources of a package.
    fn take(&mut self, name: &'static str, version: &'static str, package: &[u8]) -> Result<(), Failure> {
        let broken = |error: std::io::Error| {
            Failure::input(format!("the package of {name} {version} cannot be unpacked: {error}"))
        };
        let (mut files, mut left_out) = (Vec::new(), 0);
        let mut archive = tar::Archive::new(GzDecoder::new(package));
        for entry in archive.entries().map_err(broken)? {
            let mut entry = entry.map_err(broken)?;
            let path = entry.path().map_err(broken)?.to_string_lossy().into_owned();
            if !path.ends_with(".rs") || !entry.header().entry_type().is_file() {
                continue;
            }
            if entry.size() > LARGEST {
                left_out += 1;
                continue;
            }
            let mut source = String::new();
            entry.read_to_string(&mut source).map_err(broken)?;
            files.push((path, source));
        }
        files.sort();
        let mut tokens = 0;
        for (path, source) in &files {
            let validates = blake3::hash(path.as_bytes()).as_bytes()[0].is_multiple_of(ONE_OF);
            let part = if validates { &mut self.validation } else { &mut self.train };
            let before = part.len();
            for token in self.tokenizer.encode_ordinary(source) {
                part.push(u16::try_from(token).map_err(|_| {
                    Failure::input(format!("{path}: token {token} is beyond GPT-2's vocabulary"))
                })?);
            }
            part.push(END_OF_TEXT);
            tokens += part.len() - before;
        }
        self.crates.push(Taken { name, version, files: files.len(), tokens, left_out });
        Ok(())
    }

    /// The file of tokens, and what is in it.
    fn finish(self) -> Result<(Vec<u8>, Manifest), Failure> {
        let tokens = Tokens::new(VOCABULARY, self.train, self.validation)?;
        let bytes = tokens.bytes();
        let manifest = Manifest {
            tokenizer: "GPT-2 (r50k_base)",
            vocabulary: VOCABULARY,
            training_tokens: tokens.part(Part::Train).len(),
            validation_tokens: tokens.part(Part::Validation).len(),
            checksum: blake3::hash(&bytes).to_hex().to_string(),
            crates: self.crates,
        };
        Ok((bytes, manifest))
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    /// The checksum of this path says so, and those of the other paths here do not.
    const VALIDATES: &str = "a-1/src/29.rs";

    fn package(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for (path, contents) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(contents.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, path, *contents).unwrap();
        }
        archive.into_inner().unwrap().finish().unwrap()
    }

    #[test]
    fn sources_come_in_the_order_of_their_paths_and_read_back() {
        let large = vec![b' '; LARGEST as usize + 1];
        let files: [(&str, &[u8]); 5] = [
            ("a-1/src/main.rs", b"fn main() {}\n"),
            ("a-1/src/lib.rs", "//! \u{e9}\u{1f980}\n".as_bytes()),
            ("a-1/README.md", b"not this"),
            ("a-1/src/large.rs", &large),
            (VALIDATES, b"mod held_out;\n"),
        ];
        let mut text = Text::new().unwrap();
        text.take("a", "1", &package(&files)).unwrap();
        assert_eq!((text.crates[0].files, text.crates[0].left_out), (3, 1));
        let decode = |tokens: &[u16]| {
            let tokens: Vec<u32> = tokens.iter().map(|token| u32::from(*token)).collect();
            text.tokenizer.decode(&tokens).unwrap()
        };
        assert_eq!(decode(&text.train), "//! \u{e9}\u{1f980}\n<|endoftext|>fn main() {}\n<|endoftext|>");
        assert_eq!(decode(&text.validation), "mod held_out;\n<|endoftext|>");
        // GPT-2's own numbers for these words.
        assert_eq!(text.tokenizer.encode_ordinary("hello world"), [31373, 995]);
        let (bytes, manifest) = text.finish().unwrap();
        assert_eq!(Tokens::parse(&bytes).unwrap().part(Part::Validation).len(), manifest.validation_tokens);
    }

    #[test]
    fn a_broken_package_and_one_without_sources_are_refused() {
        let mut text = Text::new().unwrap();
        let said = text.take("a", "1", b"no archive").unwrap_err().to_string();
        assert!(said.contains("a 1 cannot be unpacked"), "{said}");
        let said = text.take("a", "1", &package(&[("a-1/src/b.rs", b"\xff\xfe")])).unwrap_err().to_string();
        assert!(said.contains("cannot be unpacked"), "{said}");
        text.take("a", "1", &package(&[("a-1/README.md", b"no source")])).unwrap();
        assert!(text.finish().unwrap_err().to_string().contains("there are no training tokens"));
    }
}
