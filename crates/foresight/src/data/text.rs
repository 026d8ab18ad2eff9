//! Windows of a text, and what is held back of them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::tokens::{Part, Tokens};
use crate::error::{Error, Result};

/// A text to learn from. Its last training tokens are held back for the engine; the file says which validate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    tokens: Tokens,
    probe: usize,
}

/// Windows of `columns` tokens each, and for each token the one that follows it.
#[derive(Clone)]
pub struct Windows {
    text: Arc<Text>,
    part: Part,
    range: Range<usize>,
    columns: usize,
    /// From one window to the next.
    stride: usize,
}

impl fmt::Debug for Windows {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} windows of {} tokens", self.count(), self.columns)
    }
}

/// Windows to train on, to probe with and to validate with. No token is judged in two of them.
#[derive(Debug, Clone)]
pub struct Cut {
    /// One from every place on, so that an epoch sees each token at every place of a window.
    pub train: Windows,
    /// Without overlap.
    pub probe: Windows,
    /// Without overlap; what is less than a window at the end is left out.
    pub validation: Windows,
}

impl Text {
    /// Of which the last `probe` windows to train on are held back.
    pub fn new(tokens: Tokens, probe: usize) -> Self {
        Self { tokens, probe }
    }

    /// All of it.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Cuts it into windows.
    pub fn cut(self: &Arc<Self>, columns: usize) -> Result<Cut> {
        let [train, validation] = [Part::Train, Part::Validation].map(|part| self.tokens.part(part).len());
        let held = self.probe.checked_mul(columns).and_then(|held| train.checked_sub(held));
        let first = held.filter(|rest| columns > 0 && self.probe > 0 && *rest > columns);
        let Some(first) = first else {
            return Err(Error::data(format!(
                "{train} training tokens leave none to train on when {} windows of {columns} are held back to probe: use \
                 a smaller 'model.context' or 'data.probe', or a longer text",
                self.probe
            )));
        };
        if validation <= columns {
            return Err(Error::data(format!(
                "{validation} validation tokens are no window of {columns} and the token after it: use a smaller \
                 'model.context'"
            )));
        }
        if u32::try_from(first).is_err() {
            return Err(Error::data(format!(
                "{first} training tokens are more than can be numbered: 2^32 at most"
            )));
        }
        let windows = |part, range, stride| Windows { text: Arc::clone(self), part, range, columns, stride };
        Ok(Cut {
            // The last token here is the first that the probe reads, which does not judge it.
            train: windows(Part::Train, 0..first, 1),
            probe: windows(Part::Train, first - 1..train, columns),
            validation: windows(Part::Validation, 0..validation, columns),
        })
    }
}

impl Windows {
    fn tokens(&self) -> &[u16] {
        &self.text.tokens.part(self.part)[self.range.clone()]
    }

    /// How many there are: at least one.
    pub fn count(&self) -> usize {
        (self.range.len() - 1 - self.columns) / self.stride + 1
    }

    /// Tokens of each.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The tokens of window `index`.
    pub fn inputs(&self, index: usize) -> &[u16] {
        &self.tokens()[index * self.stride..][..self.columns]
    }

    /// The token after each of them.
    pub fn targets(&self, index: usize) -> &[u16] {
        &self.tokens()[index * self.stride + 1..][..self.columns]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::rust_slice;

    fn text(train: u16, validation: u16, probe: usize) -> Arc<Text> {
        let tokens = Tokens::new(1000, (0..train).collect(), (500..500 + validation).collect());
        Arc::new(Text::new(tokens.unwrap(), probe))
    }

    #[test]
    fn windows_reach_every_token_and_no_token_is_judged_in_two_parts() {
        let cut = text(100, 33, 3).cut(8).unwrap();
        let judged = |windows: &Windows| -> Vec<u16> {
            let mut seen: Vec<u16> =
                (0..windows.count()).flat_map(|index| windows.targets(index).to_vec()).collect();
            seen.sort_unstable();
            seen
        };
        let (mut train, probe) = (judged(&cut.train), judged(&cut.probe));
        train.dedup();
        assert_eq!(train, (1..76).collect::<Vec<u16>>());
        assert_eq!(probe, (76..100).collect::<Vec<u16>>());
        assert_eq!(judged(&cut.validation), (501..533).collect::<Vec<u16>>());
        assert_eq!([cut.train.count(), cut.probe.count(), cut.validation.count()], [68, 3, 4]);
        assert_eq!(cut.train.inputs(5), (5..13).collect::<Vec<u16>>());
        assert_eq!(cut.train.targets(5), (6..14).collect::<Vec<u16>>());
    }

    #[test]
    fn the_slice_gives_windows_and_what_follows_them() {
        let text = Arc::new(Text::new(rust_slice().unwrap(), 8));
        assert_eq!(text.tokens().vocabulary(), 50_257);
        let cut = text.cut(32).unwrap();
        for index in [0, 7, cut.train.count() - 1] {
            assert_eq!(cut.train.inputs(index)[1..], cut.train.targets(index)[..31]);
        }
        assert!(cut.train.count() > 5000 && cut.validation.count() > 3, "{cut:?}");
    }

    #[test]
    fn windows_that_do_not_fit_are_refused() {
        let said = |text: &Arc<Text>, columns| text.cut(columns).unwrap_err().to_string();
        for (probe, columns) in [(3, 0), (0, 8), (12, 8), (3, usize::MAX), (usize::MAX, 8)] {
            let said = said(&text(100, 33, probe), columns);
            assert!(said.contains("100 training tokens leave none"), "{said}");
        }
        assert!(said(&text(100, 8, 1), 8).contains("8 validation tokens are no window of 8"));
        assert!(text(100, 9, 1).cut(8).is_ok());
    }
}
