//! What a fabric asks of the place where its ranks keep their data.

use std::time::Duration;

use bytemuck::Pod;

use super::fold::{Element, Operation};
use crate::Result;

/// Bytes that a rank takes from what another offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pull {
    /// Whose.
    pub from: usize,
    /// Where they start there.
    pub source: usize,
    /// Where they go.
    pub target: usize,
    /// How many.
    pub bytes: usize,
}

/// All data movement of one operation.
pub struct Journey<'a, O> {
    /// Who carries it out.
    pub me: usize,
    /// Who takes part.
    pub members: &'a [usize],
    /// The offers of all members, in their order.
    pub offers: &'a [O],
    /// The pulls of each rank, always in the same order.
    pub plan: &'a dyn Fn(usize) -> Vec<Pull>,
}

impl<O> Journey<'_, O> {
    /// The offer of a member.
    pub fn offer(&self, rank: usize) -> Option<&O> {
        self.offers.get(self.members.iter().position(|&member| member == rank)?)
    }
}

/// Where the ranks of a fabric keep their data: [`Devices`](super::Devices) or [`Host`](super::Host). Nothing
/// else implements it; code that runs on both is generic over it.
pub trait Place: Sealed + Sized {
    /// In whose order the operations of a rank run: a stream, or nothing for ranks that are threads.
    type Order;
    /// Elements that a rank reads.
    type Read<'a, T: Pod>;
    /// Elements that a rank writes.
    type Write<'a, T: Pod>;
    /// Memory of the fabric's own.
    #[doc(hidden)]
    type Own<T: Pod>;
    /// Memory to be read by others, from the point in this rank's order where that may begin; or such a point
    /// alone.
    #[doc(hidden)]
    type Offer: Clone + Send;

    #[doc(hidden)]
    fn len<T: Pod>(from: &Self::Read<'_, T>) -> usize;
    #[doc(hidden)]
    fn len_mut<T: Pod>(to: &Self::Write<'_, T>) -> usize;
    #[doc(hidden)]
    fn as_read<'a, T: Pod>(to: &'a Self::Write<'_, T>) -> Self::Read<'a, T>;

    #[doc(hidden)]
    fn own<T: Pod>(&self, order: &Self::Order, len: usize) -> Result<Self::Own<T>>;
    #[doc(hidden)]
    fn read_own<T: Pod>(own: &Self::Own<T>) -> Self::Read<'_, T>;
    #[doc(hidden)]
    fn write_own<T: Pod>(own: &mut Self::Own<T>) -> Self::Write<'_, T>;

    /// Lets other ranks read what this one has written so far.
    #[doc(hidden)]
    fn offer<T: Pod>(&self, order: &Self::Order, from: Option<Self::Read<'_, T>>) -> Result<Self::Offer>;
    /// Moves what this rank takes, and what it must send where the others cannot fetch it. Gives the point
    /// after which it reads nothing of theirs.
    #[doc(hidden)]
    fn carry<T: Pod>(
        &self,
        order: &Self::Order,
        journey: &Journey<'_, Self::Offer>,
        to: Option<Self::Write<'_, T>>,
    ) -> Result<Self::Offer>;
    /// What this rank does from now on comes after these points, where others have read what it offered.
    #[doc(hidden)]
    fn follow(&self, order: &Self::Order, points: &[&Self::Offer], mine: &Self::Offer) -> Result<()>;
    /// Folds rows into one, from the first to the last.
    #[doc(hidden)]
    fn fold<T: Element>(
        &self,
        order: &Self::Order,
        operation: Operation,
        from: Self::Read<'_, T>,
        to: Self::Write<'_, T>,
    ) -> Result<()>;
    /// Waits until everything of this order is done, or that long: whether it is.
    #[doc(hidden)]
    fn settle(&self, order: &Self::Order, deadline: Duration) -> Result<bool>;
    /// The fabric is lost: nothing of it may go on for ever.
    #[doc(hidden)]
    fn abandon(&self);
}

/// Keeps other crates from implementing [`Place`].
pub trait Sealed {}
