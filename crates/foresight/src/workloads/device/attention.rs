//! `foresight/attention`: causal attention of a transformer's step, and its gradient.

use std::cell::RefCell;
use std::rc::Rc;

use gatework_gpu::{Buffer, Device, Stream};
use gatework_lab::measure::Arithmetic;
use gatework_lab::{
    Bench, Case, Evidence, Inputs, KernelSpec, Outputs, RunError, Side, Timing, Work, Workload as _, repeated,
};
use half::bf16;
use rayon::prelude::*;

use super::Job;
use crate::cuda::kernels::attention;
use crate::cuda::{Attended, Heads, attend, attend_back};

#[derive(Clone, Copy)]
pub(super) struct Attention;

/// Numbers of the pattern that fills large arrays.
const PATTERN: usize = 997;

fn case(windows: usize, context: usize, heads: usize, numbers: usize) -> Case {
    Case::new(format!("{windows}x{context}x{heads}x{numbers}"))
        .with("windows", windows)
        .with("context", context)
        .with("heads", heads)
        .with("numbers", numbers)
}

fn heads(case: &Case) -> Heads {
    let [windows, context, heads, numbers] =
        ["windows", "context", "heads", "numbers"].map(|name| case.dimension(name));
    Heads { windows, context, heads, numbers }
}

/// What goes in: queries, keys and values, and the gradient of what heads give.
struct Given {
    heads: Heads,
    read: Vec<bf16>,
    of_given: Vec<bf16>,
}

fn rounded(x: &[f32]) -> Vec<bf16> {
    x.iter().map(|x| bf16::from_f32(*x)).collect()
}

fn singles(x: &[bf16]) -> Vec<f32> {
    x.iter().map(|x| x.to_f32()).collect()
}

impl Given {
    fn new(case: &Case, seed: u64) -> Self {
        let heads = heads(case);
        let numbers = heads.places() * heads.numbers;
        let mut inputs = Inputs::new(seed);
        let read = rounded(&inputs.normal(3 * numbers));
        Self { heads, read, of_given: rounded(&inputs.normal(numbers)) }
    }

    /// In double precision, heads side by side. A token sees `ahead` places beyond its own, which should be
    /// none.
    fn plain(&self, ahead: usize) -> Outputs {
        let Heads { windows, context, heads, numbers } = self.heads;
        let width = heads * numbers;
        let all = windows * context * width;
        let (mut given, mut of_read) = (vec![0.0; all], vec![0.0; 3 * all]);
        let mut levels = Vec::with_capacity(self.heads.places());
        let found: Vec<OfHead> =
            (0..windows * heads).into_par_iter().map(|number| self.plain_head(number, ahead)).collect();
        for (number, found) in found.into_iter().enumerate() {
            let (window, head) = (number / heads, number % heads);
            levels.extend(found.levels);
            for place in 0..context {
                let (row, from) = (window * context + place, place * numbers);
                let put =
                    |to: &mut [f32], x: &[f64]| to.iter_mut().zip(x).for_each(|(to, x)| *to = *x as f32);
                let at = row * width + head * numbers;
                put(&mut given[at..at + numbers], &found.given[from..from + numbers]);
                for (kind, of_kind) in found.of_read.iter().enumerate() {
                    let at = (3 * row + kind) * width + head * numbers;
                    put(&mut of_read[at..at + numbers], &of_kind[from..from + numbers]);
                }
            }
        }
        Outputs::new().with("given", given).with("levels", levels).with("of read", of_read)
    }

    /// Head `number % heads` of window `number / heads`.
    fn plain_head(&self, number: usize, ahead: usize) -> OfHead {
        let Heads { context, heads, numbers, .. } = self.heads;
        let (window, head, width) = (number / heads, number % heads, heads * numbers);
        let double = |x: &[bf16]| x.iter().map(|x| x.to_f64()).collect::<Vec<f64>>();
        let of = |list: &[bf16], kind: usize, kinds: usize| -> Vec<f64> {
            let at = |place: usize| ((window * context + place) * kinds + kind) * width + head * numbers;
            (0..context).flat_map(|place| double(&list[at(place)..at(place) + numbers])).collect()
        };
        let [q, k, v] = [0, 1, 2].map(|kind| of(&self.read, kind, 3));
        let of_output = of(&self.of_given, 0, 1);
        let row_of = |list: &[f64], row: usize| list[row * numbers..(row + 1) * numbers].to_vec();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let scale = 1.0 / (numbers as f64).sqrt();
        let zeros = || vec![0.0; context * numbers];
        let mut found = OfHead { given: zeros(), levels: Vec::new(), of_read: [zeros(), zeros(), zeros()] };
        for row in 0..context {
            let seen = (row + 1 + ahead).min(context);
            let (own, delta) = (row_of(&q, row), row_of(&of_output, row));
            let powers: Vec<f64> =
                k.chunks_exact(numbers).take(seen).map(|k| (scale * dot(&own, k)).exp()).collect();
            let sum: f64 = powers.iter().sum();
            found.levels.push(sum.log2() as f32);
            let backwards: Vec<f64> = v.chunks_exact(numbers).take(seen).map(|v| dot(&delta, v)).collect();
            let whole = dot(&powers, &backwards) / sum;
            for j in 0..seen {
                let share = powers[j] / sum;
                let ds = share * (backwards[j] - whole) * scale;
                let [of_q, of_k, of_v] = &mut found.of_read;
                for i in 0..numbers {
                    let (here, there) = (row * numbers + i, j * numbers + i);
                    found.given[here] += share * v[there];
                    of_q[here] += ds * k[there];
                    of_k[there] += ds * own[i];
                    of_v[there] += share * delta[i];
                }
            }
        }
        found
    }
}

/// What becomes of one head: rows of its places, and gradients of queries, keys and values.
struct OfHead {
    given: Vec<f64>,
    levels: Vec<f32>,
    of_read: [Vec<f64>; 3],
}

/// A job with its inputs on the device.
struct Bound {
    heads: Heads,
    read: Buffer<bf16>,
    of_given: Buffer<bf16>,
    given: Buffer<bf16>,
    levels: Buffer<f32>,
    dots: Buffer<f32>,
    of_read: Buffer<bf16>,
}

impl Bound {
    fn new(
        stream: &Stream,
        heads: Heads,
        read: Buffer<bf16>,
        of_given: Buffer<bf16>,
    ) -> Result<Self, RunError> {
        let mut given = stream.alloc(of_given.len())?;
        let mut of_read = stream.alloc(read.len())?;
        stream.fill(&mut given, bf16::NAN)?;
        stream.fill(&mut of_read, bf16::NAN)?;
        let [levels, dots] = [stream.alloc(heads.places())?, stream.alloc(heads.places())?];
        Ok(Self { heads, read, of_given, given, levels, dots, of_read })
    }

    fn both_ways(&mut self, stream: &Stream) -> crate::Result<()> {
        let Self { heads, read, of_given, given, levels, dots, of_read } = self;
        attend(stream, *heads, read, given, levels)?;
        let attended = Attended { read, given: &*given, of_given: &*of_given, levels };
        attend_back(stream, *heads, &attended, dots, of_read)
    }
}

impl Job for Attention {
    fn name(&self) -> &'static str {
        "foresight/attention"
    }

    fn summary(&self) -> &'static str {
        "causal attention of bf16 and its gradient, both ways in three launches, without a matrix of scores"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let entries = ["attend", "attend_queries", "attend_keys"];
        let spec =
            |(head, wide)| KernelSpec::new(attention(head, wide).source()).entries(entries).threads(128);
        [(16, false), (64, true), (128, true)].map(spec).into()
    }

    fn cases(&self) -> Vec<Case> {
        vec![case(1, 70, 2, 8), case(2, 5, 3, 5), case(1, 1, 1, 1), case(1, 130, 1, 64), case(1, 66, 1, 128)]
    }

    fn few(&self) -> usize {
        2
    }

    fn large(&self) -> Vec<Case> {
        vec![case(8, 1024, 12, 64)]
    }

    fn tried(&self) -> Option<Case> {
        Some(case(1, 70, 1, 8))
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let (stream, given) = (device.stream()?, Given::new(case, seed));
        let (read, of_given) = (stream.upload(&given.read)?, stream.upload(&given.of_given)?);
        let mut bound = Bound::new(&stream, given.heads, read, of_given)?;
        bound.both_ways(&stream)?;
        Ok(Outputs::new()
            .with("given", singles(&stream.download(&bound.given)?))
            .with("levels", stream.download(&bound.levels)?)
            .with("of read", singles(&stream.download(&bound.of_read)?)))
    }

    fn reference(&self, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        Ok(Given::new(case, seed).plain(0))
    }

    /// Shares and the gradients of scores are rounded for their products, and results once more.
    fn within(&self, _: &Case) -> [f64; 2] {
        [1e-2, 5e-2]
    }

    fn mistaken(&self, case: &Case, seed: u64) -> Result<(&'static str, Outputs), RunError> {
        let given = Given::new(case, seed);
        if given.heads.context == 1 {
            return Err("a token alone has no next one".into());
        }
        Ok(("attention that sees the next token", given.plain(1)))
    }

    /// Half of two products there and of five back. Scores and what comes back to them are computed twice for
    /// the gradient: that is the kernel's own.
    fn work(&self, case: &Case) -> Work {
        let Heads { windows, context, heads, numbers } = heads(case);
        let [squares, numbers] = [windows * heads * context * context, windows * context * heads * numbers];
        let depth = numbers as u64 / (windows * context * heads) as u64;
        Work { operations: 7 * squares as u64 * depth, bytes: 2 * 13 * numbers as u64 }
    }

    fn bench(&self, device: &Device, case: &Case) -> Result<Bench, RunError> {
        let (stream, heads) = (device.stream()?, heads(case));
        let mut inputs = Inputs::new(1);
        let [of_read, of_given] = [(); 2].map(|()| rounded(&inputs.normal(PATTERN)));
        let numbers = heads.places() * heads.numbers;
        let read = repeated(&stream, &of_read, 3 * numbers)?;
        let there = Bound::new(&stream, heads, read, repeated(&stream, &of_given, numbers)?)?;
        let there = Rc::new(RefCell::new(there));
        let squares = heads.places() * heads.context;
        let (from, mut to) = (stream.alloc_zeros::<f32>(squares)?, stream.alloc::<f32>(squares)?);
        let (timed, spoilt, seen) = (there.clone(), there.clone(), there);
        let candidate =
            Side::new("there and back", move |stream: &Stream| timed.borrow_mut().both_ways(stream));
        let baseline = Side::new("a copy of all scores", move |stream: &Stream| -> Result<(), RunError> {
            Ok(stream.copy(&from, &mut to)?)
        });
        // The first head of the first window, all of its places and both ways.
        let (width, first) = (heads.heads * heads.numbers, Heads { windows: 1, ..heads });
        let evidence = Evidence::new(
            super::OnDevice { job: *self, cases: super::Cases::All }.budget(case),
            move |stream| {
                let there = &mut *spoilt.borrow_mut();
                stream.fill(&mut there.given, bf16::NAN)?;
                stream.fill(&mut there.levels, f32::NAN)?;
                Ok(stream.fill(&mut there.of_read, bf16::NAN)?)
            },
            move |stream| {
                let there = seen.borrow();
                let count = heads.context * width;
                Ok(Outputs::new()
                    .with("given", singles(&stream.download(&there.given.slice(..count))?))
                    .with("levels", stream.download(&there.levels.slice(..first.places()))?)
                    .with("of read", singles(&stream.download(&there.of_read.slice(..3 * count))?)))
            },
            move |_| {
                let cycled = |pattern: &[bf16], count: usize| -> Vec<bf16> {
                    pattern.iter().copied().cycle().take(count).collect()
                };
                let count = heads.context * width;
                let (read, of_given) = (cycled(&of_read, 3 * count), cycled(&of_given, count));
                Ok(Given { heads: first, read, of_given }.plain(0))
            },
        );
        stream.synchronize()?;
        Ok(Bench::new(self.work(case), candidate, baseline)
            .timing(Timing::Launches { count: 3 })
            .arithmetic(Arithmetic::TensorF16)
            .cold()
            .expect_recorded(1.10, super::AS_BEFORE)
            .shown_by(evidence))
    }
}
