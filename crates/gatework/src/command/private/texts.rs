//! Texts as tokens.

use std::path::{Path, PathBuf};

use gatework_private::model::Tokens;
use tokenizers::Tokenizer;

use crate::command::ending::Failure;

use super::bundled;
use super::options::TextOptions;

/// What a tokenizer is called beside its model.
const TOKENIZER: &str = "tokenizer.json";

/// A text as it was given, and what the model reads.
pub(super) struct Text {
    pub(super) words: Option<String>,
    pub(super) tokens: Tokens,
}

impl Text {
    pub(super) fn len(&self) -> usize {
        self.tokens.ids().len()
    }

    /// The text with tokens added, which are of the last one's type.
    pub(super) fn followed_by(&self, added: &[u32]) -> Result<Tokens, Failure> {
        let last = self.tokens.types().last().copied().unwrap_or(0);
        let types = self.tokens.types().iter().copied().chain(added.iter().map(|_| last));
        Ok(Tokens::typed([self.tokens.ids(), added].concat(), types.collect())?)
    }
}

/// Whose tokenizer is used where the options name none.
#[derive(Clone, Copy)]
pub(super) enum TokenizerOf<'a> {
    /// That in the folder of a checkpoint.
    Folder(&'a Path),
    /// That beside the public part of a model, if there is one.
    Public(&'a Path),
    /// That of the bundled model.
    Bundled,
}

/// Texts of the options, in order: --text, --file, --ids.
pub(super) struct Texts {
    pub(super) texts: Vec<Text>,
    tokenizer: Option<Tokenizer>,
}

impl Texts {
    /// The tokenizer is that of the options, or that of the model.
    pub(super) fn read(options: &TextOptions, of: TokenizerOf<'_>) -> Result<Self, Failure> {
        let mut words = options.text.clone();
        if let Some(path) = &options.file {
            let refused = |error| {
                let file = path.display();
                Failure::input(format!("--file {file}: {error}; it should have a text a line"))
            };
            let file = std::fs::read_to_string(path).map_err(refused)?;
            words.extend(file.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned));
        }
        let tokenizer = match tokenizer_path(options, of) {
            Some(path) if !words.is_empty() || path.exists() => Some(load(&path)?),
            None if matches!(of, TokenizerOf::Bundled) => Some(bundled::tokenizer()?),
            None if !words.is_empty() => {
                return Err(Failure::input("--text and --file need --tokenizer; or give --ids".into()));
            }
            _ => None,
        };
        let mut texts = Vec::new();
        for words in words {
            let Some(tokenizer) = &tokenizer else { continue };
            let encoding = match words.split_once('\t') {
                Some((first, second)) => tokenizer.encode((first, second), true),
                None => tokenizer.encode(words.as_str(), true),
            };
            let encoding = encoding.map_err(|error| Failure::input(format!("'{words}': {error}")))?;
            // Padding that the tokenizer adds is not part of the text.
            let typed = encoding.get_ids().iter().zip(encoding.get_type_ids());
            let real = typed.zip(encoding.get_attention_mask()).filter(|(_, mask)| **mask == 1);
            let (ids, types) = real.map(|((id, kind), _)| (*id, *kind)).unzip();
            texts.push(Text { words: Some(words), tokens: Tokens::typed(ids, types)? });
        }
        texts.extend(options.ids.iter().map(|ids| Text { words: None, tokens: ids.0.clone().into() }));
        if texts.is_empty() {
            return Err(Failure::input("there is no text: give --text, --file or --ids".into()));
        }
        Ok(Self { texts, tokenizer })
    }

    /// Tokens as words, where there is a tokenizer.
    pub(super) fn words(&self, ids: &[u32]) -> Option<String> {
        self.tokenizer.as_ref()?.decode(ids, true).ok()
    }
}

/// The file to read, if it is in one.
fn tokenizer_path(options: &TextOptions, of: TokenizerOf<'_>) -> Option<PathBuf> {
    let of_model = || match of {
        TokenizerOf::Folder(model) => Some(model.join(TOKENIZER)),
        TokenizerOf::Public(file) => Some(file.parent()?.join(TOKENIZER)).filter(|path| path.exists()),
        TokenizerOf::Bundled => None,
    };
    options.tokenizer.clone().or_else(of_model)
}

fn load(path: &Path) -> Result<Tokenizer, Failure> {
    let refused = |error| {
        let file = path.display();
        Failure::input(format!("--tokenizer {file}: {error}; it should be the tokenizer.json of the model"))
    };
    let mut tokenizer = Tokenizer::from_file(path).map_err(refused)?;
    // The models are given exactly the text: no filling up to a length, and no silent cutting.
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(refused)?;
    Ok(tokenizer)
}
