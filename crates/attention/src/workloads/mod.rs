//! What the lab may gate and time: `attention/*`.

pub mod case;
pub mod codes;

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
use rayon::prelude::*;

use crate::cuda::schedule::{Exponential, Parts, Schedule};
use crate::cuda::{
    DeviceAttention, KEY_TILE, Rotation, Workspace, attention_module, combine_module, quantise_module,
};
use crate::shape::{Mask, Shape};
use crate::shared::QUANTISE_THREADS;
use crate::{Attention, Bits, Element, HeadDimension, reference};
use case::{case, of_case};

/// All of them.
pub fn workloads() -> Vec<Box<dyn Workload>> {
    let square = Shape::square;
    // The same number of rows in all, so that times of lengths can be compared.
    let long =
        |dim| [(8, 2048), (4, 4096), (2, 8192), (1, 16384)].map(|(batch, rows)| square(batch, 16, rows, dim));
    let grouped = [2048, 4096, 8192, 16384].map(|rows| Shape { key_heads: 8, ..square(1, 64, rows, 128) });
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
            vec![Shape { batch: 1, heads: 32, key_heads: 8, rows: 1, keys: 16384, dim: 128 }],
        ),
    ];
    jobs.into_iter().map(|job| Box::new(job) as Box<dyn Workload>).collect()
}

/// Shapes that are measured, each with and without a causal mask.
#[derive(Clone)]
struct Job {
    name: String,
    summary: String,
    shapes: Vec<Shape>,
    /// How the kernel is run, if not as suits each shape.
    schedule: Option<Schedule>,
}

/// The dimension of a case whose keys are not split.
const WHOLE: &str = "whole";
/// Elements of the random pattern that fills large tensors.
const PATTERN: usize = 1_000_003;

/// Queries, keys and values of a case, in f16.
struct Operands {
    q: Vec<f16>,
    k: Vec<f16>,
    v: Vec<f16>,
}

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
    match of_case(case) {
        Some(parts) => parts,
        None => panic!("case '{}' is no attention", case.name),
    }
}

fn both_masks(shapes: impl IntoIterator<Item = Shape>) -> Vec<Case> {
    shapes.into_iter().flat_map(|shape| [case(&shape, Mask::Full), case(&shape, Mask::Causal)]).collect()
}

impl Operands {
    fn new(case: &Case, seed: u64) -> Self {
        let shape = shape(case);
        let mut inputs = Inputs::new(seed);
        let mut normal = |count: usize| inputs.normal(count).into_iter().map(f16::from_f32).collect();
        Self {
            q: normal(shape.query_elements()),
            k: normal(shape.key_elements()),
            v: normal(shape.key_elements()),
        }
    }

    /// Attention in double precision on what the quantiser makes of these: what the kernel is given.
    fn attend(&self, case: &Case) -> Vec<f64> {
        self.attend_to(&shape(case), mask(case))
    }

    fn attend_to(&self, shape: &Shape, mask: Mask) -> Vec<f64> {
        let [q, k, v] = codes::values(shape, [&self.q, &self.k, &self.v]);
        let parts: Vec<Part> = parts_of(shape, mask);
        let attended = parts.into_par_iter().map(|part| part.attend(shape, mask, &q, &k, &v));
        attended.collect::<Vec<Vec<f64>>>().concat()
    }
}

/// Some rows of one head: what one core attends, with the arithmetic of the whole.
struct Part {
    batch: usize,
    head: usize,
    rows: Range<usize>,
}

/// Rows that one core attends at a time: few, because the longest sums have few rows.
const PART_ROWS: usize = 1;

/// The parts of a shape, in the order of their rows.
fn parts_of(shape: &Shape, mask: Mask) -> Vec<Part> {
    // Under a mask a part sees the keys up to those of its last row; where rows see no key at all, a head stays whole.
    let is_split = mask == Mask::Full || shape.rows <= shape.keys;
    let step = if is_split { PART_ROWS } else { shape.rows };
    let mut parts = Vec::new();
    for (batch, head) in (0..shape.batch).flat_map(|batch| (0..shape.heads).map(move |head| (batch, head))) {
        let starts = (0..shape.rows).step_by(step);
        parts.extend(starts.map(|start| Part { batch, head, rows: start..(start + step).min(shape.rows) }));
    }
    parts
}

impl Part {
    fn attend(&self, shape: &Shape, mask: Mask, q: &[f64], k: &[f64], v: &[f64]) -> Vec<f64> {
        let Shape { heads, key_heads, rows, keys, dim, .. } = *shape;
        let unseen = if mask == Mask::Causal { rows - self.rows.end } else { 0 };
        let part = Shape {
            batch: 1,
            heads: 1,
            key_heads: 1,
            rows: self.rows.len(),
            keys: keys - unseen.min(keys),
            dim,
        };
        let query = ((self.batch * heads + self.head) * rows + self.rows.start) * dim;
        let key = (self.batch * key_heads + self.head / (heads / key_heads)) * keys * dim;
        let (q, seen) = (&q[query..query + part.rows * dim], key..key + part.keys * dim);
        reference::attention(&part, mask, 1.0 / (dim as f64).sqrt(), q, &k[seen.clone()], &v[seen]).0
    }
}

impl Job {
    fn attention(&self, device: &Device, case: &Case) -> crate::Result<DeviceAttention> {
        let builder = Attention::builder(shape(case)).mask(mask(case));
        match self.schedule {
            Some(schedule) => builder.schedule(schedule).build_on(device),
            None if case.dimensions.contains_key(WHOLE) => {
                let suited = Schedule::suited(&shape(case), Bits::Repeatable, device.properties())?;
                builder.schedule(Schedule { parts: Parts::Count(1), ..suited }).build_on(device)
            }
            None => builder.build_on(device),
        }
    }
}

impl Bound {
    fn new(stream: &Stream, attention: DeviceAttention, inputs: [Buffer<f16>; 3]) -> Result<Self, RunError> {
        let output = poisoned(stream, attention.shape().query_elements())?;
        Ok(Self { workspace: attention.workspace(stream)?, inputs, output, attention })
    }

    fn upload(stream: &Stream, attention: DeviceAttention, case: &Case, seed: u64) -> Result<Self, RunError> {
        let Operands { q, k, v } = Operands::new(case, seed);
        Self::new(stream, attention, [stream.upload(&q)?, stream.upload(&k)?, stream.upload(&v)?])
    }

    /// Random tensors of any size, from patterns that are longer than a tile and no multiple of a row.
    fn random(stream: &Stream, attention: DeviceAttention) -> Result<Self, RunError> {
        let shape = *attention.shape();
        let [q, k, v] = patterns(&shape);
        let (queries, keys) = (shape.query_elements(), shape.key_elements());
        let inputs =
            [repeated(stream, &q, queries)?, repeated(stream, &k, keys)?, repeated(stream, &v, keys)?];
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
    let elements = [shape.query_elements(), shape.key_elements(), shape.key_elements()];
    elements.map(|count| inputs.normal(PATTERN.min(count)).into_iter().map(f16::from_f32).collect())
}

/// The last tile of query rows of the last head: under a mask they see the most keys, and they are few enough for the
/// plain oracle at any length.
fn evidence(workload: &Job, case: &Case, job: Rc<RefCell<Bound>>) -> Evidence {
    let (shape, mask, spoiled) = (shape(case), mask(case), job.clone());
    let rows = shape.rows - (shape.rows - 1) / 64 * 64;
    let seen = shape.query_elements() - rows * shape.dim..shape.query_elements();
    let (place, mut expected) = (seen.clone(), None);
    let last = Shape { batch: 1, heads: 1, key_heads: 1, rows, ..shape };
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
                let head = shape.key_elements() - shape.keys * shape.dim..shape.key_elements();
                let operands =
                    Operands { q: part(&q, place.clone()), k: part(&k, head.clone()), v: part(&v, head) };
                operands.attend_to(&last, mask)
            });
            Ok(Outputs::new().with("o", o.clone()))
        },
    )
}

impl Job {
    fn new(name: &str, summary: &str, shapes: Vec<Shape>) -> Self {
        let summary = format!("softmax(q k^T) v from f16 by e4m3: {summary}");
        Self { name: name.into(), summary, shapes, schedule: None }
    }

    /// What the engine knows of the head dimension, which all shapes have.
    fn dimension(&self) -> &'static HeadDimension {
        HeadDimension::of(self.shapes[0].dim).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// How the kernel is run on long rows.
    fn usual(&self) -> Schedule {
        Schedule::usual(self.shapes[0].dim).unwrap_or_else(|error| panic!("{}: {error}", self.name))
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
            }
        };
        let mut shapes: Vec<Shape> = self.shapes.iter().map(shrink).collect();
        // Lengths that are no multiple of anything, and a ring that goes round.
        shapes.push(Shape { rows: 70, keys: 777, batch: 1, ..shapes[0] });
        shapes.dedup();
        shapes
    }

    /// Sums as long as the longest that are measured, and longer, by one block each.
    fn long_sums(&self) -> Vec<Case> {
        let Some(&Shape { keys, dim, .. }) = self.shapes.iter().max_by_key(|shape| shape.keys) else {
            return Vec::new();
        };
        let lengths = if keys >= 16384 { vec![keys, 131_072] } else { vec![keys] };
        let few = |keys| Shape { batch: 1, heads: 1, key_heads: 1, rows: 16, keys, dim };
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
        let (dim, usual) = (shape.dim, self.usual());
        let spec = |module: Module, schedule: Schedule| {
            let spec = KernelSpec::new(module.source()).threads(schedule.threads());
            spec.require("QGMMA").require("UBLKCP")
        };
        let schedules: Vec<Schedule> = match self.schedule {
            Some(schedule) => vec![schedule],
            None => (1..=self.dimension().most_consumers())
                .map(|consumers| Schedule { consumers, ..usual })
                .collect(),
        };
        let mut kernels: Vec<KernelSpec> = schedules
            .into_iter()
            .map(|schedule| spec(attention_module::<f16>(shape, schedule), schedule))
            .collect();
        kernels.push(
            KernelSpec::new(quantise_module::<f16>(shape, Rotation::None).source()).threads(QUANTISE_THREADS),
        );
        if self.shapes.iter().any(|shape| shape.rows < 64) {
            let schedule = Schedule { consumers: 1, ..usual };
            kernels.push(spec(attention_module::<f32>(shape, schedule), schedule));
            kernels.push(KernelSpec::new(combine_module::<f16>(dim).source()).threads(128));
        }
        kernels
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let mut cases = both_masks(self.checked_shapes(kind));
        // How blocks are run does not change how sums are made: a search need not wait for the long ones.
        if kind == Kind::Cuda && self.schedule.is_none() {
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
        Outputs::new().with("o", Operands::new(case, seed).attend(case))
    }

    /// Rounding p to e4m3 alone is an error of 0.024 of the output (0.019 under a causal mask, whose first rows have few
    /// keys to round). The bound on the mean is 2 % of the output's size, about sqrt(e / keys) for normal inputs.
    fn budget(&self, case: &Case) -> ErrorBudget {
        let keys = case.dimension("keys") as f64;
        let size = (std::f64::consts::E / keys).sqrt();
        let square = case.dimension("queries") == case.dimension("keys");
        let (relative_frobenius, max_abs) = match mask(case) {
            // Rows with a key or two have outputs as large as values.
            Mask::Causal if square => (0.025, 0.3),
            _ => (0.030, 0.6 * size),
        };
        ErrorBudget::Bounded(Bounds { relative_frobenius, max_abs, mean_bias: 0.02 * size })
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let shape = shape(case);
        let operands = Operands::new(case, seed);
        let wrong = |name: &str, v: Vec<f16>| {
            let changed = Operands { q: operands.q.clone(), k: operands.k.clone(), v };
            Control::new(name, Outputs::new().with("o", changed.attend(case)))
        };
        let dim = shape.dim;
        let mut stale = operands.v.clone();
        // Of very many keys one tile more or less does not matter.
        let tile = KEY_TILE.max(shape.keys / 8).min(shape.keys / 2) * dim;
        stale.copy_within(0..tile, tile);
        let transposed = operands.v.chunks(dim).flat_map(|row| row.iter().rev().copied()).collect();
        let biased = operands.v.iter().map(|v| f16::from_f32(v.to_f32() - 0.02)).collect();
        let mean = operands.v.iter().map(|v| f64::from(v.to_f32())).sum::<f64>() / operands.v.len() as f64;
        let flat = vec![mean; shape.query_elements()];
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
        let elements = (2 * shape.query_elements() + 2 * shape.key_elements()) as u64;
        // Codes in, f16 out.
        let bytes = elements + shape.query_elements() as u64;
        Work { operations: shape.operations(mask(case)) as u64, bytes }
    }

    fn bench_cases(&self, kind: Kind) -> Vec<Case> {
        match kind {
            Kind::Cuda => both_masks(self.shapes.iter().copied()),
            Kind::Emulated => both_masks(self.checked_shapes(kind)),
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
        let baseline = Side::new("quantiser and kernel", move |stream| {
            whole.quantise(stream).and_then(|()| whole.attend(stream))
        });
        let bench = Bench::new(self.work(case), candidate, baseline)
            .timing(Timing::Graph { repeats: repeats(&shape(case)) })
            .arithmetic(Arithmetic::TensorFp8)
            .shown_by(evidence)
            // The baseline has the kernel in it: it shows what the quantiser costs, and no promise can be made of it.
            .expect_recorded(
                1.10,
                "the same kernel on the same card, with a tenth for its power and its clocks",
            )
            .peer("attention-f16", case)
            .peer("attention-fp8", case);
        Ok(Some(bench))
    }

    fn tunable(&self) -> Option<&dyn Tunable> {
        Some(self)
    }
}

impl Tunable for Job {
    /// What the seeds of this engine called toggles, and sizes. A configuration with a straight line for the exponential
    /// is there to be refused by the correctness gate: it is fast.
    fn space(&self) -> Space {
        let dim = self.shapes[0].dim;
        let most = i64::from(self.dimension().most_consumers());
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
                schedule(found).shared_bytes(dim) <= 227 << 10
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
            .with("SPLITS", usual.splits(&self.shapes[0]) as i64)
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
            Kind::Cuda => both_masks([shape]),
            Kind::Emulated => {
                both_masks([Shape { batch: 1, heads: 2, key_heads: 1, rows: 90, keys: 700, ..first }])
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oracle_on_all_cores_is_the_oracle() {
        for (rows, keys) in [(40, 40), (33, 70), (70, 33), (1, 100)] {
            for mask in [Mask::Full, Mask::Causal] {
                let shape = Shape { batch: 2, heads: 4, key_heads: 2, rows, keys, dim: 64 };
                let mut inputs = Inputs::new(3);
                let mut normal =
                    |count: usize| -> Vec<f64> { inputs.normal(count).into_iter().map(f64::from).collect() };
                let (q, k) = (normal(shape.query_elements()), normal(shape.key_elements()));
                let v = normal(shape.key_elements());
                let whole = reference::attention(&shape, mask, 1.0 / 8.0, &q, &k, &v).0;
                let parts = parts_of(&shape, mask).into_iter();
                let parts: Vec<f64> = parts.flat_map(|part| part.attend(&shape, mask, &q, &k, &v)).collect();
                assert_eq!(parts, whole, "{rows} over {keys}, {mask:?}");
            }
        }
    }
}
