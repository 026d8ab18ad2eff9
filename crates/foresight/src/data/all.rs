//! What there is to learn from, of any kind.

use std::sync::Arc;

use super::examples::Splits;
use super::text::Text;

/// What there is to learn from.
#[derive(Debug, Clone)]
pub enum Data {
    /// Labelled examples.
    Examples(Arc<Splits>),
    /// A text.
    Text(Arc<Text>),
}

impl Data {
    /// Bytes that it holds.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Examples(splits) => [&splits.train, &splits.probe, &splits.validation]
                .into_iter()
                .map(|part| part.count() * (part.size() * size_of::<f32>() + size_of::<u16>()))
                .sum(),
            Self::Text(text) => text.tokens().count() * size_of::<u16>(),
        }
    }
}

impl From<Arc<Splits>> for Data {
    fn from(splits: Arc<Splits>) -> Self {
        Self::Examples(splits)
    }
}

impl From<Arc<Text>> for Data {
    fn from(text: Arc<Text>) -> Self {
        Self::Text(text)
    }
}
