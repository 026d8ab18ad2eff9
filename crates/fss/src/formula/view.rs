//! Which word of an operand belongs to which word of a result.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use gatework_gpu::Locked;

use crate::error::{Error, Result};

/// The word that is read for the word `i` of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum View {
    /// i.
    Whole,
    /// start + i.
    From(usize),
    /// ⌊i / times⌋: every word `times` times in a row.
    Each(usize),
    /// i mod period: the first words over and over.
    Cycle(usize),
    /// places\[i\]; zero where there is none.
    Places(Places),
}

impl View {
    /// The place that is read for word `index` of the result, if any.
    pub fn place(&self, index: usize) -> Option<usize> {
        match self {
            Self::Whole => Some(index),
            Self::From(start) => Some(start + index),
            Self::Each(times) => Some(index / times),
            Self::Cycle(period) => Some(index % period),
            Self::Places(places) => places.get(index),
        }
    }

    /// Whether it names a word for every word of a result of `len`.
    pub(crate) fn covers(&self, len: usize) -> bool {
        match self {
            Self::Whole | Self::From(_) => true,
            Self::Each(count) | Self::Cycle(count) => *count > 0,
            Self::Places(places) => places.len() == len,
        }
    }

    /// Words that an operand must have for a result of `len`.
    pub(crate) fn needs(&self, len: usize) -> usize {
        match self {
            Self::Whole => len,
            Self::From(start) => start + len,
            Self::Each(times) => len.div_ceil(*times),
            Self::Cycle(period) => len.min(*period),
            Self::Places(places) => places.end,
        }
    }
}

/// Public places in a tensor. Clones share them, so that a backend can keep its copy.
#[derive(Debug, Clone)]
pub struct Places {
    places: Arc<[u32]>,
    /// One more than the largest.
    end: usize,
    nowhere: bool,
}

/// A place that is nowhere: what is read there is zero.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// Places that are kept together, at most: of 4 bytes each.
const MOST_KEPT: usize = 1 << 26;

/// What [`Places::of_shape`] made, and how many places those are.
#[derive(Default)]
struct Kept {
    places: HashMap<(&'static str, Vec<usize>), Places>,
    words: usize,
}

impl Places {
    /// These places, each of which is below 2^32 − 1.
    pub fn new(places: impl IntoIterator<Item = usize>) -> Result<Self> {
        Self::of(places.into_iter().map(Some))
    }

    /// The same, where a place that is `None` reads zero.
    pub fn of(places: impl IntoIterator<Item = Option<usize>>) -> Result<Self> {
        let (mut end, mut nowhere) = (0, false);
        let place = |place: Option<usize>| {
            let Some(place) = place else {
                nowhere = true;
                return Ok(NOWHERE);
            };
            end = end.max(place.saturating_add(1));
            let far = || Error::Shape { gate: "gathering", what: format!("{place} is too far for a place") };
            u32::try_from(place).ok().filter(|&place| place != NOWHERE).ok_or_else(far)
        };
        let places = places.into_iter().map(place).collect::<Result<Vec<u32>>>()?;
        Ok(Self { places: places.into(), end, nowhere })
    }

    /// Places that follow from a shape and from what they are for, and from nothing else: made once and kept,
    /// since every layer of a model asks for the same.
    pub fn of_shape(
        what: &'static str,
        shape: &[usize],
        make: impl FnOnce() -> Result<Self>,
    ) -> Result<Self> {
        static KEPT: LazyLock<Locked<Kept>> = LazyLock::new(Locked::default);
        if let Some(found) = KEPT.lock().places.get(&(what, shape.to_vec())) {
            return Ok(found.clone());
        }
        let made = make()?;
        // A shape takes two words a side.
        let words = made.len() + 2 * shape.len();
        if words > MOST_KEPT {
            return Ok(made);
        }
        let mut kept = KEPT.lock();
        if kept.words + words > MOST_KEPT {
            *kept = Kept::default();
        }
        if kept.places.insert((what, shape.to_vec()), made.clone()).is_none() {
            kept.words += words;
        }
        Ok(made)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The place of word `index`, if it has one.
    pub fn get(&self, index: usize) -> Option<usize> {
        let place = self.places[index];
        (place != NOWHERE).then_some(place as usize)
    }

    /// One more than the largest place.
    pub fn end(&self) -> usize {
        self.end
    }

    /// The places as they are kept, nowhere as [`NOWHERE`].
    pub(crate) fn shared(&self) -> &Arc<[u32]> {
        &self.places
    }

    /// Whether a place is nowhere.
    pub(crate) fn some_nowhere(&self) -> bool {
        self.nowhere
    }
}

impl PartialEq for Places {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.places, &other.places) || self.places == other.places
    }
}

impl Eq for Places {}
