//! Key streams: one section for each job.
//!
//! A section is a seed and key material in the order in which its circuit asks for it: of every array of
//! shares and of truth tables the half that the party does not derive, packed to its bits and filled up to a
//! byte; and the correction words of trees, which are the same for both parties, in tiles. All numbers are
//! little-endian.

mod layout;
mod material;
mod stream;

pub(crate) use layout::{point_cost, share_cost, stored, stored_by_zero, table_layout};
pub use material::{KeySink, Material, Pieces};
pub use stream::{KeySection, KeyStream};
