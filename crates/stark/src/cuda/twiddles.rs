//! Tables of twiddles on the device.

use std::sync::Arc;

use gatework_gpu::{Buffer, Locked, args};
use stwo::core::circle::{Coset, M31_CIRCLE_GEN};
use stwo::core::poly::circle::CircleDomain;
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::twiddles::{TwiddleBuffer, TwiddleTree};

use super::one_thread_each;
use crate::Error;
use crate::backend::CudaBackend;
use crate::error::raise;
use crate::kernels;
use crate::queue::Queue;

/// The logarithm of the size of the largest half of a circle domain.
const LOG_LARGEST: u32 = 29;

/// The x coordinates, or their inverses, of the halves of a coset and of its doublings; `kernels/circle.cuh`
/// has the layout.
#[derive(Clone, Default)]
pub struct DeviceTwiddles {
    table: Option<Arc<Table>>,
    /// By how much larger the domains are whose layers are read for a transform: in bit-reversed order the
    /// twiddles of a subdomain are a prefix of those of its domain, so that the table of the domain serves
    /// both.
    log_expansion: u32,
}

struct Table {
    queue: Queue,
    coset: Coset,
    direction: Direction,
    words: Buffer<u32>,
    /// The same on other devices of the context, with those of the other direction.
    elsewhere: Arc<Locked<Vec<TwiddleTree<CudaBackend>>>>,
}

/// Which of the two tables of a coset.
#[derive(Clone, Copy)]
enum Direction {
    Forward,
    Inverse,
}

impl DeviceTwiddles {
    /// The same twiddles on a queue of the context, computed there when they are asked for the first time.
    /// Those of another context stay what they are, and are refused when they are used.
    pub(crate) fn on(&self, queue: &Queue) -> Self {
        let is_other = |table: &&Arc<Table>| !table.queue.is(queue) && table.queue.is_beside(queue);
        let Some(table) = self.table.as_ref().filter(is_other) else { return self.clone() };
        let mut trees = table.elsewhere.lock();
        let is_there = |tree: &&TwiddleTree<CudaBackend>| tree.twiddles.made().queue.is(queue);
        if trees.iter().find(is_there).is_none() {
            trees.push(precompute(queue, table.coset));
        }
        let Some(tree) = trees.iter().find(is_there) else { unreachable!("it is there now") };
        let there = match table.direction {
            Direction::Forward => &tree.twiddles,
            Direction::Inverse => &tree.itwiddles,
        };
        Self { table: there.table.clone(), log_expansion: self.log_expansion }
    }

    /// The table, for kernels on `queue`.
    pub(crate) fn table(&self, queue: &Queue) -> &Buffer<u32> {
        let table = self.made();
        queue.require_own(&table.queue);
        &table.words
    }

    /// Refuses to be the twiddles of another domain, or on another queue.
    pub(crate) fn require(&self, queue: &Queue, domain: CircleDomain) {
        let Some(table) = &self.table else {
            // Domains below eight points have theirs in no table.
            assert!(
                domain.log_size() < 3,
                "2^{} points have twiddles, and there are none",
                domain.log_size()
            );
            return;
        };
        queue.require_own(&table.queue);
        let log_half = self.log_domain(domain.log_size()) - 1;
        let tower = doubled(table.coset, log_half);
        let own = match self.log_expansion {
            0 => tower,
            expansion => CircleDomain::new(tower).split(expansion).0.half_coset,
        };
        assert!(
            are_same(own, domain.half_coset),
            "the twiddles of 2^{} points are those of another domain",
            domain.log_size()
        );
    }

    /// The logarithm of the table's length, for folds of a polynomial over `line`, which read the table of a
    /// whole domain.
    pub(crate) fn log_table_for(&self, line: Coset) -> u32 {
        let root = self.made().coset;
        let holds = self.log_expansion == 0
            && line.log_size() <= root.log_size()
            && are_same(doubled(root, line.log_size()), line);
        assert!(holds, "the twiddles of a line of 2^{} points are those of another domain", line.log_size());
        root.log_size()
    }

    /// What was made.
    ///
    /// Panics if nothing was: stwo makes trees without twiddles where it asks for none.
    fn made(&self) -> &Table {
        self.table.as_ref().expect("the twiddles of an empty buffer are not asked for")
    }

    /// The logarithm of the table's length.
    pub(crate) fn log_table(&self) -> u32 {
        self.made().words.len().ilog2()
    }

    /// The domain whose layers stand for those of a domain of 2^`log_size` points.
    pub(crate) fn log_domain(&self, log_size: u32) -> u32 {
        let log_domain = log_size + self.log_expansion;
        assert!(
            log_domain <= self.log_table() + 1,
            "twiddles for 2^{log_domain} points are not in the table"
        );
        log_domain
    }
}

impl TwiddleBuffer<BitReversedOrder> for DeviceTwiddles {
    fn empty() -> Self {
        Self::default()
    }

    fn extract_subdomain_twiddles(&self, domain_log_size: u32, subdomain_log_size: u32) -> Self {
        assert!(subdomain_log_size <= domain_log_size, "a subdomain is no larger than its domain");
        let log_expansion = self.log_expansion + domain_log_size - subdomain_log_size;
        Self { table: self.table.clone(), log_expansion }
    }
}

/// The coset of 2^`log_size` points in the tower of `root`.
fn doubled(root: Coset, log_size: u32) -> Coset {
    root.repeated_double(root.log_size() - log_size)
}

/// Whether two cosets have the same points in the same order. One point has no step, whatever is noted down
/// as such.
fn are_same(left: Coset, right: Coset) -> bool {
    left.log_size() == right.log_size()
        && left.initial_index == right.initial_index
        && (left.log_size() == 0 || left.step_size == right.step_size)
}

/// The tables of `coset`, computed on the device.
pub(crate) fn precompute(queue: &Queue, coset: Coset) -> TwiddleTree<CudaBackend> {
    let powers = std::iter::successors(Some(M31_CIRCLE_GEN), |point| Some(point.double()))
        .take(31)
        .flat_map(|point| [point.x.0, point.y.0]);
    let powers = queue.upload(&powers.collect::<Vec<u32>>());
    let log_table = coset.log_size();
    if log_table > LOG_LARGEST {
        let what = format!(
            "twiddles for a domain of 2^{} points; 2^{} is the largest that has any",
            log_table + 1,
            LOG_LARGEST + 1
        );
        raise(Error::Unsupported { what })
    }
    let len = 1usize << log_table;
    let (mut table, mut inverses) = (queue.alloc::<u32>(len), queue.alloc::<u32>(len));
    let (initial, step) = (coset.initial_index.0 as u32, coset.step_size.0 as u32);
    let arguments = args![&powers, initial, step, log_table, &mut table, &mut inverses];
    queue.launch(&kernels::TWIDDLES, "make_twiddles", &one_thread_each(len), &arguments);
    let elsewhere = Arc::new(Locked::default());
    let buffer = |direction, words| {
        let table = Table { queue: queue.clone(), coset, direction, words, elsewhere: elsewhere.clone() };
        DeviceTwiddles { table: Some(Arc::new(table)), log_expansion: 0 }
    };
    let (twiddles, itwiddles) = (buffer(Direction::Forward, table), buffer(Direction::Inverse, inverses));
    TwiddleTree { root_coset: coset, twiddles, itwiddles }
}
