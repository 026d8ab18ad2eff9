//! Texts as tokens.

use std::path::{Path, PathBuf};

use tokenizers::Tokenizer;

use crate::command::ending::Failure;

use super::options::TextOptions;

/// What a tokenizer is called beside its model.
const TOKENIZER: &str = "tokenizer.json";

/// A text as it was given, and what the model reads.
pub(super) struct Text {
    pub(super) words: Option<String>,
    pub(super) ids: Vec<u32>,
}

/// Texts of the options, in order: --text, --file, --ids.
pub(super) struct Texts {
    pub(super) texts: Vec<Text>,
    tokenizer: Option<Tokenizer>,
}

impl Texts {
    /// The tokenizer is that of the options, or the one in the model's folder, or the one beside its public part.
    pub(super) fn read(
        options: &TextOptions,
        model: Option<&Path>,
        public: Option<&Path>,
    ) -> Result<Self, Failure> {
        let mut words = options.text.clone();
        if let Some(path) = &options.file {
            let refused = |error| Failure::input(format!("--file {}: {error}", path.display()));
            let file = std::fs::read_to_string(path).map_err(refused)?;
            words.extend(file.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned));
        }
        let found = tokenizer_path(options, model, public);
        let tokenizer = match &found {
            Some(path) if !words.is_empty() || path.exists() => Some(load(path)?),
            None if !words.is_empty() => {
                return Err(Failure::input("--text and --file need --tokenizer; or give --ids".into()));
            }
            _ => None,
        };
        let mut texts = Vec::new();
        for words in words {
            let Some(tokenizer) = &tokenizer else { continue };
            let encoding = tokenizer.encode(words.as_str(), true);
            let encoding = encoding.map_err(|error| Failure::input(format!("'{words}': {error}")))?;
            // Padding that the tokenizer adds is not part of the text.
            let real = encoding.get_ids().iter().zip(encoding.get_attention_mask());
            let ids = real.filter(|(_, mask)| **mask == 1).map(|(id, _)| *id).collect();
            texts.push(Text { words: Some(words), ids });
        }
        texts.extend(options.ids.iter().map(|ids| Text { words: None, ids: ids.0.clone() }));
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

fn tokenizer_path(options: &TextOptions, model: Option<&Path>, public: Option<&Path>) -> Option<PathBuf> {
    let beside_public = || Some(public?.parent()?.join(TOKENIZER));
    let in_model = || Some(model?.join(TOKENIZER));
    options.tokenizer.clone().or_else(in_model).or_else(|| beside_public().filter(|path| path.exists()))
}

fn load(path: &Path) -> Result<Tokenizer, Failure> {
    let refused = |error| Failure::input(format!("--tokenizer {}: {error}", path.display()));
    let mut tokenizer = Tokenizer::from_file(path).map_err(refused)?;
    // The models are given exactly the text: no filling up to a length, and no silent cutting.
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(refused)?;
    Ok(tokenizer)
}
