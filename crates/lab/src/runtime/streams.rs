//! Streams that share memory, code of the program in their order, and graphs that change: what a program
//! relies on without an event of its own.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use gatework_gpu::{Buffer, Device, Grid, Kernel, Kind, Pinned, Result as GpuResult, Stream, args};

use crate::kernels;
use crate::{Case, Control, ErrorBudget, Inputs, KernelSpec, Outputs, RunError, Work, Workload};

const THREADS: u32 = 256;
/// Launches on streams that take turns.
const TURNS: u32 = 48;
/// Copies of what was written so far.
const LOOKS: u32 = 4;
/// How host functions and events come.
const IN_ORDER: [u32; 4] = [0, 1, 2, 3];

/// `gpu/streams`.
pub(super) struct Streams;

/// `x <- 1664525 x + step`, modulo 2^32.
fn step(x: u32, step: u32) -> u32 {
    x.wrapping_mul(1_664_525).wrapping_add(step)
}

fn stepped(words: &[u32], steps: impl IntoIterator<Item = u32> + Clone) -> Vec<u32> {
    words.iter().map(|&x| steps.clone().into_iter().fold(x, step)).collect()
}

/// One device with three streams and what they work on.
struct Scene {
    device: Device,
    streams: [Stream; 3],
    kernel: Kernel,
    words: Vec<u32>,
}

impl Scene {
    fn new(device: &Device, words: Vec<u32>) -> GpuResult<Self> {
        let streams = [device.stream()?, device.stream()?, device.stream()?];
        let kernel = device.kernel_of(&kernels::CHAIN, "chain")?;
        Ok(Self { device: device.clone(), streams, kernel, words })
    }

    fn launch(&self, stream: &Stream, x: &mut Buffer<u32>, step: u32) -> GpuResult<()> {
        let n = x.len();
        self.kernel.launch(stream, &Grid::covering(n, THREADS), &args![x, step, n as u32])
    }

    fn pinned(&self) -> GpuResult<Pinned<u32>> {
        self.device.pinned().take(self.words.len())
    }

    /// All streams write one buffer in turn.
    fn turns(&self) -> GpuResult<Vec<u32>> {
        let mut x = self.streams[0].upload(&self.words)?;
        for turn in 0..TURNS {
            self.launch(&self.streams[turn as usize % 3], &mut x, turn)?;
        }
        self.streams[1].download(&x)
    }

    /// One stream writes, another copies what there is after each write, a third hands it over through
    /// page-locked memory.
    fn looks(&self) -> GpuResult<Vec<u32>> {
        let [writes, copies, hands] = &self.streams;
        let mut x = writes.upload(&self.words)?;
        let mut seen = Vec::new();
        for look in 0..LOOKS {
            self.launch(writes, &mut x, look)?;
            let mut copy = copies.alloc::<u32>(x.len())?;
            copies.copy(&x, &mut copy)?;
            let mut host = self.pinned()?;
            hands.copy_to_pinned(&copy, &mut host)?;
            copies.copy_from_pinned(&host, &mut copy)?;
            seen.push(copy);
        }
        let seen = seen.iter().map(|copy| writes.download(copy)).collect::<GpuResult<Vec<_>>>()?;
        Ok(seen.concat())
    }

    /// A graph on one stream and launches on another take turns; inside of the graph two streams do.
    fn graphs(&self) -> GpuResult<Vec<u32>> {
        let [first, second, side] = &self.streams;
        let mut x = first.upload(&self.words)?;
        let graph = first.capture(|stream| {
            side.wait(&stream.record()?)?;
            for inner in 0..4 {
                self.launch([stream, side][inner as usize % 2], &mut x, 100 + inner)?;
            }
            stream.wait(&side.record()?)
        })?;
        for turn in 0..4 {
            self.launch(second, &mut x, turn)?;
            graph.launch(if turn % 2 == 0 { first } else { side })?;
        }
        second.download(&x)
    }

    /// A graph copies in and out of page-locked memory, and then other memory of another length.
    fn copies(&self) -> GpuResult<Vec<u32>> {
        let [stream, other, _] = &self.streams;
        let n = self.words.len();
        let (mut input, mut output) = (self.pinned()?, self.pinned()?);
        input.write()?.copy_from_slice(&self.words);
        let (mut x, mut y) = (stream.alloc_zeros::<u32>(n)?, stream.alloc_zeros::<u32>(n)?);
        let mut graph = stream.capture(|stream| {
            stream.copy_from_pinned(&input, &mut x)?;
            self.launch(stream, &mut x, 1)?;
            stream.copy(&x, &mut y)?;
            stream.copy_to_pinned(&y, &mut output)
        })?;
        graph.launch(stream)?;
        let first = output.read()?.to_vec();
        let mut reversed = self.pinned()?;
        reversed.write()?.iter_mut().zip(self.words.iter().rev()).for_each(|(to, from)| *to = *from);
        let mut half = self.device.pinned().take::<u32>(n.div_ceil(2))?;
        let mut z = other.alloc_zeros::<u32>(n.div_ceil(2))?;
        graph.update_copy_from_pinned(0, &reversed, &mut x)?;
        graph.update_copy(1, &x.slice(n / 2..), &mut z)?;
        graph.update_copy_to_pinned(2, &z, &mut half)?;
        graph.launch(other)?;
        let second = half.read()?.to_vec();
        Ok([first, second, stream.download(&y)?].concat())
    }

    /// A graph inside of a graph, as it was when that was captured, and then another in its place.
    fn children(&self) -> GpuResult<Vec<u32>> {
        let [stream, other, _] = &self.streams;
        let (mut x, mut y) = (stream.upload(&self.words)?, stream.upload(&self.words)?);
        let n = x.len() as u32;
        let mut inner = stream.capture(|stream| self.launch(stream, &mut x, 1))?;
        inner.update(0, &args![&mut x, 2u32, n])?;
        let on_y = stream.capture(|stream| self.launch(stream, &mut y, 7))?;
        let mut outer = stream.capture(|stream| {
            self.launch(stream, &mut x, 3)?;
            inner.launch(stream)?;
            self.launch(stream, &mut x, 4)
        })?;
        inner.update(0, &args![&mut x, 9u32, n])?;
        outer.launch(other)?;
        outer.update_child(0, &on_y)?;
        outer.launch(stream)?;
        Ok([other.download(&x)?, other.download(&y)?].concat())
    }

    /// In which order host functions and awaited events came: numbers from 0 on, if it is the one that
    /// streams and events make.
    fn hosts(&self) -> GpuResult<Vec<u32>> {
        let [first, second, third] = &self.streams;
        let order = Arc::new(Mutex::new(Vec::new()));
        let note = |number: u32| {
            let order = order.clone();
            move || order.lock().unwrap_or_else(PoisonError::into_inner).push(number)
        };
        let mut x = first.upload(&self.words)?;
        self.launch(first, &mut x, 1)?;
        first.host(note(0))?;
        second.wait(&first.record()?)?;
        self.launch(second, &mut x, 2)?;
        second.host(note(1))?;
        let events = [first.record()?, second.record()?];
        third.wait(&events[1])?;
        for event in events {
            block_on(event.into_future())?;
        }
        note(2)();
        third.host(note(3))?;
        block_on(third.record()?.into_future())?;
        let order = order.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(order.clone())
    }

    /// Whether a panic inside of a stream comes out where it should, a capture refuses host functions, and
    /// blocks fit.
    fn refusals(&self) -> GpuResult<Vec<u32>> {
        let stream = &self.streams[0];
        stream.host(|| std::panic::resume_unwind(Box::new("on purpose")))?;
        let told = stream.synchronize().is_err_and(|error| error.to_string().contains("on purpose"));
        let once = stream.synchronize().is_ok();
        let refused = stream.capture(|stream| stream.host(|| ())).is_err();
        let suggested = self.kernel.suggested_block(0)?;
        let fits = self.kernel.max_active_blocks(suggested.threads, 0)? > 0 && suggested.least_blocks > 0;
        Ok([told, once, refused, fits].map(u32::from).to_vec())
    }
}

/// Runs a future on this thread, which sleeps while there is nothing to do.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn words(case: &Case, seed: u64) -> Vec<u32> {
    Inputs::new(seed).words(case.dimension("n"))
}

/// What all of it comes to, with so many turns, looks that see the step `late` steps before, and host
/// functions in that order.
fn outputs(words: &[u32], turns: u32, late: u32, hosts: [u32; 4]) -> Outputs {
    let n = words.len();
    let looks: Vec<u32> = (1..=LOOKS).flat_map(|look| stepped(words, 0..look.saturating_sub(late))).collect();
    let graphs = (0..4).flat_map(|turn| [turn, 100, 101, 102, 103]);
    let reversed: Vec<u32> = words.iter().rev().copied().collect();
    let first = stepped(words, [1]);
    let copies = [first.clone(), stepped(&reversed[n / 2..], [1]), first].concat();
    let children = [stepped(words, [3, 2, 4, 3, 4]), stepped(words, [7])].concat();
    Outputs::new()
        .with("turns", stepped(words, 0..turns))
        .with("looks", looks)
        .with("graphs", stepped(words, graphs))
        .with("copies", copies)
        .with("children", children)
        .with("hosts", hosts.to_vec())
        .with("refusals", vec![1u32; 4])
}

impl Workload for Streams {
    fn name(&self) -> &str {
        "gpu/streams"
    }

    fn summary(&self) -> &str {
        "streams ordered by the memory they share, host functions, awaited events, copies and children of graphs"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        vec![KernelSpec::new(kernels::CHAIN.source()).require("IMAD").threads(THREADS)]
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let sizes: &[usize] = match kind {
            Kind::Emulated => &[1, 33, 257],
            Kind::Cuda => &[1, 33, 1000, 4_000_003],
        };
        sizes.iter().map(|&n| Case::new(format!("n{n}")).with("n", n)).collect()
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let scene = Scene::new(device, words(case, seed))?;
        Ok(Outputs::new()
            .with("turns", scene.turns()?)
            .with("looks", scene.looks()?)
            .with("graphs", scene.graphs()?)
            .with("copies", scene.copies()?)
            .with("children", scene.children()?)
            .with("hosts", scene.hosts()?)
            .with("refusals", scene.refusals()?))
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        outputs(&words(case, seed), TURNS, 0, IN_ORDER)
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let words = words(case, seed);
        vec![
            Control::zeros(reference),
            Control::one_off(reference, "children", 0, 1.0),
            Control::new("the last turn is missing", outputs(&words, TURNS - 1, 0, IN_ORDER)),
            Control::new("looks come one write early", outputs(&words, TURNS, 1, IN_ORDER)),
            Control::new("a host function ran late", outputs(&words, TURNS, 0, [0, 2, 1, 3])),
        ]
    }

    fn work(&self, case: &Case) -> Work {
        let launches = u64::from(TURNS + LOOKS) + 40;
        let touched = launches * case.dimension("n") as u64;
        Work { operations: 2 * touched, bytes: 2 * 4 * touched }
    }
}
