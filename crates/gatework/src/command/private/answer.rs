//! Results, as a client reads them.

use gatework_private::graph::Head;
use gatework_private::model::{PublicModel, normalised};
use serde::Serialize;

use crate::command::ending::Failure;

use super::texts::{Text, Texts};

/// Numbers of a vector that are printed.
const SHOWN: usize = 6;

#[derive(Serialize)]
pub(super) struct Answer {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    tokens: Vec<u32>,
    #[serde(flatten)]
    result: Finding,
}

/// By what the model gives.
#[derive(Serialize)]
#[serde(rename_all = "snake_case", untagged)]
enum Finding {
    /// Of length one.
    Embedding {
        embedding: Vec<f32>,
    },
    Classes {
        class: usize,
        scores: Vec<f32>,
    },
    States {
        states: Vec<Vec<f32>>,
    },
    Words {
        next_token: u32,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        generated: Vec<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        generated_text: Option<String>,
        scores: Vec<Vec<f32>>,
    },
}

impl Answer {
    /// What the words of a result mean. `generated` are tokens that were added to the text before.
    pub(super) fn new(
        model: &PublicModel,
        texts: &Texts,
        text: &Text,
        generated: Vec<u32>,
        words: &[u64],
    ) -> Result<Self, Failure> {
        let tokens = text.len() + generated.len().saturating_sub(1);
        let numbers = model.decode(tokens, words)?;
        let (_, columns) = model.output_shape(tokens);
        let rows = || numbers.chunks(columns).map(<[f32]>::to_vec).collect();
        let result = match model.head() {
            Head::Mean => Finding::Embedding { embedding: normalised(numbers) },
            Head::Classes(_) => Finding::Classes { class: largest(&numbers), scores: numbers },
            Head::Tokens => Finding::States { states: rows() },
            Head::NextWord | Head::EveryWord => Finding::Words {
                next_token: model.next_token(words)?,
                generated_text: if generated.is_empty() { None } else { texts.words(&generated) },
                generated,
                scores: rows(),
            },
        };
        Ok(Self { text: text.words.clone(), tokens: text.tokens.ids().to_vec(), result })
    }

    /// For a sentence embedding, its vector.
    fn embedding(&self) -> Option<&[f32]> {
        match &self.result {
            Finding::Embedding { embedding } => Some(embedding),
            _ => None,
        }
    }

    fn name(&self) -> String {
        self.text.clone().unwrap_or_else(|| format!("{:?}", self.tokens))
    }

    fn line(&self) -> String {
        let some = |numbers: &[f32]| {
            let shown: Vec<String> =
                numbers.iter().take(SHOWN).map(|number| format!("{number:.4}")).collect();
            let more =
                if numbers.len() > SHOWN { format!(", … {} in all", numbers.len()) } else { String::new() };
            format!("[{}{more}]", shown.join(", "))
        };
        let result = match &self.result {
            Finding::Embedding { embedding } => some(embedding),
            Finding::Classes { class, scores } => format!("class {class} of {}", some(scores)),
            Finding::States { states } => {
                format!("{} states, the first {}", states.len(), some(states.first().map_or(&[], |row| row)))
            }
            Finding::Words { next_token, generated, generated_text, .. } => match generated_text {
                Some(words) => words.clone(),
                None if generated.is_empty() => format!("next token {next_token}"),
                None => format!("{generated:?}"),
            },
        };
        format!("{}: {result}", self.name())
    }
}

/// All answers, and for embeddings how near each text is to the first.
pub(super) fn lines(answers: &[Answer]) -> String {
    let mut lines: Vec<String> = answers.iter().map(Answer::line).collect();
    if let Some((first, others)) = answers.split_first()
        && let Some(base) = first.embedding()
    {
        for other in others {
            let product = |found: &[f32]| base.iter().zip(found).map(|(a, b)| a * b).sum::<f32>();
            lines.extend(
                other
                    .embedding()
                    .map(|found| format!("cosine to the first {:.4}: {}", product(found), other.name())),
            );
        }
    }
    lines.join("\n")
}

fn largest(numbers: &[f32]) -> usize {
    (0..numbers.len()).max_by(|&a, &b| numbers[a].total_cmp(&numbers[b])).unwrap_or(0)
}
