//! Ranks that are threads, with their data in ordinary memory.

use std::sync::Arc;
use std::time::Duration;

use bytemuck::Pod;

use super::fold::{Element, Operation};
use super::place::{Journey, Place, Sealed};
use crate::{Error, Result};

/// Ranks that are threads of this process: slices are read and written, and a call is over when it returns.
#[derive(Debug)]
pub struct Host {
    _private: (),
}

impl Host {
    pub(super) fn new() -> Self {
        Self { _private: () }
    }
}

impl Sealed for Host {}

impl Place for Host {
    type Order = ();
    type Read<'a, T: Pod> = &'a [T];
    type Write<'a, T: Pod> = &'a mut [T];
    type Own<T: Pod> = Vec<T>;
    /// A copy: the slice is its owner's again when the call returns, also with an error, while others may
    /// still read.
    type Offer = Arc<Vec<u8>>;

    fn len<T: Pod>(from: &&[T]) -> usize {
        from.len()
    }

    fn len_mut<T: Pod>(to: &&mut [T]) -> usize {
        to.len()
    }

    fn as_read<'a, T: Pod>(to: &'a &mut [T]) -> &'a [T] {
        to
    }

    fn own<T: Pod>(&self, (): &(), len: usize) -> Result<Vec<T>> {
        Ok(vec![T::zeroed(); len])
    }

    fn read_own<T: Pod>(own: &Vec<T>) -> &[T] {
        own
    }

    fn write_own<T: Pod>(own: &mut Vec<T>) -> &mut [T] {
        own
    }

    fn offer<T: Pod>(&self, (): &(), from: Option<&[T]>) -> Result<Self::Offer> {
        Ok(Arc::new(from.map(|from| bytemuck::cast_slice(from).to_vec()).unwrap_or_default()))
    }

    fn carry<T: Pod>(
        &self,
        (): &(),
        journey: &Journey<'_, Self::Offer>,
        to: Option<&mut [T]>,
    ) -> Result<Self::Offer> {
        let to: &mut [u8] = to.map(bytemuck::cast_slice_mut).unwrap_or_default();
        for pull in (journey.plan)(journey.me) {
            let source =
                journey.offer(pull.from).and_then(|offer| offer.get(pull.source..)?.get(..pull.bytes));
            let target = to.get_mut(pull.target..).and_then(|to| to.get_mut(..pull.bytes));
            let (Some(source), Some(target)) = (source, target) else {
                let message = format!("{pull:?} lies outside of what was offered or is written");
                return Err(Error::Length { call: "Fabric", message });
            };
            target.copy_from_slice(source);
        }
        Ok(Arc::default())
    }

    fn follow(&self, (): &(), _: &[&Self::Offer], _: &Self::Offer) -> Result<()> {
        Ok(())
    }

    fn fold<T: Element>(&self, (): &(), operation: Operation, from: &[T], to: &mut [T]) -> Result<()> {
        if to.is_empty() {
            return Ok(());
        }
        let mut rows = from.chunks_exact(to.len());
        if let Some(first) = rows.next() {
            to.copy_from_slice(first);
        }
        for row in rows {
            for (folded, &element) in to.iter_mut().zip(row) {
                *folded = T::combine(operation, *folded, element);
            }
        }
        Ok(())
    }

    fn settle(&self, (): &(), _: Duration) -> Result<bool> {
        Ok(true)
    }

    fn abandon(&self) {}
}
