//! Which jobs run together.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::tally::Cost;

use super::Script;

/// Upper limits on the jobs of one super-batch, together. A larger job runs alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Jobs.
    pub jobs: u64,
    /// Words opened by its jobs.
    pub words: u64,
    /// Key bytes of the larger party and bytes on the wire, together.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { jobs: 1 << 10, words: 1 << 28, bytes: 8 << 30 }
    }
}

/// Jobs in super-batches, in order. All opens of a super-batch's phase travel in one message, and while one
/// super-batch waits for the peer the next is evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    batches: Vec<Vec<usize>>,
    costs: Vec<Cost>,
    scripts: Vec<Arc<Script>>,
}

impl Plan {
    /// Fills super-batches in the order of the jobs. A job that no other fits beside has one of its own,
    /// however large it is.
    pub fn new(limits: Limits, costs: &[Cost]) -> Self {
        let mut batches: Vec<Vec<usize>> = Vec::new();
        let mut filled = (0u64, 0u64, 0u64);
        for (job, cost) in costs.iter().enumerate() {
            let bytes = cost.larger_key_bytes() + cost.traffic_bytes();
            let words = filled.1.saturating_add(cost.opened_words);
            let next = (filled.0 + 1, words, filled.2.saturating_add(bytes));
            let fits = next.0 <= limits.jobs && next.1 <= limits.words && next.2 <= limits.bytes;
            match batches.last_mut() {
                Some(batch) if fits => {
                    batch.push(job);
                    filled = next;
                }
                _ => {
                    batches.push(vec![job]);
                    filled = (1, cost.opened_words, bytes);
                }
            }
        }
        Self { batches, costs: costs.to_vec(), scripts: Vec::new() }
    }

    /// The same with what each job asks of its keys, one script a job, which is worked out during the
    /// evaluation otherwise.
    pub fn with_scripts(self, scripts: Vec<Arc<Script>>) -> Self {
        Self { scripts, ..self }
    }

    /// What a job asks of its keys, if it was said.
    pub(crate) fn script(&self, job: usize) -> Option<&Arc<Script>> {
        self.scripts.get(job)
    }

    /// Jobs of each super-batch.
    pub fn batches(&self) -> &[Vec<usize>] {
        &self.batches
    }

    /// What a job is planned to cost.
    pub(crate) fn cost(&self, job: usize) -> Option<&Cost> {
        self.costs.get(job)
    }

    /// Jobs in all.
    pub fn jobs(&self) -> usize {
        self.costs.len()
    }
}

/// Fails if a job did not use what was planned for it.
pub(super) fn on_plan(job: usize, unit: &'static str, found: u64, planned: u64) -> Result<()> {
    if found == planned { Ok(()) } else { Err(Error::OffPlan { job: job.to_string(), unit, found, planned }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(words: u64, bytes: u64) -> Cost {
        Cost { opened_words: words, key_bytes: [bytes, 0], ..Cost::default() }
    }

    #[test]
    fn batches_stay_within_every_limit() {
        let limits = Limits { jobs: 2, words: 100, bytes: 1000 };
        let batches = |costs: &[Cost]| Plan::new(limits, costs).batches;
        assert_eq!(batches(&[cost(1, 1), cost(1, 1), cost(1, 1)]), [vec![0, 1], vec![2]]);
        assert_eq!(batches(&[cost(60, 1), cost(60, 1)]), [vec![0], vec![1]]);
        assert_eq!(batches(&[cost(1, 600), cost(1, 400), cost(1, 1)]), [vec![0, 1], vec![2]]);
        assert_eq!(batches(&[]), Vec::<Vec<usize>>::new());
    }

    #[test]
    fn what_is_larger_than_every_limit_runs_alone() {
        let limits = Limits { jobs: 2, words: 100, bytes: 1000 };
        let costs =
            [cost(1, 1), cost(101, 1), cost(1, 1001), cost(1, 1), cost(1, 1), cost(u64::MAX, u64::MAX)];
        let plan = Plan::new(limits, &costs);
        assert_eq!(plan.batches, [vec![0], vec![1], vec![2], vec![3, 4], vec![5]]);
        assert_eq!(Plan::new(Limits { jobs: 0, ..limits }, &costs[..2]).batches, [vec![0], vec![1]]);
    }
}
