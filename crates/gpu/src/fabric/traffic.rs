//! Bytes that went from rank to rank.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that were moved, by link: from one rank to another. What a rank copies to itself is on no
/// link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    ranks: usize,
    bytes: Vec<u64>,
}

impl Traffic {
    /// Bytes from a rank to another; 0 for ranks that are not there.
    pub fn bytes(&self, from: usize, to: usize) -> u64 {
        if from < self.ranks && to < self.ranks { self.bytes[from * self.ranks + to] } else { 0 }
    }

    /// Bytes over all links.
    pub fn total(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// The links that carried anything: from, to, bytes.
    pub fn links(&self) -> impl Iterator<Item = (usize, usize, u64)> + '_ {
        let link = |(index, &bytes)| (index / self.ranks, index % self.ranks, bytes);
        self.bytes.iter().enumerate().map(link).filter(|&(.., bytes)| bytes > 0)
    }

    /// The traffic since an earlier reading of the same fabric.
    pub fn since(&self, earlier: &Traffic) -> Traffic {
        let moved = |(now, before): (&u64, &u64)| now.saturating_sub(*before);
        Traffic { ranks: self.ranks, bytes: self.bytes.iter().zip(&earlier.bytes).map(moved).collect() }
    }
}

/// Counters that all ranks add to: those of a fabric, or of a program that copies between devices by itself.
#[derive(Debug)]
pub struct Meter {
    ranks: usize,
    bytes: Vec<AtomicU64>,
}

impl Meter {
    /// Counters for so many ranks.
    pub fn new(ranks: usize) -> Self {
        Self { ranks, bytes: (0..ranks * ranks).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Counts bytes that go from one rank to another; those from a rank to itself are on no link.
    pub fn add(&self, from: usize, to: usize, bytes: usize) {
        if from != to {
            self.bytes[from * self.ranks + to].fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// What was counted so far.
    pub fn read(&self) -> Traffic {
        let bytes = self.bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).collect();
        Traffic { ranks: self.ranks, bytes }
    }
}
