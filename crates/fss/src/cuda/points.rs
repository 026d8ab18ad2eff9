//! Point functions: a party's evaluations, and the dealer's keys.

use bytemuck::Zeroable as _;
use gatework_gpu::{Buffer, ByValue, Grid, args};

use crate::dpf::{self, LEAF_BITS};
use crate::error::Result;
use crate::prg::Calls;
use crate::table::Table;

use super::kernels;
use super::prg::Generator;
use super::queue::Queue;
use super::schedule::Schedule;
use super::shared::{COMPARE_THREADS, GENERATE_THREADS, LOOKUP_THREADS, MOST_SHIFTS, RoundKeys, Shifts};
use super::words::{Copies, DeviceWords, expect_words};

/// One party's keys of `count` point functions over the same domain.
pub(super) struct DevicePoints {
    pub(super) domain: u32,
    pub(super) count: usize,
    pub(super) form: Form,
    /// Round keys of the public key of these trees.
    pub(super) hash: RoundKeys,
    pub(super) calls: Calls,
}

pub(super) enum Form {
    /// Unit vectors of 2^domain bits, in whole words.
    Table(DeviceWords),
    /// A root of two words for each key, and correction words in tiles.
    Tree { roots: Buffer<u64>, corrections: Buffer<u64> },
}

impl DevicePoints {
    /// Shares of 1[(x + shift) mod 2^k < α], one bit a word: all keys with the first shift, then all with the
    /// second.
    pub(super) fn less_than(
        &self,
        queue: &Queue,
        generator: &Generator,
        x: &DeviceWords,
        shifts: &[u64],
    ) -> Result<DeviceWords> {
        expect_words("a comparison", x, self.count)?;
        let mut bits = queue.alloc(shifts.len() * self.count)?;
        self.calls.add(shifts.len() * self.count * dpf::walk_blocks(self.domain) as usize);
        if bits.is_empty() {
            return Ok(bits);
        }
        for (number, some) in shifts.chunks(MOST_SHIFTS as usize).enumerate() {
            let mut table = Shifts::zeroed();
            table.at[..some.len()].copy_from_slice(some);
            table.count = some.len() as u64;
            let (first, paths) = (number * MOST_SHIFTS as usize * self.count, some.len() * self.count);
            let bits = bits.slice_mut(first..first + paths);
            let (domain, count) = (self.domain, self.count as u64);
            match &self.form {
                Form::Table(vectors) => queue.launch(
                    &generator.form.module(&kernels::COMPARE),
                    "compare_tables",
                    &Grid::covering(paths, COMPARE_THREADS),
                    &args![vectors, x, ByValue(&table), domain, count, bits],
                )?,
                Form::Tree { roots, corrections } => {
                    let threads = paths.div_ceil(2);
                    let (form, grid) = generator.for_comparisons(queue, threads);
                    queue.launch(
                        &form.module(&kernels::COMPARE),
                        "compare_trees",
                        &grid,
                        &args![
                            &generator.table,
                            ByValue(&self.hash),
                            roots,
                            corrections,
                            x,
                            ByValue(&table),
                            domain,
                            count,
                            bits
                        ],
                    )?;
                }
            }
        }
        Ok(bits)
    }

    /// Σ_j e(j) T((x − j) mod 2^k) modulo 2^64, for one public x a key.
    pub(super) fn lookup(
        &self,
        queue: &Queue,
        generator: &Generator,
        schedule: &Schedule,
        tables: &Copies<u64>,
        x: &DeviceWords,
        table: &Table,
    ) -> Result<DeviceWords> {
        expect_words("a lookup", x, self.count)?;
        let mut sums = queue.alloc(self.count)?;
        self.calls.add(self.count * dpf::expand_blocks(self.domain) as usize);
        if self.count == 0 {
            return Ok(sums);
        }
        let form = generator.form.for_short_work();
        let values = tables.of(queue, table.reversed())?;
        let (domain, count) = (self.domain, self.count as u64);
        match &self.form {
            Form::Table(vectors) => queue.launch(
                &form.module(&kernels::LOOKUP),
                "lookup_tables",
                &Grid::covering(32 * self.count, LOOKUP_THREADS),
                &args![vectors, x, &*values, domain, count, &mut sums],
            )?,
            Form::Tree { roots, corrections } => {
                let leaves = 1u32 << (domain - LEAF_BITS);
                let keys_each = (schedule.leaves_each / leaves).clamp(1, self.count.min(1 << 16) as u32);
                // Two arrays of blocks of 16 bytes.
                let shared = form.shared_bytes() + 32 * keys_each * leaves;
                let blocks = Grid::covering(self.count, keys_each).blocks;
                queue.launch(
                    &form.module(&kernels::LOOKUP),
                    "lookup_trees",
                    &Grid::new(blocks, [LOOKUP_THREADS, 1, 1]).shared(shared),
                    &args![
                        &generator.table,
                        ByValue(&self.hash),
                        roots,
                        corrections,
                        x,
                        &*values,
                        domain,
                        keys_each,
                        count,
                        &mut sums
                    ],
                )?;
            }
        }
        Ok(sums)
    }
}

/// Correction words of trees at secret places modulo 2^domain, and party 0's bit at each place.
pub(super) fn generate_trees(
    queue: &Queue,
    generator: &Generator,
    hash: &RoundKeys,
    domain: u32,
    [zero, one]: [&Buffer<u64>; 2],
    places: &DeviceWords,
) -> Result<(Buffer<u64>, DeviceWords)> {
    let count = places.len();
    let mut corrections = queue.alloc(2 * dpf::correction_words(domain) * count)?;
    let mut signs = queue.alloc(count)?;
    if count > 0 {
        let grid = generator.spread(queue, count, GENERATE_THREADS);
        queue.launch(
            &generator.form.module(&kernels::GENERATE),
            "generate_trees",
            &grid,
            &args![
                &generator.table,
                ByValue(hash),
                zero,
                one,
                places,
                domain,
                count as u64,
                &mut corrections,
                &mut signs
            ],
        )?;
    }
    Ok((corrections, signs))
}

/// Unit vectors at secret places modulo 2^domain: party 0's words, what party 1 stores of its own, and party
/// 0's bit at each place. Party 1 derives the first words, party 0 the others.
pub(super) fn generate_tables(
    queue: &Queue,
    generator: &Generator,
    domain: u32,
    [by_zero, by_one]: [&DeviceWords; 2],
    places: &DeviceWords,
) -> Result<[DeviceWords; 3]> {
    let (half, words) = (by_one.len(), by_one.len() + by_zero.len());
    let (mut zero, mut one) = (queue.alloc(words)?, queue.alloc(by_zero.len())?);
    let mut signs = queue.alloc(places.len())?;
    if words > 0 {
        let module = generator.form.module(&kernels::GENERATE);
        queue.launch(
            &module,
            "generate_tables",
            &Grid::covering(words, GENERATE_THREADS),
            &args![places, by_one, by_zero, domain, half as u64, words as u64, &mut zero, &mut one],
        )?;
        queue.launch(
            &module,
            "table_signs",
            &Grid::covering(places.len(), GENERATE_THREADS),
            &args![places, &zero, domain, places.len() as u64, &mut signs],
        )?;
    }
    Ok([zero, one, signs])
}
