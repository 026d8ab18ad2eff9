//! Copies and child graphs inside of graphs, and their updates.

mod support;

use gatework_gpu::{CopyKind, Error, Result, args};
use support::{chain, emulated, grid, step, words};

const SEEDS: u64 = 20;

#[test]
fn copies_of_a_graph_take_other_memory_and_other_lengths() -> Result<()> {
    for seed in 0..SEEDS {
        let (device, stream) = emulated(seed);
        let other = device.stream()?;
        let mut input = device.pinned().take::<u32>(9)?;
        let mut output = device.pinned().take::<u32>(9)?;
        let (mut x, mut y) = (stream.alloc_zeros::<u32>(9)?, stream.alloc_zeros::<u32>(9)?);
        let mut graph = stream.capture(|stream| {
            stream.copy_from_pinned(&input, &mut x)?;
            chain(&device).launch(stream, &grid(), &args![&mut x, 7u32, 9u32])?;
            stream.copy(&x, &mut y)?;
            stream.copy(&x.slice(..0), &mut y.slice_mut(..0))?;
            stream.copy_to_pinned(&y, &mut output)
        })?;
        let kinds: Vec<_> = graph.copies().iter().map(|copy| (copy.kind, copy.bytes)).collect();
        let wanted = [CopyKind::FromPinned, CopyKind::OnDevice, CopyKind::ToPinned].map(|kind| (kind, 36));
        assert_eq!(kinds, wanted, "a copy of nothing is none");
        input.write()?.copy_from_slice(&words(seed, 9));
        graph.launch(&stream)?;
        let first: Vec<u32> = words(seed, 9).into_iter().map(|x| step(x, 7)).collect();
        assert_eq!(*output.read()?, first);

        let mut longer = device.pinned().take::<u32>(5)?;
        longer.write()?.copy_from_slice(&words(seed + 1, 5));
        let mut z = other.upload(&words(seed + 2, 12))?;
        let mut seen = device.pinned().take::<u32>(12)?;
        graph.update_copy_from_pinned(0, &longer, &mut x.slice_mut(2..7))?;
        graph.update_copy(1, &x.slice(1..8), &mut z.slice_mut(5..))?;
        graph.update_copy_to_pinned(2, &z, &mut seen)?;
        assert_eq!(graph.copies()[1].bytes, 28);
        graph.launch(&other)?;
        // The graph keeps what it uses now, and has let go of what it used before.
        drop(longer);
        let mut now = first.clone();
        now[2..7].copy_from_slice(&words(seed + 1, 5));
        now.iter_mut().for_each(|x| *x = step(*x, 7));
        let mut wanted = words(seed + 2, 12);
        wanted[5..].copy_from_slice(&now[1..8]);
        assert_eq!(*seen.read()?, wanted, "seed {seed}");
        assert_eq!(stream.download(&y)?, first, "it is not written any more");
        assert_eq!(stream.download(&x)?, now);
        output.write()?.fill(0);
    }
    Ok(())
}

#[test]
fn updates_that_do_not_fit_are_refused_and_change_nothing() -> Result<()> {
    let (device, stream) = emulated(1);
    let (_, stranger) = emulated(2);
    let x = stream.upload(&words(1, 8))?;
    let (mut y, mut z) = (stream.alloc_zeros::<u32>(8)?, stream.alloc_zeros::<u32>(8)?);
    let mut host = device.pinned().take::<u32>(8)?;
    let mut graph = stream.capture(|stream| stream.copy(&x, &mut y))?;
    let told = |outcome: Result<()>| outcome.unwrap_err().to_string();
    assert_eq!(told(graph.update_copy(1, &x, &mut z)), "graph: there is no copy 1: the graph has 1");
    let message = told(graph.update_copy(0, &x.slice(..3), &mut z));
    assert_eq!(message, "Graph::update_copy: the source has 3 elements and the destination 8");
    assert!(told(graph.update_copy(0, &x.slice(..0), &mut z.slice_mut(..0))).contains("one of nothing"));
    let message = told(graph.update_copy_to_pinned(0, &x, &mut host));
    assert_eq!(message, "graph: copy 0 is OnDevice and cannot become ToPinned");
    assert!(told(graph.update_copy_from_pinned(0, &host, &mut z)).contains("cannot become FromPinned"));
    let mut foreign = stranger.alloc_zeros::<u32>(8)?;
    assert!(matches!(graph.update_copy(0, &x, &mut foreign), Err(Error::ForeignDevice { .. })));
    graph.launch(&stream)?;
    assert_eq!((stream.download(&y)?, stream.download(&z)?), (words(1, 8), vec![0; 8]));
    Ok(())
}

#[test]
fn a_graph_with_pinned_memory_is_refused_while_the_program_holds_a_slice_of_what_it_has_now() -> Result<()> {
    let (device, stream) = emulated(1);
    let x = stream.upload(&words(1, 8))?;
    let (mut first, mut second) = (device.pinned().take::<u32>(8)?, device.pinned().take::<u32>(8)?);
    let mut graph = stream.capture(|stream| stream.copy_to_pinned(&x, &mut first))?;
    graph.update_copy_to_pinned(0, &x, &mut second)?;
    let held = first.read()?;
    graph.launch(&stream)?;
    drop(held);
    let held = second.read()?;
    assert!(matches!(graph.launch(&stream), Err(Error::Graph { .. })));
    assert_eq!(*held, words(1, 8));
    Ok(())
}

#[test]
fn a_graph_is_a_child_of_another_as_it_was_when_it_was_captured() -> Result<()> {
    for seed in 0..SEEDS {
        let (device, stream) = emulated(seed);
        let side = device.stream()?;
        let kernel = chain(&device);
        let (mut x, mut y) = (stream.upload(&words(seed, 33))?, stream.alloc_zeros::<u32>(33)?);
        let mut inner =
            stream.capture(|stream| kernel.launch(stream, &grid(), &args![&mut x, 1u32, 33u32]))?;
        inner.update(0, &args![&mut x, 2u32, 33u32])?;
        let middle = stream.capture(|stream| {
            inner.launch(stream)?;
            inner.launch(stream)
        })?;
        // Not seen by those that have it already.
        inner.update(0, &args![&mut x, 9u32, 33u32])?;
        let outer = stream.capture(|stream| {
            side.wait(&stream.record()?)?;
            kernel.launch(stream, &grid(), &args![&mut x, 3u32, 33u32])?;
            // Another stream of the capture, ordered by the memory alone.
            middle.launch(&side)?;
            stream.copy(&x, &mut y)?;
            stream.wait(&side.record()?)
        })?;
        assert_eq!((outer.children().len(), outer.kernels().len(), middle.children().len()), (1, 1, 2));
        drop((inner, middle));
        outer.launch(&stream)?;
        outer.launch(&side)?;
        let once = |x: u32| [3, 2, 2].into_iter().fold(x, step);
        let wanted: Vec<u32> = words(seed, 33).into_iter().map(|x| once(once(x))).collect();
        assert_eq!(stream.download(&y)?, wanted, "seed {seed}");
        assert_eq!(side.download(&x)?, wanted);
    }
    Ok(())
}

#[test]
fn a_child_gives_way_to_another_of_its_shape() -> Result<()> {
    let (device, stream) = emulated(3);
    let kernel = chain(&device);
    let (mut x, mut y) = (stream.upload(&words(1, 5))?, stream.upload(&words(2, 5))?);
    let on_x = stream.capture(|stream| kernel.launch(stream, &grid(), &args![&mut x, 1u32, 5u32]))?;
    let on_y = stream.capture(|stream| kernel.launch(stream, &grid(), &args![&mut y, 4u32, 5u32]))?;
    let two = stream.capture(|stream| {
        kernel.launch(stream, &grid(), &args![&mut x, 1u32, 5u32])?;
        kernel.launch(stream, &grid(), &args![&mut y, 1u32, 5u32])
    })?;
    let copy = stream.capture(|stream| stream.copy(&x, &mut y))?;
    let mut outer = stream.capture(|stream| on_x.launch(stream))?;
    for other in [&two, &copy] {
        assert!(outer.update_child(0, other).unwrap_err().to_string().contains("other nodes"));
    }
    assert!(outer.update_child(1, &on_y).unwrap_err().to_string().contains("there is no child 1"));
    outer.update_child(0, &on_y)?;
    drop(on_y);
    outer.launch(&stream)?;
    let stepped: Vec<u32> = words(2, 5).into_iter().map(|y| step(y, 4)).collect();
    assert_eq!((stream.download(&x)?, stream.download(&y)?), (words(1, 5), stepped));
    // The driver cannot copy that.
    let error = stream.capture(|stream| outer.launch(stream)).unwrap_err();
    assert!(error.to_string().contains("a child of it was updated"), "{error}");
    assert_eq!(stream.download(&x)?, words(1, 5), "the stream works again");
    Ok(())
}
