//! Several devices: names, peer copies, events between devices, direct access of kernels.

mod support;

use gatework_gpu::{Device, Error, FaultKind, Grid, Reach, Result, Source, args};
use support::{is_race, words};

/// `x[i] <- 3 * from[i] + 1`, where `from` is an address in a table.
const FROM_TABLE: &str = r#"
    #include "gw/gw.cuh"
    GW_KERNEL(from_table)(const u64* table, u32* x, u32 n) {
        const u32 i = (u32)gw::global_thread();
        if (i < n) x[i] = 3u * reinterpret_cast<const u32*>(table[0])[i] + 1u;
    }
"#;

#[test]
fn names_open_as_many_devices_as_they_say() -> Result<()> {
    for (name, ids) in [
        ("emulated", &["emulated"][..]),
        ("emulated:1", &["emulated"]),
        ("emulated:3", &["emulated:3#0", "emulated:3#1", "emulated:3#2"]),
        ("emulated*2", &["emulated*2#0", "emulated*2#1"]),
    ] {
        let devices = Device::open_all(name)?;
        let found: Vec<&str> = devices.iter().map(|device| device.properties().id.as_str()).collect();
        assert_eq!(found, ids);
    }
    for name in ["emulated:2", "emulated*2", "cuda:0,1", "cuda:0*4", "cuda:all"] {
        let error = Device::open(name).unwrap_err();
        assert!(error.to_string().contains("names several devices, and this runs on one"), "{error}");
        assert!(matches!(gatework_gpu::Target::open(name), Err(Error::SeveralDevices { .. })));
    }
    for name in ["emulated:0", "emulated:65", "cuda:0*0", "cuda:0,0", "cpu", "emulated:2#1"] {
        assert!(matches!(Device::open_all(name), Err(Error::UnknownDevice { .. })), "{name}");
    }
    Ok(())
}

#[test]
fn virtual_devices_divide_the_budget_and_share_the_memory() -> Result<()> {
    let whole = Device::emulated(0)?;
    whole.budget().set_limit(1000);
    let parts = whole.split(4)?;
    assert!(parts.iter().all(|part| part.budget().limit() == 250));
    let stream = parts[2].stream()?;
    assert!(matches!(stream.alloc::<u8>(251), Err(Error::OutOfMemory { asked: 251, limit: 250, .. })));
    let held = stream.alloc::<u8>(200)?;
    assert_eq!((parts[2].budget().held(), parts[1].budget().held()), (200, 0));
    drop(held);
    assert_eq!(whole.split(0)?.len(), 0);
    Ok(())
}

#[test]
fn copies_between_devices_come_after_what_wrote_their_source() -> Result<()> {
    for open in [|seed| Device::emulated_group(seed, 2), |seed| Device::emulated(seed)?.split(2)] {
        let copied = |seed: u64, ordered: bool| -> Result<bool> {
            let devices = open(seed)?;
            let (here, there) = (devices[0].stream()?, devices[1].stream()?);
            let (x, y) = (words(seed, 33), words(seed + 1, 33));
            let mut from = there.upload(&y)?;
            there.synchronize()?;
            if ordered {
                there.copy_from_host(&x, &mut from)?;
            } else {
                // SAFETY: none: whoever says so has to order it, and does not.
                there.copy_from_host(&x, &mut unsafe { from.slice(..).assume_unshared() })?;
            }
            let mut to = here.alloc::<u32>(33)?;
            here.copy_from_peer(&from, &mut to)?;
            // Written again at once: after the copy.
            there.copy_from_host(&y, &mut from)?;
            there.synchronize()?;
            Ok(here.download(&to)? == x)
        };
        for seed in 0..32 {
            assert!(copied(seed, true)?, "seed {seed}");
            assert!(is_race(&copied(seed, false)), "seed {seed}: nothing orders the copy");
        }
    }
    Ok(())
}

#[test]
fn memory_that_a_peer_reads_is_freed_after_the_copy() -> Result<()> {
    for seed in 0..32 {
        let devices = Device::emulated_group(seed, 2)?;
        let (here, there) = (devices[0].stream()?, devices[1].stream()?);
        let x = words(seed, 65);
        let from = there.upload(&x)?;
        let mut to = here.alloc::<u32>(65)?;
        here.copy_from_peer(&from, &mut to)?;
        drop(from);
        there.synchronize()?;
        assert_eq!(here.download(&to)?, x, "seed {seed}");
        assert_eq!(devices[1].budget().held(), 0);
    }
    Ok(())
}

#[test]
fn copies_from_peers_refuse_what_does_not_fit() -> Result<()> {
    let devices = Device::emulated_group(1, 2)?;
    let (here, there) = (devices[0].stream()?, devices[1].stream()?);
    let from = there.upload(&[1u32, 2, 3])?;
    let mut short = here.alloc::<u32>(2)?;
    let error = here.copy_from_peer(&from, &mut short).unwrap_err();
    assert_eq!(error.to_string(), "Stream::copy_from_peer: the source has 3 elements and the destination 2");
    let mut elsewhere = there.alloc::<u32>(3)?;
    assert!(matches!(here.copy_from_peer(&from, &mut elsewhere), Err(Error::ForeignDevice { .. })));
    let apart = Device::emulated(1)?;
    let stranger = apart.stream()?.upload(&[1u32, 2])?;
    let error = here.copy_from_peer(&stranger, &mut short).unwrap_err();
    assert!(matches!(error, Error::OutOfReach { .. }), "{error}");
    assert!(matches!(here.wait(&apart.stream()?.record()?), Err(Error::OutOfReach { .. })));
    assert_eq!((devices[0].reach(&devices[1])?, devices[0].reach(&apart)?), (Reach::Direct, Reach::None));
    assert!(devices[0].can_access_peer(&devices[1])? && !apart.can_access_peer(&devices[0])?);
    assert!(matches!(devices[0].enable_peer_access(&apart), Err(Error::OutOfReach { .. })));
    let broken = here.capture(|stream| stream.copy_from_peer(&from.slice(..2), &mut short)).unwrap_err();
    assert!(broken.to_string().contains("a graph is of one device"), "{broken}");
    let mut to = here.alloc::<u32>(1)?;
    here.copy_from_peer(&from.slice(..0), &mut to.slice_mut(..0))?;
    here.copy_from_peer(&there.upload(&[9u32])?, &mut to)?;
    Ok(())
}

#[test]
fn kernels_touch_a_peers_memory_only_when_they_may() -> Result<()> {
    for seed in 0..8 {
        let devices = Device::emulated_group(seed, 3)?;
        let (here, there) = (devices[0].stream()?, devices[1].stream()?);
        let kernel = devices[0].kernel(&Source::new("from_table", FROM_TABLE))?;
        let x = words(seed, 50);
        let from = there.upload(&x)?;
        there.synchronize()?;
        let table = here.upload(&[from.as_raw()])?;
        let mut y = here.alloc::<u32>(50)?;
        // Leave to touch another device, or in the other direction, is none for this one.
        devices[0].enable_peer_access(&devices[2])?;
        devices[1].enable_peer_access(&devices[0])?;
        kernel.launch(&here, &Grid::covering(50, 32), &args![&table, &mut y, 50u32])?;
        let Err(Error::Fault(fault)) = here.synchronize() else { panic!("seed {seed} shows no fault") };
        assert_eq!(fault.kind, FaultKind::OutOfBounds);
        assert!(fault.message.contains("of another device, without Device::enable_peer_access"), "{fault}");
        devices[0].enable_peer_access(&devices[1])?;
        kernel.launch(&here, &Grid::covering(50, 32), &args![&table, &mut y, 50u32])?;
        let wanted: Vec<u32> = x.iter().map(|x| x.wrapping_mul(3).wrapping_add(1)).collect();
        assert_eq!(here.download(&y)?, wanted);
    }
    Ok(())
}

#[test]
fn a_wait_for_an_event_in_another_devices_capture_is_refused() -> Result<()> {
    let devices = Device::emulated_group(0, 2)?;
    let (here, there) = (devices[0].stream()?, devices[1].stream()?);
    let mut x = there.upload(&[1u32])?;
    let broken = there.capture(|stream| {
        stream.fill(&mut x, 2)?;
        let event = stream.record()?;
        here.wait(&event)
    });
    let error = broken.unwrap_err();
    assert!(error.to_string().contains("a graph is of one device"), "{error}");
    here.synchronize()?;
    assert_eq!(there.download(&x)?, [1]);
    Ok(())
}

/// Who comes first is first in the line.
const TICKETS: &str = r#"
    #include "gw/gw.cuh"
    GW_KERNEL(tickets)(u32* next, u32* x) {
        x[gw::global_thread()] = gw::atomic_add(next, 1u);
    }
"#;

#[test]
fn devices_of_a_group_have_schedules_of_their_own() -> Result<()> {
    let line = |device: &Device| -> Result<Vec<u32>> {
        let stream = device.stream()?;
        let kernel = device.kernel(&Source::new("tickets", TICKETS))?;
        let (mut next, mut x) = (stream.upload(&[0u32])?, stream.alloc::<u32>(256)?);
        kernel.launch(&stream, &Grid::covering(256, 64), &args![&mut next, &mut x])?;
        stream.download(&x)
    };
    for seed in 0..6 {
        let of_group = |number: usize| line(&Device::emulated_group(seed, 2)?[number]);
        assert_eq!(of_group(0)?, line(&Device::emulated(seed)?)?, "seed {seed}");
        assert_eq!(of_group(1)?, of_group(1)?, "seed {seed}");
        assert_ne!(of_group(0)?, of_group(1)?, "seed {seed}");
    }
    Ok(())
}
