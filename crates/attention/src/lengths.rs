//! Lengths of packed sequences.

use std::ops::Range;

use crate::{Error, Result};

/// Where packed sequences begin and end: what other libraries call `cu_seqlens`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lengths {
    /// Query rows before each sequence, and after the last.
    rows: Vec<usize>,
    /// Keys before each sequence, and after the last.
    keys: Vec<usize>,
}

impl Lengths {
    /// From the rows and the keys before each sequence and after the last, as `[0, 5, 5, 12]` for three
    /// sequences of 5, 0 and
    /// 7. A sequence may have no rows, or no keys.
    pub fn new(rows: &[usize], keys: &[usize]) -> Result<Self> {
        for (name, starts) in [("rows", rows), ("keys", keys)] {
            check_starts(name, starts)?;
        }
        if rows.len() != keys.len() {
            let (rows, keys) = (rows.len() - 1, keys.len() - 1);
            return Err(Error::Lengths {
                what: format!("there are rows of {rows} sequences and keys of {keys}"),
            });
        }
        Ok(Self { rows: rows.to_vec(), keys: keys.to_vec() })
    }

    /// As many keys as rows in each sequence.
    pub fn square(starts: &[usize]) -> Result<Self> {
        Self::new(starts, starts)
    }

    /// The number of sequences.
    pub fn sequences(&self) -> usize {
        self.rows.len() - 1
    }

    /// Query rows of all sequences.
    pub fn rows(&self) -> usize {
        self.rows.last().copied().unwrap_or(0)
    }

    /// Keys of all sequences.
    pub fn keys(&self) -> usize {
        self.keys.last().copied().unwrap_or(0)
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = (Range<usize>, Range<usize>)> + '_ {
        let ranges = |starts: &[usize]| starts.windows(2).map(|pair| pair[0]..pair[1]).collect::<Vec<_>>();
        ranges(&self.rows).into_iter().zip(ranges(&self.keys))
    }
}

fn check_starts(name: &str, starts: &[usize]) -> Result<()> {
    let refuse = |what: String| Err(Error::Lengths { what });
    match starts {
        [] => refuse(format!("{name} are empty; without a sequence they are [0]")),
        [0, ..] => match starts.windows(2).position(|pair| pair[0] > pair[1]) {
            Some(at) => refuse(format!(
                "{name} go down from {} to {} after sequence {at}; they must not",
                starts[at],
                starts[at + 1]
            )),
            None => Ok(()),
        },
        [first, ..] => refuse(format!("{name} begin with {first}; they must begin with 0")),
    }
}
