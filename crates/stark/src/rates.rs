//! How fast a device does what floors are made of, measured.

use gatework_gpu::{ByValue, Grid, args};
use stwo::core::fields::m31::BaseField;
use stwo::core::vcs::blake2_hash::Blake2sHash;

use crate::column::DeviceColumn;
use crate::cuda::one_thread_each;
use crate::element::{Element as _, Felt252};
use crate::error::OrRaise as _;
use crate::kernels;
use crate::queue::Queue;
use crate::{Context, Result};

/// Measured rates of a device, each kind of work alone.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    /// Bytes read and bytes written by a copy.
    pub bytes: f64,
    /// Butterflies of M31 on values in registers.
    pub butterflies: f64,
    /// Compressions of Blake2s with everything in registers.
    pub compressions: f64,
    /// Permutations of Poseidon252, too.
    pub permutations: f64,
}

/// Values of M31 that a thread has.
pub(crate) const VALUES: usize = 16;
/// Butterflies among them, in four steps.
const BUTTERFLIES: usize = 32;
/// Threads for each multiprocessor: twice as many as can be there at once.
const THREADS: usize = 4096;
/// Runs, of which the fastest counts; the first warms the device up.
const RUNS: usize = 6;
/// Bytes of the copy: more than caches hold, where there is room.
const COPIED: u64 = 512 << 20;

/// Factors of the four steps.
pub(crate) const TWIDDLES: [u32; 4] = [1_234_567_891, 987_654_321, 2_147_483_646, 65_537];

impl Rates {
    /// Measures the device of `context`, in some tenths of a second.
    pub fn measure(context: &Context) -> Result<Self> {
        let threads = THREADS * context.device().properties().multiprocessors as usize;
        let (turns, hashes, permuted) = (400, 100, 2);
        context.scope(|| {
            let queue = Queue::current();
            let words = |count: usize| -> Vec<u32> {
                (0..count as u32).map(|word| word.wrapping_mul(0x9e37_79b1) >> 1).collect()
            };
            let seconds = |work: &mut dyn FnMut()| {
                let stream = queue.stream();
                let run = |_| {
                    let start = stream.record().or_raise();
                    work();
                    let end = stream.record().or_raise();
                    end.synchronize().or_raise();
                    end.since(&start).or_raise().as_secs_f64()
                };
                (0..RUNS).map(run).fold(f64::INFINITY, f64::min)
            };
            let values = words(VALUES * threads);
            let mut values = DeviceColumn::<BaseField>::from_words(&queue, &values);
            let butterfly_seconds = seconds(&mut || butterflies(&queue, &mut values, turns));
            let digests = words(8 * threads);
            let mut digests = DeviceColumn::<Blake2sHash>::from_words(&queue, &digests);
            let hash_seconds = seconds(&mut || compressions(&queue, &mut digests, hashes));
            let mut digests = DeviceColumn::<Felt252>::from_words(&queue, &felts(&words(8 * threads)));
            let permutation_seconds = seconds(&mut || permutations(&queue, &mut digests, permuted));
            let bytes = COPIED.min(queue.stream().device().budget().free() / 4) as usize;
            let mut copied = [0, 0].map(|_| queue.alloc::<u8>(bytes));
            let copy_seconds = seconds(&mut || {
                let [from, to] = &mut copied;
                queue.stream().copy(&*from, to).or_raise();
            });
            Self {
                bytes: 2.0 * bytes as f64 / copy_seconds,
                butterflies: (threads * BUTTERFLIES) as f64 * f64::from(turns) / butterfly_seconds,
                compressions: threads as f64 * f64::from(hashes) / hash_seconds,
                permutations: threads as f64 * f64::from(permuted) / permutation_seconds,
            }
        })
    }
}

/// Runs all butterflies among each sixteen values, `turns` times.
pub(crate) fn butterflies(queue: &Queue, values: &mut DeviceColumn<BaseField>, turns: u32) {
    let doubled = TWIDDLES.map(|twiddle| twiddle << 1);
    let mut words = values.words_mut();
    let threads = words.len() / VALUES;
    let arguments = args![words.slice_mut(..), threads as u32, turns, ByValue(&doubled)];
    queue.launch(&kernels::RATES, "rate_butterflies", &one_thread_each(threads), &arguments);
}

/// Replaces each digest by that of it and itself, `turns` times.
pub(crate) fn compressions(queue: &Queue, digests: &mut DeviceColumn<Blake2sHash>, turns: u32) {
    let mut words = digests.words_mut();
    let threads = words.len() / 8;
    let arguments = args![words.slice_mut(..), threads as u32, turns];
    queue.launch(&kernels::RATES, "rate_compressions", &one_thread_each(threads), &arguments);
}

/// Words of felts: the highest of each is less than the modulus's.
pub(crate) fn felts(words: &[u32]) -> Vec<u32> {
    words.iter().enumerate().map(|(at, &word)| if at % 8 == 7 { word >> 5 } else { word }).collect()
}

/// Replaces each digest of Poseidon252 by that of it and itself, `turns` times.
pub(crate) fn permutations(queue: &Queue, digests: &mut DeviceColumn<Felt252>, turns: u32) {
    let mut words = digests.words_mut();
    let threads = words.len() / Felt252::WORDS;
    let arguments = args![words.slice_mut(..), threads as u32, turns];
    queue.launch(&kernels::RATES, "rate_permutations", &Grid::covering(threads, 128), &arguments);
}
