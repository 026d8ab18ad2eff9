//! What shows that a benchmark's candidate did its work while it was timed.

use bytemuck::Pod;
use gatework_gpu::{Buffer, Result, Stream};

use crate::budget::ErrorBudget;
use crate::case::RunError;
use crate::tensor::Outputs;

/// Elements at either end of an output that [`read_ends`] looks at.
pub const END: usize = 4096;

/// The output of what is timed: how to spoil it before a run, how to read it after, and what it should be.
///
/// The lab spoils the output before a sample that it picks at random, and before one more at the end, and
/// judges what the timed runs left. A candidate that does nothing, does it once, or does something else than
/// what was gated, fails.
pub struct Evidence {
    budget: ErrorBudget,
    spoil: Spoil,
    outputs: Read,
    expected: Expected,
}

type Spoil = Box<dyn FnMut(&Stream) -> Result<(), RunError>>;
type Read = Box<dyn FnMut(&Stream) -> Result<Outputs, RunError>>;
type Expected = Box<dyn FnMut(u32) -> Result<Outputs, RunError>>;

impl Evidence {
    /// Outputs that `outputs` reads and `spoil` spoils. `expected` says what they are after so many runs on
    /// spoiled ones: all of an output, or as much of it as a plain reference can follow.
    pub fn new(
        budget: ErrorBudget,
        spoil: impl FnMut(&Stream) -> Result<(), RunError> + 'static,
        outputs: impl FnMut(&Stream) -> Result<Outputs, RunError> + 'static,
        expected: impl FnMut(u32) -> Result<Outputs, RunError> + 'static,
    ) -> Self {
        Self { budget, spoil: Box::new(spoil), outputs: Box::new(outputs), expected: Box::new(expected) }
    }

    /// Spoils the output, and waits until it is.
    pub(crate) fn spoil(&mut self, stream: &Stream) -> Result<(), RunError> {
        stream.device().synchronize()?;
        (self.spoil)(stream)?;
        Ok(stream.device().synchronize()?)
    }

    /// What is wrong with the output of `runs` runs, as a sentence.
    pub(crate) fn refusal(&mut self, stream: &Stream, runs: u32) -> Result<Option<String>, RunError> {
        stream.device().synchronize()?;
        let (found, expected) = ((self.outputs)(stream)?, (self.expected)(runs)?);
        if let Some(why) = expected.emptiness() {
            return Ok(Some(format!("its evidence says nothing: {why}")));
        }
        let refused = self.budget.judge(&found, &expected).refused;
        Ok(refused.map(|why| format!("what was timed did not compute the result: {why}")))
    }
}

/// The places of an output of `len` elements that [`read_ends`] reads, in its order.
pub fn ends(len: usize) -> impl Iterator<Item = usize> + Clone {
    (0..len.min(END)).chain(len.saturating_sub(END).max(len.min(END))..len)
}

/// Up to [`END`] elements from either end.
pub fn read_ends<T: Pod>(stream: &Stream, buffer: &Buffer<T>) -> Result<Vec<T>> {
    let first = buffer.len().min(END);
    let mut elements = stream.download(&buffer.slice(..first))?;
    let rest = buffer.len().saturating_sub(END).max(first);
    if rest < buffer.len() {
        elements.extend(stream.download(&buffer.slice(rest..))?);
    }
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_read_and_no_element_twice() {
        let stream = gatework_gpu::Device::emulated(0).unwrap().stream().unwrap();
        for len in [1, END, END + 1, 2 * END, 2 * END + 5] {
            let all: Vec<u32> = (0..len as u32).collect();
            let read = read_ends(&stream, &stream.upload(&all).unwrap()).unwrap();
            let expected: Vec<u32> = ends(len).map(|index| index as u32).collect();
            assert_eq!(read, expected);
            assert!(read.windows(2).all(|pair| pair[0] < pair[1]) && read.last() == all.last());
        }
    }
}
