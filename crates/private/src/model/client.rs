//! What a client gives and gets.

use crate::error::Result;
use crate::graph::Head;

use super::public::PublicModel;
use super::refused;

/// A text as a model reads it: its tokens, and of each which sentence of a pair it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    ids: Vec<u32>,
    types: Vec<u32>,
}

impl Tokens {
    /// Tokens with a type each, as a tokenizer gives them for a pair of sentences.
    pub fn typed(ids: Vec<u32>, types: Vec<u32>) -> Result<Self> {
        if ids.len() != types.len() {
            return Err(refused(format!("{} tokens with {} types", ids.len(), types.len())));
        }
        Ok(Self { ids, types })
    }

    /// The tokens.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Their types.
    pub fn types(&self) -> &[u32] {
        &self.types
    }
}

/// One sentence: every token is of type 0.
impl From<Vec<u32>> for Tokens {
    fn from(ids: Vec<u32>) -> Self {
        let types = vec![0; ids.len()];
        Self { ids, types }
    }
}

impl From<&[u32]> for Tokens {
    fn from(ids: &[u32]) -> Self {
        ids.to_vec().into()
    }
}

impl PublicModel {
    /// The tokens of one sentence as the input of an inference, as [`PublicModel::encode`] gives it.
    pub fn encode_tokens(&self, ids: &[u32]) -> Result<Vec<u64>> {
        self.encode(&ids.into())
    }

    /// A text as the input of an inference: a row for each token, one-hot, with its type behind it in models
    /// that have types.
    pub fn encode(&self, text: &Tokens) -> Result<Vec<u64>> {
        let (words, types, longest) = (self.model().vocabulary, self.model().types, self.longest());
        let count = text.ids.len();
        if !(1..=longest).contains(&count) {
            return Err(refused(format!("{count} tokens: the model takes 1 to {longest}")));
        }
        let mut rows = vec![0; count * (words + types)];
        for ((row, &id), &kind) in rows.chunks_mut(words + types).zip(&text.ids).zip(&text.types) {
            let (of_words, of_types) = row.split_at_mut(words);
            let place = of_words.get_mut(id as usize);
            *place.ok_or_else(|| refused(format!("token {id} is not one of the {words} words")))? = 1;
            match of_types.get_mut(kind as usize) {
                Some(place) => *place = 1,
                None if types == 0 && kind == 0 => {}
                None => return Err(refused(format!("a token of type {kind}: the model has {types} types"))),
            }
        }
        Ok(rows)
    }

    /// Rows and columns of the result for that many tokens.
    pub fn output_shape(&self, tokens: usize) -> (usize, usize) {
        let model = self.model();
        match model.head {
            Head::Classes(classes) => (1, classes),
            Head::Mean => (1, model.width),
            Head::Tokens => (tokens, model.width),
            Head::NextWord => (1, model.vocabulary),
            Head::EveryWord => (tokens, model.vocabulary),
        }
    }

    /// The words that an inference of that many tokens gave to the client, as numbers, row by row.
    pub fn decode(&self, tokens: usize, words: &[u64]) -> Result<Vec<f32>> {
        let (rows, columns) = self.output_shape(tokens);
        if rows.checked_mul(columns) != Some(words.len()) {
            return Err(refused(format!("{} words are no result of {rows} × {columns}", words.len())));
        }
        let ring = self.format().ring;
        // The network gives the sum of the tokens' rows, which is exact.
        let count = if self.head() == Head::Mean { tokens as f64 } else { 1.0 };
        let unit = 2f64.powi(-(self.format().fraction as i32)) / count;
        Ok(words.iter().map(|&word| (ring.signed(word) as f64 * unit) as f32).collect())
    }

    /// The word with the highest score behind the last token, for greedy decoding; the first of several.
    pub fn next_token(&self, words: &[u64]) -> Result<u32> {
        let count = self.model().vocabulary;
        if !matches!(self.head(), Head::NextWord | Head::EveryWord) {
            return Err(refused(format!("a head {:?} scores no words", self.head())));
        }
        let Some(last) = words.len().checked_sub(count).and_then(|start| words.get(start..)) else {
            return Err(refused(format!("{} words are no scores of {count} words", words.len())));
        };
        let ring = self.format().ring;
        let best = (0..count).max_by_key(|&word| (ring.signed(last[word]), std::cmp::Reverse(word)));
        Ok(best.unwrap_or(0) as u32)
    }
}

/// An embedding of length one, as sentence-transformers gives it; zeros stay zeros.
pub fn normalised(numbers: Vec<f32>) -> Vec<f32> {
    let length = numbers.iter().map(|x| x * x).sum::<f32>().sqrt();
    if length == 0.0 { numbers } else { numbers.into_iter().map(|x| x / length).collect() }
}
