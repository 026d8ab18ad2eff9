//! `GrindOps`: proof of work, with the nonce that `SimdBackend` finds.

use gatework_gpu::{ByValue, args};
use stwo::core::channel::Blake2sChannelGeneric;
use stwo::core::proof_of_work::GrindOps;
use stwo::core::vcs::blake2_hash::Blake2sHasherGeneric;

use super::one_thread_each;
use crate::backend::CudaBackend;
use crate::error::{OrRaise as _, raise};
use crate::kernels;
use crate::queue::Queue;
use crate::{Error, column::Element as _};

/// Low bits of a nonce that are tried before its high word moves on.
const LOW_BITS: u32 = 20;
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
        let mut hasher = Blake2sHasherGeneric::<IS_M31_OUTPUT>::default();
        hasher.update(&Blake2sChannelGeneric::<IS_M31_OUTPUT>::POW_PREFIX.to_le_bytes());
        hasher.update(&[0; 12]);
        hasher.update(&channel.digest().0);
        hasher.update(&pow_bits.to_le_bytes());
        let mut prefix = Vec::new();
        hasher.finalize().write(&mut prefix);
        let prefix: [u32; 8] = prefix.try_into().expect("a digest has eight words");

        let queue = Queue::current();
        // Twice what is expected, so that most searches end with the first launch.
        let tries = 1u64 << (pow_bits + 1).clamp(LOG_LEAST_TRIES, LOG_MOST_TRIES);
        let mut found = queue.upload(&[u64::MAX]);
        for first in (0u64..).step_by(tries as usize) {
            let grid = one_thread_each(tries as usize);
            let arguments =
                args![ByValue(&prefix), first, tries, pow_bits, u32::from(IS_M31_OUTPUT), &mut found];
            queue.launch(&kernels::GRIND, "grind", &grid, &arguments);
            let attempt = queue.stream().download(&found).or_raise()[0];
            if attempt != u64::MAX {
                return (attempt >> LOW_BITS << 32) | (attempt & ((1 << LOW_BITS) - 1));
            }
        }
        unreachable!("the tries are endless")
    }
}
