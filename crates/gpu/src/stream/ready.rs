//! Events as futures.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::event::Event;
use super::later::{self, Job};
use crate::driver::{Progress, StreamId};
use crate::locked::Locked;
use crate::types::Priority;
use crate::{Device, Result};

/// When an [`Event`] has happened, see [`Event::ready`].
///
/// It may be dropped at any time; the event happens all the same.
#[must_use = "a future does nothing unless it is polled"]
pub struct EventReady {
    event: Event,
    signal: Option<Arc<Signal>>,
}

impl Event {
    /// A future that is ready when the stream has passed it, for any executor. `event.await` is the same.
    ///
    /// On a card nothing polls meanwhile: the driver calls back when the event has happened, and a thread of
    /// the runtime, which sleeps otherwise, wakes the task. The emulated device does its work while the
    /// future is polled, one operation each time. Errors of that work surface as in [`Event::synchronize`],
    /// but for a fault on a card: that ends the context, the driver calls nobody back, and a task that waits
    /// already is not woken. Await with a timeout where kernels may fault.
    pub fn ready(&self) -> EventReady {
        EventReady::new(self.clone())
    }
}

impl IntoFuture for Event {
    type Output = Result<()>;
    type IntoFuture = EventReady;

    fn into_future(self) -> EventReady {
        EventReady::new(self)
    }
}

impl IntoFuture for &Event {
    type Output = Result<()>;
    type IntoFuture = EventReady;

    fn into_future(self) -> EventReady {
        self.ready()
    }
}

impl EventReady {
    fn new(event: Event) -> Self {
        Self { event, signal: None }
    }

    /// Has the waker called when the event has happened. Whether it has already.
    fn ask_to_be_woken(&mut self, waker: &Waker) -> Result<Poll<()>> {
        let signal = match &self.signal {
            Some(signal) => signal,
            None => self.signal.insert(Signal::after(&self.event)?),
        };
        let mut state = signal.state.lock();
        if state.happened {
            return Ok(Poll::Ready(()));
        }
        // Replaced, not kept: the task may have moved to another executor.
        let stale = state.waker.replace(waker.clone());
        drop(state);
        drop(stale);
        Ok(Poll::Pending)
    }
}

impl Future for EventReady {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let outcome = (|| {
            self.event.require_real("Event::ready")?;
            if self.event.is_complete()? {
                return Ok(Poll::Ready(()));
            }
            match self.event.device().driver().advance()? {
                Progress::Own => self.ask_to_be_woken(context.waker()),
                Progress::Asked if self.event.is_complete()? => Ok(Poll::Ready(())),
                Progress::Asked => {
                    context.waker().wake_by_ref();
                    Ok(Poll::Pending)
                }
            }
        })();
        match outcome {
            // It has happened, so that this waits for nothing and says what failed.
            Ok(Poll::Ready(())) => Poll::Ready(self.event.synchronize()),
            Ok(Poll::Pending) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl std::fmt::Debug for EventReady {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EventReady({:?})", self.event)
    }
}

/// What the driver calls back for. It has a stream to itself, which waits for the event and for nothing else.
struct Signal {
    device: Device,
    stream: StreamId,
    state: Locked<SignalState>,
}

#[derive(Default)]
struct SignalState {
    happened: bool,
    waker: Option<Waker>,
}

impl Signal {
    fn after(event: &Event) -> Result<Arc<Self>> {
        let (device, thread) = (event.device().clone(), later::thread()?);
        let driver = device.driver();
        let idle = device.shared.idle_signals.lock().pop();
        let stream = match idle {
            Some(stream) => stream,
            None => driver.stream_create(Priority::High)?,
        };
        let signal = Arc::new(Self { device: device.clone(), stream, state: Locked::default() });
        driver.stream_wait(stream, event.id())?;
        let told = signal.clone();
        // Nothing of the program's runs, or is dropped, on the driver's thread: it could call the driver.
        let wake: Job = Box::new(move || told.happened());
        driver.host(stream, Box::new(move || drop(thread.send(wake))))?;
        Ok(signal)
    }

    fn happened(&self) {
        let mut state = self.state.lock();
        state.happened = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Signal {
    /// Its stream has nothing to wait for any more: whoever is called back holds this until then.
    fn drop(&mut self) {
        self.device.shared.idle_signals.lock().push(self.stream);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use std::time::{Duration, Instant};

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn reaches(counter: &Counter, count: usize) -> bool {
        let start = Instant::now();
        while counter.0.load(Ordering::SeqCst) < count && start.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        counter.0.load(Ordering::SeqCst) == count
    }

    /// The way of a device that works by itself, on one that works when another thread waits.
    #[test]
    fn a_task_is_woken_when_the_device_calls_back() {
        let device = Device::emulated(5).unwrap();
        let streams: Vec<_> = (0..3).map(|_| device.stream().unwrap()).collect();
        let counter = Arc::new(Counter::default());
        let waker = Waker::from(counter.clone());
        let mut waiting: Vec<EventReady> =
            streams.iter().map(|stream| stream.record().unwrap().ready()).collect();
        for ready in &mut waiting {
            assert!(ready.ask_to_be_woken(Waker::noop()).unwrap().is_pending());
            assert!(ready.ask_to_be_woken(&waker).unwrap().is_pending(), "the last waker counts");
        }
        // One that nobody waits for any more is not in the way of others.
        drop(waiting.pop());
        assert_eq!(device.shared.idle_signals.lock().len(), 0);
        device.synchronize().unwrap();
        assert!(reaches(&counter, 3), "the waker of the one that was dropped was called too, or late");
        for ready in &mut waiting {
            assert!(ready.ask_to_be_woken(&waker).unwrap().is_ready());
        }
        drop(waiting);
        let start = Instant::now();
        while device.shared.idle_signals.lock().len() < 3 && start.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        assert_eq!(device.shared.idle_signals.lock().len(), 3, "all streams are there for the next");
    }
}
