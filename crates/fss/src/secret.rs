//! Buffers that are wiped when they go.

use std::ops::{Deref, DerefMut};

/// A vector whose whole allocation is overwritten before it is freed.
#[derive(Clone, Default)]
pub(crate) struct Secret<T: Copy + Default>(Vec<T>);

impl<T: Copy + Default> Secret<T> {
    pub(crate) fn new(values: Vec<T>) -> Self {
        Self(values)
    }

    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }
}

impl<T: Copy + Default> Drop for Secret<T> {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

/// Overwrites all that a vector has room for. The barrier keeps the stores, which nothing reads.
fn wipe<T: Copy + Default>(values: &mut Vec<T>) {
    let capacity = values.capacity();
    values.clear();
    values.resize(capacity, T::default());
    zeroize::optimization_barrier(values.as_slice());
}

impl<T: Copy + Default> Deref for Secret<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T: Copy + Default> DerefMut for Secret<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

impl<T: Copy + Default> FromIterator<T> for Secret<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wiping_covers_the_whole_allocation() {
        let mut values = vec![7u64; 100];
        values.truncate(10);
        let (capacity, place) = (values.capacity(), values.as_ptr());
        wipe(&mut values);
        assert_eq!(
            (values.len(), values.as_ptr()),
            (capacity, place),
            "it must not move to another allocation"
        );
        assert!(values.iter().all(|&value| value == 0));
    }
}
