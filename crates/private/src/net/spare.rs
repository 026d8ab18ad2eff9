//! Memory of messages that were sent or read, for messages that arrive.
//!
//! Fresh memory of some megabytes costs more than a copy of as many: the system hands it out page by page,
//! each cleared first. Rounds send about as much as they receive.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use gatework_fss::Message;

/// Buffers that are kept.
const MOST: usize = 8;
/// Shorter ones are not worth it.
const SHORTEST: usize = 1 << 16;

/// Buffers of messages that were sent.
#[derive(Default)]
pub(super) struct Spare(Mutex<Vec<Vec<u8>>>);

impl Spare {
    /// Takes a message back of which all parts were sent; not yet, if others still send theirs. Buffers of
    /// more than `most` bytes together are not kept.
    pub(super) fn give(&self, message: Arc<Message>, most: u64) {
        let Some(buffer) = Arc::into_inner(message)
            .and_then(Message::into_own_vec)
            .filter(|buffer| buffer.len() >= SHORTEST)
        else {
            return;
        };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = kept.iter().map(Vec::capacity).sum::<usize>() + buffer.capacity();
        if kept.len() < MOST && bytes as u64 <= most {
            kept.push(buffer);
        }
    }

    /// Keeps none.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// So many bytes, whatever they are.
    pub(super) fn take(&self, bytes: usize) -> BytesMut {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |buffer: &Vec<u8>| buffer.len() >= bytes && buffer.len() / 2 <= bytes;
        let found = kept.iter().position(fits).map(|place| kept.swap_remove(place));
        drop(kept);
        match found {
            Some(mut buffer) => {
                buffer.truncate(bytes);
                BytesMut::from(Bytes::from(buffer))
            }
            None => BytesMut::zeroed(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_without_a_copy() {
        let (spare, message) = (Spare::default(), Arc::new(Message::from(vec![1; 100_000])));
        let place = message.as_ptr();
        spare.give(message.clone(), 1 << 20);
        spare.give(message, 1 << 20);
        let mut first = spare.take(90_000);
        assert_eq!((first.as_ptr(), first.len()), (place, 90_000));
        // As an assembly cuts and joins it.
        let second = first.split_off(40_000);
        first.unsplit(second);
        let whole: Vec<u8> = first.into();
        assert_eq!((whole.as_ptr(), whole.len()), (place, 90_000));
        assert!(spare.take(90_000).iter().all(|&byte| byte == 0), "there was one");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let spare = Spare::default();
        for _ in 0..100 {
            spare.give(Arc::new(vec![1; 100_000].into()), 250_000);
        }
        assert_eq!(spare.0.lock().unwrap().len(), 2);
        spare.give(Arc::new(vec![1; 100].into()), 1 << 20);
        assert_eq!(spare.0.lock().unwrap().len(), 2, "too short");
        spare.clear();
        assert!(spare.0.lock().unwrap().is_empty());
    }
}
