//! `foresight/attention`: causal attention of a transformer's step, and its gradient.

use std::cell::RefCell;
use std::rc::Rc;

use gatework_gpu::{Buffer, Device, Stream};
use gatework_lab::measure::Arithmetic;
use gatework_lab::{
    Bench, Case, Evidence, Inputs, KernelSpec, Outputs, RunError, Side, Timing, Work, Workload as _, repeated,
};
use half::bf16;

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

    /// In double precision. A token sees `ahead` places beyond its own, which should be none.
    fn plain(&self, ahead: usize) -> Outputs {
        let Heads { windows, context, heads, numbers } = self.heads;
        let (width, scale) = (heads * numbers, 1.0 / (numbers as f64).sqrt());
        let all = windows * context * width;
        let (mut given, mut of_read) = (vec![0.0; all], vec![0.0; 3 * all]);
        let mut levels = vec![0.0; self.heads.places()];
        for (window, head) in (0..windows).flat_map(|window| (0..heads).map(move |head| (window, head))) {
            let at = |place: usize| (window * context + place) * width + head * numbers;
            let read_at = |kind: usize, place: usize| {
                (window * context + place) * 3 * width + kind * width + head * numbers
            };
            let number = |kind: usize, place: usize, i: usize| self.read[read_at(kind, place) + i].to_f64();
            let dot = |f: &dyn Fn(usize) -> f64| (0..numbers).map(f).sum::<f64>();
            for row in 0..context {
                let seen = (row + 1 + ahead).min(context);
                let powers: Vec<f64> = (0..seen)
                    .map(|j| (scale * dot(&|i| number(0, row, i) * number(1, j, i))).exp())
                    .collect();
                let sum: f64 = powers.iter().sum();
                levels[(window * heads + head) * context + row] = sum.log2();
                let of_output = |i: usize| self.of_given[at(row) + i].to_f64();
                let share: Vec<f64> = powers.iter().map(|power| power / sum).collect();
                let backwards: Vec<f64> =
                    (0..seen).map(|j| dot(&|i| of_output(i) * number(2, j, i))).collect();
                let whole: f64 = share.iter().zip(&backwards).map(|(p, dp)| p * dp).sum();
                for j in 0..seen {
                    let ds = share[j] * (backwards[j] - whole) * scale;
                    for i in 0..numbers {
                        given[at(row) + i] += share[j] * number(2, j, i);
                        of_read[read_at(0, row) + i] += ds * number(1, j, i);
                        of_read[read_at(1, j) + i] += ds * number(0, row, i);
                        of_read[read_at(2, j) + i] += share[j] * of_output(i);
                    }
                }
            }
        }
        let single = |x: Vec<f64>| x.into_iter().map(|x| x as f32).collect::<Vec<f32>>();
        Outputs::new()
            .with("given", single(given))
            .with("levels", single(levels))
            .with("of read", single(of_read))
    }
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

    /// Half of two products there and of seven back: scores are computed three times.
    fn work(&self, case: &Case) -> Work {
        let Heads { windows, context, heads, numbers } = heads(case);
        let [squares, numbers] = [windows * heads * context * context, windows * context * heads * numbers];
        let depth = numbers as u64 / (windows * context * heads) as u64;
        Work { operations: 9 * squares as u64 * depth, bytes: 2 * 13 * numbers as u64 }
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
        let evidence = Evidence::new(
            super::OnDevice { job: *self, cases: super::Cases::All }.budget(case),
            move |stream| Ok(stream.fill(&mut spoilt.borrow_mut().given, bf16::NAN)?),
            // What the first token gives is its own value.
            move |stream| {
                let first = stream.download(&seen.borrow().given.slice(..heads.numbers))?;
                Ok(Outputs::new().with("given", singles(&first)))
            },
            move |_| {
                let width = heads.heads * heads.numbers;
                let value = |i: usize| of_read[(2 * width + i) % PATTERN].to_f32();
                Ok(Outputs::new().with("given", (0..heads.numbers).map(value).collect::<Vec<f32>>()))
            },
        );
        stream.synchronize()?;
        Ok(Bench::new(self.work(case), candidate, baseline)
            .timing(Timing::Launches { count: 3 })
            .arithmetic(Arithmetic::TensorF16)
            .cold()
            .shown_by(evidence))
    }
}
