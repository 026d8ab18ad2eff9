//! The devices of a context that proves on several: who has which columns and which rows.
//!
//! Columns are dealt out to the devices, where they are transformed and sampled as a whole: nothing travels
//! for that. Rows are divided into as many parts as there are devices, in their order: leaves are hashed and
//! constraints evaluated there, for which a device fetches its rows of the columns of all others. The first
//! device, the lead, has the transcript, trees and all that is one column: the composition polynomial,
//! quotients and FRI.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crate::error::OrRaise as _;
use crate::queue::Queue;
use crate::streaming::Streams;
use crate::{Error, Result};

/// What the lead's queue knows of the others.
#[derive(Default)]
pub(crate) struct Ranks {
    others: Vec<Queue>,
}

impl Ranks {
    fn of(lead: &Queue) -> Arc<Self> {
        lead.keeps(|_| Self::default())
    }

    /// Makes the first of `queues` the lead of the others, before it is used.
    pub(crate) fn led(queues: Vec<Queue>) -> Queue {
        let mut queues = queues.into_iter();
        let Some(lead) = queues.next() else { unreachable!("a context has a device") };
        lead.keeps(|_| Self { others: queues.collect() });
        lead
    }

    /// The queues of all devices, the lead's first.
    pub(crate) fn all(lead: &Queue) -> Vec<Queue> {
        std::iter::once(lead).chain(&Self::of(lead).others).cloned().collect()
    }

    /// Those that work on 2^`log_rows` rows, each on as many: all, unless some would have a single row. The
    /// logarithm of their number comes with them.
    pub(crate) fn for_rows(lead: &Queue, log_rows: u32) -> (Vec<Queue>, u32) {
        let mut queues = Self::all(lead);
        let log_ranks = queues.len().ilog2().min(log_rows.saturating_sub(1));
        queues.truncate(1 << log_ranks);
        (queues, log_ranks)
    }

    /// Waits for the others. What failed there is an error from here on, also where nothing of it was read.
    pub(crate) fn settle(lead: &Queue) -> Result<()> {
        Self::of(lead).others.iter().try_for_each(|queue| Ok(queue.stream().synchronize()?))
    }

    /// Refuses what one device alone does.
    pub(crate) fn require_one(lead: &Queue, what: &str) -> Result<()> {
        match Self::of(lead).others.len() {
            0 => Ok(()),
            others => {
                let devices = others + 1;
                Err(Error::Unsupported { what: format!("{what} in a context of {devices} devices: use one") })
            }
        }
    }
}

/// Which device each of the units of columns of these lengths goes to, where the devices have columns of
/// `held` words: in their order, to the one that has the least, and of those the first.
pub(crate) fn deal(lens: impl IntoIterator<Item = u64>, held: Vec<u64>) -> Vec<usize> {
    let mut held = held;
    let least = |len: u64| {
        let rank = (0..held.len()).min_by_key(|&rank| held[rank]).unwrap_or(0);
        held[rank] += len;
        rank
    };
    lens.into_iter().map(least).collect()
}

/// Words of the columns that each device of `lead` has.
pub(crate) fn column_words(lead: &Queue) -> Vec<u64> {
    Ranks::all(lead).iter().map(Queue::column_words).collect()
}

/// Has each device `make` what is dealt to it of columns of these lengths, by their numbers, and gives all in
/// the order of the columns.
pub(crate) fn dealt<R>(
    lead: &Queue,
    lens: &[usize],
    mut make: impl FnMut(&Queue, &[usize]) -> Vec<R>,
) -> Vec<R> {
    let queues = Ranks::all(lead);
    let owners = deal(lens.iter().map(|&len| len as u64), column_words(lead));
    let mut all: Vec<Option<R>> = lens.iter().map(|_| None).collect();
    for (rank, queue) in queues.iter().enumerate() {
        let numbers: Vec<usize> = (0..lens.len()).filter(|&number| owners[number] == rank).collect();
        if numbers.is_empty() {
            continue;
        }
        for (number, made) in numbers.iter().zip(make(queue, &numbers)) {
            all[*number] = Some(made);
        }
    }
    all.into_iter().flatten().collect()
}

/// Does `work`, in which the devices of `lead` fetch columns of each other by the streams of their copies:
/// these come after what was queued for any of the columns before, and before what is queued for them next.
pub(crate) fn meet<R>(lead: &Queue, work: impl FnOnce() -> R) -> R {
    let queues = Ranks::all(lead);
    let copies: Vec<_> = queues.iter().map(|queue| Streams::of(queue).copies(queue)).collect();
    for queue in &queues {
        let start = queue.stream().record().or_raise();
        copies.iter().for_each(|copies| copies.wait(&start).or_raise());
    }
    let done = catch_unwind(AssertUnwindSafe(work));
    // Also where it failed: what was queued still reads.
    let end = || -> Result<()> {
        for copies in &copies {
            let end = copies.record()?;
            queues.iter().try_for_each(|queue| queue.stream().wait(&end))?;
        }
        Ok(())
    };
    let ended = end();
    let done = done.unwrap_or_else(|failure| resume_unwind(failure));
    ended.or_raise();
    done
}

#[cfg(test)]
mod tests {
    use gatework_gpu::{Device, Grid, Module, args};

    use stwo::core::fields::m31::BaseField;
    use stwo::prover::backend::Column as _;

    use super::*;
    use crate::Context;
    use crate::column::DeviceColumn;
    use crate::cuda::groups::{Wanted, by_groups};

    /// Also where nothing that came of it is read.
    #[test]
    fn what_fails_on_another_device_ends_the_scope() {
        static WRITES: Module = Module::new(
            "writes_past_its_buffer",
            "#include \"gw/gw.cuh\"\nGW_KERNEL(write)(u32* to, u32 at) { to[at] = 1; }",
            &[],
        );
        let context = Context::over(&Device::emulated_group(3, 2).unwrap()).unwrap();
        let write = |at: u32| {
            let other = Ranks::all(&Queue::current())[1].clone();
            let mut words = other.alloc::<u32>(4);
            other.launch(&WRITES, "write", &Grid::new([1; 3], [1; 3]), &args![&mut words, at]);
        };
        context.scope(|| write(3)).unwrap();
        let error = context.scope(|| write(4)).unwrap_err();
        assert!(matches!(error, Error::Gpu(gatework_gpu::Error::Fault(_))), "{error:?}");
    }

    /// Kernels write by address, of which nobody but a meeting knows.
    #[test]
    fn what_is_fetched_is_what_was_there_at_the_time() {
        static WRITES: Module = Module::new(
            "writes_by_address",
            "#include \"gw/gw.cuh\"\nGW_KERNEL(write)(u64 to, u32 value) { ((u32*)to)[gw::global_thread()] = value; }",
            &[],
        );
        let context = Context::over(&Device::emulated_group(5, 2).unwrap()).unwrap();
        let found = context.scope(|| {
            let [lead, other]: [Queue; 2] = Ranks::all(&Queue::current()).try_into().ok().unwrap();
            let column = DeviceColumn::<BaseField>::from_words(&other, &[1; 64]);
            let mut copies = Vec::new();
            for value in 2..6u32 {
                let address = column.address(&other);
                other.launch(&WRITES, "write", &Grid::new([1; 3], [64, 1, 1]), &args![address, value]);
                meet(&lead, || {
                    by_groups(&lead, &[&column.seen_from(&lead)], &Wanted::WHOLE, |_, arrived| {
                        copies.push(arrived[0].clone());
                    });
                });
            }
            copies.iter().map(|copy| copy.to_cpu()).collect::<Vec<_>>()
        });
        let expected: Vec<_> = (2..6u32).map(|value| vec![BaseField::from(value); 64]).collect();
        assert_eq!(found.unwrap(), expected);
    }

    #[test]
    fn columns_are_dealt_to_whoever_has_least() {
        assert_eq!(deal([8; 5], vec![0; 4]), [0, 1, 2, 3, 0]);
        assert_eq!(deal([8, 2, 2, 2, 4], vec![0; 2]), [0, 1, 1, 1, 1]);
        assert_eq!(deal([4; 3], vec![0]), [0; 3]);
        assert_eq!(deal([], vec![0; 8]), Vec::<usize>::new());
        // Also where some have columns already.
        assert_eq!(deal([4; 4], vec![8, 4, 0, 9]), [2, 1, 2, 0]);
    }
}
