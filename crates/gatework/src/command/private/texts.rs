//! Texts as tokens.

use std::path::{Path, PathBuf};

use gatework_private::model::Tokens;
use tokenizers::Tokenizer;

use crate::command::ending::Failure;

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
            let refused = |error| {
                let file = path.display();
                Failure::input(format!("--file {file}: {error}; it should have a text a line"))
            };
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

fn tokenizer_path(options: &TextOptions, model: Option<&Path>, public: Option<&Path>) -> Option<PathBuf> {
    let beside_public = || Some(public?.parent()?.join(TOKENIZER));
    let in_model = || Some(model?.join(TOKENIZER));
    options.tokenizer.clone().or_else(in_model).or_else(|| beside_public().filter(|path| path.exists()))
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
