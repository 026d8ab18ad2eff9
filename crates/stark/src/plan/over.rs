//! How much memory a proof over several devices takes of each.

use std::collections::BTreeSet;

use gatework_gpu::Device;

use super::{BASE, Plan, Reads, SECURE, require, tree_bytes};
use crate::Result;
use crate::constraints::log_chunk_within;
use crate::queue::WINDOW;
use crate::ranks::deal;
use crate::shared::BLOCK_COLUMNS;
use crate::streaming::LOG_LARGEST_PAGE;

/// The way out where a proof does not fit several devices.
const OTHERWISE: &str = "prove it over more devices, on one, which streams columns from the host's memory, or prove fewer rows or columns";

/// The most device memory that a proof over several devices holds at once, with the default window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// Of the first device, which has the trees, the composition polynomial and FRI beside its columns.
    pub first: u64,
    /// Of each of the others.
    pub other: u64,
}

impl Plan {
    /// No less than what a proof over so many devices holds of each at once
    /// ([`Context::over`](crate::Context::over)).
    pub fn shares(&self, devices: usize) -> Shares {
        if devices <= 1 {
            return Shares { first: self.peak_bytes(), other: 0 };
        }
        let mut ranks = Commitments::new(self, devices);
        ranks.commit_to_all();
        let Commitments { extended, kept, trees, peaks, .. } = &ranks;
        let shared = self.twiddle_bytes() + self.table_bytes();
        let of_rank = |rank: usize| {
            let proving = self.proving_over(rank, devices, extended[rank] >> self.log_blowup());
            let trees = if rank == 0 { *trees } else { 0 };
            shared + peaks[rank].max(kept[rank] + extended[rank] + trees + proving)
        };
        // What is held beside columns is nobody's but the lead's.
        let beside = self.held.saturating_sub(kept.iter().sum());
        Shares { first: of_rank(0) + beside, other: (1..devices).map(of_rank).max().unwrap_or(0) }
    }

    /// What a device takes beside what was committed to before the proof, of which it has columns of so many
    /// bytes before they were extended.
    fn proving_over(&self, rank: usize, devices: usize, columns: u64) -> u64 {
        let one = SECURE << self.log_rows();
        let parts = self.components().iter().map(|reads| self.constraints_over(reads, devices)).max();
        let (part, chunks) = parts.unwrap_or_default();
        let sampling = one + columns / 256;
        if rank > 0 {
            let numerators = self.columns().map(|log_rows| self.numerator_bytes(log_rows)).max();
            return (part + chunks).max(sampling).max(numerators.unwrap_or(0));
        }
        // The lead has all sums of constraints and all numerators, to which it adds those that arrive.
        let lengths: BTreeSet<u32> = self.components().iter().map(|reads| reads.log_rows).collect();
        let sums: u64 = lengths.into_iter().map(|log_rows| SECURE << (log_rows + 1)).sum();
        let composing = sums + part + chunks.max(part);
        let composition = self.composition_bytes();
        let dividing = composition + self.all_numerators() + one;
        composing.max(composition + sampling).max(dividing).max(self.proving_bytes())
    }

    /// What constraints of a component take of each device: sums of its rows, and chunks of columns of the
    /// others, one in use and one on its way if there are two.
    fn constraints_over(&self, reads: &Reads, devices: usize) -> (u64, u64) {
        let log_rows = reads.log_rows + 1;
        let log_part = log_rows - log_ranks(devices, log_rows);
        let log_chunk = log_chunk_within(WINDOW, (reads.brought(), reads.all_ahead()), log_part);
        let away = reads.brought_among(1 << (log_rows - log_chunk), self.own_there(reads, devices));
        let at_once = if log_chunk < log_part { 2 * away } else { away };
        let chunks = (at_once + reads.all_ahead()) * (BASE << log_chunk);
        let is_cut_by_window = log_chunk < log_part.min(LOG_LARGEST_PAGE);
        (SECURE << log_part, if is_cut_by_window { chunks.max(WINDOW) } else { chunks })
    }

    /// How many of the columns that a component reads at their own row are on any device, at least: those of
    /// one length are dealt out in turns, and those of a component too. An interaction trace may be on one.
    fn own_there(&self, reads: &Reads, devices: usize) -> u64 {
        let are_alike = self.columns().all(|log_rows| log_rows == reads.log_rows);
        if are_alike { reads.own[0].min(reads.columns) / devices as u64 } else { 0 }
    }

    /// Refuses a proof that does not fit into what of `devices` may still be held.
    pub fn check_over(&self, devices: &[Device]) -> Result<()> {
        let Shares { first, other } = self.shares(devices.len());
        let Some((lead, others)) = devices.split_first() else { return Ok(()) };
        require(first, lead, OTHERWISE)?;
        others.iter().try_for_each(|device| require(other, device, OTHERWISE))
    }
}

/// The logarithm of the number of devices that work on 2^`log_rows` rows
/// ([`Ranks::for_rows`](crate::ranks::Ranks::for_rows)).
fn log_ranks(devices: usize, log_rows: u32) -> u32 {
    devices.ilog2().min(log_rows.saturating_sub(1))
}

/// Bytes of each device, tree after tree, with columns dealt out as they are when they are brought.
struct Commitments<'a> {
    plan: &'a Plan,
    /// Of columns that stay as they were brought.
    kept: Vec<u64>,
    /// Of columns that are yet to be committed to.
    values: Vec<u64>,
    /// Of columns that were committed to.
    extended: Vec<u64>,
    /// Of trees, all of which are the lead's.
    trees: u64,
    /// The most that was held at once.
    peaks: Vec<u64>,
}

impl<'a> Commitments<'a> {
    fn new(plan: &'a Plan, devices: usize) -> Self {
        let [kept, values, extended, peaks] = std::array::from_fn(|_| vec![0; devices]);
        Self { plan, kept, values, extended, trees: 0, peaks }
    }

    fn devices(&self) -> usize {
        self.peaks.len()
    }

    /// Bytes of columns of each device.
    fn columns(&self) -> Vec<u64> {
        let ranks = 0..self.devices();
        ranks.map(|rank| self.kept[rank] + self.values[rank] + self.extended[rank]).collect()
    }

    /// Notes that every device holds so much more than its columns.
    fn note(&mut self, more: impl Fn(usize) -> u64) {
        for (rank, columns) in self.columns().into_iter().enumerate() {
            let trees = if rank == 0 { self.trees } else { 0 };
            self.peaks[rank] = self.peaks[rank].max(columns + trees + more(rank));
        }
    }

    fn commit_to_all(&mut self) {
        let plan = self.plan;
        // What the proof is given is brought at once.
        let (first, later) = plan.trees.split_at(plan.trees.len().min(2));
        let given: Vec<u64> = first.iter().flatten().map(|&log_rows| BASE << log_rows).collect();
        let mut owners = deal(given.iter().copied(), self.columns()).into_iter();
        let owners: Vec<Vec<usize>> =
            first.iter().map(|tree| owners.by_ref().take(tree.len()).collect()).collect();
        let stays = plan.held > 0;
        let brought = if stays { &mut self.kept } else { &mut self.values };
        first
            .iter()
            .flatten()
            .zip(owners.iter().flatten())
            .for_each(|(log, &rank)| brought[rank] += BASE << log);
        for (tree, owners) in first.iter().zip(&owners) {
            if stays {
                // What is interpolated is a copy.
                tree.iter().zip(owners).for_each(|(log, &rank)| self.values[rank] += BASE << log);
            }
            self.commit(tree, owners);
        }
        for (number, tree) in later.iter().enumerate() {
            let interactions = plan.components().iter().map(|reads| reads.interaction).sum::<u64>();
            let owners = if number == 0 && plan.interacts && interactions == tree.len() as u64 {
                self.make_interactions()
            } else {
                let owners = deal(tree.iter().map(|&log| BASE << log), self.columns());
                tree.iter().zip(&owners).for_each(|(log, &rank)| self.values[rank] += BASE << log);
                owners
            };
            self.commit(tree, &owners);
        }
    }

    /// Interaction traces, component by component. Each device makes fractions of a part of the rows, with
    /// its rows of the columns of others; sums of the columns go to whom they are dealt to, the last four to
    /// one.
    fn make_interactions(&mut self) -> Vec<usize> {
        let (plan, devices) = (self.plan, self.devices());
        let mut all = Vec::new();
        for reads in plan.components().iter().filter(|reads| reads.interaction >= 4) {
            let log_ranks = log_ranks(devices, reads.log_rows);
            let part = BASE << (reads.log_rows - log_ranks);
            let fetched = reads.own[0] - plan.own_there(reads, devices) + 3 * reads.ahead[0];
            // Numerators and denominators.
            self.note(|_| (fetched + 2 * reads.interaction) * part);
            let sums = |rank: usize| if rank < 1 << log_ranks { reads.interaction * part } else { 0 };
            let mut held: Vec<u64> =
                self.columns().into_iter().enumerate().map(|(rank, bytes)| bytes + sums(rank)).collect();
            let column = BASE << reads.log_rows;
            let last = deal([4 * column], held.clone())[0];
            held[last] += 4 * column;
            let owners = deal((4..reads.interaction).map(|_| column), held);
            let owners = owners.into_iter().chain([last; 4]);
            owners.clone().for_each(|rank| self.values[rank] += column);
            self.note(sums);
            all.extend(owners);
        }
        all
    }

    /// Extends the columns of a tree where they lie, and hashes them.
    fn commit(&mut self, tree: &[u32], owners: &[usize]) {
        let (plan, blowup) = (self.plan, self.plan.log_blowup());
        let Some(&largest) = tree.iter().max() else { return };
        for (log_rows, &rank) in tree.iter().zip(owners) {
            self.extended[rank] += BASE << (log_rows + blowup);
        }
        self.note(|_| 0);
        for (log_rows, &rank) in tree.iter().zip(owners) {
            self.values[rank] -= BASE << log_rows;
        }
        // Each hashes a part of the rows, for which it fetches those of the columns of others in groups.
        let log_leaves = plan.config.lifting_log_size.unwrap_or(largest + blowup);
        let log_ranks = log_ranks(self.devices(), log_leaves);
        let rows = |log_rows: u32| BASE << (log_rows + blowup).saturating_sub(log_ranks).max(1);
        let least = 2 * u64::from(BLOCK_COLUMNS).min(tree.len() as u64) * rows(largest);
        let subtree = (tree_bytes(log_leaves) + plan.hashing_bytes(tree, log_leaves)) >> log_ranks;
        self.trees += tree_bytes(log_leaves);
        self.note(|rank| {
            let others = tree.iter().zip(owners).filter(|&(_, &owner)| owner != rank);
            let fetched: u64 = others.map(|(&log_rows, _)| rows(log_rows)).sum();
            fetched.min(WINDOW.max(least)) + subtree
        });
    }
}
