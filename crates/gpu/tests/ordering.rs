//! Streams that share memory in safe code are ordered, and the emulated device would show it if they were
//! not.

mod support;

use gatework_gpu::{
    Buffer, Device, Grid, Priority, Result, Source, Stream, TensorLayout, TensorMap, View as _, args,
};
use support::{chain, grid, is_race, step, words};

const SEEDS: u64 = 20;
const LENGTHS: [usize; 3] = [1, 33, 64];

fn emulated(seed: u64) -> (Device, Stream, Stream) {
    let device = Device::emulated(seed).unwrap();
    let (first, second) = (device.stream().unwrap(), device.stream_with(Priority::High).unwrap());
    (device, first, second)
}

fn steps(seed: u64, len: usize, steps: std::ops::Range<u32>) -> Vec<u32> {
    words(seed, len).into_iter().map(|x| steps.clone().fold(x, step)).collect()
}

/// How two streams that write one buffer are ordered.
#[derive(Clone, Copy)]
enum By {
    Events,
    Runtime,
    Nobody,
}

/// Two streams that hand a buffer back and forth.
fn hand_over(seed: u64, len: usize, by: By) -> Result<Vec<u32>> {
    let (device, first, second) = emulated(seed);
    let mut x = first.upload(&words(seed, len))?;
    first.synchronize()?;
    for step in 0..6u32 {
        let (stream, other) = if step % 2 == 0 { (&first, &second) } else { (&second, &first) };
        let n = len as u32;
        if let By::Nobody = by {
            // SAFETY: there is none, which is what the control is for; the emulated device runs one launch at
            // a time.
            let unordered = unsafe { x.view().assume_unshared() };
            chain(&device).launch(stream, &grid(), &args![unordered, step, n])?;
        } else {
            chain(&device).launch(stream, &grid(), &args![&mut x, step, n])?;
        }
        if let By::Events = by {
            other.wait(&stream.record()?)?;
        }
    }
    first.synchronize()?;
    second.synchronize()?;
    first.download(&x)
}

#[test]
fn memory_dropped_in_one_capture_does_not_draw_its_stream_into_another() -> Result<()> {
    for seed in 0..SEEDS {
        let (device, first, second) = emulated(seed);
        let third = device.stream()?;
        let mut x = first.upload(&words(seed, 33))?;
        for stream in [&third, &second] {
            chain(&device).launch(stream, &grid(), &args![&mut x, 1u32, 33u32])?;
        }
        second.capture(|_| {
            third.capture(|_| {
                drop(x);
                Ok(())
            })?;
            // Freed behind what both had queued before, and outside of the capture that is still open.
            first.synchronize()
        })?;
        assert_eq!(device.budget().held(), 0, "seed {seed}");
        second.synchronize()?;
    }
    Ok(())
}

#[test]
fn two_streams_that_write_one_buffer_do_it_in_the_order_of_the_program() -> Result<()> {
    for seed in 0..SEEDS {
        for len in LENGTHS {
            assert_eq!(hand_over(seed, len, By::Runtime)?, steps(seed, len, 0..6), "seed {seed}");
            assert_eq!(hand_over(seed, len, By::Events)?, steps(seed, len, 0..6), "seed {seed}");
        }
    }
    for seed in 0..SEEDS {
        assert!(is_race(&hand_over(seed, 64, By::Nobody)), "seed {seed}: unordered writes");
    }
    Ok(())
}

#[test]
fn a_read_on_another_stream_sees_what_was_written_before_it_and_not_after() -> Result<()> {
    let run = |seed: u64, ordered: bool| -> Result<bool> {
        let (device, first, second) = emulated(seed);
        let kernel = chain(&device);
        let mut x = first.upload(&words(seed, 33))?;
        let mut copies: Vec<Buffer<u32>> =
            (0..4).map(|_| second.alloc_zeros::<u32>(33)).collect::<Result<_>>()?;
        first.synchronize()?;
        second.synchronize()?;
        for (index, copy) in copies.iter_mut().enumerate() {
            if ordered {
                kernel.launch(&first, &grid(), &args![&mut x, index as u32, 33u32])?;
            } else {
                // SAFETY: none, as above.
                let unordered = unsafe { x.view().assume_unshared() };
                kernel.launch(&first, &grid(), &args![unordered, index as u32, 33u32])?;
            }
            second.copy(&x, copy)?;
        }
        first.synchronize()?;
        let got = copies.iter().map(|copy| second.download(copy)).collect::<Result<Vec<_>>>()?;
        Ok(got.iter().zip(1u32..).all(|(copy, end)| *copy == steps(seed, 33, 0..end)))
    };
    for seed in 0..SEEDS {
        assert!(run(seed, true)?, "seed {seed}");
        assert!(is_race(&run(seed, false)), "seed {seed}: unordered reads");
    }
    Ok(())
}

#[test]
fn a_buffer_is_there_for_every_stream_as_soon_as_it_is_allocated() -> Result<()> {
    for seed in 0..SEEDS {
        let (_, first, second) = emulated(seed);
        let x = first.upload(&words(seed, 17))?;
        assert_eq!(second.download(&x)?, words(seed, 17));
        let mut y = first.alloc_zeros::<u32>(17)?;
        second.copy(&x, &mut y)?;
        first.fill(&mut y.slice_mut(3..5), 7)?;
        let mut wanted = words(seed, 17);
        wanted[3..5].fill(7);
        assert_eq!(second.download(&y)?, wanted);
    }
    Ok(())
}

#[test]
fn page_locked_memory_is_handed_over_between_streams() -> Result<()> {
    for seed in 0..SEEDS {
        let (device, first, second) = emulated(seed);
        let kernel = chain(&device);
        let mut x = first.upload(&words(seed, 9))?;
        let mut host = device.pinned().take::<u32>(9)?;
        let mut y = second.alloc::<u32>(9)?;
        for index in 0..5 {
            kernel.launch(&first, &grid(), &args![&mut x, index, 9u32])?;
            // Written by one stream, read by the other, written again.
            first.copy_to_pinned(&x, &mut host)?;
            second.copy_from_pinned(&host, &mut y)?;
            kernel.launch(&first, &grid(), &args![&mut host, 100u32, 9u32])?;
            assert_eq!(second.download(&y)?, steps(seed, 9, 0..index + 1), "seed {seed}");
        }
    }
    Ok(())
}

#[test]
fn a_graph_is_ordered_with_other_streams_as_a_whole() -> Result<()> {
    for seed in 0..SEEDS {
        let (device, first, second) = emulated(seed);
        let kernel = chain(&device);
        let (mut x, mut y) = (first.upload(&words(seed, 33))?, first.alloc_zeros::<u32>(33)?);
        let graph = first.capture(|stream| {
            kernel.launch(stream, &grid(), &args![&mut x, 1u32, 33u32])?;
            stream.copy(&x, &mut y)
        })?;
        let mut wanted = words(seed, 33);
        for round in 0..4 {
            kernel.launch(&second, &grid(), &args![&mut x, 10 + round, 33u32])?;
            graph.launch(&first)?;
            let written = wanted.iter().map(|&x| step(step(x, 10 + round), 1)).collect::<Vec<_>>();
            assert_eq!(second.download(&y)?, written, "seed {seed}");
            kernel.launch(&second, &grid(), &args![&mut y, 5u32, 33u32])?;
            wanted = written;
        }
        graph.launch(&second)?;
        graph.launch(&first)?;
        kernel.launch(&second, &grid(), &args![&mut x, 2u32, 33u32])?;
        wanted.iter_mut().for_each(|x| *x = step(step(step(*x, 1), 1), 2));
        assert_eq!(first.download(&x)?, wanted);
    }
    Ok(())
}

#[test]
fn streams_of_one_capture_are_ordered_in_it() -> Result<()> {
    let run = |seed: u64, ordered: bool| -> Result<bool> {
        let (device, first, second) = emulated(seed);
        let kernel = chain(&device);
        let mut x = first.upload(&words(seed, 33))?;
        let graph = first.capture(|stream| {
            second.wait(&stream.record()?)?;
            for index in 0..4u32 {
                let stream = if index % 2 == 0 { stream } else { &second };
                if ordered {
                    kernel.launch(stream, &grid(), &args![&mut x, index, 33u32])?;
                } else {
                    // SAFETY: none, as above.
                    let unordered = unsafe { x.view().assume_unshared() };
                    kernel.launch(stream, &grid(), &args![unordered, index, 33u32])?;
                }
            }
            stream.wait(&second.record()?)
        })?;
        graph.launch(&first)?;
        graph.launch(&second)?;
        let twice: Vec<u32> = steps(seed, 33, 0..4).into_iter().map(|x| (0..4).fold(x, step)).collect();
        Ok(first.download(&x)? == twice)
    };
    for seed in 0..SEEDS {
        assert!(run(seed, true)?, "seed {seed}");
        assert!(is_race(&run(seed, false)), "seed {seed}: unordered nodes");
    }
    Ok(())
}

#[test]
fn a_stream_outside_waits_for_what_a_captured_one_queued_before() -> Result<()> {
    for seed in 0..SEEDS {
        let (device, first, second) = emulated(seed);
        let third = device.stream()?;
        let kernel = chain(&device);
        let (mut x, mut y) = (first.upload(&words(seed, 33))?, second.upload(&words(seed + 1, 33))?);
        let (mut seen, mut seen_too) = (third.alloc::<u32>(33)?, third.alloc::<u32>(33)?);
        kernel.launch(&first, &grid(), &args![&mut x, 0u32, 33u32])?;
        kernel.launch(&second, &grid(), &args![&mut y, 0u32, 33u32])?;
        let graph = first.capture(|stream| {
            second.wait(&stream.record()?)?;
            // Neither of the two last users can be asked for an event now.
            third.copy(&x, &mut seen)?;
            third.copy(&y, &mut seen_too)?;
            kernel.launch(&second, &grid(), &args![&mut y, 1u32, 33u32])?;
            stream.wait(&second.record()?)
        })?;
        assert_eq!(third.download(&seen)?, steps(seed, 33, 0..1));
        assert_eq!(third.download(&seen_too)?, steps(seed + 1, 33, 0..1));
        graph.launch(&third)?;
        assert_eq!(first.download(&y)?, steps(seed + 1, 33, 0..2));
    }
    Ok(())
}

/// Adds one to a box of the tensor, which is all of it, and stores it back.
const BOX: &str = r#"
    #include "gw/gw.cuh"
    GW_KERNEL(box)(GW_TENSOR_MAP(map), u32 step) {
        u32* box = gw::shared<u32>();
        gw::Mbarrier* full = gw::shared<gw::Mbarrier>(1024);
        if (gw::thread() == 0) {
            gw::mbarrier_init(full, 1);
            gw::fence_mbarrier_init();
            gw::mbarrier_arrive_expect(full, 64);
            gw::bulk_tensor_load(box, map, full, 0, 0);
        }
        gw::sync_threads();
        gw::mbarrier_wait(full, 0);
        box[gw::thread()] = 1664525u * box[gw::thread()] + step;
        gw::fence_async_proxy();
        gw::sync_threads();
        if (gw::thread() == 0) {
            gw::bulk_tensor_store(map, box, 0, 0);
            gw::bulk_commit();
            gw::bulk_wait<0>();
        }
    }
"#;

#[test]
fn a_tensor_map_that_two_streams_store_to_is_ordered_too() -> Result<()> {
    for seed in 0..SEEDS {
        let (device, first, second) = emulated(seed);
        let kernel = device.kernel(&Source::new("box", BOX))?;
        let mut x = first.upload(&words(seed, 16))?;
        let map = TensorMap::new_mut(&mut x, &TensorLayout::dense::<u32>(&[4, 4], &[4, 4]))?;
        let grid = Grid::new([1, 1, 1], [16, 1, 1]).shared(2048);
        for index in 0..6u32 {
            let stream = if index % 2 == 0 { &first } else { &second };
            kernel.launch(stream, &grid, &args![&map, index])?;
        }
        assert_eq!(second.download(&x)?, steps(seed, 16, 0..6), "seed {seed}");
    }
    Ok(())
}

#[test]
fn threads_with_streams_of_their_own_share_what_they_read() -> Result<()> {
    let (device, first, _) = emulated(3);
    let kernel = device.kernel(&Source::new("saxpy", support::SAXPY))?;
    let x = first.upload(&support::numbers(1, 64))?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(|| -> Result<Vec<f32>> {
                    let stream = device.stream()?;
                    let mut y = stream.alloc_zeros::<f32>(64)?;
                    for _ in 0..50 {
                        kernel.launch(&stream, &grid(), &args![&x, &mut y, 1.0f32, 64u64])?;
                    }
                    stream.download(&y)
                })
            })
            .collect();
        let alone: Vec<f32> =
            support::numbers(1, 64).iter().map(|x| (0..50).fold(0.0, |y, _| x.mul_add(1.0, y))).collect();
        threads.into_iter().try_for_each(|thread| {
            assert_eq!(thread.join().expect("no thread panics")?, alone);
            Ok(())
        })
    })
}
