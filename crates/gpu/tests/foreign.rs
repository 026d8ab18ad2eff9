//! Streams and memory of another user of the device: used, kept alive, and never destroyed.

mod support;

use std::ffi::c_void;
use std::sync::Arc;

use gatework_gpu::{Buffer, Class, Classified as _, Device, Error, Grid, Result, Source, Stream, args};

/// A stream and memory as another library would hold them.
struct Theirs {
    stream: Stream,
    memory: Arc<Buffer<u32>>,
}

fn theirs(device: &Device) -> Result<Theirs> {
    let stream = device.stream()?;
    let memory = Arc::new(stream.upload(&[1u32, 2, 3, 4])?);
    Ok(Theirs { stream, memory })
}

#[test]
fn work_on_lent_things_is_seen_by_their_owner() -> Result<()> {
    for seed in 0..10 {
        let device = Device::emulated(seed)?;
        let Theirs { stream, memory } = theirs(&device)?;
        // SAFETY: the clone keeps the stream alive, and the shared buffer the memory; both are of this
        // device.
        let lent = unsafe { Stream::from_raw(&device, stream.as_raw(), stream.clone())? };
        // SAFETY: as above.
        let mut x = unsafe { Buffer::<u32>::from_raw(&lent, memory.as_raw(), 4, memory.clone())? };
        assert_eq!((lent.as_raw(), x.as_raw(), x.len()), (stream.as_raw(), memory.as_raw(), 4));
        let held = device.budget().held();
        lent.fill(&mut x.slice_mut(1..3), 9)?;
        drop((x, lent));
        // In the order of their own stream, and the memory is neither freed nor counted as freed.
        assert_eq!(stream.download(&*memory)?, [1, 9, 9, 4]);
        assert_eq!((device.budget().held(), Arc::strong_count(&memory)), (held, 1));
    }
    Ok(())
}

#[test]
fn the_owner_is_let_go_of_with_the_last_user() -> Result<()> {
    let device = Device::emulated(1)?;
    let Theirs { stream, memory } = theirs(&device)?;
    let alive = Arc::new(());
    // SAFETY: the clone keeps the stream alive.
    let lent = unsafe { Stream::from_raw(&device, stream.as_raw(), (stream.clone(), alive.clone()))? };
    let of_stream = lent.alloc_zeros::<u32>(4)?;
    drop(lent);
    assert_eq!(Arc::strong_count(&alive), 2, "a buffer is freed in the order of its stream");
    drop(of_stream);
    assert_eq!(Arc::strong_count(&alive), 1);

    // SAFETY: the shared buffer keeps the memory alive.
    let mut x = unsafe { Buffer::<u32>::from_raw(&stream, memory.as_raw(), 4, memory.clone())? };
    let chain = device.kernel(&Source::new("chain", support::CHAIN))?;
    let grid = Grid::new([1, 1, 1], [64, 1, 1]);
    let graph = stream.capture(|stream| chain.launch(stream, &grid, &args![&mut x, 1u32, 4u32]))?;
    drop(x);
    assert_eq!(Arc::strong_count(&memory), 2, "the graph uses the memory");
    let before = stream.download(&*memory)?;
    graph.launch(&stream)?;
    assert_ne!(stream.download(&*memory)?, before);
    drop(graph);
    assert_eq!(Arc::strong_count(&memory), 1);
    Ok(())
}

#[test]
fn the_owners_stream_waits_for_every_other_that_used_the_memory() -> Result<()> {
    for seed in 0..20 {
        let device = Device::emulated(seed)?;
        let Theirs { stream, memory } = theirs(&device)?;
        let other = device.stream()?;
        // SAFETY: the shared buffer keeps the memory alive.
        let mut x = unsafe { Buffer::<u32>::from_raw(&stream, memory.as_raw(), 4, memory.clone())? };
        // What lies there was written in the order of their stream, and this one comes after.
        other.wait(&stream.record()?)?;
        other.fill(&mut x, 7)?;
        drop(x);
        assert_eq!(stream.download(&*memory)?, [7; 4], "seed {seed}");
    }
    Ok(())
}

#[test]
fn what_is_none_of_the_devices_is_refused() -> Result<()> {
    let device = Device::emulated(0)?;
    let Theirs { stream, memory } = theirs(&device)?;
    let told = |error: Error| {
        assert!(matches!(error, Error::Foreign { .. }) && error.class() == Class::Input, "{error}");
        error.to_string()
    };
    // SAFETY: what is refused is never used.
    let unknown = unsafe { Stream::from_raw(&device, 0xdead_0000 as *mut c_void, ()) };
    assert!(told(unknown.err().unwrap()).contains("0xdead0000 is no stream of the device emulated"));
    let lend = |pointer: u64, len: usize| {
        // SAFETY: as above.
        unsafe { Buffer::<u32>::from_raw(&stream, pointer, len, memory.clone()) }.err().map(told)
    };
    assert!(lend(memory.as_raw(), 5).unwrap().contains("there are no 20 bytes"));
    assert!(lend(memory.as_raw() + 4, 1).unwrap().contains("no multiple of 16"));
    assert!(lend(64, 1).unwrap().contains("at 0x40"));
    assert!(lend(memory.as_raw(), usize::MAX).unwrap().contains("overflow"));
    assert_eq!(lend(memory.as_raw(), 4), None);
    assert_eq!(Arc::strong_count(&memory), 1);
    Ok(())
}
