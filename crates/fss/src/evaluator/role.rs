//! What each role holds.

use std::cell::RefCell;

use crate::backend::{DealerKeys, PartyKeys};
use crate::party::Party;

/// Who runs a circuit.
pub(crate) enum Role {
    /// The integer specification, on plain values.
    Clear,
    /// Knows every mask and no value.
    Dealer(RefCell<Box<dyn DealerKeys>>),
    /// Knows its keys and masked values.
    Party(Party, RefCell<Box<dyn PartyKeys>>),
    /// Knows only shapes.
    Estimate,
}
