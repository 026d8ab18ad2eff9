//! `GrindOps` for Poseidon252: proof of work, with the nonce that `SimdBackend` finds.

use gatework_gpu::{ByValue, args};
use stwo::core::channel::Poseidon252Channel;
use stwo::core::proof_of_work::GrindOps;
use stwo::core::vcs_lifted::poseidon252_merkle::poseidon_finalize;

use super::poseidon252_merkle::one_thread_each;
use crate::Error;
use crate::backend::CudaBackend;
use crate::element::{Element as _, Felt252};
use crate::error::{OrRaise as _, raise};
use crate::kernels;
use crate::queue::Queue;
use crate::shared::NONCE252_LOW_BITS;

/// Fewest and most tries of one launch.
const LOG_LEAST_TRIES: u32 = 5;
const LOG_MOST_TRIES: u32 = 20;

impl GrindOps<Poseidon252Channel> for CudaBackend {
    /// The smallest nonce `(a << 32) | b` with b below 2^14 whose digest ends in `pow_bits` zeros.
    fn grind(channel: &Poseidon252Channel, pow_bits: u32) -> u64 {
        if pow_bits > 32 {
            raise(Error::Unsupported {
                what: format!("{pow_bits} bits of work; 32 is the most that can be ground"),
            })
        }
        search(&Queue::current(), prefix(channel, pow_bits), pow_bits, 0)
    }
}

/// What every try hashes before its nonce.
fn prefix(channel: &Poseidon252Channel, pow_bits: u32) -> Felt252 {
    let hashed = [Poseidon252Channel::POW_PREFIX.into(), channel.digest(), pow_bits.into()];
    poseidon_finalize(&hashed, Default::default())[0]
}

/// The nonce of the first try from `start` on.
fn search(queue: &Queue, prefix: Felt252, pow_bits: u32, start: u64) -> u64 {
    let mut words = Vec::new();
    prefix.write(&mut words);
    let prefix: [u32; Felt252::WORDS] = words.try_into().expect("a felt has eight words");
    // Twice what is expected, so that most searches end with the first launch.
    let tries = 1u64 << (pow_bits + 1).clamp(LOG_LEAST_TRIES, LOG_MOST_TRIES);
    let mut found = queue.upload(&[u64::MAX]);
    for first in (start..).step_by(tries as usize) {
        let arguments = args![ByValue(&prefix), first, tries, pow_bits, &mut found];
        let grid = one_thread_each(tries as usize);
        queue.launch(&kernels::POSEIDON252_GRIND, "poseidon252_grind", &grid, &arguments);
        let attempt = queue.stream().download(&found).or_raise()[0];
        if attempt != u64::MAX {
            return nonce(attempt);
        }
    }
    unreachable!("the tries are endless")
}

/// The nonce of a try.
fn nonce(attempt: u64) -> u64 {
    (attempt >> NONCE252_LOW_BITS << 32) | (attempt & ((1 << NONCE252_LOW_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use stwo::core::channel::Channel as _;

    use super::*;
    use crate::Context;

    /// Tries around 2^14, where the high word of the nonce moves on, held against stwo's own check of nonces.
    #[test]
    fn nonces_go_on_where_their_low_word_ends() {
        let context = Context::new(&gatework_gpu::Device::emulated(1).unwrap()).unwrap();
        for turn in 0..3 {
            let mut channel = Poseidon252Channel::default();
            channel.mix_u64(turn);
            let (bits, start) = (5, (1 << 14) - 9);
            let found = context.scope(|| search(&Queue::current(), prefix(&channel, bits), bits, start));
            let host = (start..).map(nonce).find(|&nonce| channel.verify_pow_nonce(bits, nonce));
            assert_eq!(Some(found.unwrap()), host);
        }
        assert_eq!(
            [nonce((1 << 14) - 1), nonce(1 << 14), nonce((5 << 14) + 7)],
            [0x3fff, 1 << 32, 5 << 32 | 7]
        );
    }
}
