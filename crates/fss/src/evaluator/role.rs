//! What each role holds.

use std::cell::RefCell;

use crate::backend::DealerKeys;
use crate::party::Party;

use super::ahead::{Ask, KeysAhead};

/// Who runs a circuit.
pub(crate) enum Role {
    /// The integer specification, on plain values.
    Clear,
    /// Knows every mask and no value.
    Dealer(RefCell<Box<dyn DealerKeys>>),
    /// Knows its keys and masked values.
    Party(Party, RefCell<KeysAhead>),
    /// Knows only shapes.
    Estimate,
    /// Knows only shapes, and notes what parties ask of their keys: both, or one alone.
    Scout(RefCell<Vec<(Option<Party>, Ask)>>),
}
