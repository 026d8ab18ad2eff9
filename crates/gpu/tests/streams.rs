//! Memory, streams, events, pinned memory and graphs, through the public API on the emulated device.

mod support;

use gatework_gpu::{Error, Grid, Result, Source, Stream, args};
use support::{chain, emulated, numbers, words};

const GRID: Grid = Grid {
    blocks: [1, 1, 1],
    threads: [64, 1, 1],
    shared_bytes: 0,
    cluster: None,
    cooperative: false,
    early: false,
    side_by_side: false,
};

#[test]
fn an_allocation_past_the_budget_says_asked_held_and_free_and_the_next_works() -> Result<()> {
    let (device, stream) = emulated(0);
    device.budget().set_limit(1 << 20);
    let held = stream.alloc::<u8>(1 << 19)?;
    let error = stream.alloc::<u64>(1 << 17).unwrap_err();
    assert!(
        matches!(
            error,
            Error::OutOfMemory { asked: 0x10_0000, held: 0x8_0000, free: 0x8_0000, limit: 0x10_0000 }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("asked for 1048576 bytes, 524288 held"), "{error}");
    drop(stream.alloc::<u8>(1 << 19)?);
    drop(held);
    stream.synchronize()?;
    assert_eq!((device.budget().held(), device.budget().peak()), (0, 1 << 20));
    drop(stream.alloc::<u8>(1 << 20)?);
    Ok(())
}

#[test]
fn an_allocation_larger_than_the_card_is_an_error_and_not_an_abort() -> Result<()> {
    let (device, stream) = emulated(0);
    device.budget().set_limit(u64::MAX);
    assert!(matches!(stream.alloc::<u8>(1 << 50), Err(Error::OutOfMemory { .. })));
    assert!(matches!(stream.alloc::<u128>(usize::MAX), Err(Error::Length { .. })));
    assert_eq!(device.budget().held(), 0);
    assert_eq!(stream.download(&stream.upload(&[5u32])?)?, [5]);
    Ok(())
}

#[test]
fn slices_copy_between_buffers_and_lengths_must_agree() -> Result<()> {
    let (_, stream) = emulated(1);
    let x = words(1, 100);
    let from = stream.upload(&x)?;
    let mut to = stream.alloc_zeros::<u32>(100)?;
    stream.copy(&from.slice(10..30), &mut to.slice_mut(50..70))?;
    let got = stream.download(&to)?;
    assert!(got[50..70] == x[10..30] && got[..50].iter().chain(&got[70..]).all(|&word| word == 0));
    assert_eq!(stream.download(&from.slice(97..).slice(1..))?, x[98..]);
    let error = stream.copy(&from.slice(..3), &mut to).unwrap_err();
    assert_eq!(error.to_string(), "Stream::copy: the source has 3 elements and the destination 100");
    let empty = stream.upload::<f32>(&[])?;
    assert!(stream.download(&empty)?.is_empty());
    Ok(())
}

#[test]
fn arguments_are_checked_against_the_kernel() -> Result<()> {
    let (device, stream) = emulated(2);
    let kernel = device.kernel(&Source::new("saxpy", support::SAXPY))?;
    let (x, mut y) = (stream.upload(&numbers(1, 8))?, stream.upload(&numbers(2, 8))?);
    let mut integers = stream.alloc_zeros::<u32>(8)?;
    let told = |arguments: &[gatework_gpu::Arg<'_>]| {
        kernel.launch(&stream, &GRID, arguments).unwrap_err().to_string()
    };
    assert_eq!(told(&args![&x, &mut y, 1.0f32]), "kernel 'saxpy': it takes 4 arguments and was given 3");
    assert_eq!(
        told(&args![&x, &mut y, 1.0f64, 8u64]),
        "kernel 'saxpy': parameter 2 has 4 bytes and was given 8"
    );
    assert_eq!(told(&args![&x, &mut y, 1u32, 8u64]), "kernel 'saxpy': parameter 2 is f32 and was given u32");
    assert_eq!(
        told(&args![&x, &mut integers, 1.0f32, 8u64]),
        "kernel 'saxpy': parameter 1 is f32* and was given u32*"
    );
    assert_eq!(
        told(&args![&x, &y, 1.0f32, 8u64]),
        "kernel 'saxpy': parameter 1 is written (f32*): pass it as &mut"
    );
    assert_eq!(told(&args![&x, 3u64, 1.0f32, 8u64]), "kernel 'saxpy': parameter 1 is f32* and was given u64");
    Ok(())
}

#[test]
fn grids_that_cannot_be_launched_are_refused() -> Result<()> {
    let (device, stream) = emulated(2);
    let mut x = stream.alloc_zeros::<u32>(8)?;
    let kernel = chain(&device);
    let mut told =
        |grid: Grid| kernel.launch(&stream, &grid, &args![&mut x, 1u32, 8u32]).unwrap_err().to_string();
    assert!(told(Grid::new([1, 1, 1], [1025, 1, 1])).contains("1024 at most"));
    assert!(told(Grid::new([0, 1, 1], [1, 1, 1])).contains("is empty"));
    assert!(told(Grid::new([1, 70000, 1], [1, 1, 1])).contains("65535"));
    assert!(told(GRID.shared(300 << 10)).contains("bytes of shared memory a block"));
    assert!(told(GRID.shared(u32::MAX)).contains("bytes of shared memory a block"));
    assert!(
        told(Grid::new([i32::MAX as u32, 9, 9], [1, 1, 1])).contains("blocks, the emulated device takes")
    );
    Ok(())
}

#[test]
fn objects_of_different_devices_do_not_mix() -> Result<()> {
    let ((left, stream), (_, other)) = (emulated(0), emulated(1));
    let mut x = other.alloc_zeros::<u32>(8)?;
    assert!(matches!(
        chain(&left).launch(&stream, &GRID, &args![&mut x, 1u32, 8u32]),
        Err(Error::ForeignDevice { .. })
    ));
    assert!(matches!(stream.download(&x), Err(Error::ForeignDevice { .. })));
    assert!(matches!(stream.wait(&other.record()?), Err(Error::OutOfReach { .. })));
    Ok(())
}

#[test]
fn memory_that_another_stream_uses_is_freed_after_it() -> Result<()> {
    for seed in 0..30 {
        let (device, owner) = emulated(seed);
        let user = device.stream()?;
        let source = owner.upload(&words(seed, 64))?;
        let mut copy = user.alloc::<u32>(64)?;
        user.wait(&owner.record()?)?;
        user.copy(&source, &mut copy)?;
        drop(source);
        let reused = owner.alloc_zeros::<u32>(64)?;
        assert_eq!(user.download(&copy)?, words(seed, 64), "seed {seed}");
        drop(reused);
    }
    Ok(())
}

#[test]
fn events_tell_whether_they_happened_and_when() -> Result<()> {
    let (_, stream) = emulated(4);
    let start = stream.record()?;
    drop(stream.alloc_zeros::<u8>(1000)?);
    let end = stream.record()?;
    end.synchronize()?;
    assert!(start.is_complete()? && end.is_complete()?);
    assert!(end.since(&start)?.as_nanos() > 0);
    Ok(())
}

#[test]
fn a_failed_copy_is_not_read_as_if_it_had_come() -> Result<()> {
    let (device, stream) = emulated(5);
    let text = "#include \"gw/gw.cuh\"\nGW_KERNEL(wild)(u32* x) { x[1 << 20] = 1; }";
    let mut x = stream.upload(&[1u32])?;
    device.kernel(&Source::new("wild", text))?.launch(
        &stream,
        &Grid::new([1, 1, 1], [1, 1, 1]),
        &args![&mut x],
    )?;
    let mut back = device.pinned().take::<u32>(1)?;
    stream.copy_to_pinned(&x, &mut back)?;
    assert!(matches!(back.read(), Err(Error::Fault(_))));
    stream.copy_to_pinned(&x, &mut back)?;
    assert_eq!(*back.read()?, [1]);
    Ok(())
}

#[test]
fn a_fault_is_told_although_memory_was_dropped_meanwhile() -> Result<()> {
    for seed in 0..10 {
        let (device, owner) = emulated(seed);
        let user = device.stream()?;
        let text = "#include \"gw/gw.cuh\"\nGW_KERNEL(wild)(u32* x) { x[1 << 20] = 1; }";
        let mut x = owner.upload(&[1u32])?;
        let one = Grid::new([1, 1, 1], [1, 1, 1]);
        device.kernel(&Source::new("wild", text))?.launch(&user, &one, &args![&mut x])?;
        // Whoever waits for one stream may run the others' work; freeing then marks the stream that failed.
        owner.wait(&user.record()?)?;
        owner.synchronize()?;
        drop(x);
        assert!(matches!(user.synchronize(), Err(Error::Fault(_))), "seed {seed}: the fault was lost");
        assert_eq!(user.download(&user.upload(&[3u8])?)?, [3]);
    }
    Ok(())
}

#[test]
fn threads_that_read_pinned_memory_all_wait_for_the_copy() -> Result<()> {
    for seed in 0..20 {
        let (device, stream) = emulated(seed);
        let x = stream.upload(&words(seed, 5000))?;
        let mut back = device.pinned().take::<u32>(5000)?;
        stream.copy_to_pinned(&x, &mut back)?;
        let read = || back.read().map(|back| back.to_vec());
        let all = std::thread::scope(|scope| {
            [0; 4].map(|_| scope.spawn(read)).map(|reader| reader.join().unwrap())
        });
        for got in all {
            assert_eq!(got?, words(seed, 5000), "seed {seed}");
        }
    }
    Ok(())
}

#[test]
fn a_graph_does_not_copy_under_a_slice_of_pinned_memory() -> Result<()> {
    let (device, stream) = emulated(3);
    let mut x = stream.upload(&[1u32, 2])?;
    let (mut out, mut back) = (device.pinned().take::<u32>(2)?, device.pinned().take::<u32>(2)?);
    let graph = stream.capture(|stream| {
        stream.copy_from_pinned(&out, &mut x)?;
        stream.copy_to_pinned(&x, &mut back)
    })?;
    let refused = |graph: &gatework_gpu::Graph| {
        let error = graph.launch(&stream).unwrap_err();
        assert!(error.to_string().contains("drop the slice before the launch"), "{error}");
    };
    out.write()?.copy_from_slice(&[5, 6]);
    let held = back.read()?;
    refused(&graph);
    drop(held);
    let held = out.write()?;
    refused(&graph);
    drop(held);
    let held = out.read()?;
    graph.launch(&stream)?;
    assert_eq!((&held[..], &back.read()?[..]), (&[5, 6][..], &[5, 6][..]), "both sides may read");
    Ok(())
}

#[test]
fn pinned_blocks_are_reused_by_class_and_bounded() -> Result<()> {
    let (device, stream) = emulated(6);
    let pool = device.pinned();
    let mut x = stream.alloc::<u32>(5000)?;
    for round in 0..10u32 {
        let mut block = pool.take::<u32>(5000 - round as usize)?;
        block.write()?.fill(round);
        stream.copy_from_pinned(&block, &mut x.slice_mut(..5000 - round as usize))?;
        drop(block);
        // The block may be lent again only when the copy from it is done.
        let mut other = pool.take::<u32>(5000)?;
        other.write()?.fill(u32::MAX);
        assert_eq!(stream.download(&x.slice(..100))?, [round; 100]);
    }
    let stats = pool.stats();
    assert!(stats.hits >= 17 && stats.misses <= 3, "{stats:?}");
    pool.set_limit(64 << 10);
    let error = pool.take::<u8>(128 << 10).err().unwrap();
    assert!(matches!(error, Error::OutOfPinnedMemory { asked: 0x2_0000, limit: 0x1_0000, .. }), "{error}");
    assert_eq!(pool.take::<u8>(10)?.len(), 10);
    Ok(())
}

#[test]
fn graphs_replay_join_streams_and_take_new_arguments() -> Result<()> {
    let step = |x: u32, step: u32| x.wrapping_mul(1_664_525).wrapping_add(step);
    for seed in 0..10 {
        let (device, stream) = emulated(seed);
        let side = device.stream()?;
        let kernel = chain(&device);
        let (mut x, mut y) = (stream.upload(&[1u32, 2])?, stream.upload(&[3u32, 4])?);
        let mut z = stream.alloc_zeros::<u32>(2)?;
        let mut graph = stream.capture(|stream| {
            kernel.launch(stream, &GRID, &args![&mut x, 10u32, 2u32])?;
            side.wait(&stream.record()?)?;
            kernel.launch(&side, &GRID, &args![&mut y, 20u32, 2u32])?;
            kernel.launch(stream, &GRID, &args![&mut x, 30u32, 2u32])?;
            stream.wait(&side.record()?)?;
            stream.copy(&y, &mut z)
        })?;
        assert_eq!(stream.download(&x)?, [1, 2], "a capture runs nothing");
        graph.launch(&stream)?;
        graph.launch(&stream)?;
        let twice = |x: u32| step(step(step(step(x, 10), 30), 10), 30);
        assert_eq!(stream.download(&x)?, [twice(1), twice(2)]);
        assert_eq!(stream.download(&z)?, [step(step(3, 20), 20), step(step(4, 20), 20)]);
        let mut w = stream.upload(&[7u32, 8])?;
        assert_eq!(graph.kernels().len(), 3);
        graph.update(1, &args![&mut w, 21u32, 2u32])?;
        graph.launch(&stream)?;
        assert_eq!(stream.download(&w)?, [step(7, 21), step(8, 21)]);
        let error = graph.update(3, &args![&mut w, 1u32, 2u32]).unwrap_err();
        assert_eq!(error.to_string(), "graph: there is no kernel 3: the graph has 3");
        assert!(graph.update(0, &args![&mut w, 1.0f32, 2u32]).is_err());
        // The graph keeps what it uses.
        drop((x, y, z, w));
        graph.launch(&stream)?;
        stream.synchronize()?;
    }
    Ok(())
}

#[test]
fn a_broken_capture_names_the_call_and_restores_the_stream() -> Result<()> {
    let (device, stream) = emulated(7);
    let side = device.stream()?;
    let kernel = chain(&device);
    let mut x = stream.upload(&[1u32])?;
    let broken = |body: &mut dyn FnMut(&Stream) -> Result<()>| {
        let error = stream.capture(|stream| body(stream)).unwrap_err();
        assert_eq!(stream.download(&stream.upload(&[9u8]).unwrap()).unwrap(), [9], "the stream works again");
        error.to_string()
    };
    let told = broken(&mut |stream| stream.synchronize());
    assert!(told.starts_with("stream capture was broken by Stream::synchronize:"), "{told}");
    let told = broken(&mut |stream| stream.alloc::<u8>(4).map(drop));
    assert!(told.contains("broken by Stream::alloc"), "{told}");
    // Swallowing the error does not mend the capture.
    let told = broken(&mut |stream| {
        let _ = stream.upload(&[1u8]);
        Ok(())
    });
    assert!(told.contains("broken by Stream::alloc"), "{told}");
    let mut kept = Some(stream.upload(&[1u8])?);
    let told = broken(&mut |_| {
        kept.take();
        Ok(())
    });
    assert!(told.contains("broken by dropping a Buffer"), "{told}");
    let told = broken(&mut |stream| {
        side.wait(&stream.record()?)?;
        kernel.launch(&side, &GRID, &args![&mut x, 1u32, 1u32])
    });
    assert!(told.contains("was not joined back"), "{told}");
    let outside = side.record()?;
    let told = broken(&mut |stream| stream.wait(&outside));
    assert!(told.contains("broken by Stream::wait: the event was recorded outside"), "{told}");
    let mut inside = None;
    drop(stream.capture(|stream| {
        inside = Some(stream.record()?);
        Ok(())
    })?);
    let inside = inside.unwrap();
    for error in [
        side.wait(&inside).unwrap_err(),
        inside.synchronize().unwrap_err(),
        inside.is_complete().unwrap_err(),
    ] {
        assert!(error.to_string().contains("never happens by itself"), "{error}");
    }
    let told = broken(&mut |_| Err(Error::Graph { message: "of my own".into() }));
    assert_eq!(told, "graph: of my own");
    assert_eq!(side.download(&side.upload(&[9u8])?)?, [9], "the joined stream works again too");
    stream.synchronize()?;
    assert_eq!(device.budget().held(), 4, "nothing was leaked");
    Ok(())
}

#[test]
fn a_panic_inside_a_capture_does_not_leave_the_stream_behind() {
    let (_, stream) = emulated(8);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = stream.capture(|_| panic!("of the caller's own"));
    }));
    assert!(caught.is_err());
    assert_eq!(stream.download(&stream.upload(&[1u8]).unwrap()).unwrap(), [1]);
}

#[test]
fn a_cooperative_grid_meets() -> Result<()> {
    let text = "#include \"gw/gw.cuh\"\nGW_KERNEL(ring)(u32* x, u32* arrived, u32 rounds) {\n\
                for (u32 r = 0; r < rounds; ++r) {\nconst u32 left = x[(gw::block_x() + gw::blocks_x() - 1) % gw::blocks_x()];\n\
                gw::sync_grid(arrived);\nif (gw::thread() == 0) x[gw::block_x()] = left + 1;\ngw::sync_grid(arrived);\n}\n}";
    for seed in 0..5 {
        let (device, stream) = emulated(seed);
        let kernel = device.kernel(&Source::new("ring", text))?;
        let mut x = stream.upload(&[0u32, 10, 20, 30])?;
        let mut arrived = stream.alloc_zeros::<u32>(1)?;
        let grid = Grid::new([4, 1, 1], [33, 1, 1]);
        kernel.launch(&stream, &grid.cooperative(), &args![&mut x, &mut arrived, 3u32])?;
        assert_eq!(stream.download(&x)?, [13, 23, 33, 3]);
        kernel.launch(&stream, &grid, &args![&mut x, &mut arrived, 1u32])?;
        let Err(Error::Fault(fault)) = stream.synchronize() else { panic!("not cooperative, and it met") };
        assert!(fault.message.contains("Grid::cooperative"), "{fault}");
    }
    Ok(())
}

/// y[i] = 2 x[i] + 1.
const ODD: &str = r#"
    #include "gw/gw.cuh"
    GW_KERNEL(odd)(const u32* x, u32 n, u32* y) {
        const u64 i = gw::global_thread();
        if (i < n) y[i] = 2 * x[i] + 1;
    }
"#;

#[test]
fn kernels_read_and_write_page_locked_memory_where_it_lies() -> Result<()> {
    let (device, stream) = emulated(3);
    let kernel = device.kernel(&Source::new("odd", ODD))?;
    let (mut x, mut y) = (device.pinned().take::<u32>(50)?, device.pinned().take::<u32>(50)?);
    let expected = |round: u32| (0..50).map(|i| 2 * (i + round) + 1).collect::<Vec<u32>>();
    for round in 0..5 {
        // Touching either waits for the kernel before.
        x.write()?.iter_mut().zip(round..).for_each(|(x, i)| *x = i);
        kernel.launch(&stream, &GRID, &args![&x, 50u32, &mut y])?;
        assert_eq!(*y.read()?, expected(round));
    }
    // A block that goes back while a kernel reads it serves nobody else before.
    let mut back = stream.alloc::<u32>(50)?;
    kernel.launch(&stream, &GRID, &args![&x, 50u32, &mut back])?;
    drop(x);
    device.pinned().take_as_is::<u32>(50)?.write()?.fill(7);
    assert_eq!(stream.download(&back)?, expected(4));
    Ok(())
}

#[test]
fn a_kernel_that_reads_past_page_locked_memory_is_a_fault() -> Result<()> {
    let (device, stream) = emulated(3);
    let kernel = device.kernel(&Source::new("odd", ODD))?;
    // The pool hands out whole pages.
    let x = device.pinned().take::<u32>(1024)?;
    let mut y = stream.alloc::<u32>(2048)?;
    let grid = Grid::covering(1025, 64);
    kernel.launch(&stream, &grid, &args![&x, 1025u32, &mut y])?;
    assert!(matches!(stream.synchronize(), Err(Error::Fault(_))));
    Ok(())
}

#[test]
fn a_graph_reads_page_locked_memory_anew_at_every_launch() -> Result<()> {
    let (device, stream) = emulated(3);
    let kernel = device.kernel(&Source::new("odd", ODD))?;
    let mut x = device.pinned().take::<u32>(3)?;
    let mut y = stream.alloc::<u32>(3)?;
    let mut graph = stream.capture(|stream| kernel.launch(stream, &GRID, &args![&x, 3u32, &mut y]))?;
    for round in 0..3 {
        x.write()?.fill(round);
        graph.launch(&stream)?;
        assert_eq!(stream.download(&y)?, [2 * round + 1; 3]);
    }
    assert!(matches!(graph.update(0, &args![&x, 2u32, &mut y]), Err(Error::Graph { .. })));
    Ok(())
}

/// The driver has the launch, and with it the address of the block, whatever fails behind it.
#[cfg(feature = "testing")]
#[test]
fn a_capture_keeps_pinned_arguments_of_a_launch_that_failed_late() -> Result<()> {
    let (device, stream) = emulated(8);
    let kernel = chain(&device);
    device.pinned().set_limit(4096);
    let mut block = Some(device.pinned().take::<u32>(2)?);
    device.faults().lose_captured_nodes(true);
    let captured = stream.capture(|stream| {
        let mut own = block.take().expect("the only block");
        let launched = kernel.launch(stream, &GRID, &args![&mut own, 10u32, 2u32]);
        assert!(launched.unwrap_err().to_string().contains("is lost"));
        drop(own);
        assert!(device.pinned().take::<u32>(2).is_err(), "the capture keeps the block");
        Ok(())
    });
    device.faults().lose_captured_nodes(false);
    drop(captured);
    device.pinned().take::<u32>(2)?;
    Ok(())
}
