//! What a circuit costs, counted.

use std::ops::{Add, AddAssign};

/// Costs of a circuit, party by party. Equal, to the byte, to what is written, sent and hashed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes of key material in each party's stream, without headers.
    pub key_bytes: [u64; 2],
    /// Bytes of opened shares that each party sends, without message headers.
    pub sent_bytes: [u64; 2],
    /// Bits of opened shares that each party sends.
    pub sent_bits: [u64; 2],
    /// Messages one after the other.
    pub rounds: u64,
    /// Calls of the pseudorandom generator by each party: blocks hashed in trees, and blocks of derived
    /// shares.
    pub prg_blocks: [u64; 2],
    /// Words that are opened, which is what a super-batch holds in memory.
    pub opened_words: u64,
}

impl Cost {
    /// The larger party's key bytes.
    pub fn larger_key_bytes(&self) -> u64 {
        self.key_bytes[0].max(self.key_bytes[1])
    }

    /// Key bytes of both parties together.
    pub fn all_key_bytes(&self) -> u64 {
        self.key_bytes[0] + self.key_bytes[1]
    }

    /// Bytes sent by both together.
    pub fn traffic_bytes(&self) -> u64 {
        self.sent_bytes[0] + self.sent_bytes[1]
    }
}

impl AddAssign for Cost {
    /// One circuit after the other: rounds add up.
    fn add_assign(&mut self, other: Self) {
        for party in 0..2 {
            self.key_bytes[party] += other.key_bytes[party];
            self.sent_bytes[party] += other.sent_bytes[party];
            self.sent_bits[party] += other.sent_bits[party];
            self.prg_blocks[party] += other.prg_blocks[party];
        }
        self.rounds += other.rounds;
        self.opened_words += other.opened_words;
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}
