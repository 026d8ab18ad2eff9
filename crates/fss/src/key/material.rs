//! Where key material comes from and goes to.

use std::collections::VecDeque;

use crate::error::{Error, Result};
use crate::secret::{Secret, SharedBytes, copy_on_all_cores};

/// Where a party's key material comes from, in the order in which it was dealt.
pub trait Material: Send + Sync {
    /// The next `count` bytes, all of which exist.
    fn take(&mut self, count: usize) -> Result<SharedBytes>;

    /// The next bytes, as many as there is room for, all of which exist.
    fn read(&mut self, bytes: &mut [u8]) -> Result<()> {
        copy_on_all_cores(bytes, self.take(bytes.len())?.as_slice());
        Ok(())
    }
}

/// Where one party's key material goes while it is dealt.
pub trait KeySink: Send {
    /// Appends key material, which is secret.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Appends key material that may stay where it is.
    fn keep(&mut self, bytes: SharedBytes) -> Result<()> {
        self.write(bytes.as_slice())
    }

    /// Whether it would rather keep memory than copy what is in it.
    fn keeps(&self) -> bool {
        false
    }
}

/// A buffer that has room for all of it: one that grew would leave secrets behind.
impl KeySink for Secret<u8> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.append(bytes);
        Ok(())
    }
}

/// Material that is all in memory: what is taken is what is left of it.
impl Material for SharedBytes {
    fn take(&mut self, count: usize) -> Result<SharedBytes> {
        Ok(self.take_front(count))
    }
}

/// Key material in memory, in pieces: each where whoever dealt it had put it, or copied if that was short.
#[derive(Default)]
pub struct Pieces {
    whole: VecDeque<SharedBytes>,
    /// What was copied since the last of them.
    copied: Secret<u8>,
    length: u64,
}

/// Bytes of memory for what is copied: pieces that grow would leave secrets behind.
const COPIED: usize = 1 << 20;

impl Pieces {
    /// Bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    fn close(&mut self) {
        if !self.copied.is_empty() {
            self.whole.push_back(SharedBytes::new(std::mem::take(&mut self.copied)));
        }
    }

    /// No more is written: what is there can be read.
    pub fn finished(mut self) -> Self {
        self.close();
        self
    }
}

impl KeySink for Pieces {
    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.length += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.copied.capacity() == 0 {
                self.copied = Secret::with_capacity(COPIED.max(bytes.len()));
            }
            let room = self.copied.capacity() - self.copied.len();
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.copied.append(now);
            bytes = later;
            if self.copied.len() == self.copied.capacity() {
                self.close();
            }
        }
        Ok(())
    }

    fn keep(&mut self, bytes: SharedBytes) -> Result<()> {
        self.close();
        self.length += bytes.len() as u64;
        self.whole.push_back(bytes);
        Ok(())
    }

    fn keeps(&self) -> bool {
        true
    }
}

impl Material for Pieces {
    fn take(&mut self, count: usize) -> Result<SharedBytes> {
        // What lies in one piece stays where it is.
        match self.whole.front_mut() {
            Some(first) if first.len() >= count => {
                let taken = first.take_front(count);
                if first.is_empty() {
                    self.whole.pop_front();
                }
                Ok(taken)
            }
            _ => {
                let mut taken = Secret::new(vec![0; count]);
                self.read(&mut taken)?;
                Ok(SharedBytes::new(taken))
            }
        }
    }

    fn read(&mut self, mut bytes: &mut [u8]) -> Result<()> {
        while !bytes.is_empty() {
            let none = || Error::Key { what: format!("it is {} bytes too short", bytes.len()) };
            let first = self.whole.front_mut().ok_or_else(none)?;
            let (now, later) = bytes.split_at_mut(first.len().min(bytes.len()));
            copy_on_all_cores(now, first.take_front(now.len()).as_slice());
            if first.is_empty() {
                self.whole.pop_front();
            }
            bytes = later;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_out_as_one() {
        let mut state = 3u64;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(7);
            (state >> 33) as usize % below
        };
        for _ in 0..20 {
            let (mut pieces, mut all) = (Pieces::default(), Vec::new());
            for _ in 0..30 {
                let bytes: Vec<u8> = (0..random(5) * random(COPIED / 4)).map(|_| random(256) as u8).collect();
                all.extend_from_slice(&bytes);
                match random(2) {
                    0 => pieces.write(&bytes).unwrap(),
                    _ => pieces.keep(SharedBytes::new(Secret::new(bytes))).unwrap(),
                }
            }
            assert_eq!(pieces.length(), all.len() as u64);
            let (mut pieces, mut found) = (pieces.finished(), Vec::new());
            while found.len() < all.len() {
                let count = (1 + random(COPIED)).min(all.len() - found.len());
                found.extend_from_slice(pieces.take(count).unwrap().as_slice());
            }
            assert!(found == all);
            assert!(pieces.take(1).is_err());
        }
    }
}
