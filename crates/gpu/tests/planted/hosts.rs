//! Order that the host forgot, where the safe interface cannot make it: tables of addresses, lent streams and
//! memory, branches of graphs, memory that goes too early. Found by the first schedule, whichever stream runs
//! first.

use std::sync::Arc;

use gatework_gpu::{
    Buffer, Device, Error, Event, Fault, FaultKind, Grid, Kernel, Result, Source, Stream, args,
};

const SEEDS: u64 = 20;
const N: u32 = 96;

const TEXT: &str = r#"
#include "gw/gw.cuh"
GW_KERNEL(write)(u32* x, u32 value, u32 n) {
    const u32 i = (u32)gw::global_thread();
    if (i < n) x[i] = value; // here
}
GW_KERNEL(sum)(const u32* x, u32* out, u32 n) {
    u32 sum = 0;
    for (u32 i = 0; i < n; ++i) sum += x[i]; // here
    if (gw::global_thread() == 0) out[0] = sum;
}
GW_KERNEL(write_at)(const u64* table, u32 value, u32 n) {
    const u32 i = (u32)gw::global_thread();
    if (i < n) ((u32*)table[0])[i] = value; // here
}
GW_KERNEL(sum_at)(const u64* table, u32* out, u32 n) {
    u32 sum = 0;
    for (u32 i = 0; i < n; ++i) sum += ((const u32*)table[0])[i]; // here
    if (gw::global_thread() == 0) out[0] = sum;
}
GW_KERNEL(count_at)(const u64* table) {
    gw::atomic_add((u32*)table[0], 1u); // here
}
GW_KERNEL(halves_at)(const u64* table, u32 odd, u32 n) {
    const u32 i = (u32)gw::global_thread();
    if (i < n) ((u8*)table[0])[2 * i + odd] = (u8)i;
}
GW_KERNEL(send_at)(const u64* table) {
    u32* words = (u32*)table[0];
    words[1] = 42;
    gw::store_release(words, 1u);
}
GW_KERNEL(receive_at)(const u64* table, u32* out) {
    u32* words = (u32*)table[0];
    out[0] = gw::load_acquire(words) == 1u ? words[1] : 42u;
}
"#;

/// Two streams of a device, the kernels, and memory that both reach through a table of addresses.
struct Scene {
    device: Device,
    first: Stream,
    second: Stream,
    memory: Arc<Buffer<u32>>,
    table: Buffer<u64>,
    out: Buffer<u32>,
}

fn grid() -> Grid {
    Grid::new([3, 1, 1], [32, 1, 1])
}

fn one() -> Grid {
    Grid::new([1, 1, 1], [1, 1, 1])
}

impl Scene {
    fn new(seed: u64) -> Self {
        let device = Device::emulated(seed).unwrap();
        let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
        let memory = Arc::new(first.alloc_zeros::<u32>(N as usize).unwrap());
        let table = first.upload(&[memory.as_raw()]).unwrap();
        let out = second.alloc_zeros::<u32>(1).unwrap();
        first.synchronize().unwrap();
        second.synchronize().unwrap();
        Self { device, first, second, memory, table, out }
    }

    fn kernel(&self, name: &str) -> Kernel {
        self.device.kernel_named(&Source::new("planted", TEXT), name).unwrap()
    }

    fn write_at(&self, stream: &Stream) -> Result<()> {
        self.kernel("write_at").launch(stream, &grid(), &args![&self.table, 5u32, N])
    }

    fn sum_at(&mut self) -> Result<()> {
        self.kernel("sum_at").launch(&self.second, &one(), &args![&self.table, &mut self.out, N])
    }

    /// The second stream goes on after the event, or the bug is that it does not.
    fn then(&self, event: &Event, is_ordered: bool) -> Result<()> {
        if is_ordered { self.second.wait(event) } else { Ok(()) }
    }

    /// The memory as somebody else's library would hold it, on one of its streams.
    fn lent(&self, stream: &Stream) -> Result<Buffer<u32>> {
        // SAFETY: the shared buffer keeps the memory alive; order is what this is about.
        unsafe { Buffer::from_raw(stream, self.memory.as_raw(), N as usize, self.memory.clone()) }
    }

    fn finish(&self) -> Result<()> {
        let (first, second) = (self.first.synchronize(), self.second.synchronize());
        first.and(second)
    }
}

type Case = fn(&mut Scene, bool) -> Result<()>;
type Sound = fn(&mut Scene) -> Result<()>;

/// What a fault of one of these runs must say.
fn assert_told(name: &str, seed: u64, fault: &Fault, kinds: &[FaultKind]) {
    assert!(kinds.contains(&fault.kind), "{name}, seed {seed}: {fault} [{:?}]", fault.kind);
    if fault.kind == FaultKind::Race {
        assert!(fault.message.contains("nothing orders the two"), "{name}, seed {seed}: {fault}");
    }
    if !fault.kernel.is_empty() {
        let line = fault.site.as_ref().map_or(0, |site| site.line);
        let text = TEXT.lines().nth(line.saturating_sub(1) as usize).unwrap_or_default();
        assert!(text.contains("// here"), "{name}, seed {seed}: line {line}: {fault}");
    }
}

/// Every schedule shows the bug with one of these faults, and passes the twin.
fn find(name: &str, kinds: &[FaultKind], case: Case) {
    for seed in 0..SEEDS {
        let run = |is_ordered| {
            let mut scene = Scene::new(seed);
            let ran = case(&mut scene, is_ordered);
            ran.and(scene.finish())
        };
        match run(false) {
            Err(Error::Fault(fault)) => assert_told(name, seed, &fault, kinds),
            other => panic!("{name}: seed {seed} does not show it: {other:?}"),
        }
        if let Err(error) = run(true) {
            panic!("{name}: seed {seed} stops the twin: {error}");
        }
    }
}

const RACE: &[FaultKind] = &[FaultKind::Race];

#[test]
fn kernels_that_meet_through_a_table_of_addresses() {
    find("write and read", RACE, |scene, is_ordered| {
        scene.write_at(&scene.first)?;
        scene.then(&scene.first.record()?, is_ordered)?;
        scene.sum_at()
    });
    find("write and write", RACE, |scene, is_ordered| {
        scene.write_at(&scene.first)?;
        scene.then(&scene.first.record()?, is_ordered)?;
        scene.write_at(&scene.second)
    });
    find("read and write", RACE, |scene, is_ordered| {
        scene.sum_at()?;
        if is_ordered {
            scene.first.wait(&scene.second.record()?)?;
        }
        scene.write_at(&scene.first)
    });
    find("an event that was recorded too early", RACE, |scene, is_ordered| {
        let early = scene.first.record()?;
        scene.write_at(&scene.first)?;
        let late = scene.first.record()?;
        scene.second.wait(if is_ordered { &late } else { &early })?;
        scene.sum_at()
    });
    find("a third stream waits instead", RACE, |scene, is_ordered| {
        scene.write_at(&scene.first)?;
        let third = scene.device.stream()?;
        third.wait(&scene.first.record()?)?;
        scene.then(&third.record()?, is_ordered)?;
        scene.sum_at()
    });
    find("the host waits for the other stream", RACE, |scene, is_ordered| {
        scene.write_at(&scene.first)?;
        let waited = if is_ordered { &scene.first } else { &scene.second };
        waited.synchronize()?;
        scene.sum_at()
    });
    find("the host looks at the wrong event", RACE, |scene, is_ordered| {
        let early = scene.first.record()?;
        early.synchronize()?;
        scene.write_at(&scene.first)?;
        if is_ordered {
            scene.first.record()?.synchronize()?;
        }
        scene.sum_at()
    });
    find("an atomic and a plain read", RACE, |scene, is_ordered| {
        scene.kernel("count_at").launch(&scene.first, &grid(), &args![&scene.table])?;
        scene.then(&scene.first.record()?, is_ordered)?;
        scene.sum_at()
    });
}

#[test]
fn copies_and_fills_of_memory_that_was_lent() {
    find("a fill beside a kernel", RACE, |scene, is_ordered| {
        scene.write_at(&scene.first)?;
        scene.then(&scene.first.record()?, is_ordered)?;
        let mut lent = scene.lent(&scene.second)?;
        scene.second.fill(&mut lent, 3)
    });
    find("a copy to the host", RACE, |scene, is_ordered| {
        scene.write_at(&scene.first)?;
        scene.then(&scene.first.record()?, is_ordered)?;
        let lent = scene.lent(&scene.second)?;
        scene.second.download(&lent).map(drop)
    });
    find("a copy from the host", RACE, |scene, is_ordered| {
        scene.write_at(&scene.first)?;
        scene.then(&scene.first.record()?, is_ordered)?;
        let mut lent = scene.lent(&scene.second)?;
        scene.second.copy_from_host(&vec![1u32; N as usize], &mut lent)
    });
    find("a copy on the device", RACE, |scene, is_ordered| {
        scene.write_at(&scene.first)?;
        scene.then(&scene.first.record()?, is_ordered)?;
        let (lent, mut to) = (scene.lent(&scene.second)?, scene.second.alloc::<u32>(N as usize)?);
        scene.second.copy(&lent, &mut to)
    });
    find("a stream of another library", RACE, |scene, is_ordered| {
        // SAFETY: the clone keeps the stream alive.
        let theirs = unsafe { Stream::from_raw(&scene.device, scene.first.as_raw(), scene.first.clone())? };
        scene.write_at(&theirs)?;
        scene.then(&theirs.record()?, is_ordered)?;
        let mut lent = scene.lent(&scene.second)?;
        scene.kernel("write").launch(&scene.second, &grid(), &args![&mut lent, 1u32, N])
    });
}

#[test]
fn branches_of_graphs() {
    find("two branches write", RACE, |scene, is_ordered| {
        let (first, second) = (scene.first.clone(), scene.second.clone());
        let graph = first.capture(|stream| {
            second.wait(&stream.record()?)?;
            scene.write_at(stream)?;
            scene.then(&stream.record()?, is_ordered)?;
            scene.write_at(&second)?;
            stream.wait(&second.record()?)
        })?;
        graph.launch(&first)
    });
    find("a branch of three reads what another writes", RACE, |scene, is_ordered| {
        let (first, second) = (scene.first.clone(), scene.second.clone());
        let third = scene.device.stream()?;
        let graph = first.capture(|stream| {
            let begin = stream.record()?;
            second.wait(&begin)?;
            third.wait(&begin)?;
            scene.write_at(&third)?;
            scene.then(&third.record()?, is_ordered)?;
            scene.sum_at()?;
            stream.wait(&second.record()?)?;
            stream.wait(&third.record()?)
        })?;
        graph.launch(&first)
    });
    find("a graph beside a stream", RACE, |scene, is_ordered| {
        let graph = scene.first.clone().capture(|stream| scene.write_at(stream))?;
        graph.launch(&scene.first)?;
        scene.then(&scene.first.record()?, is_ordered)?;
        scene.sum_at()
    });
    find("two graphs on two streams", RACE, |scene, is_ordered| {
        let graph = scene.first.clone().capture(|stream| scene.write_at(stream))?;
        let other = scene.second.clone().capture(|_| scene.sum_at())?;
        graph.launch(&scene.first)?;
        scene.then(&scene.first.record()?, is_ordered)?;
        other.launch(&scene.second)
    });
}

#[test]
fn memory_that_goes_or_comes_at_the_wrong_time() {
    let gone = &[FaultKind::Race, FaultKind::FreedMemory];
    find("freed under a reader", gone, |scene, is_ordered| {
        scene.sum_at()?;
        if is_ordered {
            scene.second.synchronize()?;
        }
        let empty = Arc::new(scene.first.alloc_zeros::<u32>(1)?);
        drop(std::mem::replace(&mut scene.memory, empty));
        Ok(())
    });
    find("freed before its reader", &[FaultKind::FreedMemory], |scene, is_ordered| {
        let empty = Arc::new(scene.first.alloc_zeros::<u32>(1)?);
        let memory = std::mem::replace(&mut scene.memory, empty);
        if is_ordered {
            scene.sum_at()?;
            scene.second.synchronize()?;
        }
        drop(memory);
        scene.first.synchronize()?;
        if is_ordered { Ok(()) } else { scene.sum_at() }
    });
    find("freed long before its reader", &[FaultKind::FreedMemory], |scene, is_ordered| {
        let empty = Arc::new(scene.first.alloc_zeros::<u32>(1)?);
        drop(std::mem::replace(&mut scene.memory, empty));
        // More than the device keeps of what was freed.
        for _ in 0..9 {
            drop(scene.first.alloc::<u64>(1 << 20)?);
        }
        let next = scene.first.alloc_zeros::<u32>(N as usize)?;
        if is_ordered {
            scene.first.copy_from_host(&[next.as_raw()], &mut scene.table)?;
        }
        scene.first.synchronize()?;
        scene.sum_at()?;
        scene.second.synchronize()
    });
    find("used before its stream has it", RACE, |scene, is_ordered| {
        scene.kernel("count_at").launch(&scene.first, &grid(), &args![&scene.table])?;
        let fresh = scene.first.alloc::<u32>(N as usize)?;
        let table = scene.second.upload(&[fresh.as_raw()])?;
        scene.then(&scene.first.record()?, is_ordered)?;
        scene.kernel("write_at").launch(&scene.second, &grid(), &args![&table, 1u32, N])?;
        scene.second.synchronize()
    });
}

#[test]
fn devices_of_one_group() {
    for seed in 0..SEEDS {
        let run = |is_ordered: bool| -> Result<()> {
            let devices = Device::emulated_group(seed, 2)?;
            devices[1].enable_peer_access(&devices[0])?;
            let (here, there) = (devices[0].stream()?, devices[1].stream()?);
            let mut memory = here.alloc_zeros::<u32>(N as usize)?;
            let (table, mut out) = (there.upload(&[memory.as_raw()])?, there.alloc::<u32>(1)?);
            here.synchronize()?;
            let source = Source::new("planted", TEXT);
            let write = devices[0].kernel_named(&source, "write")?;
            write.launch(&here, &grid(), &args![&mut memory, 1u32, N])?;
            if is_ordered {
                there.wait(&here.record()?)?;
            }
            let sum = devices[1].kernel_named(&source, "sum_at")?;
            sum.launch(&there, &one(), &args![&table, &mut out, N])?;
            let (here, there) = (here.synchronize(), there.synchronize());
            here.and(there)
        };
        match run(false) {
            Err(Error::Fault(fault)) => {
                assert_told("peers", seed, &fault, RACE);
                assert!(fault.message.contains("another device"), "{fault}");
            }
            other => panic!("seed {seed} does not show it: {other:?}"),
        }
        run(true).unwrap();
    }
}

#[test]
fn what_needs_no_event_raises_no_alarm() {
    let fine: &[(&str, Sound)] = &[
        ("two readers", |scene| {
            let mut sum = scene.first.alloc::<u32>(1)?;
            scene.kernel("sum_at").launch(&scene.first, &one(), &args![&scene.table, &mut sum, N])?;
            scene.sum_at()
        }),
        ("two counters", |scene| {
            for stream in [&scene.first, &scene.second] {
                scene.kernel("count_at").launch(stream, &grid(), &args![&scene.table])?;
            }
            scene.finish()?;
            assert_eq!(scene.first.download(&*scene.memory)?[0], 2 * N);
            Ok(())
        }),
        ("neighbouring bytes", |scene| {
            for (odd, stream) in [&scene.first, &scene.second].into_iter().enumerate() {
                scene.kernel("halves_at").launch(stream, &grid(), &args![&scene.table, odd as u32, N])?;
            }
            Ok(())
        }),
        ("a message from kernel to kernel", |scene| {
            scene.kernel("send_at").launch(&scene.first, &one(), &args![&scene.table])?;
            scene.kernel("receive_at").launch(&scene.second, &one(), &args![&scene.table, &mut scene.out])?;
            assert_eq!(scene.second.download(&scene.out)?, [42]);
            Ok(())
        }),
        ("an event that is asked about", |scene| {
            scene.write_at(&scene.first)?;
            let event = scene.first.record()?;
            scene.first.synchronize()?;
            assert!(event.is_complete()?);
            scene.sum_at()
        }),
        ("the device is waited for", |scene| {
            scene.write_at(&scene.device.stream()?)?;
            scene.device.synchronize()?;
            scene.sum_at()
        }),
        ("code of the program in between", |scene| {
            scene.write_at(&scene.first)?;
            let (told, heard) = std::sync::mpsc::channel();
            let (go_on, wait) = std::sync::mpsc::channel();
            scene.first.host(move || {
                told.send(()).unwrap();
                // Whoever was told queues before this returns.
                wait.recv().unwrap();
            })?;
            let first = scene.first.clone();
            std::thread::scope(|scope| {
                let waits = scope.spawn(move || first.synchronize());
                heard.recv().unwrap();
                scene.sum_at()?;
                go_on.send(()).unwrap();
                waits.join().unwrap()
            })
        }),
        ("one graph on two streams", |scene| {
            let graph = scene.first.clone().capture(|stream| scene.write_at(stream))?;
            graph.launch(&scene.first)?;
            graph.launch(&scene.second)
        }),
        ("memory of a stream that is idle", |scene| {
            scene.write_at(&scene.first)?;
            scene.first.synchronize()?;
            let fresh = scene.first.alloc::<u32>(N as usize)?;
            let table = scene.second.upload(&[fresh.as_raw()])?;
            scene.kernel("write_at").launch(&scene.second, &grid(), &args![&table, 1u32, N])?;
            scene.second.synchronize()
        }),
        ("after a graph that failed", |scene| {
            let graph = scene.first.clone().capture(|stream| {
                scene.write_at(stream)?;
                let wide = Grid::new([6, 1, 1], [32, 1, 1]);
                scene.kernel("write_at").launch(stream, &wide, &args![&scene.table, 5u32, 2 * N])
            })?;
            graph.launch(&scene.first)?;
            assert!(
                matches!(scene.first.synchronize(), Err(Error::Fault(_))),
                "the second kernel leaves the buffer"
            );
            let mut lent = scene.lent(&scene.first)?;
            scene.first.fill(&mut lent, 3)?;
            scene.first.synchronize()
        }),
        ("parts of one buffer", |scene| {
            let write = scene.kernel("write");
            let half = N as usize / 2;
            for (stream, range) in [(&scene.first, 0..half), (&scene.second, half..2 * half)] {
                // SAFETY: the parts do not overlap.
                let part = unsafe { scene.memory.slice(range).assume_unshared() };
                write.launch(stream, &grid(), &args![part, 1u32, N / 2])?;
            }
            Ok(())
        }),
    ];
    for (name, run) in fine {
        for seed in 0..SEEDS {
            let mut scene = Scene::new(seed);
            let ran = run(&mut scene).and_then(|()| scene.finish());
            assert!(ran.is_ok(), "{name}: seed {seed}: {}", ran.unwrap_err());
        }
    }
}
