//! Words of a tensor.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::formula::{Operand, Source, Tape, Word};
use crate::ring::Ring;
use crate::secret::Secret;

use super::{Backend, Handle, Sums};

/// Words that lie where their backend keeps them, or only their number: an estimate has none, and a party
/// none of the other's.
///
/// Words do not change once they are made. Clones share them.
#[derive(Clone)]
pub struct Words {
    len: usize,
    kept: Option<(Arc<dyn Backend>, Handle)>,
}

impl Words {
    /// Only a number of words.
    pub fn absent(len: usize) -> Self {
        Self { len, kept: None }
    }

    /// Words that a backend made.
    pub(crate) fn new(backend: &Arc<dyn Backend>, len: usize, handle: Handle) -> Self {
        Self { len, kept: Some((backend.clone(), handle)) }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none to have.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn into_handle(self) -> Option<Handle> {
        self.kept.map(|(_, handle)| handle)
    }

    /// Where they are kept, which must be somewhere.
    pub(crate) fn present(&self) -> Result<&Handle> {
        self.handle().ok_or(Error::Absent)
    }

    /// Waits for the words and brings them to the host.
    pub fn download(&self) -> Result<Secret<u64>> {
        let (backend, handle) = self.kept.as_ref().ok_or(Error::Absent)?;
        backend.download(handle)
    }

    /// `len` words of a formula that reads these, reduced to a ring; only the number if these are absent.
    pub(crate) fn derive(
        &self,
        len: usize,
        ring: Ring,
        word: impl for<'t> FnOnce(&'t Tape) -> Word<'t>,
    ) -> Result<Self> {
        match &self.kept {
            Some((backend, _)) => compute(backend, len, ring, word),
            None => Ok(Self::absent(len)),
        }
    }

    /// Sums of these words.
    pub(crate) fn sums(&self, sums: Sums<'_>, ring: Ring) -> Result<Self> {
        let count = sums.count(self.len);
        let Some((backend, handle)) = &self.kept else { return Ok(Self::absent(count)) };
        Ok(Self::new(backend, count, backend.sums(handle, sums, ring)?))
    }

    /// One after the other. Where lengths alone are known of one part, no more is known of the whole.
    pub(crate) fn concat(parts: &[&Self]) -> Result<Self> {
        let len = parts.iter().map(|part| part.len).sum();
        let handles: Option<Vec<&Handle>> = parts.iter().map(|part| part.handle()).collect();
        let backend = parts.iter().find_map(|part| part.kept.as_ref().map(|(backend, _)| backend));
        match (handles, backend) {
            (Some(handles), Some(backend)) => Ok(Self::new(backend, len, backend.concat(&handles)?)),
            _ => Ok(Self::absent(len)),
        }
    }
}

impl Source for Words {
    fn handle(&self) -> Option<&Handle> {
        self.kept.as_ref().map(|(_, handle)| handle)
    }

    fn count(&self) -> usize {
        self.len
    }
}

/// Never the words: they may be secret.
impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.kept.as_ref().map_or("nowhere".to_owned(), |(backend, _)| backend.name());
        write!(f, "Words({}, {place})", self.len)
    }
}

/// `len` words of a formula, reduced to a ring.
pub(crate) fn compute(
    backend: &Arc<dyn Backend>,
    len: usize,
    ring: Ring,
    word: impl for<'t> FnOnce(&'t Tape) -> Word<'t>,
) -> Result<Words> {
    let tape = Tape::default();
    let (formula, operands) = (word(&tape) & ring.mask()).finish().ok_or(Error::Absent)?;
    let reads = |operand: &Operand| operand.view.covers(len) && operand.view.needs(len) <= operand.len;
    if let Some(operand) = operands.iter().find(|operand| !reads(operand)) {
        let what = format!("it reads {} of {} words", operand.view.needs(len), operand.len);
        return Err(Error::Shape { gate: "a formula", what });
    }
    Ok(Words::new(backend, len, backend.compute(&formula, &operands, len)?))
}
