//! What each role holds.

use std::cell::RefCell;
use std::sync::Arc;

use crate::backend::Backend;
use crate::key::{DealtSection, ReadSection};
use crate::party::Party;

/// Who runs a circuit.
pub(crate) enum Role {
    /// The integer specification, on plain values.
    Clear,
    /// Knows every mask and no value.
    Dealer(Box<RefCell<DealtSection>>),
    /// Knows its keys and masked values.
    Party(Box<PartyRole>),
    /// Knows only shapes.
    Estimate,
}

pub(crate) struct PartyRole {
    pub(crate) party: Party,
    pub(crate) keys: RefCell<ReadSection>,
    pub(crate) backend: Arc<dyn Backend>,
}
