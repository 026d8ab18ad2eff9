//! `GrindOps`: proof of work, with the nonce that `SimdBackend` finds.

use gatework_gpu::{ByValue, Code as _, args};
use stwo::core::channel::Blake2sChannelGeneric;
use stwo::core::proof_of_work::GrindOps;
use stwo::core::vcs::blake2_hash::Blake2sHasherGeneric;

use super::one_thread_each;
use crate::backend::CudaBackend;
use crate::error::{OrRaise as _, raise};
use crate::kernels;
use crate::queue::Queue;
use crate::shared::{DigestWords, NONCE_LOW_BITS};
use crate::{Error, element::Element as _};

/// Fewest and most tries of one launch.
const LOG_LEAST_TRIES: u32 = 8;
const LOG_MOST_TRIES: u32 = 24;

impl<const IS_M31_OUTPUT: bool> GrindOps<Blake2sChannelGeneric<IS_M31_OUTPUT>> for CudaBackend {
    /// The smallest nonce `(a << 32) | b` with b below 2^20 whose digest ends in `pow_bits` zeros.
    fn grind(channel: &Blake2sChannelGeneric<IS_M31_OUTPUT>, pow_bits: u32) -> u64 {
        if pow_bits > 32 {
            raise(Error::Unsupported {
                what: format!("{pow_bits} bits of work; 32 is the most that can be ground"),
            })
        }
        let prefix = prefix(channel, pow_bits);
        search(&Queue::current(), prefix, pow_bits, DigestWords::of(IS_M31_OUTPUT), 0)
    }
}

/// What every try hashes before its nonce.
fn prefix<const IS_M31_OUTPUT: bool>(
    channel: &Blake2sChannelGeneric<IS_M31_OUTPUT>,
    pow_bits: u32,
) -> [u32; 8] {
    let mut hasher = Blake2sHasherGeneric::<IS_M31_OUTPUT>::default();
    hasher.update(&Blake2sChannelGeneric::<IS_M31_OUTPUT>::POW_PREFIX.to_le_bytes());
    hasher.update(&[0; 12]);
    hasher.update(&channel.digest().0);
    hasher.update(&pow_bits.to_le_bytes());
    let mut words = Vec::new();
    hasher.finalize().write(&mut words);
    words.try_into().expect("a digest has eight words")
}

/// The nonce of the first try from `start` on.
fn search(queue: &Queue, prefix: [u32; 8], pow_bits: u32, words: DigestWords, start: u64) -> u64 {
    // Twice what is expected, so that most searches end with the first launch.
    let tries = 1u64 << (pow_bits + 1).clamp(LOG_LEAST_TRIES, LOG_MOST_TRIES);
    let mut found = queue.upload(&[u64::MAX]);
    for first in (start..).step_by(tries as usize) {
        let grid = one_thread_each(tries as usize);
        let arguments = args![ByValue(&prefix), first, tries, pow_bits, words.code(), &mut found];
        queue.launch(&kernels::GRIND, "grind", &grid, &arguments);
        let attempt = queue.stream().download(&found).or_raise()[0];
        if attempt != u64::MAX {
            return nonce(attempt);
        }
    }
    unreachable!("the tries are endless")
}

/// The nonce of a try.
fn nonce(attempt: u64) -> u64 {
    (attempt >> NONCE_LOW_BITS << 32) | (attempt & ((1 << NONCE_LOW_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use stwo::core::channel::{Blake2sChannel, Channel as _};

    use super::*;
    use crate::Context;

    /// Tries around 2^20, where the high word of the nonce moves on, held against stwo's own check of nonces.
    #[test]
    fn nonces_go_on_where_their_low_word_ends() {
        let context = Context::new(&gatework_gpu::Device::emulated(1).unwrap()).unwrap();
        for turn in 0..4 {
            let mut channel = Blake2sChannel::default();
            channel.mix_u64(turn);
            let (bits, start) = (9, (1 << 20) - 40);
            let found = context
                .scope(|| search(&Queue::current(), prefix(&channel, bits), bits, DigestWords::Plain, start));
            let host = (start..).map(nonce).find(|&nonce| channel.verify_pow_nonce(bits, nonce));
            assert_eq!(Some(found.unwrap()), host);
        }
        assert_eq!(
            [nonce((1 << 20) - 1), nonce(1 << 20), nonce((5 << 20) + 7)],
            [0xf_ffff, 1 << 32, 5 << 32 | 7]
        );
    }
}
