//! What the lab may gate and time: `attention/*`.

mod cache;
pub mod case;
pub mod codes;
mod oracle;
mod packed;

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use gatework_gpu::{Buffer, Device, Kind, Module, Stream};
use gatework_lab::measure::Arithmetic;
use gatework_lab::tune::{Configuration, Layer, Space, Tunable, Value};
use gatework_lab::{
    Bench, Bounds, Case, Control, ErrorBudget, Evidence, Inputs, KernelSpec, Outputs, RunError, Side, Timing,
    Work, Workload, poisoned, repeated,
};
use half::f16;

use crate::cuda::schedule::{Exponential, Parts, Schedule};
use crate::cuda::{
    DeviceAttention, KEY_TILE, Rotation, Workspace, attention_module, combine_module, quantise_module,
};
use crate::form::Form;
use crate::reference::Scores;
use crate::shape::{Mask, Shape};
use crate::shared::QUANTISE_THREADS;
use crate::{Attention, Bits, Builder, Element, HeadDimension};
use cache::CacheJob;
use case::{case, shape_and_mask, with_sinks, with_soft_cap};
use oracle::Operands;
use packed::PackedJob;

/// All of them.
pub fn workloads() -> Vec<Box<dyn Workload>> {
    let square = Shape::square;
    // The same number of rows in all, so that times of lengths can be compared.
    let long =
        |dim| [(8, 2048), (4, 4096), (2, 8192), (1, 16384)].map(|(batch, rows)| square(batch, 16, rows, dim));
    let grouped = [2048, 4096, 8192, 16384].map(|rows| Shape { key_heads: 8, ..square(1, 64, rows, 128) });
    let capped = |name, dim| {
        let shapes = vec![Shape { key_heads: 8, ..square(1, 16, 8192, dim) }];
        let summary = format!("16 query heads over 8 key heads of 8192 rows of {dim}, scores capped at 50");
        Job { soft_cap: Some(50), ..Job::new(name, &summary, shapes).masks(&[Mask::Causal]) }
    };
    let jobs = [
        Job::new("attention/small", "8 heads of 128 rows of 64", vec![square(1, 8, 128, 64)]),
        Job::new("attention/mission-1", "8 heads of 512 rows of 64", vec![square(1, 8, 512, 64)]),
        Job::new("attention/mission-2", "twice 8 heads of 512 rows of 64", vec![square(2, 8, 512, 64)]),
        Job::new("attention/long-64", "16 heads of 2048 to 16384 rows of 64", long(64).to_vec()),
        Job::new("attention/long-128", "16 heads of 2048 to 16384 rows of 128", long(128).to_vec()),
        Job::new(
            "attention/grouped",
            "64 query heads over 8 key heads of 2048 to 16384 rows of 128",
            grouped.to_vec(),
        ),
        Job::new(
            "attention/decode",
            "1 row of 32 query heads over 8 key heads of 16384 keys of 128",
            vec![Shape { batch: 1, heads: 32, key_heads: 8, rows: 1, keys: 16384, dim: 128, value_dim: 128 }],
        ),
        Job::new(
            "attention/window",
            "16 heads of 16384 rows of 128 that see 1024 keys each",
            vec![square(1, 16, 16384, 128)],
        )
        .masks(&[WINDOW]),
        Job {
            sinks: true,
            ..Job::new(
                "attention/sinks",
                "64 query heads with sinks over 8 key heads of 8192 rows of 64, all keys and 128",
                vec![Shape { key_heads: 8, ..square(1, 64, 8192, 64) }],
            )
            .masks(&[Mask::Causal, Mask::Window { left: 127, right: 0 }])
        },
        Job::new(
            "attention/dim-80",
            "32 heads of 4096 rows of 80, padded to 128",
            vec![square(1, 32, 4096, 80)],
        ),
        Job::new("attention/long-256", "16 heads of 8192 rows of 256", vec![square(1, 16, 8192, 256)]),
        Job::new(
            "attention/window-256",
            "16 query heads over 8 key heads of 8192 rows of 256 that see 1024 keys each",
            vec![Shape { key_heads: 8, ..square(1, 16, 8192, 256) }],
        )
        .masks(&[WINDOW]),
        Job::new(
            "attention/latent",
            "16 heads of 8192 rows of 192 over values of 128, as MLA has them",
            vec![Shape { value_dim: 128, ..square(1, 16, 8192, 192) }],
        ),
        capped("attention/soft-cap-64", 64),
        capped("attention/soft-cap-128", 128),
        capped("attention/soft-cap-256", 256),
    ];
    let heads = |dim| Shape { batch: 1, heads: 32, key_heads: 8, rows: 1, keys: 1, dim, value_dim: dim };
    let caches = [
        CacheJob::new(
            "attention/cache-64",
            "1 row and 8 rows of 32 query heads over 8 key heads of 16384 keys of 64",
            heads(64),
            &[[1, 1, 16384], [1, 8, 16384]],
        ),
        CacheJob::new(
            "attention/cache-128",
            "1 row, 8 rows and 1024 rows of 32 query heads over 8 key heads of 16384 keys of 128; 16 sequences",
            heads(128),
            &[[1, 1, 16384], [16, 1, 16384], [1, 8, 16384], [1, 1024, 16384]],
        ),
    ];
    let jobs = jobs.into_iter().map(|job| Box::new(job) as Box<dyn Workload>);
    let packed = [PackedJob::new(
        "attention/packed",
        "16 sequences of 128 to 4096 rows of 32 query heads over 8 key heads of 128",
        Shape { rows: 4096, keys: 4096, ..heads(128) },
    )];
    let caches = caches.into_iter().map(|job| Box::new(job) as Box<dyn Workload>);
    jobs.chain(caches).chain(packed.into_iter().map(|job| Box::new(job) as Box<dyn Workload>)).collect()
}

/// A workload of shapes that nobody knew of, which have one head dimension.
pub(crate) fn of_shapes(name: &str, shapes: Vec<Shape>) -> Box<dyn Workload> {
    let summary = shapes.first().map_or_else(String::new, |shape| format!("rows of {}", shape.dim));
    Box::new(Job::new(name, &summary, shapes))
}

/// Shapes that are measured, each under several masks.
#[derive(Clone)]
struct Job {
    name: String,
    summary: String,
    shapes: Vec<Shape>,
    masks: Vec<Mask>,
    soft_cap: Option<u16>,
    /// Whether heads have sinks.
    sinks: bool,
    /// How the kernel is run, if not as suits each shape.
    schedule: Option<Schedule>,
}

/// What the workload of windows is measured with, against a causal mask.
const WINDOW: Mask = Mask::Window { left: 1023, right: 0 };
/// The part of a causal mask's time that its window may take: it sees an eighth of the keys.
const WINDOW_TIME: f64 = 0.2;
/// The dimension of a case whose keys are not split.
const WHOLE: &str = "whole";
/// Elements of the random pattern that fills large tensors.
const PATTERN: usize = 1_000_003;

/// Tensors of a case on the device, and what works on them.
struct Bound {
    attention: DeviceAttention,
    workspace: Workspace,
    inputs: [Buffer<f16>; 3],
    output: Buffer<f16>,
}

/// The shape of one of the engine's cases. Panics on another, as [`Case::dimension`] does.
fn shape(case: &Case) -> Shape {
    parts(case).0
}

fn mask(case: &Case) -> Mask {
    parts(case).1
}

fn parts(case: &Case) -> (Shape, Mask) {
    match shape_and_mask(case) {
        Some(parts) => parts,
        None => panic!("case '{}' is no attention", case.name),
    }
}

/// The logit of a head's sink.
fn sink(head: usize) -> f32 {
    (head * 3 % 5) as f32 - 1.5
}

impl Job {
    fn masks(self, masks: &[Mask]) -> Self {
        Self { masks: masks.to_vec(), ..self }
    }

    /// These shapes under each of the masks.
    fn cases_of(&self, shapes: impl IntoIterator<Item = Shape>) -> Vec<Case> {
        let plain =
            shapes.into_iter().flat_map(|shape| self.masks.iter().map(move |&mask| case(&shape, mask)));
        let sunk = plain.map(|case| if self.sinks { with_sinks(case) } else { case });
        let capped = sunk.map(|case| match self.soft_cap {
            Some(cap) => with_soft_cap(case, cap),
            None => case,
        });
        capped.collect()
    }

    fn builder(&self, shape: &Shape, mask: Mask) -> Builder {
        let builder = Attention::builder(*shape).mask(mask);
        let builder = match self.soft_cap {
            Some(cap) => builder.soft_cap(cap.into()),
            None => builder,
        };
        if self.sinks { builder.sinks((0..shape.heads).map(sink).collect::<Vec<_>>()) } else { builder }
    }

    /// Attention in double precision over heads from `first_head` on.
    fn attend(&self, operands: &Operands, shape: &Shape, mask: Mask, first_head: usize) -> Vec<f64> {
        let heads = first_head..first_head + shape.heads;
        let sinks: Vec<f64> = heads.filter(|_| self.sinks).map(|head| f64::from(sink(head))).collect();
        let (scale, soft_cap) = (1.0 / (shape.dim as f64).sqrt(), self.soft_cap.map(f64::from));
        operands.attend(shape, &Scores { mask, scale, soft_cap, sinks: &sinks })
    }

    fn attention(&self, device: &Device, case: &Case) -> crate::Result<DeviceAttention> {
        let builder = self.builder(&shape(case), mask(case));
        match self.schedule {
            Some(schedule) => builder.schedule(schedule).build_on(device),
            None if case.dimensions.contains_key(WHOLE) => {
                let suited =
                    Schedule::suited(&shape(case), mask(case), Bits::Repeatable, device.properties())?;
                builder.schedule(Schedule { parts: Parts::Count(1), ..suited }).build_on(device)
            }
            None => builder.build_on(device),
        }
    }
}

impl Bound {
    fn new(stream: &Stream, attention: DeviceAttention, inputs: [Buffer<f16>; 3]) -> Result<Self, RunError> {
        let output = poisoned(stream, attention.shape().output_elements())?;
        Ok(Self { workspace: attention.workspace(stream)?, inputs, output, attention })
    }

    fn upload(stream: &Stream, attention: DeviceAttention, case: &Case, seed: u64) -> Result<Self, RunError> {
        let Operands { q, k, v } = Operands::new(&shape(case), seed);
        Self::new(stream, attention, [stream.upload(&q)?, stream.upload(&k)?, stream.upload(&v)?])
    }

    /// Random tensors of any size, from patterns that are longer than a tile and no multiple of a row.
    fn random(stream: &Stream, attention: DeviceAttention) -> Result<Self, RunError> {
        let shape = *attention.shape();
        let [q, k, v] = patterns(&shape);
        let inputs = [
            repeated(stream, &q, shape.query_elements())?,
            repeated(stream, &k, shape.key_elements())?,
            repeated(stream, &v, shape.value_elements())?,
        ];
        Self::new(stream, attention, inputs)
    }

    fn quantise(&mut self, stream: &Stream) -> crate::Result<()> {
        let [q, k, v] = &self.inputs;
        self.attention.quantise(stream, &mut self.workspace, [q, k, v])
    }

    fn attend(&mut self, stream: &Stream) -> crate::Result<()> {
        self.attention.attend(stream, &mut self.workspace, &mut self.output)
    }
}

/// What queries, keys and values of a benchmark repeat.
fn patterns(shape: &Shape) -> [Vec<f16>; 3] {
    let mut inputs = Inputs::new(1);
    let elements = [shape.query_elements(), shape.key_elements(), shape.value_elements()];
    elements.map(|count| inputs.normal(PATTERN.min(count)).into_iter().map(f16::from_f32).collect())
}

/// The last tile of query rows of the last head: under a mask they see the most keys, and they are few enough
/// for the plain oracle at any length.
fn evidence(workload: &Job, case: &Case, job: Rc<RefCell<Bound>>) -> Evidence {
    let (shape, mask, spoiled) = (shape(case), mask(case), job.clone());
    let rows = shape.rows - (shape.rows - 1) / 64 * 64;
    let last_of = |elements: usize, count: usize| elements - count..elements;
    let seen = last_of(shape.output_elements(), rows * shape.value_dim);
    let place = last_of(shape.query_elements(), rows * shape.dim);
    let keys = last_of(shape.key_elements(), shape.keys * shape.dim);
    let values = last_of(shape.value_elements(), shape.keys * shape.value_dim);
    let mut expected = None;
    let last = Shape { batch: 1, heads: 1, key_heads: 1, rows, ..shape };
    let oracle = workload.clone();
    Evidence::new(
        // What these rows may be out by, which see nearly all keys: under a mask the others see few.
        workload.budget(&case::case(&last, mask)),
        move |stream| Ok(stream.fill(&mut spoiled.borrow_mut().output, f16::NAN)?),
        move |stream| {
            let output = stream.download(&job.borrow().output.slice(seen.clone()))?;
            let output: Vec<f32> = output.into_iter().map(Element::to_f32).collect();
            Ok(Outputs::new().with("o", output))
        },
        move |_| {
            let o = expected.get_or_insert_with(|| {
                let [q, k, v] = patterns(&shape);
                let part = |pattern: &[f16], range: Range<usize>| -> Vec<f16> {
                    range.map(|index| pattern[index % pattern.len()]).collect()
                };
                let operands = Operands {
                    q: part(&q, place.clone()),
                    k: part(&k, keys.clone()),
                    v: part(&v, values.clone()),
                };
                oracle.attend(&operands, &last, mask, shape.heads - 1)
            });
            Ok(Outputs::new().with("o", o.clone()))
        },
    )
}

impl Job {
    fn new(name: &str, summary: &str, shapes: Vec<Shape>) -> Self {
        let summary = format!("softmax(q k^T) v from f16 by e4m3: {summary}");
        let masks = vec![Mask::Full, Mask::Causal];
        Self { name: name.into(), summary, shapes, masks, soft_cap: None, sinks: false, schedule: None }
    }

    /// What the engine knows of the head dimension, which all shapes have.
    fn dimension(&self) -> &'static HeadDimension {
        HeadDimension::of(self.shapes[0].dim, self.shapes[0].value_dim)
            .unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// What its kernels are compiled for: masks but for windows are one.
    fn forms(&self) -> Vec<Form> {
        let is_window = |mask: &Mask| matches!(mask, Mask::Window { .. });
        let windows = self.masks.iter().find(|mask| is_window(mask));
        let others = self.masks.iter().find(|mask| !is_window(mask));
        let form = |&mask: &Mask| self.builder(&self.shapes[0], mask).into_form();
        windows.into_iter().chain(others).map(form).collect()
    }

    /// How the kernel is run on long rows.
    fn usual(&self) -> Schedule {
        Schedule::usual(self.shapes[0].dim, self.shapes[0].value_dim)
            .unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// The same kind of problem, small enough for the plain oracle.
    fn checked_shapes(&self, kind: Kind) -> Vec<Shape> {
        let (heads, rows) = (2, if kind == Kind::Emulated { 300 } else { 384 });
        // Few rows over many keys are worth several parts of them.
        let keys = |shape: &Shape| shape.keys.min(if shape.rows < 64 { 2100 } else { rows });
        let shrink = |shape: &Shape| {
            let group = shape.heads / shape.key_heads;
            let heads = if group > 1 { heads } else { shape.heads.min(heads) };
            Shape {
                batch: shape.batch.min(2),
                heads,
                key_heads: if group > 1 { heads / 2 } else { heads },
                rows: shape.rows.min(rows),
                keys: keys(shape),
                dim: shape.dim,
                value_dim: shape.value_dim,
            }
        };
        let mut shapes: Vec<Shape> = self.shapes.iter().map(shrink).collect();
        // Lengths that are no multiple of anything, and a ring that goes round.
        shapes.push(Shape { rows: 70, keys: 777, batch: 1, ..shapes[0] });
        shapes.dedup();
        shapes
    }

    /// Their windows are short enough to have a left end.
    fn checked_cases(&self, kind: Kind) -> Vec<Case> {
        let shorten = |&mask: &Mask| match mask {
            Mask::Full | Mask::Causal => mask,
            Mask::Window { left, right } => Mask::Window { left: left.min(100), right },
        };
        let masks: Vec<Mask> = self.masks.iter().map(shorten).collect();
        self.clone().masks(&masks).cases_of(self.checked_shapes(kind))
    }

    /// Sums as long as the longest that are measured, and longer, by one block each.
    fn long_sums(&self) -> Vec<Case> {
        let Some(&Shape { keys, dim, value_dim, .. }) = self.shapes.iter().max_by_key(|shape| shape.keys)
        else {
            return Vec::new();
        };
        let lengths = if keys >= 16384 { vec![keys, 131_072] } else { vec![keys] };
        let few = |keys| Shape { batch: 1, heads: 1, key_heads: 1, rows: 16, keys, dim, value_dim };
        lengths.into_iter().map(|keys| case(&few(keys), Mask::Full).with(WHOLE, 1)).collect()
    }
}

impl Workload for Job {
    fn name(&self) -> &str {
        &self.name
    }

    fn summary(&self) -> &str {
        &self.summary
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let shape = &self.shapes[0];
        let usual = self.usual();
        let spec = |module: Module, schedule: Schedule| {
            let spec = KernelSpec::new(module.source()).threads(schedule.threads());
            spec.require("QGMMA").require("UBLKCP").header("consumer.cuh")
        };
        let schedules: Vec<Schedule> = match self.schedule {
            Some(schedule) => vec![schedule],
            None => self
                .dimension()
                .consumers(self.soft_cap.is_some())
                .map(|consumers| Schedule { consumers, ..usual })
                .collect(),
        };
        let mut kernels: Vec<KernelSpec> = Vec::new();
        for form in self.forms() {
            let module = |schedule: &Schedule| {
                spec(attention_module::<f16>(self.dimension(), &form, *schedule), *schedule)
            };
            kernels.extend(schedules.iter().map(module));
        }
        kernels.push(
            KernelSpec::new(quantise_module::<f16>(self.dimension(), shape, Rotation::None).source())
                .threads(QUANTISE_THREADS),
        );
        if self.shapes.iter().any(|shape| shape.rows < 64) {
            let schedule = Schedule { consumers: 1, ..usual };
            kernels.push(spec(
                attention_module::<f32>(self.dimension(), &Form::new(*shape), schedule),
                schedule,
            ));
            kernels.push(KernelSpec::new(combine_module::<f16>(shape.value_dim).source()).threads(128));
        }
        kernels
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let mut cases = self.checked_cases(kind);
        // How blocks are run does not change how sums are made: a search need not wait for the long ones.
        if kind == Kind::Cuda && self.schedule.is_none() && self.masks.contains(&Mask::Full) {
            cases.extend(self.long_sums());
        }
        cases
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let stream = device.stream()?;
        let mut job = Bound::upload(&stream, self.attention(device, case)?, case, seed)?;
        job.quantise(&stream)?;
        job.attend(&stream)?;
        let output: Vec<f32> = stream.download(&job.output)?.into_iter().map(Element::to_f32).collect();
        Ok(Outputs::new().with("o", output))
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        let shape = shape(case);
        Outputs::new().with("o", self.attend(&Operands::new(&shape, seed), &shape, mask(case), 0))
    }

    /// Rounding p to e4m3 alone is an error of 0.024 of the output (0.019 under a causal mask, whose first
    /// rows have few keys to round). The bound on the mean is 2 % of the output's size, about sqrt(e / keys)
    /// for normal inputs.
    fn budget(&self, case: &Case) -> ErrorBudget {
        let keys = case.dimension("keys") as f64;
        let seen = match mask(case) {
            Mask::Full | Mask::Causal => keys,
            Mask::Window { left, right } => keys.min((left + right + 1) as f64),
        };
        let size = (std::f64::consts::E / seen).sqrt();
        let square = case.dimension("queries") == case.dimension("keys");
        let (relative_frobenius, max_abs) = match mask(case) {
            // Rows with a key or two have outputs as large as values.
            Mask::Causal if square && !self.sinks => (0.025, 0.3),
            Mask::Causal | Mask::Window { .. } if square => (0.030, 0.3),
            _ => (0.030, 0.6 * size),
        };
        ErrorBudget::Bounded(Bounds { relative_frobenius, max_abs, mean_bias: 0.02 * size })
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let shape = shape(case);
        let operands = Operands::new(&shape, seed);
        let wrong = |name: &str, v: Vec<f16>| {
            let changed = Operands { v, ..operands.clone() };
            Control::new(name, Outputs::new().with("o", self.attend(&changed, &shape, mask(case), 0)))
        };
        let dim = shape.value_dim;
        let mut stale = operands.v.clone();
        // Of very many keys one tile more or less does not matter.
        let tile = KEY_TILE.max(shape.keys / 8).min(shape.keys / 2) * dim;
        // The last ones of a head: rows of a window may see no others.
        let end = shape.keys * dim;
        match mask(case) {
            Mask::Full | Mask::Causal => stale.copy_within(0..tile, tile),
            Mask::Window { .. } => stale.copy_within(end - 2 * tile..end - tile, end - tile),
        }
        let transposed = operands.v.chunks(dim).flat_map(|row| row.iter().rev().copied()).collect();
        let biased = operands.v.iter().map(|v| f16::from_f32(v.to_f32() - 0.02)).collect();
        let mean = operands.v.iter().map(|v| f64::from(v.to_f32())).sum::<f64>() / operands.v.len() as f64;
        let flat = vec![mean; shape.output_elements()];
        vec![
            Control::zeros(reference),
            Control::new("the mean of v", Outputs::new().with("o", flat)),
            wrong("a stale tile of values", stale),
            wrong("values back to front", transposed),
            wrong("a biased decoder", biased),
            Control::unwritten_tail(reference, dim),
        ]
    }

    fn work(&self, case: &Case) -> Work {
        let shape = shape(case);
        // Codes in, f16 out.
        let codes = shape.query_elements() + shape.key_elements() + shape.value_elements();
        let bytes = (codes + 2 * shape.output_elements()) as u64;
        Work { operations: shape.operations(mask(case)) as u64, bytes }
    }

    fn bench_cases(&self, kind: Kind) -> Vec<Case> {
        match kind {
            Kind::Cuda => self.cases_of(self.shapes.iter().copied()),
            Kind::Emulated => self.checked_cases(kind),
        }
    }

    /// The kernel on quantised inputs, against the same with the quantiser before it.
    fn bench(&self, device: &Device, case: &Case) -> Result<Option<Bench>, RunError> {
        let stream = device.stream()?;
        let mut job = Bound::random(&stream, self.attention(device, case)?)?;
        job.quantise(&stream)?;
        let job = Rc::new(RefCell::new(job));
        let evidence = evidence(self, case, job.clone());
        let mut whole = Bound::random(&stream, self.attention(device, case)?)?;
        stream.synchronize()?;
        let candidate = Side::new("kernel", move |stream| job.borrow_mut().attend(stream));
        let timed = |baseline: Side| {
            Bench::new(self.work(case), candidate, baseline)
                .timing(Timing::Graph { repeats: repeats(&shape(case)) })
                .arithmetic(Arithmetic::TensorFp8)
                .shown_by(evidence)
        };
        if matches!(mask(case), Mask::Window { .. }) && !self.sinks {
            let causal = self.builder(&shape(case), Mask::Causal).build_on(device)?;
            let mut causal = Bound::random(&stream, causal)?;
            causal.quantise(&stream)?;
            stream.synchronize()?;
            let baseline = Side::new("causal kernel", move |stream| causal.attend(stream));
            let why = "a window that sees a fraction of the keys takes a fraction of the time";
            return Ok(Some(timed(baseline).expect_at_most(WINDOW_TIME, why)));
        }
        let baseline = Side::new("quantiser and kernel", move |stream| {
            whole.quantise(stream).and_then(|()| whole.attend(stream))
        });
        // The baseline has the kernel in it: it shows what the quantiser costs, and no promise can be made of
        // it.
        let why = "the same kernel on the same card, with a tenth for its power and its clocks";
        let bench = timed(baseline).expect_recorded(1.10, why);
        // Peers know neither windows nor sinks nor caps by these names, nor values that are not as long as
        // keys.
        let is_plain = self.soft_cap.is_none()
            && !self.sinks
            && !matches!(mask(case), Mask::Window { .. })
            && shape(case).value_dim == shape(case).dim;
        Ok(Some(if is_plain { bench.peer("attention-f16", case).peer("attention-fp8", case) } else { bench }))
    }

    /// The search knows nothing of what a soft cap takes.
    fn tunable(&self) -> Option<&dyn Tunable> {
        if self.soft_cap.is_none() { Some(self) } else { None }
    }
}

impl Tunable for Job {
    /// What the seeds of this engine called toggles, and sizes. A configuration with a straight line for the
    /// exponential is there to be refused by the correctness gate: it is fast.
    fn space(&self) -> Space {
        let known = self.dimension();
        let most = i64::from(known.most_consumers());
        let groups = self.shapes.iter().map(|shape| shape.keys.div_ceil(512)).min().unwrap_or(1) as i64;
        let blocks = vec![Value::from("persistent"), Value::from("one each")];
        Space::new()
            .macro_choice("EXPONENTIAL", ["line", "parabola"])
            .macro_choice("ISSUE", ["in turn", "at will"])
            .knob("BLOCKS", Layer::Macro, blocks, false)
            .micro("CONSUMERS", [1, 2, 3])
            .micro("STAGES", [2, 3, 4, 5])
            .micro_of_launch("SPLITS", [1, 2, 4, 8])
            .constraint("accumulators that fit into registers", move |found| {
                found.integer("CONSUMERS") <= most
            })
            .constraint("at most 227 KiB of shared memory", move |found| {
                schedule(found).shared_bytes(known) <= 227 << 10
            })
            .constraint("a group of values in each part", move |found| found.integer("SPLITS") <= groups)
            .constraint("turns of several", |found| {
                found.integer("CONSUMERS") > 1 || found.choice("ISSUE") == "at will"
            })
            .constraint("lists of whole items", |found| {
                found.integer("SPLITS") == 1 || found.choice("BLOCKS") == "one each"
            })
    }

    fn default_configuration(&self) -> Configuration {
        let usual = self.schedule.unwrap_or_else(|| self.usual());
        Configuration::default()
            .with("EXPONENTIAL", if usual.exponential == Exponential::Line { "line" } else { "parabola" })
            .with("ISSUE", if usual.turns { "in turn" } else { "at will" })
            .with("BLOCKS", if usual.persistent { "persistent" } else { "one each" })
            .with("CONSUMERS", i64::from(usual.consumers))
            .with("STAGES", i64::from(usual.stages))
            .with("SPLITS", usual.splits(&self.shapes[0], Mask::Full) as i64)
    }

    fn configured(&self, configuration: &Configuration) -> Box<dyn Workload> {
        let schedule = Some(schedule(configuration));
        Box::new(Self { schedule, ..self.clone() })
    }

    fn training_cases(&self, kind: Kind) -> Vec<Case> {
        self.bench_cases(kind).into_iter().take(2).collect()
    }

    /// Other lengths, no powers of two.
    fn held_out_cases(&self, kind: Kind) -> Vec<Case> {
        let Some(&first) = self.shapes.first() else { return Vec::new() };
        let longer = |size: usize| size + size / 4 + 1;
        let shape = Shape { rows: longer(first.rows), keys: longer(first.keys), ..first };
        match kind {
            Kind::Cuda => self.cases_of([shape]),
            Kind::Emulated => {
                self.cases_of([Shape { batch: 1, heads: 2, key_heads: 1, rows: 90, keys: 700, ..first }])
            }
        }
    }
}

fn schedule(found: &Configuration) -> Schedule {
    Schedule {
        consumers: found.integer("CONSUMERS") as u32,
        stages: found.integer("STAGES") as u32,
        turns: found.choice("ISSUE") == "in turn",
        persistent: found.choice("BLOCKS") == "persistent",
        parts: Parts::Count(found.integer("SPLITS") as u32),
        exponential: match found.choice("EXPONENTIAL") {
            "line" => Exponential::Line,
            _ => Exponential::Parabola,
        },
    }
}

/// Runs in a graph: enough that the gaps between its ends do not count.
fn repeats(shape: &Shape) -> u32 {
    (2e11 / shape.operations(Mask::Full)).clamp(1.0, 20.0) as u32
}
