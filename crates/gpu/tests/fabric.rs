//! Ranks that work together, over host threads, emulated devices and virtual devices.

#[path = "support/ranks.rs"]
mod ranks;
mod support;

use gatework_gpu::fabric::{Element, Fabric, Host, Operation, Rank, Reduction, Traffic, part_of};
use gatework_gpu::{Device, Error, Result, View, ViewMut};
use ranks::{Memory, driven, separate, shares};
use support::{numbers, words};

const COUNTS: [usize; 4] = [1, 2, 4, 8];
/// None, one, odd ones, more than a block of the kernel.
const LENS: [usize; 5] = [0, 1, 7, 65, 301];

/// Words of one rank.
fn of_rank(seed: u64, rank: usize, len: usize) -> Vec<u32> {
    words(seed * 1000 + rank as u64 + 1, len)
}

/// Elements that a rank sends to another: uneven, some none.
fn parcel(from: usize, to: usize, len: usize) -> usize {
    (from * 3 + to * 5) % 4 * len / 3
}

/// What one rank has after every operation.
#[derive(Debug, PartialEq)]
struct Results {
    passed: Vec<u32>,
    broadcast: Vec<u32>,
    gathered: Vec<u32>,
    gathered_parts: Vec<u32>,
    at_root: Vec<u32>,
    exchanged: Vec<u32>,
    exchanged_parts: Vec<u32>,
    scattered: Vec<u32>,
    reduced: Vec<u32>,
    all_reduced: Vec<u32>,
}

/// Every operation in a row. Sources are spoiled as soon as a call returns, and targets hold what must go.
fn all_operations<P: Memory>(rank: &mut Rank<P>, seed: u64, len: usize) -> Result<Results> {
    let (me, ranks) = (rank.rank(), rank.ranks());
    let order = &P::order(rank)?;
    let root = seed as usize % ranks;
    let source = |count: usize| P::upload(order, &of_rank(seed, me, count));
    let target = |count: usize| P::upload(order, &vec![0xDEAD_BEEF_u32; count]);

    let mut passed = target(len)?;
    if ranks > 1 {
        // Even ranks send to the next, odd ones back.
        let (other, first) = (me ^ 1, me % 2 == 0);
        let mut from = source(len)?;
        if first {
            rank.send(order, other, P::read(&from))?;
            P::spoil(order, &mut from)?;
        }
        rank.receive(order, other, P::write(&mut passed))
            .and_then(|()| if first { Ok(()) } else { rank.send(order, other, P::read(&from)) })?;
        P::spoil(order, &mut from)?;
    }

    let mut broadcast = if me == root { source(len)? } else { target(len)? };
    rank.broadcast(order, root, P::write(&mut broadcast))?;

    let mut from = source(len)?;
    let mut gathered = target(len * ranks)?;
    rank.all_gather(order, P::read(&from), P::write(&mut gathered))?;
    P::spoil(order, &mut from)?;

    let lens: Vec<usize> = (0..ranks).map(|rank| parcel(rank, 1, len)).collect();
    let mut from = source(lens[me])?;
    let mut gathered_parts = target(lens.iter().sum())?;
    rank.all_gather_parts(order, &lens, P::read(&from), P::write(&mut gathered_parts))?;
    let mut at_root = target(if me == root { lens.iter().sum() } else { 0 })?;
    rank.gather(order, root, &lens, P::read(&from), P::write(&mut at_root))?;
    P::spoil(order, &mut from)?;

    let mut from = source(len * ranks)?;
    let mut exchanged = target(len * ranks)?;
    rank.all_to_all(order, P::read(&from), P::write(&mut exchanged))?;
    P::spoil(order, &mut from)?;

    let sends: Vec<usize> = (0..ranks).map(|to| parcel(me, to, len)).collect();
    let receives: Vec<usize> = (0..ranks).map(|from| parcel(from, me, len)).collect();
    let mut from = source(sends.iter().sum())?;
    let mut exchanged_parts = target(receives.iter().sum())?;
    rank.all_to_all_parts(order, &sends, &receives, P::read(&from), P::write(&mut exchanged_parts))?;
    P::spoil(order, &mut from)?;

    let mut from = source(len)?;
    let mut scattered = target(rank.part(len).1)?;
    rank.reduce_scatter(order, Reduction::new(Operation::Sum), P::read(&from), P::write(&mut scattered))?;
    let mut reduced = target(if me == root { len } else { 0 })?;
    rank.reduce(order, Reduction::new(Operation::Min), root, P::read(&from), P::write(&mut reduced))?;
    let mut all_reduced = target(len)?;
    rank.all_reduce(order, Reduction::new(Operation::Xor), P::read(&from), P::write(&mut all_reduced))?;
    P::spoil(order, &mut from)?;
    drop(from);

    rank.settle(order)?;
    let read = |held: &P::Held<u32>| P::download(order, held);
    Ok(Results {
        passed: read(&passed)?,
        broadcast: read(&broadcast)?,
        gathered: read(&gathered)?,
        gathered_parts: read(&gathered_parts)?,
        at_root: read(&at_root)?,
        exchanged: read(&exchanged)?,
        exchanged_parts: read(&exchanged_parts)?,
        scattered: read(&scattered)?,
        reduced: read(&reduced)?,
        all_reduced: read(&all_reduced)?,
    })
}

/// The same, from what all ranks start with.
fn expected(me: usize, ranks: usize, seed: u64, len: usize) -> Results {
    let root = seed as usize % ranks;
    let of = |rank: usize, count: usize| of_rank(seed, rank, count);
    let folded = |fold: fn(u32, u32) -> u32| -> Vec<u32> {
        let rows: Vec<Vec<u32>> = (0..ranks).map(|rank| of(rank, len)).collect();
        (0..len).map(|i| rows.iter().map(|row| row[i]).reduce(fold).unwrap()).collect()
    };
    let lens: Vec<usize> = (0..ranks).map(|rank| parcel(rank, 1, len)).collect();
    let parts: Vec<u32> = (0..ranks).flat_map(|rank| of(rank, lens[rank])).collect();
    let at_me = |all: Vec<u32>| if me == root { all } else { Vec::new() };
    let exchanged = |from: usize| of(from, len * ranks)[me * len..][..len].to_vec();
    let exchanged_parts = |from: usize| {
        let counts: Vec<usize> = (0..ranks).map(|to| parcel(from, to, len)).collect();
        let start: usize = counts[..me].iter().sum();
        of(from, counts.iter().sum())[start..][..counts[me]].to_vec()
    };
    let (start, count) = part_of(len, ranks, me);
    Results {
        passed: if ranks > 1 { of(me ^ 1, len) } else { vec![0xDEAD_BEEF; len] },
        broadcast: of(root, len),
        gathered: (0..ranks).flat_map(|rank| of(rank, len)).collect(),
        gathered_parts: parts.clone(),
        at_root: at_me(parts),
        exchanged: (0..ranks).flat_map(exchanged).collect(),
        exchanged_parts: (0..ranks).flat_map(exchanged_parts).collect(),
        scattered: folded(u32::wrapping_add)[start..][..count].to_vec(),
        reduced: at_me(folded(u32::min)),
        all_reduced: folded(|left, right| left ^ right),
    }
}

#[track_caller]
fn check<P: Memory>(ranks: Vec<Rank<P>>, seed: u64, len: usize)
where
    Rank<P>: Send,
{
    let count = ranks.len();
    let results = driven(ranks, |rank| all_operations(rank, seed, len));
    for (rank, result) in results.iter().enumerate() {
        assert_eq!(*result, expected(rank, count, seed, len), "rank {rank} of {count}, seed {seed}, {len}");
    }
}

#[test]
fn every_operation_on_host_threads_matches_the_reference() {
    for count in COUNTS.into_iter().chain([6]) {
        for len in LENS {
            for seed in 0..4 {
                check(Fabric::new().on_host(count).unwrap(), seed, len);
            }
        }
    }
}

#[test]
fn every_operation_on_emulated_devices_matches_the_reference_under_every_schedule() {
    for count in COUNTS {
        for (len, seeds) in [(0, 1), (1, 2), (7, 60), (65, 8), (301, 1)] {
            for seed in 0..seeds {
                check(separate(Fabric::new(), seed, count), seed, len);
            }
        }
    }
}

#[test]
fn every_operation_on_virtual_devices_matches_the_reference_under_every_schedule() {
    for count in COUNTS {
        for (len, seeds) in [(0, 1), (1, 2), (7, 30), (65, 4)] {
            for seed in 0..seeds {
                check(shares(Fabric::new(), seed, count), seed, len);
            }
        }
    }
}

/// The sum of 8 rows dealt out over so many ranks, as every rank has it.
fn sum_of_rows<P: Memory, T: Element + Send + Sync>(ranks: Vec<Rank<P>>, rows: &[Vec<T>]) -> Vec<Vec<T>>
where
    Rank<P>: Send,
{
    let each = rows.len() / ranks.len();
    driven(ranks, |rank| {
        let order = &P::order(rank)?;
        let mine = rows[rank.rank() * each..][..each].concat();
        let from = P::upload(order, &mine)?;
        let mut to = P::upload(order, &vec![T::zeroed(); rows[0].len()])?;
        let sum = Reduction::new(Operation::Sum).rows(each);
        rank.all_reduce(order, sum, P::read(&from), P::write(&mut to))?;
        rank.settle(order)?;
        P::download(order, &to)
    })
}

fn left_fold<T: Element>(rows: impl Iterator<Item = Vec<T>>, add: impl Fn(T, T) -> T) -> Vec<T> {
    rows.reduce(|sum, row| sum.into_iter().zip(row).map(|(left, right)| add(left, right)).collect()).unwrap()
}

#[test]
fn eight_rows_have_the_same_bits_on_1_2_4_and_8_ranks() {
    for (seed, len) in [(1, 5), (2, 33), (3, 1), (4, 0)] {
        // Of sizes so different that the order of additions shows.
        let scaled = |row: u64| -> Vec<f32> {
            let scale = [1.0, 1e7, 1e-3, -1e7, 3.0, 1e4, -1.0, 1e-6][row as usize];
            numbers(seed * 100 + row, len).into_iter().map(|x| x * scale).collect()
        };
        let rows: Vec<Vec<f32>> = (0..8).map(scaled).collect();
        let wide: Vec<Vec<f64>> =
            rows.iter().map(|row| row.iter().map(|&x| f64::from(x) / 3.0).collect()).collect();
        let whole: Vec<Vec<u64>> = (0..8)
            .map(|row| words(row + seed, len).into_iter().map(|w| u64::from(w) << 32 | 0xFFFF_FFFF).collect())
            .collect();
        let sum = left_fold(rows.iter().cloned(), |left, right| left + right);
        let wide_sum = left_fold(wide.iter().cloned(), |left, right| left + right);
        let whole_sum = left_fold(whole.iter().cloned(), u64::wrapping_add);
        for count in COUNTS {
            let host = || Fabric::new().on_host(count).unwrap();
            let emulated = || separate(Fabric::new(), seed, count);
            let bits = |sums: Vec<Vec<f32>>| -> Vec<Vec<u32>> {
                sums.into_iter().map(|sum| sum.into_iter().map(f32::to_bits).collect()).collect()
            };
            let all = vec![sum.iter().map(|x| x.to_bits()).collect::<Vec<u32>>(); count];
            assert_eq!(bits(sum_of_rows(host(), &rows)), all, "{count} threads");
            assert_eq!(bits(sum_of_rows(emulated(), &rows)), all, "{count} devices");
            assert_eq!(bits(sum_of_rows(shares(Fabric::new(), seed, count), &rows)), all, "{count} shares");
            assert_eq!(sum_of_rows(emulated(), &wide), vec![wide_sum.clone(); count]);
            assert_eq!(sum_of_rows(host(), &whole), vec![whole_sum.clone(); count]);
            assert_eq!(sum_of_rows(emulated(), &whole), vec![whole_sum.clone(); count]);
        }
        let backwards = left_fold(rows.iter().rev().cloned(), |left, right| left + right);
        assert!(len < 5 || backwards != sum, "the order of additions does not show");
    }
}

/// What crosses each link in one operation.
fn moved(count: usize, operation: impl Fn(&mut Rank<Host>) -> Result<()> + Sync) -> Traffic {
    let traffic = driven(Fabric::new().on_host(count).unwrap(), |rank| {
        operation(rank)?;
        rank.settle(&())?;
        Ok(rank.traffic())
    });
    assert!(traffic.windows(2).all(|pair| pair[0] == pair[1]));
    traffic[0].clone()
}

#[test]
fn bytes_of_every_link_are_those_of_the_closed_form() {
    const N: usize = 21;
    for count in COUNTS {
        let each = |traffic: &Traffic, bytes: &dyn Fn(usize, usize) -> usize| {
            for (from, to) in (0..count).flat_map(|from| (0..count).map(move |to| (from, to))) {
                let wanted = if from == to { 0 } else { bytes(from, to) as u64 };
                assert_eq!(traffic.bytes(from, to), wanted, "{from} to {to} of {count}");
            }
            assert_eq!(traffic.total(), traffic.links().map(|(.., bytes)| bytes).sum::<u64>());
        };
        let root = count - 1;
        each(&moved(count, |rank| rank.broadcast(&(), root, &mut [1u32; N][..])), &|from, _| {
            if from == root { 4 * N } else { 0 }
        });
        each(
            &moved(count, |rank| rank.all_gather(&(), &[1u64; N][..], &mut vec![0u64; N * count][..])),
            &|_, _| 8 * N,
        );
        each(
            &moved(count, |rank| {
                rank.all_to_all(&(), &vec![1u8; N * count][..], &mut vec![0u8; N * count][..])
            }),
            &|_, _| N,
        );
        let part = |rank| part_of(N, count, rank).1;
        let sum = Reduction::new(Operation::Sum);
        each(
            &moved(count, |rank| {
                rank.reduce_scatter(&(), sum, &[1u32; N][..], &mut vec![0; part(rank.rank())][..])
            }),
            &|_, to| 4 * part(to),
        );
        each(
            &moved(count, |rank| {
                let mut to = vec![0; if rank.rank() == root { N } else { 0 }];
                rank.reduce(&(), sum, root, &[1u32; N][..], &mut to[..])
            }),
            &|from, to| 4 * part(to) + if to == root { 4 * part(from) } else { 0 },
        );
        // Rows of integers are folded before they travel, rows of floats are not.
        each(
            &moved(count, |rank| rank.all_reduce(&(), sum.rows(3), &[1u32; 3 * N][..], &mut [0; N][..])),
            &|from, to| 4 * part(to) + 4 * part(from),
        );
        each(
            &moved(count, |rank| rank.all_reduce(&(), sum.rows(3), &[1f32; 3 * N][..], &mut [0.0; N][..])),
            &|from, to| 3 * 4 * part(to) + 4 * part(from),
        );
    }
}

#[test]
fn devices_count_the_same_bytes_as_threads() {
    let on_host = driven(Fabric::new().on_host(4).unwrap(), |rank| {
        all_operations(rank, 3, 65)?;
        Ok(rank.traffic())
    });
    let on_devices = driven(separate(Fabric::new(), 3, 4), |rank| {
        all_operations(rank, 3, 65)?;
        Ok(rank.traffic())
    });
    assert!(on_host[0].total() > 0);
    assert_eq!(on_devices, on_host);
}

#[test]
fn freeing_what_was_sent_waits_for_the_receiver_and_not_for_its_later_work() {
    let mut ahead = 0;
    for seed in 0..24 {
        let (tell, told) = std::sync::mpsc::channel();
        let (tell, told) = (std::sync::Mutex::new(tell), std::sync::Mutex::new(told));
        let done = std::sync::Barrier::new(2);
        let received = driven(separate(Fabric::new(), seed, 2), |rank| {
            let stream = rank.place().device().stream()?;
            if rank.rank() == 0 {
                let from = stream.upload(&of_rank(seed, 0, 9))?;
                rank.send(&stream, 1, from.view())?;
                let later: gatework_gpu::Event = told.lock().unwrap().recv().unwrap();
                drop(from);
                // The memory is given back in the order of this stream.
                stream.synchronize()?;
                assert_eq!(rank.place().device().budget().held(), 0);
                let ahead = !later.is_complete()?;
                done.wait();
                return Ok((Vec::new(), ahead));
            }
            let mut to = stream.alloc::<u32>(9)?;
            rank.receive(&stream, 0, to.view_mut())?;
            let mut other = stream.alloc::<u32>(9)?;
            (0..16).try_for_each(|value| stream.fill(&mut other, value))?;
            tell.lock().unwrap().send(stream.record()?).unwrap();
            done.wait();
            Ok((stream.download(&to)?, false))
        });
        assert_eq!(received[1].0, of_rank(seed, 0, 9), "seed {seed}");
        ahead += usize::from(received[0].1);
    }
    assert!(ahead > 0, "no schedule lets the sender go on before the receiver");
}

#[test]
fn memory_of_another_stream_is_freed_after_it_was_received() {
    for seed in 0..24 {
        let freed = std::sync::Barrier::new(2);
        let received = driven(separate(Fabric::new(), seed, 2), |rank| {
            let order = rank.place().device().stream()?;
            if rank.rank() == 1 {
                let mut to = order.alloc::<u32>(9)?;
                rank.receive(&order, 0, to.view_mut())?;
                freed.wait();
                return order.download(&to);
            }
            let home = rank.place().device().stream()?;
            let from = home.upload(&of_rank(seed, 0, 9))?;
            order.wait(&home.record()?)?;
            rank.send(&order, 1, from.view())?;
            drop(from);
            let outcome = home.synchronize();
            freed.wait();
            outcome.map(|()| Vec::new())
        });
        assert_eq!(received[1], of_rank(seed, 0, 9), "seed {seed}");
    }
}

#[test]
fn devices_that_were_opened_apart_make_no_fabric() {
    let devices = [Device::emulated(0).unwrap(), Device::emulated(0).unwrap()];
    let error = Fabric::new().over(&devices).unwrap_err();
    assert!(matches!(error, Error::OutOfReach { .. }), "{error}");
    assert!(error.to_string().contains("Device::open_all"), "{error}");
    assert!(Fabric::new().over(&[]).unwrap_err().to_string().contains("one at least"));
    assert!(Fabric::new().on_host(0).is_err());
}

#[test]
fn one_device_may_have_several_ranks_of_several_fabrics() {
    for seed in 0..4 {
        let device = Device::emulated(seed).unwrap();
        let same = vec![device.clone(); 4];
        check(Fabric::new().over(&same).unwrap(), seed, 7);
        let [left, right] = [0, 1].map(|_| Fabric::new().over(&same).unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| check(left, seed, 7));
            scope.spawn(|| check(right, seed + 1, 9));
        });
        assert_eq!(device.budget().held(), 0);
    }
}

#[test]
fn nccl_wants_cards_and_says_so() {
    let error = Fabric::new().over_nccl(&Device::emulated_group(0, 2).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "NCCL cannot be used: emulated:2#0 is no CUDA device");
}

#[test]
#[ignore = "needs a CUDA device"]
fn every_operation_on_virtual_devices_of_a_card_matches_the_reference() {
    for count in COUNTS {
        for len in [0, 1, 7, 65, 301, 100_003] {
            for seed in 0..4 {
                let devices = Device::open_all(&format!("cuda:0*{count}")).unwrap();
                check(Fabric::new().over(&devices).unwrap(), seed, len);
            }
        }
    }
}

#[test]
#[ignore = "needs a CUDA device and NCCL"]
fn every_operation_of_one_rank_of_nccl_matches_the_reference() {
    for len in [0, 1, 7, 65, 301, 100_003] {
        let devices = Device::open_all("cuda:0").unwrap();
        check(Fabric::new().over_nccl(&devices).unwrap(), 1, len);
    }
    let refused = Fabric::new().over_nccl(&Device::open_all("cuda:0*2").unwrap()).unwrap_err();
    assert!(refused.to_string().contains("it takes one rank a card"), "{refused}");
}

#[test]
#[ignore = "needs a CUDA device"]
fn copies_on_a_card_have_a_measured_speed() {
    let devices = Device::open_all("cuda:0*2").unwrap();
    let speed = devices[0].measure_copies_from(&devices[1], 64 << 20).unwrap().unwrap();
    assert!(speed > 1e9, "{speed}");
}

#[test]
fn the_emulated_device_measures_no_speed() {
    let devices = Device::emulated_group(0, 2).unwrap();
    assert_eq!(devices[0].measure_copies_from(&devices[1], 64).unwrap(), None);
}
