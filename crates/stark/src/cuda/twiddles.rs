//! Tables of twiddles on the device.

use std::sync::Arc;

use gatework_gpu::{Buffer, args};
use stwo::core::circle::{Coset, M31_CIRCLE_GEN};
use stwo::core::poly::circle::CircleDomain;
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::twiddles::{TwiddleBuffer, TwiddleTree};

use super::one_thread_each;
use crate::backend::CudaBackend;
use crate::kernels;
use crate::queue::Queue;

/// The x coordinates, or their inverses, of the halves of a coset and of its doublings; `kernels/circle.cuh` has the layout.
#[derive(Clone, Default)]
pub struct DeviceTwiddles {
    table: Option<Arc<Table>>,
    /// By how much larger the domains are whose layers are read for a transform: in bit-reversed order the twiddles of a
    /// subdomain are a prefix of those of its domain, so that the table of the domain serves both.
    log_expansion: u32,
}

struct Table {
    queue: Queue,
    words: Buffer<u32>,
}

impl DeviceTwiddles {
    /// The table, for kernels on `queue`.
    pub(crate) fn table(&self, queue: &Queue) -> &Buffer<u32> {
        let table = self.made();
        queue.require_own(&table.queue);
        &table.words
    }

    /// Refuses twiddles of another context than `queue`'s.
    pub(crate) fn require(&self, queue: &Queue, _: CircleDomain) {
        // Domains below eight points have theirs in no table.
        if let Some(table) = &self.table {
            queue.require_own(&table.queue);
        }
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

/// The tables of `coset`, computed on the device.
pub(crate) fn precompute(queue: &Queue, coset: Coset) -> TwiddleTree<CudaBackend> {
    let powers = std::iter::successors(Some(M31_CIRCLE_GEN), |point| Some(point.double()))
        .take(31)
        .flat_map(|point| [point.x.0, point.y.0]);
    let powers = queue.upload(&powers.collect::<Vec<u32>>());
    let log_table = coset.log_size();
    let len = 1usize << log_table;
    let (mut table, mut inverses) = (queue.alloc::<u32>(len), queue.alloc::<u32>(len));
    let (initial, step) = (coset.initial_index.0 as u32, coset.step_size.0 as u32);
    let arguments = args![&powers, initial, step, log_table, &mut table, &mut inverses];
    queue.launch(&kernels::TWIDDLES, "make_twiddles", &one_thread_each(len), &arguments);
    let buffer = |words| {
        let table = Table { queue: queue.clone(), words };
        DeviceTwiddles { table: Some(Arc::new(table)), log_expansion: 0 }
    };
    TwiddleTree { root_coset: coset, twiddles: buffer(table), itwiddles: buffer(inverses) }
}
