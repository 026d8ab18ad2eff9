//! Packed sequences of different lengths, in one launch that quantises and one that attends.

use std::cell::RefCell;
use std::rc::Rc;

use gatework_gpu::{Buffer, Device, Kind, Stream};
use gatework_lab::measure::Arithmetic;
use gatework_lab::{
    Bench, Bounds, Case, Control, ErrorBudget, Evidence, Inputs, KernelSpec, Outputs, RunError, Side, Timing,
    Work, Workload, poisoned, repeated,
};
use half::f16;
use rayon::prelude::*;

use super::cache::{heads_first, rows_first};
use super::codes;
use crate::cuda::schedule::Schedule;
use crate::cuda::{DevicePackedAttention, KEY_TILE, PackedWorkspace, packed_modules, score_limit};
use crate::form::Form;
use crate::reference::{self, Scores};
use crate::shape::{Mask, Shape};
use crate::shared::{LARGEST_CODE, QUANTISE_THREADS, QUERY_TILE};
use crate::{Attention, Element, HeadDimension, Lengths};

/// Sequences of a case that is timed.
const TIMED: usize = 16;
/// Tiles of values of a packed sequence that share a scale.
const GROUP: usize = 4;
/// Elements of the random pattern that fills long sequences.
const PATTERN: usize = 1_000_003;

/// Sequences of heads of one kind, under a causal mask.
#[derive(Clone)]
pub(super) struct PackedJob {
    name: String,
    summary: String,
    /// Its rows are those of the longest sequence.
    heads: Shape,
}

/// Queries, keys and values of all sequences, `[row, head, dim]`.
#[derive(Clone)]
struct Operands {
    q: Vec<f16>,
    k: Vec<f16>,
    v: Vec<f16>,
}

/// Sequences on the device, and what works on them.
struct Bound {
    attention: DevicePackedAttention,
    workspace: PackedWorkspace,
    inputs: [Buffer<f16>; 3],
    output: Buffer<f16>,
}

impl Bound {
    fn new(
        stream: &Stream,
        device: &Device,
        shape: &Shape,
        inputs: [Buffer<f16>; 3],
    ) -> Result<Self, RunError> {
        let attention =
            Attention::builder(*shape).mask(Mask::Causal).build_packed_on(&lengths(shape)?, device)?;
        let workspace = attention.workspace(stream)?;
        let [.., outputs] = attention.elements();
        Ok(Self { attention, workspace, inputs, output: poisoned(stream, outputs)? })
    }

    fn forward(&mut self, stream: &Stream) -> crate::Result<()> {
        let Self { attention, workspace, inputs: [q, k, v], output } = self;
        attention.forward(stream, workspace, [q, k, v], output)
    }
}

/// Where the sequences of a shape begin: as many as it has batches, from its rows down in equal steps, and one
/// before the last that is empty.
fn starts(shape: &Shape) -> Vec<usize> {
    let count = shape.batch;
    let rows = |index: usize| if index + 2 == count { 0 } else { shape.rows * (count - index) / count };
    let ends = (0..count).scan(0, |end, index| {
        *end += rows(index).max(usize::from(index + 2 != count));
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

fn lengths(shape: &Shape) -> crate::Result<Lengths> {
    Lengths::square(&starts(shape))
}

fn counts(shape: &Shape) -> [usize; 3] {
    let rows = starts(shape).last().copied().unwrap_or(0);
    [
        rows * shape.heads * shape.dim,
        rows * shape.key_heads * shape.dim,
        rows * shape.key_heads * shape.value_dim,
    ]
}

fn patterns(shape: &Shape, seed: u64) -> [Vec<f16>; 3] {
    let mut inputs = Inputs::new(seed);
    counts(shape).map(|count| inputs.normal(PATTERN.min(count)).into_iter().map(f16::from_f32).collect())
}

impl Operands {
    fn new(shape: &Shape, seed: u64) -> Self {
        let [q, k, v] = patterns(shape, seed);
        Self { q, k, v }
    }

    /// Attention in double precision over the values of codes, sequence by sequence.
    fn attend(&self, shape: &Shape) -> Vec<f64> {
        let starts = starts(shape);
        let parts: Vec<Vec<f64>> = starts
            .par_windows(2)
            .map(|ends| {
                let part = |x: &[f16], row: usize| x[ends[0] * row..ends[1] * row].to_vec();
                let Shape { heads, key_heads, dim, value_dim, .. } = *shape;
                let one = Self {
                    q: part(&self.q, heads * dim),
                    k: part(&self.k, key_heads * dim),
                    v: part(&self.v, key_heads * value_dim),
                };
                let rows = ends[1] - ends[0];
                one.attend_one(&Shape { batch: 1, rows, keys: rows, ..*shape })
            })
            .collect();
        parts.concat()
    }

    /// Of one sequence.
    fn attend_one(&self, shape: &Shape) -> Vec<f64> {
        let Shape { heads, key_heads, rows, keys, dim, value_dim, .. } = *shape;
        if rows == 0 {
            return Vec::new();
        }
        let limit = score_limit(dim);
        let of = |x: &[f16], heads: usize, rows: usize, dim: usize, block: usize, limit: f32| {
            codes::of_blocks(&heads_first(x, heads, dim), rows * dim, block * dim, limit)
        };
        let q = of(&self.q, heads, rows, dim, QUERY_TILE as usize, limit);
        let k = of(&self.k, key_heads, keys, dim, KEY_TILE, limit);
        let v = of(&self.v, key_heads, keys, value_dim, GROUP * KEY_TILE, LARGEST_CODE);
        let scores =
            Scores { mask: Mask::Causal, scale: 1.0 / (dim as f64).sqrt(), soft_cap: None, sinks: &[] };
        rows_first(&reference::attention_of(shape, &scores, &q, &k, &v).0, heads, value_dim)
    }
}

impl PackedJob {
    pub(super) fn new(name: &str, summary: &str, heads: Shape) -> Self {
        let summary = format!("attend packed sequences from f16: {summary}");
        Self { name: name.into(), summary, heads }
    }

    fn case(&self, sequences: usize, heads: usize, key_heads: usize, rows: usize) -> Case {
        let dim = self.heads.dim;
        Case::new(format!("{sequences}x{heads}x{key_heads}x{rows}x{dim}"))
            .with("sequences", sequences)
            .with("heads", heads)
            .with("key_heads", key_heads)
            .with("rows", rows)
            .with("head_dim", dim)
    }

    fn shape(&self, case: &Case) -> Shape {
        let size = |name: &str| case.dimension(name);
        let (rows, dim) = (size("rows"), size("head_dim"));
        let key_heads = size("key_heads");
        Shape { key_heads, ..Shape::square(size("sequences"), size("heads"), rows, dim) }
    }
}

impl Workload for PackedJob {
    fn name(&self) -> &str {
        &self.name
    }

    fn summary(&self) -> &str {
        &self.summary
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let known = HeadDimension::of(self.heads.dim, self.heads.value_dim);
        let usual = Schedule::usual(self.heads.dim, self.heads.value_dim);
        let (Ok(known), Ok(usual)) = (known, usual) else { panic!("{}: no such dimension", self.name) };
        let window = Form { mask: Mask::Window { left: 127, right: 0 }, ..Form::new(self.heads) };
        let mut kernels = Vec::new();
        for (form, consumers) in
            [(Form::new(self.heads), 1), (Form::new(self.heads), usual.consumers), (window, usual.consumers)]
        {
            let schedule = Schedule { consumers, ..usual };
            let [quantise, attend] = packed_modules::<f16, f16>(known, &form, schedule);
            if kernels.is_empty() {
                kernels.push(KernelSpec::new(quantise.source()).threads(QUANTISE_THREADS));
            }
            // Mutants of consumer.cuh are those of attention.cuh.
            let spec = KernelSpec::new(attend.source()).threads(schedule.threads());
            kernels.push(spec.require("QGMMA").require("UBLKCP"));
        }
        kernels
    }

    fn cases(&self, _kind: Kind) -> Vec<Case> {
        vec![self.case(4, 2, 1, 300), self.case(3, 2, 2, 70)]
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let stream = device.stream()?;
        let shape = self.shape(case);
        let Operands { q, k, v } = Operands::new(&shape, seed);
        let inputs = [stream.upload(&q)?, stream.upload(&k)?, stream.upload(&v)?];
        let mut job = Bound::new(&stream, device, &shape, inputs)?;
        job.forward(&stream)?;
        let output: Vec<f32> = stream.download(&job.output)?.into_iter().map(Element::to_f32).collect();
        Ok(Outputs::new().with("o", output))
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        let shape = self.shape(case);
        Outputs::new().with("o", Operands::new(&shape, seed).attend(&shape))
    }

    /// As for attention of one sequence: rounding p to e4m3 alone is an error of 0.019 under a causal mask,
    /// whose first rows have outputs as large as values.
    fn budget(&self, case: &Case) -> ErrorBudget {
        let size = (std::f64::consts::E / case.dimension("rows") as f64).sqrt();
        ErrorBudget::Bounded(Bounds { relative_frobenius: 0.025, max_abs: 0.3, mean_bias: 0.02 * size })
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let shape = self.shape(case);
        let operands = Operands::new(&shape, seed);
        let wrong = |name: &str, change: &dyn Fn(&mut Operands)| {
            let mut changed = operands.clone();
            change(&mut changed);
            Control::new(name, Outputs::new().with("o", changed.attend(&shape)))
        };
        let row = shape.key_heads * shape.value_dim;
        vec![
            Control::zeros(reference),
            wrong("values of the sequence before", &|x| x.v.rotate_right(starts(&shape)[1] * row)),
            wrong("keys a row later", &|x| x.k.rotate_right(shape.key_heads * shape.dim)),
            wrong("values back to front", &|x| {
                x.v.chunks_mut(shape.value_dim).for_each(<[f16]>::reverse);
            }),
            wrong("a biased decoder", &|x| {
                x.v.iter_mut().for_each(|v| *v = f16::from_f32(v.to_f32() - 0.02));
            }),
            Control::unwritten_tail(reference, shape.value_dim),
        ]
    }

    fn work(&self, case: &Case) -> Work {
        let shape = self.shape(case);
        let operations: f64 = starts(&shape)
            .windows(2)
            .map(|ends| {
                let rows = ends[1] - ends[0];
                Shape { batch: 1, rows, keys: rows, ..shape }.operations(Mask::Causal)
            })
            .sum();
        // f16 in, codes out and in again, f16 out.
        let [q, k, v] = counts(&shape);
        let bytes = 4 * (q + k + v) + 2 * q / shape.dim * shape.value_dim;
        Work { operations: operations as u64, bytes: bytes as u64 }
    }

    fn bench_cases(&self, kind: Kind) -> Vec<Case> {
        match kind {
            Kind::Cuda => {
                let Shape { heads, key_heads, rows, .. } = self.heads;
                vec![self.case(TIMED, heads, key_heads, rows)]
            }
            Kind::Emulated => self.cases(kind).into_iter().take(1).collect(),
        }
    }

    /// Against a batch in which every sequence is as long as the longest, from f16 too.
    fn bench(&self, device: &Device, case: &Case) -> Result<Option<Bench>, RunError> {
        let (stream, shape) = (device.stream()?, self.shape(case));
        let [q, k, v] = patterns(&shape, 1);
        let [queries, keys, values] = counts(&shape);
        let inputs =
            [repeated(&stream, &q, queries)?, repeated(&stream, &k, keys)?, repeated(&stream, &v, values)?];
        let job = Bound::new(&stream, device, &shape, inputs)?;
        let batch = Attention::builder(shape).mask(Mask::Causal).build_on(device)?;
        let mut workspace = batch.workspace(&stream)?;
        let (all_q, all_k) =
            (repeated(&stream, &q, shape.query_elements())?, repeated(&stream, &k, shape.key_elements())?);
        let all_v = repeated(&stream, &v, shape.value_elements())?;
        let mut o = stream.alloc_zeros::<f16>(shape.output_elements())?;
        stream.synchronize()?;
        let job = Rc::new(RefCell::new(job));
        let evidence = self.evidence(case, [q, k, v], job.clone());
        let candidate = Side::new("packed", move |stream| job.borrow_mut().forward(stream));
        let baseline = Side::new("padded to the longest", move |stream| {
            batch.forward(stream, &mut workspace, [&all_q, &all_k, &all_v], &mut o)
        });
        let why = "rows that pad are work that packed sequences do not have";
        let bench = Bench::new(self.work(case), candidate, baseline)
            .timing(Timing::Graph { repeats: 5 })
            .arithmetic(Arithmetic::TensorFp8)
            .shown_by(evidence);
        Ok(Some(bench.expect_at_most(1.0, why)))
    }
}

impl PackedJob {
    /// The last sequence, which is the shortest.
    fn evidence(&self, case: &Case, patterns: [Vec<f16>; 3], job: Rc<RefCell<Bound>>) -> Evidence {
        let (shape, spoiled) = (self.shape(case), job.clone());
        let ends = starts(&shape);
        let (first, end) = (ends[ends.len() - 2], ends[ends.len() - 1]);
        let one = Shape { batch: 1, rows: end - first, keys: end - first, ..shape };
        let place = first * shape.heads * shape.value_dim..end * shape.heads * shape.value_dim;
        let mut expected = None;
        Evidence::new(
            self.budget(&self.case(1, shape.heads, shape.key_heads, one.rows)),
            move |stream| Ok(stream.fill(&mut spoiled.borrow_mut().output, f16::NAN)?),
            move |stream| {
                let output = stream.download(&job.borrow().output.slice(place.clone()))?;
                let output: Vec<f32> = output.into_iter().map(Element::to_f32).collect();
                Ok(Outputs::new().with("o", output))
            },
            move |_| {
                let o = expected.get_or_insert_with(|| {
                    let [q, k, v] = &patterns;
                    let part = |pattern: &[f16], row: usize| -> Vec<f16> {
                        (first * row..end * row).map(|index| pattern[index % pattern.len()]).collect()
                    };
                    let operands = Operands {
                        q: part(q, shape.heads * shape.dim),
                        k: part(k, shape.key_heads * shape.dim),
                        v: part(v, shape.key_heads * shape.value_dim),
                    };
                    operands.attend_one(&one)
                });
                Ok(Outputs::new().with("o", o.clone()))
            },
        )
    }
}
