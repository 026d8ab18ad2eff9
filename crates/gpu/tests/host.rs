//! Code of the program in the order of streams: host functions, and events as futures.

mod support;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use gatework_gpu::{Class, Classified as _, Error, Event, Result, Source, args};
use support::{chain, emulated, grid, words};

const SEEDS: u64 = 20;

/// Wakes a thread that parks.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor there is.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Several futures at once; what each gives, in their order.
struct All<T>(Vec<Pin<Box<dyn Future<Output = T>>>>, Vec<Option<T>>);

impl<T> All<T> {
    fn of(futures: Vec<Pin<Box<dyn Future<Output = T>>>>) -> Self {
        let outputs = futures.iter().map(|_| None).collect();
        Self(futures, outputs)
    }
}

impl<T: Unpin> Future for All<T> {
    type Output = Vec<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Vec<T>> {
        let Self(futures, outputs) = &mut *self;
        for (future, output) in futures.iter_mut().zip(outputs.iter_mut()) {
            if output.is_none()
                && let Poll::Ready(value) = future.as_mut().poll(context)
            {
                *output = Some(value);
            }
        }
        match outputs.iter().all(Option::is_some) {
            true => Poll::Ready(outputs.iter_mut().filter_map(Option::take).collect()),
            false => Poll::Pending,
        }
    }
}

#[test]
fn host_functions_run_once_in_the_order_of_their_stream() -> Result<()> {
    for seed in 0..SEEDS {
        let (device, first) = emulated(seed);
        let second = device.stream()?;
        let order = Arc::new(Mutex::new(Vec::new()));
        let note = |number: u32| {
            let order = order.clone();
            move || order.lock().unwrap().push(number)
        };
        let mut x = first.upload(&words(seed, 9))?;
        first.host(note(1))?;
        chain(&device).launch(&first, &grid(), &args![&mut x, 1u32, 9u32])?;
        first.host(note(2))?;
        second.wait(&first.record()?)?;
        second.host(note(3))?;
        assert!(order.lock().unwrap().is_empty(), "nothing runs before somebody waits");
        second.synchronize()?;
        assert_eq!(*order.lock().unwrap(), [1, 2, 3], "seed {seed}");
        first.synchronize()?;
        assert_eq!(order.lock().unwrap().len(), 3);
    }
    Ok(())
}

#[test]
fn a_stream_without_an_event_runs_its_functions_in_any_order_with_others() -> Result<()> {
    let run = |seed| -> Result<Vec<u32>> {
        let (device, first) = emulated(seed);
        let second = device.stream()?;
        let order = Arc::new(Mutex::new(Vec::new()));
        for (number, stream) in [(1, &first), (2, &second), (3, &first), (4, &second)] {
            let order = order.clone();
            stream.host(move || order.lock().unwrap().push(number))?;
        }
        device.synchronize()?;
        let order = order.lock().unwrap().clone();
        Ok(order)
    };
    let orders = (0..SEEDS).map(run).collect::<Result<Vec<_>>>()?;
    assert!(orders.iter().any(|order| *order != orders[0]), "{orders:?}");
    Ok(())
}

#[test]
fn a_panic_in_a_host_function_is_an_error_of_the_next_wait_and_of_no_other() -> Result<()> {
    let (device, stream) = emulated(4);
    let mut x = stream.upload(&[1u32])?;
    stream.host(|| panic!("of my {}", "own"))?;
    stream.host(|| panic!("a second time"))?;
    chain(&device).launch(&stream, &grid(), &args![&mut x, 5u32, 1u32])?;
    let error = stream.synchronize().unwrap_err();
    assert_eq!(error.to_string(), "host function: it panicked: of my own");
    assert_eq!(error.class(), Class::Input);
    assert_eq!(stream.download(&x)?, [1_664_530], "the stream went on");
    stream.host(|| std::panic::panic_any(7u8))?;
    assert!(stream.download(&x).unwrap_err().to_string().contains("no text"));
    stream.synchronize()
}

#[test]
fn a_host_function_cannot_use_the_device_nor_be_captured() -> Result<()> {
    let (device, stream) = emulated(4);
    let told = Arc::new(Mutex::new(Vec::new()));
    {
        let (stream, told, x) = (stream.clone(), told.clone(), stream.upload(&[1u8])?);
        let (other, event) = (device.stream()?, stream.record()?);
        stream.clone().host(move || {
            let refused = [
                stream.synchronize().unwrap_err(),
                stream.download(&x).unwrap_err(),
                stream.upload(&[1u8]).map(drop).unwrap_err(),
                stream.record().map(drop).unwrap_err(),
                stream.wait(&event).unwrap_err(),
                event.synchronize().unwrap_err(),
                stream.host(|| ()).unwrap_err(),
            ];
            told.lock().unwrap().extend(refused);
            drop((x, other));
        })?;
    }
    stream.synchronize()?;
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 7);
    for error in told.iter() {
        assert!(matches!(error, Error::HostFunction { .. }), "{error}");
        assert!(error.to_string().contains("not possible inside"), "{error}");
    }
    let error = stream.capture(|stream| stream.host(|| ())).unwrap_err();
    assert!(error.to_string().contains("broken by Stream::host: a host function runs once"), "{error}");
    Ok(())
}

#[test]
fn memory_that_a_host_function_drops_is_freed_after_its_users() -> Result<()> {
    for seed in 0..SEEDS {
        let (device, stream) = emulated(seed);
        let user = device.stream()?;
        let x = stream.upload(&words(seed, 33))?;
        let mut y = user.alloc::<u32>(33)?;
        user.copy(&x, &mut y)?;
        stream.host(move || drop(x))?;
        stream.synchronize()?;
        // Another thread frees it, in its own time.
        let start = std::time::Instant::now();
        while device.budget().held() > 4 * 33 && start.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        assert_eq!(device.budget().held(), 4 * 33);
        assert_eq!(user.download(&y)?, words(seed, 33), "seed {seed}");
    }
    Ok(())
}

#[test]
fn what_a_skipped_function_owns_is_dropped_where_the_device_may_be_used() -> Result<()> {
    for seed in 0..SEEDS {
        let (device, stream) = emulated(seed);
        let wild = Source::new("wild", "#include \"gw/gw.cuh\"\nGW_KERNEL(wild)(u32* x) { x[1 << 20] = 1; }");
        let mut x = stream.upload(&[1u32])?;
        device.kernel(&wild)?.launch(&stream, &grid(), &args![&mut x])?;
        // Queued behind the failure, and refused after it.
        let (first, second) = (stream.alloc::<u32>(8)?, device.stream()?.alloc::<u32>(8)?);
        stream.host(move || drop(first))?;
        assert!(matches!(stream.synchronize(), Err(Error::Fault(_))), "seed {seed}");
        let mut y = stream.upload(&[1u32])?;
        device.kernel(&wild)?.launch(&stream, &grid(), &args![&mut y])?;
        device.stream()?.wait(&stream.record()?)?;
        let _ = stream.host(move || drop(second));
        let _ = stream.synchronize();
        drop((x, y));
        stream.synchronize()?;
        assert_eq!(device.budget().held(), 0, "seed {seed}");
    }
    Ok(())
}

#[test]
fn the_last_handle_of_a_stream_may_go_inside_of_its_own_function() -> Result<()> {
    let (device, stream) = emulated(5);
    let done = Arc::new(AtomicU32::new(0));
    let (own, noted) = (stream.clone(), done.clone());
    stream.host(move || {
        noted.fetch_add(1, Ordering::SeqCst);
        drop(own);
    })?;
    let noted = done.clone();
    stream.host(move || {
        noted.fetch_add(1, Ordering::SeqCst);
    })?;
    drop(stream);
    device.synchronize()?;
    assert_eq!(done.load(Ordering::SeqCst), 2);
    Ok(())
}

#[test]
fn threads_wait_for_a_host_function_that_another_one_runs() -> Result<()> {
    let (device, stream) = emulated(6);
    let done = Arc::new(AtomicU32::new(0));
    let noted = done.clone();
    stream.host(move || {
        std::thread::sleep(Duration::from_millis(30));
        noted.store(1, Ordering::SeqCst);
    })?;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                stream.synchronize().unwrap();
                assert_eq!(done.load(Ordering::SeqCst), 1);
            });
        }
    });
    device.synchronize()
}

#[test]
fn events_are_futures_and_many_may_be_awaited_at_once() -> Result<()> {
    for seed in 0..SEEDS {
        let (device, stream) = emulated(seed);
        let kernel = chain(&device);
        let mut x = stream.upload(&words(seed, 33))?;
        kernel.launch(&stream, &grid(), &args![&mut x, 1u32, 33u32])?;
        let event = stream.record()?;
        assert!(!event.is_complete()?);
        block_on(async { (&event).await })?;
        assert!(event.is_complete()?);
        block_on(event.into_future())?;

        let streams = (0..5).map(|_| device.stream()).collect::<Result<Vec<_>>>()?;
        let ended = Arc::new(Mutex::new(Vec::new()));
        let futures = streams.iter().enumerate().map(|(index, stream)| {
            let mut y = stream.upload(&words(seed, 33)).unwrap();
            for step in 0..4u32 {
                kernel.launch(stream, &grid(), &args![&mut y, step, 33u32]).unwrap();
            }
            let (event, ended) = (stream.record().unwrap(), ended.clone());
            let future = async move {
                let outcome = event.ready().await;
                ended.lock().unwrap().push(index);
                outcome
            };
            Box::pin(future) as Pin<Box<dyn Future<Output = Result<()>>>>
        });
        block_on(All::of(futures.collect())).into_iter().collect::<Result<Vec<()>>>()?;
        let mut ended = ended.lock().unwrap().clone();
        ended.sort_unstable();
        assert_eq!(ended, [0, 1, 2, 3, 4]);
    }
    Ok(())
}

#[test]
fn a_future_tells_what_failed_and_may_be_dropped() -> Result<()> {
    let (device, stream) = emulated(3);
    let mut x = stream.alloc_zeros::<u32>(4)?;
    let never_polled = stream.record()?.ready();
    chain(&device).launch(&stream, &grid(), &args![&mut x, 1u32, 64u32])?;
    let event = stream.record()?;
    let mut polled = Box::pin(event.ready());
    assert!(polled.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop((never_polled, polled));
    assert!(matches!(block_on(event.ready()), Err(Error::Fault(_))), "it writes past the end");
    let mut inside: Option<Event> = None;
    stream.capture(|stream| {
        inside = Some(stream.record()?);
        Ok(())
    })?;
    let error = block_on(inside.expect("it was recorded").into_future()).unwrap_err();
    assert!(error.to_string().contains("never happens by itself"), "{error}");
    Ok(())
}

#[test]
fn occupancy_follows_from_threads_and_shared_memory() -> Result<()> {
    let (device, _) = emulated(0);
    let kernel = chain(&device);
    for (threads, shared, blocks) in [
        (1024, 0, 2),
        (256, 0, 8),
        (33, 0, 32),
        (32, 0, 32),
        (1, 0, 32),
        (128, 100 << 10, 2),
        (128, 227 << 10, 1),
    ] {
        assert_eq!(kernel.max_active_blocks(threads, shared)?, blocks, "{threads} threads, {shared} bytes");
    }
    assert!(matches!(kernel.max_active_blocks(1025, 0), Err(Error::Launch { .. })));
    assert!(matches!(kernel.max_active_blocks(0, 0), Err(Error::Launch { .. })));
    assert!(matches!(kernel.max_active_blocks(32, 228 << 10), Err(Error::Launch { .. })));
    let free = kernel.suggested_block(0)?;
    assert_eq!((free.threads, free.least_blocks), (1024, 8));
    let crowded = kernel.suggested_block(200 << 10)?;
    assert_eq!((crowded.threads, crowded.least_blocks), (1024, 4));
    assert!(kernel.suggested_block(300 << 10).is_err());
    drop(device);
    assert!(kernel.max_active_blocks(32, 0).unwrap_err().to_string().contains("no longer open"));
    Ok(())
}
