//! A rank that dies, stalls, or calls something else is an error in time on all others.

#[path = "support/ranks.rs"]
mod ranks;
mod support;

use std::time::{Duration, Instant};

use gatework_gpu::fabric::{DeviceRank, Fabric, Host, HostRank, Operation, Rank, Reduction};
use gatework_gpu::{Class, Classified, Error, Grid, Result, Source, View, ViewMut, args};
use ranks::{Memory, attempted, separate, shares};

/// Long enough that no test should reach it.
const LONG: Duration = Duration::from_secs(60);
/// In time: far below `LONG`.
const SOON: Duration = Duration::from_secs(10);

/// What each rank ends with, and that none took long.
fn outcomes<P: Memory>(
    ranks: Vec<Rank<P>>,
    work: impl Fn(&mut Rank<P>) -> Result<()> + Sync,
) -> Vec<Option<Result<()>>>
where
    Rank<P>: Send,
{
    let start = Instant::now();
    // A rank goes when its work ends, as in a program.
    let outcomes = attempted(ranks, |mut rank| work(&mut rank));
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    outcomes
}

/// All ranks but `guilty` are told that it was it, in that call, with these words.
#[track_caller]
fn blamed(outcomes: &[Option<Result<()>>], guilty: usize, in_call: &str, words: &str) {
    for (at, outcome) in outcomes.iter().enumerate().filter(|(at, _)| *at != guilty) {
        match outcome {
            Some(Err(error @ Error::Peer { rank, call, what })) => {
                assert_eq!((*rank, *call), (guilty, in_call), "rank {at}: {error}");
                assert!(what.contains(words), "rank {at}: {error}");
                assert_eq!(error.class(), Class::Peer);
            }
            other => panic!("rank {at}: {other:?}"),
        }
    }
}

fn gather<P: Memory>(rank: &mut Rank<P>, len: usize) -> Result<()> {
    let order = &P::order(rank)?;
    let from = P::upload(order, &vec![1u32; len])?;
    let mut to = P::upload(order, &vec![0u32; len * rank.ranks()])?;
    rank.all_gather(order, P::read(&from), P::write(&mut to))
}

fn broadcast<P: Memory>(rank: &mut Rank<P>, root: usize, len: usize) -> Result<()> {
    let order = &P::order(rank)?;
    let mut data = P::upload(order, &vec![1u32; len])?;
    rank.broadcast(order, root, P::write(&mut data))
}

/// Every failure that a place does not matter to.
fn failures<P: Memory>(make: impl Fn(Fabric, usize) -> Vec<Rank<P>>)
where
    Rank<P>: Send,
{
    let fabric = Fabric::new().deadline(LONG);
    // A rank is dropped: before anybody waits, and while all others do.
    for pause in [0, 30] {
        for count in [2, 4, 8] {
            let all = outcomes(make(fabric, count), |rank| {
                gather(rank, 3)?;
                if rank.rank() == 1 {
                    std::thread::sleep(Duration::from_millis(pause));
                    return Ok(());
                }
                gather(rank, 5)
            });
            assert!(matches!(all[1], Some(Ok(()))));
            blamed(&all, 1, "all_gather", "was dropped and will not come");
        }
    }
    // A rank panics in the middle of its work.
    let all = outcomes(make(fabric, 4), |rank| {
        gather(rank, 3)?;
        assert!(rank.rank() != 2, "a rank panics on purpose");
        broadcast(rank, 0, 4)
    });
    assert!(all[2].is_none());
    blamed(&all, 2, "broadcast", "panicked and will not come");
    // A rank stalls. It is told, too, when it comes at last, and so is whoever tries again.
    let short = Fabric::new().deadline(Duration::from_millis(400));
    let all = outcomes(make(short, 4), |rank| {
        if rank.rank() == 3 {
            std::thread::sleep(Duration::from_millis(1200));
        }
        let first = broadcast(rank, 1, 4).unwrap_err().to_string();
        assert_eq!(gather(rank, 2).unwrap_err().to_string(), first);
        assert!(
            first.contains("rank 3 did not come to broadcast(u32, root 1, elements 4) within 400ms"),
            "{first}"
        );
        gather(rank, 9)
    });
    blamed(&all, 3, "broadcast", "did not come");
    assert!(matches!(all[3], Some(Err(Error::Peer { rank: 3, .. }))));
    // Another operation, other lengths, another root, another type.
    let all =
        outcomes(
            make(fabric, 4),
            |rank| if rank.rank() == 0 { broadcast(rank, 0, 2) } else { gather(rank, 2) },
        );
    assert!(
        all.iter()
            .all(|one| matches!(one, Some(Err(Error::Peer { what, .. })) if what.contains("where rank")))
    );
    let all = outcomes(make(fabric, 4), |rank| gather(rank, if rank.rank() == 2 { 6 } else { 5 }));
    assert!(
        all.iter().all(|one| matches!(one, Some(Err(Error::Peer { call: "all_gather", .. })))),
        "{all:?}"
    );
    let all = outcomes(make(fabric, 2), |rank| broadcast(rank, rank.rank(), 5));
    assert!(
        all.iter().all(|one| matches!(one, Some(Err(Error::Peer { what, .. })) if what.contains("root")))
    );
    let all = outcomes(make(fabric, 2), |rank| {
        let order = &P::order(rank)?;
        let mut floats = P::upload(order, &[1f32; 5])?;
        if rank.rank() == 0 { broadcast(rank, 0, 5) } else { rank.broadcast(order, 0, P::write(&mut floats)) }
    });
    assert!(all.iter().all(|one| matches!(one, Some(Err(Error::Peer { what, .. })) if what.contains("f32"))));
    // What one sends is not what the other expects.
    let all = outcomes(make(fabric, 4), |rank| {
        let order = &P::order(rank)?;
        let wanted = if rank.rank() == 1 { [1, 2, 1, 1] } else { [1, 1, 1, 1] };
        let from = P::upload(order, &[0u32; 4])?;
        let mut to = P::upload(order, &vec![0u32; wanted.iter().sum()])?;
        rank.all_to_all_parts(order, &[1; 4], &wanted, P::read(&from), P::write(&mut to))
    });
    for one in &all {
        let text = one.as_ref().map(|one| one.as_ref().unwrap_err().to_string());
        assert_eq!(
            text.as_deref(),
            Some(
                "the fabric is lost in all_to_all_parts: rank 1 sends 1 elements to rank 1, which expects 2"
            )
        );
    }
    // Sends in a circle, of two and of four.
    for count in [2, 4] {
        let all = outcomes(make(fabric, count), |rank| {
            let order = &P::order(rank)?;
            let from = P::upload(order, &[1u32; 3])?;
            let next = (rank.rank() + 1) % rank.ranks();
            rank.send(order, next, P::read(&from))
        });
        assert!(
            all.iter().all(
                |one| matches!(one, Some(Err(Error::Peer { what, .. })) if what.contains("waits for it"))
            ),
            "{all:?}"
        );
    }
    // A send to a rank that is in an operation of all.
    let all = outcomes(make(fabric, 4), |rank| {
        let order = &P::order(rank)?;
        let from = P::upload(order, &[1u32; 3])?;
        if rank.rank() == 3 { rank.send(order, 0, P::read(&from)) } else { gather(rank, 2) }
    });
    assert!(all.iter().all(|one| matches!(one, Some(Err(Error::Peer { .. })))), "{all:?}");
    // What a rank is refused is told to those that wait for it.
    let all = outcomes(make(fabric, 4), |rank| {
        if rank.rank() != 2 {
            return gather(rank, 2);
        }
        let order = &P::order(rank)?;
        let from = P::upload(order, &[1u32; 2])?;
        let mut to = P::upload(order, &[0u32; 7])?;
        rank.all_gather(order, P::read(&from), P::write(&mut to))
    });
    assert!(
        matches!(&all[2], Some(Err(Error::Length { message, .. })) if message.contains("7 given where 8 are needed"))
    );
    blamed(&all, 2, "all_gather", "failed: all_gather: 7 given where 8 are needed");
}

#[test]
fn failures_on_host_threads_reach_all_in_time() {
    failures::<Host>(|fabric, count| fabric.on_host(count).unwrap());
}

#[test]
fn failures_on_emulated_devices_reach_all_in_time() {
    failures(|fabric, count| separate(fabric, count as u64, count));
}

#[test]
fn failures_on_virtual_devices_reach_all_in_time() {
    failures(|fabric, count| shares(fabric, count as u64, count));
}

#[test]
#[ignore = "needs a CUDA device"]
fn failures_on_virtual_devices_of_a_card_reach_all_in_time() {
    failures(|fabric, count| {
        fabric.over(&gatework_gpu::Device::open_all(&format!("cuda:0*{count}")).unwrap()).unwrap()
    });
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let alone = || -> HostRank { Fabric::new().on_host(1).unwrap().remove(0) };
    let said = |outcome: Result<()>| outcome.unwrap_err().to_string();
    let (one, mut other) = ([1u32; 4], [0u32; 4]);
    assert!(said(alone().send(&(), 0, &one[..])).contains("cannot send to itself"));
    assert!(said(alone().receive(&(), 5, &mut other[..])).contains("there is no rank 5"));
    assert!(said(alone().broadcast(&(), 1, &mut other[..])).contains("there is no rank 1"));
    assert!(said(alone().gather(&(), 0, &[4, 4], &one[..], &mut other[..])).contains("2 given where 1"));
    let huge = [usize::MAX, 2];
    let mut two = Fabric::new().on_host(2).unwrap();
    assert!(
        said(two[1].all_gather_parts(&(), &huge, &one[..2], &mut other[..]))
            .contains("more than can be addressed")
    );
    let sum = Reduction::new(Operation::Sum);
    assert!(
        said(alone().all_reduce(&(), sum.rows(3), &one[..], &mut other[..])).contains("not 3 whole rows")
    );
    let most = Reduction::new(Operation::Max);
    assert!(said(alone().all_reduce(&(), most, &[1f64][..], &mut [0.0][..])).contains("for integers"));
    let mut alone = alone();
    assert!(alone.all_reduce(&(), sum, &one[..], &mut other[..3]).is_err());
    assert!(matches!(alone.settle(&()), Err(Error::Peer { rank: 0, .. })));
}

/// Counts, and stops with a fault where it is told.
const CHECKED: &str = r#"
    #include "gw/gw.cuh"
    GW_KERNEL(checked)(u32* x, u32 n, u32 fault) {
        const u32 i = (u32)gw::global_thread();
        if (fault) gw::trap();
        if (i < n) x[i] += i;
    }
"#;

#[test]
fn a_kernel_that_fails_on_one_rank_fails_all_when_they_settle() {
    for seed in 0..4 {
        let work = |rank: &mut DeviceRank| -> Result<()> {
            let stream = rank.place().device().stream()?;
            let kernel = stream.device().kernel(&Source::new("checked", CHECKED))?;
            let mut from = stream.upload(&[7u32; 9])?;
            let fault = u32::from(rank.rank() == 2);
            kernel.launch(&stream, &Grid::covering(9, 32), &args![&mut from, 9u32, fault])?;
            let mut to = stream.alloc::<u32>(36)?;
            rank.all_gather(&stream, from.view(), to.view_mut())?;
            rank.settle(&stream)
        };
        let all = outcomes(separate(Fabric::new().deadline(LONG), seed, 4), work);
        assert!(matches!(all[2], Some(Err(Error::Fault(_) | Error::Peer { .. }))), "{:?}", all[2]);
        for (rank, one) in all.iter().enumerate().filter(|(rank, _)| *rank != 2) {
            assert!(matches!(one, Some(Err(Error::Peer { rank: 2, .. }))), "rank {rank}: {one:?}");
        }
    }
}

#[test]
fn a_stream_of_another_rank_is_refused_and_told() {
    let ranks = separate(Fabric::new().deadline(LONG), 0, 2);
    let wrong = ranks[1].place().device().stream().unwrap();
    let all = outcomes(ranks, |rank| {
        if rank.rank() == 1 {
            return gather(rank, 2);
        }
        let mut data = wrong.upload(&[1u32])?;
        rank.broadcast(&wrong, 0, data.view_mut())
    });
    assert!(matches!(all[0], Some(Err(Error::ForeignDevice { .. }))), "{:?}", all[0]);
    blamed(&all, 0, "broadcast", "different devices");
}

/// One call after another, each of another kind, until one fails: how many passed, and the failure.
fn calls_until<P: Memory>(rank: &mut Rank<P>, count: usize) -> Result<(usize, Option<Error>)> {
    let order = &P::order(rank)?;
    let ranks = rank.ranks();
    for number in 0..count {
        let from = P::upload(order, &vec![number as u32; 2 * ranks])?;
        let mut to = P::upload(order, &vec![0u32; 2 * ranks])?;
        let sum = Reduction::new(Operation::Sum);
        let outcome = match number % 5 {
            0 => gather(rank, 3),
            1 => rank.all_to_all(order, P::read(&from), P::write(&mut to)),
            2 => broadcast(rank, number % ranks, 5),
            3 => rank.all_reduce(order, sum, P::read(&from), P::write(&mut to)),
            _ => rank.settle(order),
        };
        if let Err(error) = outcome {
            return Ok((number, Some(error)));
        }
    }
    Ok((count, None))
}

fn dies_anywhere<P: Memory>(make: impl Fn(usize) -> Vec<Rank<P>>)
where
    Rank<P>: Send,
{
    const CALLS: usize = 11;
    for (count, guilty) in [(2, 1), (4, 0), (4, 2), (8, 5)] {
        for at in 0..CALLS {
            let ended = attempted(make(count), |mut rank| {
                let calls = if rank.rank() == guilty { at } else { CALLS };
                calls_until(&mut rank, calls)
            });
            for (rank, one) in ended.iter().enumerate().filter(|(rank, _)| *rank != guilty) {
                let (passed, error) = one.as_ref().unwrap().as_ref().unwrap();
                assert_eq!(*passed, at, "rank {rank} of {count}");
                assert!(matches!(error, Some(Error::Peer { rank, .. }) if *rank == guilty), "{error:?}");
            }
        }
    }
}

#[test]
fn wherever_a_rank_dies_the_others_pass_what_it_passed_and_no_more() {
    dies_anywhere::<Host>(|count| Fabric::new().deadline(LONG).on_host(count).unwrap());
    dies_anywhere(|count| separate(Fabric::new().deadline(LONG), 7, count));
}
