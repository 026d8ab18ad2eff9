//! A cache on a device: sequences of different lengths, of which all but the first share a prefix with it,
//! append rows and attend.

use std::cell::RefCell;
use std::rc::Rc;

use gatework_gpu::{Buffer, Device, Kind, Stream, Target};
use gatework_lab::measure::Arithmetic;
use gatework_lab::{
    Bench, Bounds, Case, Control, ErrorBudget, Evidence, Inputs, KernelSpec, Outputs, RunError, Side, Timing,
    Work, Workload, poisoned,
};
use half::f16;
use rayon::prelude::*;

use super::codes;
use crate::cuda::{Tiling, append_module, cached_module};
use crate::form::Form;
use crate::reference::{self, Scores};
use crate::shape::{Mask, Shape};
use crate::shared::QUANTISE_THREADS;
use crate::{Attention, CachedAttention, Element, KvCache, PAGE_KEYS, Result, Sequence, StepSize, Steps};

/// Elements of the random pattern that fills long sequences.
const PATTERN: usize = 1_000_003;

/// Steps over a cache, for heads of one kind.
#[derive(Clone)]
pub(super) struct CacheJob {
    name: String,
    summary: String,
    heads: Shape,
    /// Sequences, rows of each, and keys of the longest.
    steps: Vec<[usize; 3]>,
}

/// What one sequence is given: all its keys and values, and the queries of its last rows; rows first.
#[derive(Clone)]
struct Given {
    rows: usize,
    q: Vec<f16>,
    k: Vec<f16>,
    v: Vec<f16>,
}

impl Given {
    fn keys(&self, row: usize) -> usize {
        self.k.len() / row
    }
}

/// A cache that holds all but the last rows, and those rows on the device.
struct Bound {
    attention: CachedAttention,
    cache: KvCache,
    steps: Steps,
    rows: Vec<(Sequence, usize)>,
    tensors: [Buffer<f16>; 3],
    output: Buffer<f16>,
}

impl Bound {
    fn new(device: &Device, stream: &Stream, shape: &Shape, given: &[Given]) -> Result<Self, RunError> {
        let attention = Attention::builder(*shape).mask(Mask::Causal).build_cached()?;
        let row = shape.key_heads * shape.dim;
        let pages: usize = given.iter().map(|one| one.keys(row).div_ceil(PAGE_KEYS) + 1).sum();
        let mut cache = KvCache::new(shape.key_heads, shape.dim, pages, &Target::Gpu(device.clone()))?;
        let first = cache.begin();
        let shared = prefix(given, row);
        cache.append(first, &given[0].k[..shared * row], &given[0].v[..shared * row])?;
        let mut sequences = vec![first];
        for _ in &given[1..] {
            sequences.push(cache.fork(first, shared)?);
        }
        for (&sequence, one) in sequences.iter().zip(given) {
            let before = shared * row..(one.keys(row) - one.rows) * row;
            cache.append(sequence, &one.k[before.clone()], &one.v[before])?;
        }
        let last = |x: fn(&Given) -> &[f16], of_row: usize| -> Vec<f16> {
            given.iter().flat_map(|one| &x(one)[x(one).len() - one.rows * of_row..]).copied().collect()
        };
        let tensors = [
            stream.upload(&last(|one| &one.q, shape.heads * shape.dim))?,
            stream.upload(&last(|one| &one.k, row))?,
            stream.upload(&last(|one| &one.v, row))?,
        ];
        let most = StepSize {
            sequences: given.len(),
            rows: given.iter().map(|one| one.rows).max().unwrap_or(1),
            keys: given.iter().map(|one| one.keys(row)).max().unwrap_or(1),
        };
        let steps = attention.steps(&cache, stream, most)?;
        let output = poisoned(stream, tensors[0].len())?;
        let rows = sequences.into_iter().zip(given.iter().map(|one| one.rows)).collect();
        Ok(Self { attention, cache, steps, rows, tensors, output })
    }

    fn step(&mut self, stream: &Stream) -> Result<()> {
        let Self { attention, cache, steps, rows, tensors: [q, k, v], output } = self;
        attention.step(stream, steps, cache, rows, [q, k, v], output)
    }

    fn attend(&mut self, stream: &Stream) -> Result<()> {
        let Self { attention, cache, steps, tensors: [q, ..], output, .. } = self;
        attention.attend_again(stream, steps, cache, q, output)
    }
}

/// Keys that all sequences have in common: some of an open page.
fn prefix(given: &[Given], row: usize) -> usize {
    let shortest = given.iter().map(|one| one.keys(row) - one.rows).min().unwrap_or(0);
    if given.len() > 1 { shortest / 2 } else { shortest }
}

impl CacheJob {
    pub(super) fn new(name: &str, summary: &str, heads: Shape, steps: &[[usize; 3]]) -> Self {
        let summary = format!("append to an e4m3 cache and attend over it: {summary}");
        Self { name: name.into(), summary, heads, steps: steps.to_vec() }
    }

    fn shape(&self, case: &Case) -> Shape {
        let size = |name: &str| case.dimension(name);
        Shape {
            batch: size("sequences"),
            heads: size("heads"),
            key_heads: size("key_heads"),
            rows: size("rows"),
            keys: size("keys"),
            dim: size("head_dim"),
            value_dim: size("head_dim"),
        }
    }

    fn case(&self, heads: usize, key_heads: usize, [sequences, rows, keys]: [usize; 3]) -> Case {
        let dim = self.heads.dim;
        Case::new(format!("{sequences}x{heads}x{key_heads}x{rows}x{keys}x{dim}"))
            .with("sequences", sequences)
            .with("heads", heads)
            .with("key_heads", key_heads)
            .with("rows", rows)
            .with("keys", keys)
            .with("head_dim", dim)
    }

    fn attention(&self, shape: &Shape, given: &[Given]) -> Vec<f64> {
        given.par_iter().flat_map(|one| attend(shape, one)).collect()
    }
}

/// Sequences of a case; each is shorter than the one before, and begins as the first does.
fn given(shape: &Shape, seed: u64) -> Vec<Given> {
    let mut inputs = Inputs::new(seed);
    let (query, row) = (shape.heads * shape.dim, shape.key_heads * shape.dim);
    let mut normal = |count: usize| -> Vec<f16> {
        let pattern: Vec<f16> = inputs.normal(count.min(PATTERN)).into_iter().map(f16::from_f32).collect();
        pattern.iter().copied().cycle().take(count).collect()
    };
    let one = |index: usize| {
        let keys = shape.keys - (53 * index).min(shape.keys / 4);
        Given {
            rows: shape.rows,
            q: normal(shape.rows * query),
            k: normal(keys * row),
            v: normal(keys * row),
        }
    };
    let mut given: Vec<Given> = (0..shape.batch).map(one).collect();
    let shared = prefix(&given, row) * row;
    if let [first, others @ ..] = &mut given[..] {
        for other in others {
            other.k[..shared].copy_from_slice(&first.k[..shared]);
            other.v[..shared].copy_from_slice(&first.v[..shared]);
        }
    }
    given
}

/// `[rows, heads, dim]` as `[heads, rows, dim]`, and back.
pub(super) fn heads_first<T: Copy>(x: &[T], heads: usize, dim: usize) -> Vec<T> {
    let head = |head: usize| x.chunks(heads * dim).flat_map(move |row| &row[head * dim..][..dim]);
    (0..heads).flat_map(head).copied().collect()
}

pub(super) fn rows_first<T: Copy>(x: &[T], heads: usize, dim: usize) -> Vec<T> {
    let rows = x.len() / (heads * dim);
    let at = |row: usize, head: usize| &x[(head * rows + row) * dim..][..dim];
    (0..rows).flat_map(|row| (0..heads).flat_map(move |head| at(row, head))).copied().collect()
}

/// Attention in double precision over the values of codes: a page of keys or values shares a scale, and 64
/// packed rows of queries do.
fn attend(shape: &Shape, given: &Given) -> Vec<f64> {
    let Shape { heads, key_heads, dim, .. } = *shape;
    let (group, rows) = (heads / key_heads, given.rows);
    let keys = given.keys(key_heads * dim);
    let of_pages = |x: &[f16], limit: f32| {
        codes::of_blocks(&heads_first(x, key_heads, dim), keys * dim, PAGE_KEYS * dim, limit)
    };
    let limit = crate::cuda::score_limit(dim);
    let (k, v) = (of_pages(&given.k, limit), of_pages(&given.v, crate::shared::LARGEST_CODE));
    // Rows of a key head's queries stand together, heads inside: they are packed already.
    let packed = heads_first(&given.q, key_heads, group * dim);
    let packed = codes::of_blocks(&packed, rows * group * dim, 64 * dim, limit);
    let q: Vec<f64> = packed.chunks(rows * group * dim).flat_map(|x| heads_first(x, group, dim)).collect();
    let one = Shape { batch: 1, rows, keys, ..*shape };
    let scores = Scores { mask: Mask::Causal, scale: 1.0 / (dim as f64).sqrt(), soft_cap: None, sinks: &[] };
    rows_first(&reference::attention_of(&one, &scores, &q, &k, &v).0, heads, dim)
}

impl Workload for CacheJob {
    fn name(&self) -> &str {
        &self.name
    }

    fn summary(&self) -> &str {
        &self.summary
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let causal = Form { mask: Mask::Causal, ..Form::new(self.heads) };
        let window = Form {
            mask: Mask::Window { left: 127, right: 0 },
            sinks: Some(vec![0.0; self.heads.heads].into()),
            ..causal
        };
        let capped = Form { soft_cap: Some(50.0), ..causal.clone() };
        let append = KernelSpec::new(append_module::<f16>(self.heads.dim).source()).threads(QUANTISE_THREADS);
        let mut kernels = vec![append.entries(["append", "reopen"])];
        // One warpgroup for few rows, several for many.
        for (form, rows) in [causal, window, capped].iter().flat_map(|form| [(form, 1), (form, 4096)]) {
            let tiling = Tiling::suited(form, rows).unwrap_or_else(|error| panic!("{}: {error}", self.name));
            let spec = KernelSpec::new(cached_module::<f16, f16>(form, tiling).source());
            let spec = spec.threads(tiling.threads()).require("QGMMA").require("UBLKCP");
            // Mutants of consumer.cuh are those of attention.cuh.
            kernels.push(spec);
        }
        kernels
    }

    /// Parts of keys, a ring that goes round, rows of several warpgroups, an open page that is shared.
    fn cases(&self, kind: Kind) -> Vec<Case> {
        let mut cases =
            vec![self.case(2, 1, [3, 5, 300]), self.case(4, 2, [2, 1, 1300]), self.case(4, 1, [1, 40, 900])];
        if kind == Kind::Cuda {
            cases.push(self.case(self.heads.heads, self.heads.key_heads, [2, 4, 5000]));
        }
        cases
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let stream = device.stream()?;
        let shape = self.shape(case);
        let mut job = Bound::new(device, &stream, &shape, &given(&shape, seed))?;
        job.step(&stream)?;
        let output: Vec<f32> = stream.download(&job.output)?.into_iter().map(Element::to_f32).collect();
        Ok(Outputs::new().with("o", output))
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        let shape = self.shape(case);
        Outputs::new().with("o", self.attention(&shape, &given(&shape, seed)))
    }

    /// As for attention without a cache: rounding p to e4m3 alone is an error of 0.024.
    fn budget(&self, case: &Case) -> ErrorBudget {
        let size = (std::f64::consts::E / case.dimension("keys") as f64).sqrt();
        ErrorBudget::Bounded(Bounds {
            relative_frobenius: 0.030,
            max_abs: 0.6 * size,
            mean_bias: 0.02 * size,
        })
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let shape = self.shape(case);
        let given = given(&shape, seed);
        let row = shape.key_heads * shape.dim;
        let wrong = |name: &str, change: &dyn Fn(&mut Given)| {
            let mut changed = given.clone();
            changed.iter_mut().for_each(change);
            Control::new(name, Outputs::new().with("o", self.attention(&shape, &changed)))
        };
        // Of every sequence: the last may have few pages.
        let page = PAGE_KEYS.min((shape.keys - shape.keys / 4) / 2) * row;
        let mut exchanged = given.clone();
        // A sequence alone has nobody to exchange pages with: its first two are.
        let last = exchanged.len() - 1;
        let (of_first, of_last) =
            (exchanged[0].v[..page].to_vec(), exchanged[last].v[page..2 * page].to_vec());
        exchanged[0].v[..page].copy_from_slice(&of_last);
        exchanged[last].v[page..2 * page].copy_from_slice(&of_first);
        vec![
            Control::zeros(reference),
            Control::new("a page of another", Outputs::new().with("o", self.attention(&shape, &exchanged))),
            wrong("a stale page of values", &|one| one.v.copy_within(0..page, page)),
            wrong("values back to front", &|one| one.v.chunks_mut(shape.dim).for_each(<[f16]>::reverse)),
            wrong("a biased decoder", &|one| {
                one.v.iter_mut().for_each(|v| *v = f16::from_f32(v.to_f32() - 0.02));
            }),
            Control::unwritten_tail(reference, shape.dim),
        ]
    }

    fn work(&self, case: &Case) -> Work {
        let shape = self.shape(case);
        let queries = shape.batch * shape.rows * shape.heads * shape.dim;
        // Codes of keys and values, queries and outputs in f16.
        let bytes = 2 * shape.key_elements() + 4 * queries;
        Work { operations: shape.operations(Mask::Causal) as u64, bytes: bytes as u64 }
    }

    fn bench_cases(&self, kind: Kind) -> Vec<Case> {
        match kind {
            Kind::Cuda => self
                .steps
                .iter()
                .map(|&step| self.case(self.heads.heads, self.heads.key_heads, step))
                .collect(),
            Kind::Emulated => self.cases(kind).into_iter().take(1).collect(),
        }
    }

    /// The launch that attends, against the kernel without a cache at the same shape, on images that are
    /// ready.
    fn bench(&self, device: &Device, case: &Case) -> Result<Option<Bench>, RunError> {
        let (stream, shape) = (device.stream()?, self.shape(case));
        let given = given(&shape, 1);
        let mut job = Bound::new(device, &stream, &shape, &given)?;
        job.step(&stream)?;
        let without = Attention::builder(shape).mask(Mask::Causal).build_on(device)?;
        let mut workspace = without.workspace(&stream)?;
        let zeros = |count: usize| stream.alloc_zeros::<f16>(count);
        let (q, k) = (zeros(shape.query_elements())?, zeros(shape.key_elements())?);
        let mut o = zeros(shape.query_elements())?;
        without.quantise(&stream, &mut workspace, [&q, &k, &k])?;
        stream.synchronize()?;
        let job = Rc::new(RefCell::new(job));
        let evidence = self.evidence(case, given, job.clone());
        let candidate = Side::new("attention over the cache", move |stream| job.borrow_mut().attend(stream));
        let baseline = Side::new("attention without a cache", move |stream| {
            without.attend(stream, &mut workspace, &mut o)
        });
        let why = "all query heads of a key head read its pages once";
        let bench = Bench::new(self.work(case), candidate, baseline)
            .timing(Timing::Graph { repeats: 10 })
            .cold()
            .arithmetic(Arithmetic::TensorFp8)
            .shown_by(evidence);
        Ok(Some(bench.expect_at_most(1.0, why)))
    }
}

impl CacheJob {
    /// The last sequence's rows.
    fn evidence(&self, case: &Case, given: Vec<Given>, job: Rc<RefCell<Bound>>) -> Evidence {
        let (shape, spoiled) = (self.shape(case), job.clone());
        let count = shape.rows * shape.heads * shape.dim;
        let mut expected = None;
        Evidence::new(
            self.budget(case),
            move |stream| Ok(stream.fill(&mut spoiled.borrow_mut().output, f16::NAN)?),
            move |stream| {
                let job = job.borrow();
                let output = stream.download(&job.output.slice(job.output.len() - count..))?;
                let output: Vec<f32> = output.into_iter().map(Element::to_f32).collect();
                Ok(Outputs::new().with("o", output))
            },
            move |_| {
                let last = given.last().map(|one| attend(&shape, one)).unwrap_or_default();
                Ok(Outputs::new().with("o", expected.get_or_insert(last).clone()))
            },
        )
    }
}
