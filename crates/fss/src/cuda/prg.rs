//! AES-128 on the device: round keys as kernels take them, and counter mode.

use bytemuck::Zeroable as _;
use gatework_gpu::{Buffer, ByValue, Grid, SliceMut, args};
use zeroize::Zeroize as _;

use crate::error::Result;
use crate::party::Party;
use crate::prg::{Calls, Stream as HostStream};

use super::kernels;
use super::queue::Queue;
use super::schedule::AesForm;
use super::shared::{COMPARE_MOST_THREADS, COMPARE_THREADS, PRG_THREADS, RUN_WORDS, RoundKeys};

/// Threads of a multiprocessor that work at once.
const RESIDENT_THREADS: u32 = 2048;
/// Most blocks of a multiprocessor among which work is spread.
const MOST_SPREAD: u32 = 8;
/// Threads of a block, at least: a warp for each of a multiprocessor's four schedulers. A walk waits for its
/// own lookups, so that four warps take no longer than one, and copy tables on fewer multiprocessors.
const LEAST_THREADS: usize = 128;

/// The generator of a device: its streams start from a form of AES and that form's table.
pub(super) struct Generator {
    pub(super) form: AesForm,
    /// T[x] = (2 S(x), S(x), S(x), 3 S(x)), lowest byte first.
    pub(super) table: Buffer<u32>,
}

impl Generator {
    pub(super) fn new(queue: &Queue, form: AesForm) -> Result<Self> {
        Ok(Self { form, table: queue.upload(&round_table())? })
    }

    /// A block of threads for each of so many tiles, or as many as are resident at once: what each has to
    /// prepare, it prepares for all of its tiles. `more` is the shared memory beside the cipher's.
    fn resident(&self, queue: &Queue, tiles: u64, threads: u32, more: u32) -> Grid {
        let properties = queue.device().properties();
        let bytes = self.form.shared_bytes() + more;
        let by_memory = properties.shared_memory_per_block / bytes.max(1);
        let each = by_memory.clamp(1, RESIDENT_THREADS / threads);
        let blocks = tiles.clamp(1, u64::from(properties.multiprocessors * each));
        Grid::new([blocks as u32, 1, 1], [threads, 1, 1]).shared(bytes)
    }

    /// The form of AES for so many threads that compare, and their blocks.
    pub(super) fn for_comparisons(&self, queue: &Queue, threads: usize) -> (AesForm, Grid) {
        let multiprocessors = queue.device().properties().multiprocessors as usize;
        let form = self.form.for_comparisons(threads.div_ceil(multiprocessors));
        let most = if form == AesForm::Quads { COMPARE_MOST_THREADS } else { COMPARE_THREADS };
        (form, spread(queue, form, threads, most))
    }

    /// Blocks of threads for so many threads in all, `most` each at most: smaller ones where that spreads the
    /// work over more multiprocessors.
    pub(super) fn spread(&self, queue: &Queue, threads: usize, most: u32) -> Grid {
        spread(queue, self.form, threads, most)
    }

    /// Round keys of a key, in this form.
    pub(super) fn keys(&self, key: u128) -> RoundKeys {
        let mut rounds = expand_key(key);
        let mut keys = RoundKeys::zeroed();
        for (round, block) in rounds.iter().enumerate() {
            let columns = [0, 32, 64, 96].map(|shift| (block >> shift) as u32);
            match self.form {
                AesForm::Table { .. } | AesForm::Pairs | AesForm::Quads => {
                    keys.words[round][..4].copy_from_slice(&columns);
                }
                AesForm::BitPlanes => {
                    let [a, b, c, d] = columns;
                    keys.words[round] = bit_planes([a, a, b, b, c, c, d, d]);
                }
            }
        }
        rounds.zeroize();
        keys
    }
}

fn spread(queue: &Queue, form: AesForm, threads: usize, most: u32) -> Grid {
    let properties = queue.device().properties();
    let bytes = form.shared_bytes();
    let multiprocessors = properties.multiprocessors as usize;
    let resident =
        properties.shared_memory_per_block / bytes.max(properties.shared_memory_per_block / MOST_SPREAD);
    // As few blocks of a multiprocessor as hold its threads: tables are copied less often, and other kernels
    // find room.
    let blocks = threads.div_ceil(multiprocessors * most as usize).clamp(1, resident.max(1) as usize);
    let each = threads.div_ceil(multiprocessors * blocks);
    let each = each.next_multiple_of(32).clamp(LEAST_THREADS, most as usize);
    Grid::covering(threads, each as u32).shared(bytes)
}

/// Times x modulo x^8 + x^4 + x^3 + x + 1.
const fn double(x: u8) -> u8 {
    (x << 1) ^ ((x >> 7) * 0x1b)
}

/// The product in GF(2^8), in constant time.
fn multiply(a: u8, b: u8) -> u8 {
    let bit = |(sum, a): (u8, u8), i: u32| (sum ^ a & (b >> i & 1).wrapping_neg(), double(a));
    (0..8).fold((0, a), bit).0
}

/// S(x): the affine image of x⁻¹ = x^254, with 0⁻¹ = 0. In constant time, as key schedules need it.
fn substitute(x: u8) -> u8 {
    // 254 is seven ones and a zero: square and multiply.
    let inverse = (0..6).fold(x, |power, _| multiply(multiply(power, power), x));
    let inverse = multiply(inverse, inverse);
    (1..=4).fold(0x63 ^ inverse, |sum, by| sum ^ inverse.rotate_left(by))
}

/// The table of one round.
fn round_table() -> Vec<u32> {
    let entry = |x: u8| {
        let s = substitute(x);
        u32::from_le_bytes([double(s), s, s, double(s) ^ s])
    };
    (0..=u8::MAX).map(entry).collect()
}

/// The eleven round keys of AES-128, by the processor's own instructions where it has them: every batch of
/// trees has a key.
fn expand_key(key: u128) -> [u128; 11] {
    #[cfg(target_arch = "x86_64")]
    if crate::prg::vector::Width::detect().is_some() {
        return crate::prg::vector::RoundKeys::expand(key).0;
    }
    expand_portably(key)
}

/// The same as FIPS-197 has them.
fn expand_portably(key: u128) -> [u128; 11] {
    let (mut rounds, mut constant) = ([key; 11], 1u8);
    for round in 1..11 {
        let previous = rounds[round - 1];
        let [a, b, c, d] = ((previous >> 96) as u32).to_le_bytes();
        let mixed = u32::from_le_bytes([b, c, d, a].map(substitute)) ^ u32::from(constant);
        constant = double(constant);
        let words = previous ^ previous << 32;
        let mixed = u128::from(mixed);
        rounds[round] = words ^ words << 64 ^ mixed ^ mixed << 32 ^ mixed << 64 ^ mixed << 96;
    }
    rounds
}

/// Bit i of every byte of eight words in word i.
fn bit_planes(mut words: [u32; 8]) -> [u32; 8] {
    for (low, by) in [(0x5555_5555u32, 1usize), (0x3333_3333, 2), (0x0f0f_0f0f, 4)] {
        for first in (0..8).filter(|first| first & by == 0) {
            let (a, b) = (words[first], words[first + by]);
            words[first] = (a & low) | ((b & low) << by);
            words[first + by] = ((a & !low) >> by) | (b & !low);
        }
    }
    words
}

/// AES-128 in counter mode under a secret seed, as `crate::prg::Stream` is on the host.
pub(super) struct DeviceStream {
    /// In one place, however often this moves.
    keys: Box<RoundKeys>,
    counter: u64,
    calls: Calls,
}

impl DeviceStream {
    pub(super) fn new(generator: &Generator, seed: u128, calls: Calls) -> Self {
        Self { keys: Box::new(generator.keys(seed)), counter: 0, calls }
    }

    fn take(&mut self, blocks: u64) -> u64 {
        let start = self.counter;
        self.counter += blocks;
        self.calls.add(blocks as usize);
        start
    }

    /// The next words of `bits` bits, to all of `words`.
    pub(super) fn words(
        &mut self,
        queue: &Queue,
        generator: &Generator,
        bits: u32,
        words: SliceMut<'_, u64>,
    ) -> Result<()> {
        let count = words.len();
        let counter = self.take(HostStream::blocks_for(count, bits));
        if count == 0 {
            return Ok(());
        }
        // Two blocks of the stream a thread, tile after tile.
        let runs = (2 * PRG_THREADS).div_ceil(bits).min((count as u64).div_ceil(RUN_WORDS.into()) as u32);
        let tiles = (count as u64).div_ceil(u64::from(runs * RUN_WORDS));
        let grid = generator.resident(queue, tiles, PRG_THREADS, 16 * runs * bits);
        queue.launch(
            &generator.form.module(&kernels::PRG),
            "derive_words",
            &grid,
            &args![&generator.table, ByValue(&*self.keys), counter, bits, runs, count as u64, words],
        )
    }

    /// The next `count` roots of a party's trees: blocks with the party's number as lowest bit.
    pub(super) fn roots(
        &mut self,
        queue: &Queue,
        generator: &Generator,
        party: Party,
        count: usize,
    ) -> Result<Buffer<u64>> {
        let counter = self.take(count as u64);
        let mut roots = queue.alloc(2 * count)?;
        let lowest = party.index() as u32;
        let tiles = (count as u64).div_ceil(u64::from(2 * PRG_THREADS));
        let grid = generator.resident(queue, tiles, PRG_THREADS, 0);
        queue.launch(
            &generator.form.module(&kernels::ROOTS),
            "derive_roots",
            &grid,
            &args![&generator.table, ByValue(&*self.keys), counter, lowest, count as u64, &mut roots],
        )?;
        Ok(roots)
    }
}

impl Drop for DeviceStream {
    fn drop(&mut self) {
        self.keys.words.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_key_schedules_agree() {
        for key in [0, 1, u128::MAX, 0x3c4f_cf09_8815_f7ab_a6d2_ae28_1615_7e2b] {
            assert_eq!(expand_key(key), expand_portably(key));
        }
        // The last round key of appendix A.1.
        let last = expand_portably(0x3c4f_cf09_8815_f7ab_a6d2_ae28_1615_7e2b)[10];
        assert_eq!(
            last,
            u128::from_le_bytes(*b"\xd0\x14\xf9\xa8\xc9\xee\x25\x89\xe1\x3f\x0c\xc8\xb6\x63\x0c\xa6")
        );
    }
}
