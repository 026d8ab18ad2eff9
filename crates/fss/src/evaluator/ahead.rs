//! A party's key material, some of it made ready before a gate asks for it.
//!
//! What a circuit asks of its keys depends on shapes alone, so that it is known before. While the other
//! party's message is on its way, a party makes ready what it will need when it has come.

use std::collections::VecDeque;

use crate::backend::{Handle, PartyKeys};
use crate::error::{Error, Result};
use crate::ring::Ring;

/// Key material that a gate asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// [`PartyKeys::derived`].
    Derived { len: usize, ring: Ring },
    /// [`PartyKeys::derived_alone`].
    DerivedAlone { len: usize, ring: Ring },
    /// [`PartyKeys::shares`].
    Shares { len: usize, ring: Ring },
    /// [`PartyKeys::given`].
    Given { len: usize, ring: Ring },
    /// [`PartyKeys::points`].
    Points { domain: u32, len: usize },
}

impl Ask {
    fn of(self, keys: &mut dyn PartyKeys) -> Result<Handle> {
        match self {
            Self::Derived { len, ring } => keys.derived(len, ring),
            Self::DerivedAlone { len, ring } => keys.derived_alone(len, ring),
            Self::Shares { len, ring } => keys.shares(len, ring),
            Self::Given { len, ring } => keys.given(len, ring),
            Self::Points { domain, len } => keys.points(domain, len),
        }
    }

    /// Words that it takes, about: a level of a tree has two.
    fn words(self) -> usize {
        match self {
            Self::Derived { len, .. }
            | Self::DerivedAlone { len, .. }
            | Self::Shares { len, .. }
            | Self::Given { len, .. } => len,
            Self::Points { domain, len } => 2 * domain as usize * len,
        }
    }
}

/// Keys in the order in which they were dealt, of which the next ones may be ready.
pub(crate) struct KeysAhead {
    keys: Box<dyn PartyKeys>,
    ready: VecDeque<(Ask, Handle)>,
    /// What will be asked for after that.
    foreseen: VecDeque<Ask>,
}

impl KeysAhead {
    pub(crate) fn new(keys: Box<dyn PartyKeys>) -> Self {
        Self { keys, ready: VecDeque::new(), foreseen: VecDeque::new() }
    }

    /// The material itself, to count.
    pub(crate) fn keys(&self) -> &dyn PartyKeys {
        &*self.keys
    }

    /// The same, to ask for what no script has.
    pub(crate) fn keys_mut(&mut self) -> &mut dyn PartyKeys {
        &mut *self.keys
    }

    /// What a gate asks for.
    pub(crate) fn get(&mut self, ask: Ask) -> Result<Handle> {
        if let Some((foreseen, handle)) = self.ready.pop_front() {
            return if foreseen == ask { Ok(handle) } else { Err(unforeseen(foreseen, ask)) };
        }
        match self.foreseen.pop_front() {
            Some(foreseen) if foreseen != ask => Err(unforeseen(foreseen, ask)),
            _ => ask.of(&mut *self.keys),
        }
    }

    /// Pieces of material that were foreseen, and that no gate has asked for.
    pub(crate) fn not_asked_for(&self) -> u64 {
        (self.ready.len() + self.foreseen.len()) as u64
    }

    /// Takes down what will be asked for.
    pub(crate) fn foresee(&mut self, asks: impl IntoIterator<Item = Ask>) {
        self.foreseen.extend(asks);
    }

    /// Makes ready what is foreseen, as long as no more than so many words are.
    pub(crate) fn make_ready(&mut self, most: usize) -> Result<()> {
        let mut words = self.ready.iter().map(|(ask, _)| ask.words()).sum::<usize>();
        while let Some(&ask) = self.foreseen.front() {
            words += ask.words();
            if words > most {
                break;
            }
            let handle = ask.of(&mut *self.keys)?;
            self.foreseen.pop_front();
            self.ready.push_back((ask, handle));
        }
        Ok(())
    }
}

fn unforeseen(foreseen: Ask, ask: Ask) -> Error {
    Error::Key { what: format!("a gate asks for {ask:?} where {foreseen:?} was foreseen") }
}
