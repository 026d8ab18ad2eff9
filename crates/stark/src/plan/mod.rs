//! How much device memory a proof takes, before it is asked for.

mod over;
mod reads;
mod way;

use std::borrow::Cow;
use std::collections::BTreeSet;

use gatework_gpu::Device;
use stwo::core::pcs::PcsConfig;
use stwo::core::vcs_lifted::verifier::LOG_PACKED_LEAF_SIZE;

pub use self::over::Shares;
pub(crate) use self::reads::Reads;
pub use self::way::Way;

use crate::{Error, Result};

/// Bytes of an element of M31, of QM31, of a digest, and of the state of Poseidon252 on the way to one.
const BASE: u64 = 4;
const SECURE: u64 = 16;
const DIGEST: u64 = 32;
const STATE252: u64 = 96;
/// Of what a proof holds whatever it is of: a transcript, challenges, and columns of one element.
const SMALL: u64 = 4 << 10;
/// For each column: addresses and lengths for the kernels that are given many. For each column and point: a
/// factor, and the sum that is sampled there.
const COLUMN: u64 = 64;
const SAMPLE: u64 = 32;
/// Programs of constraints and their constants, where they are not known.
const PROGRAMS: u64 = 64 << 10;
/// What is read of a tree at its end, with the address that it is read by: a value, and a digest.
const OPENED: u64 = 8 + BASE;
const WITNESS: u64 = 8 + DIGEST;

/// What is proved, as far as its memory goes.
///
/// ```
/// use gatework_stark::Plan;
/// use stwo::core::pcs::PcsConfig;
///
/// // A hundred columns of a million rows, committed to as one tree after an empty one.
/// let plan = Plan::new(PcsConfig::default(), vec![vec![], vec![20; 100]]);
/// assert!((1 << 30..3 << 30).contains(&plan.peak_bytes()));
/// ```
#[derive(Debug, Clone)]
pub struct Plan {
    config: PcsConfig,
    /// Logarithms of the lengths of the columns of each tree, before they are extended.
    trees: Vec<Vec<u32>>,
    /// Bytes that are held from the beginning to the end beside what is committed to.
    held: u64,
    /// Points that columns are sampled at, that of the composition polynomial among them.
    points: u64,
    /// Whether the tree after the first two is of an interaction trace.
    interacts: bool,
    /// Bytes of a hash's state that is kept for rows of shorter columns.
    state: u64,
    /// What each component reads, if that is known.
    components: Option<Vec<Reads>>,
    /// Bytes of the components' programs and constants.
    programs: u64,
}

impl Plan {
    /// A proof over trees of columns of these lengths, by their logarithms, in the order in which they are
    /// committed to. The columns of a tree are on the device when it is committed to, and their values are
    /// not kept.
    pub fn new(config: PcsConfig, trees: Vec<Vec<u32>>) -> Self {
        let (components, programs) = (None, PROGRAMS);
        Self { config, trees, held: 0, points: 1, interacts: false, state: 0, components, programs }
    }

    /// With other memory that is held all the time, as copies of columns that interactions are computed from.
    pub fn holding(self, bytes: u64) -> Self {
        Self { held: self.held + bytes, ..self }
    }

    /// With an interaction trace as the third tree, whose sums are read one row back too.
    pub fn interacting(self) -> Self {
        Self { interacts: true, ..self }.points(2)
    }

    /// With columns that are read at so many different offsets in all, their own row among them: each is a
    /// point that they are sampled at. Fewer than were said before change nothing.
    pub fn points(self, count: usize) -> Self {
        Self { points: self.points.max(count as u64), ..self }
    }

    /// With components that read this, by programs of so many bytes.
    pub(crate) fn reading(self, components: Vec<Reads>, programs: u64) -> Self {
        Self { components: Some(components), programs, ..self }
    }

    /// With trees of Poseidon252, whose digests are as large as those of Blake2s, but not the states that are
    /// lifted where columns of one tree have several lengths.
    pub fn hashing_felts(self) -> Self {
        Self { state: STATE252, ..self }
    }

    fn log_blowup(&self) -> u32 {
        self.config.fri_config.log_blowup_factor
    }

    fn log_rows(&self) -> u32 {
        self.trees.iter().flatten().copied().max().unwrap_or(1)
    }

    /// The logarithm of the number of rows of the largest domain.
    fn log_lifted(&self) -> u32 {
        self.config.lifting_log_size.unwrap_or(self.log_rows() + self.log_blowup())
    }

    fn twiddle_bytes(&self) -> u64 {
        let log_extended = self.log_rows() + self.log_blowup().max(1);
        let log_largest = log_extended.max(self.config.lifting_log_size.unwrap_or(0));
        (2 * BASE) << (log_largest - 1)
    }

    fn columns(&self) -> impl Iterator<Item = u32> {
        self.trees.iter().flatten().copied()
    }

    /// Tables of columns, programs, and what does not depend on the columns.
    fn table_bytes(&self) -> u64 {
        SMALL + self.programs + (COLUMN + SAMPLE * self.points) * self.columns().count() as u64
    }

    /// What each component reads. Where it is not known: all columns, each at its own row and ahead of it.
    fn components(&self) -> Cow<'_, [Reads]> {
        let unknown = || {
            let interaction = if self.interacts { self.trees.get(2).map_or(0, Vec::len) as u64 } else { 0 };
            let before = self.columns().count() as u64 - interaction;
            Cow::Owned(vec![Reads {
                log_rows: self.log_rows(),
                own: [before, interaction],
                ahead: [before, interaction],
                columns: before,
                interaction,
            }])
        };
        self.components.as_deref().map_or_else(unknown, Cow::Borrowed)
    }

    /// Numerators of quotients of columns of 2^`log_rows` rows. Columns that are sampled at two points are so
    /// at a third for their period, which is one of the two for the longest columns.
    fn numerator_bytes(&self, log_rows: u32) -> u64 {
        let is_lifted = log_rows + self.log_blowup() < self.log_lifted();
        (self.points + u64::from(is_lifted && self.points > 1)) * (SECURE << log_rows)
    }

    /// Those of all lengths, of which each has its own.
    fn all_numerators(&self) -> u64 {
        // The composition polynomial's halves are as long as the longest columns.
        let lengths: BTreeSet<u32> = self.columns().chain([self.log_rows()]).collect();
        lengths.into_iter().map(|log_rows| self.numerator_bytes(log_rows)).sum()
    }

    /// The most that is held at once, from the first upload to the proof.
    pub fn peak_bytes(&self) -> u64 {
        let blowup = self.log_blowup();
        let (mut held, mut peak) = (self.held + self.twiddle_bytes() + self.table_bytes(), 0);
        for tree in &self.trees {
            let columns: u64 = tree.iter().map(|&log_rows| BASE << log_rows).sum();
            let extended = columns << blowup;
            peak = peak.max(held + columns + extended);
            if let Some(&largest) = tree.iter().max() {
                held += extended + tree_bytes(self.config.lifting_log_size.unwrap_or(largest + blowup));
            }
            peak = peak.max(held + self.state_bytes(tree));
        }
        peak.max(held + self.proving_bytes())
    }

    /// The most that a proof by `SimdBackend` holds of the host's memory at once: the same columns and trees,
    /// and up to an eighth more for what it computes with.
    pub fn host_peak_bytes(&self) -> u64 {
        let peak = self.peak_bytes();
        peak + peak / 8
    }

    /// Bytes of all columns, as they are before they are extended.
    pub fn column_bytes(&self) -> u64 {
        self.trees.iter().flatten().map(|&log_rows| BASE << log_rows).sum()
    }

    /// States while a tree is hashed: of two lengths at once, the longest being none of them.
    fn state_bytes(&self, tree: &[u32]) -> u64 {
        let mut lengths = tree.to_vec();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.dedup();
        lengths.iter().skip(1).take(2).map(|log_rows| self.state << (log_rows + self.log_blowup())).sum()
    }

    /// What a proof takes beside what was committed to before it.
    fn proving_bytes(&self) -> u64 {
        let (log_rows, log_lifted) = (self.log_rows(), self.log_lifted());
        // Sums of constraints on twice the rows become two halves of coefficients.
        let sums = SECURE << (log_rows + 1);
        let composition = self.composition_bytes();
        let values = SECURE << log_lifted;
        let quotients = self.all_numerators() + (SECURE << (log_lifted - self.log_blowup())) + values;
        let fri = values + self.fri_bytes();
        (sums + composition).max(composition + quotients).max(composition + fri)
    }

    /// The halves of the composition polynomial and their tree.
    fn composition_bytes(&self) -> u64 {
        let log_half = self.log_rows() + self.log_blowup();
        ((8 * BASE) << log_half) + tree_bytes(self.config.lifting_log_size.unwrap_or(log_half))
    }

    /// Trees and folded values.
    fn fri_bytes(&self) -> u64 {
        let config = &self.config.fri_config;
        let leaves = |log_size: u32| {
            let packed = config.fold_step > 1 && log_size >= LOG_PACKED_LEAF_SIZE;
            if packed { log_size - LOG_PACKED_LEAF_SIZE } else { log_size }
        };
        let log_last = config.last_layer_domain_size().ilog2();
        let mut log_size = self.log_lifted();
        let mut bytes = tree_bytes(leaves(log_size));
        while log_size > log_last {
            log_size -= config.fold_step.clamp(1, log_size - log_last);
            bytes += SECURE << log_size;
            if log_size > log_last {
                bytes += tree_bytes(leaves(log_size));
            }
        }
        // The first packed leaves lie beside what they are packed from.
        let packed = if config.fold_step > 1 { SECURE << self.log_lifted() } else { 0 };
        (bytes + self.opening_bytes()).max(packed + tree_bytes(leaves(self.log_lifted())))
    }

    /// What is read for the queries: values of columns and of layers of FRI, and digests beside the ways to
    /// the roots.
    fn opening_bytes(&self) -> u64 {
        let config = &self.config.fri_config;
        let log_lifted = u64::from(self.log_lifted());
        let layers = log_lifted.div_ceil(u64::from(config.fold_step.max(1)));
        let folded = layers * 4 * (OPENED << config.fold_step);
        let trees = (self.trees.len() as u64 + 1) * log_lifted;
        // Trees of FRI get shorter.
        let digests = WITNESS * (trees + layers * log_lifted / 2);
        config.n_queries as u64 * (OPENED * (self.columns().count() as u64 + 8) + folded + digests)
    }

    /// Refuses a proof that does not fit into what of `device` may still be held, with its columns in device
    /// memory.
    pub fn check(&self, device: &Device) -> Result<()> {
        require(self.peak_bytes(), device, "stream its columns (Plan::way), or prove fewer rows or columns")
    }

    /// As [`Plan::check`], once everything is committed to.
    pub(crate) fn check_proving(&self, device: &Device) -> Result<()> {
        require(self.proving_bytes(), device, FEWER)
    }
}

/// The way out where there is no other.
const FEWER: &str = "prove fewer rows or columns";

fn require(needed: u64, device: &Device, way_out: &'static str) -> Result<()> {
    let free = device.budget().free();
    if needed > free { Err(Error::too_large(device, needed, free, way_out)) } else { Ok(()) }
}

/// A Merkle tree over 2^`log_leaves` leaves.
fn tree_bytes(log_leaves: u32) -> u64 {
    (2 * DIGEST) << log_leaves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_felts_count_where_columns_have_several_lengths() {
        let plan = |trees: Vec<u32>| Plan::new(PcsConfig::default(), vec![vec![], trees]);
        let even = plan(vec![10; 100]);
        assert_eq!(even.clone().hashing_felts().peak_bytes(), even.peak_bytes());
        let mixed = plan([vec![9; 40], vec![10; 40]].concat());
        assert_eq!(mixed.clone().hashing_felts().state_bytes(&mixed.trees[1]), 96 << 10);
        assert_eq!(mixed.state_bytes(&mixed.trees[1]), 0);
    }
}
