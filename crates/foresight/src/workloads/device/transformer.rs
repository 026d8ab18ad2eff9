//! `foresight/transformer`: what a transformer's step has beside its products and its attention.

use std::cell::RefCell;
use std::rc::Rc;

use gatework_gpu::{Buffer, Device, Stream};
use gatework_lab::{
    Bench, Case, Evidence, Inputs, KernelSpec, Outputs, RunError, Side, Timing, Work, Workload as _, repeated,
};
use half::bf16;

use super::Job;
use crate::cuda::kernels::transformer;
use crate::cuda::{RowKernels, Rows, Sorted};

#[derive(Clone, Copy)]
pub(super) struct Transformer;

/// Rows of the pattern that fills large arrays.
const PATTERN: usize = 97;
const WEIGHT: f32 = 0.25;

fn case(windows: usize, context: usize, width: usize, vocabulary: usize) -> Case {
    Case::new(format!("{windows}x{context}x{width}-of-{vocabulary}"))
        .with("windows", windows)
        .with("context", context)
        .with("width", width)
        .with("vocabulary", vocabulary)
}

/// What everything is computed from.
struct Given {
    windows: usize,
    context: usize,
    width: usize,
    vocabulary: usize,
    /// Columns of logits: a few more than there are tokens.
    padded: usize,
    x: Vec<f32>,
    d: Vec<f32>,
    gains: Vec<f32>,
    logits: Vec<f32>,
    table: Vec<f32>,
    places: Vec<f32>,
    tokens: Vec<u32>,
    targets: Vec<u32>,
}

impl Given {
    fn new(case: &Case, seed: u64) -> Self {
        let [windows, context, width, vocabulary] =
            ["windows", "context", "width", "vocabulary"].map(|name| case.dimension(name));
        let (rows, padded) = (windows * context, vocabulary.next_multiple_of(64));
        let mut inputs = Inputs::new(seed);
        let tokens = inputs.words(2 * rows).into_iter().map(|word| word % vocabulary as u32);
        let (tokens, targets): (Vec<u32>, Vec<u32>) = {
            let all: Vec<u32> = tokens.collect();
            (all[..rows].to_vec(), all[rows..].to_vec())
        };
        Self {
            windows,
            context,
            width,
            vocabulary,
            padded,
            x: inputs.normal(rows * width),
            d: inputs.normal(rows * width),
            gains: inputs.normal(2 * width),
            logits: inputs.normal(rows * padded),
            table: inputs.normal(vocabulary * width),
            places: inputs.normal(context * width),
            tokens,
            targets,
        }
    }

    fn rows(&self) -> Rows {
        Rows { count: self.windows * self.context, width: self.width }
    }

    fn on_device(&self, stream: &Stream) -> Result<Outputs, RunError> {
        let (rows, up) = (self.rows(), |list: &[f32]| stream.upload(list));
        let numbers = rows.count * rows.width;
        let mut kernels = RowKernels::new(stream);
        let (x, d, gains) = (up(&self.x)?, up(&self.d)?, up(&self.gains)?);
        let (mut normal, mut moments) = (stream.alloc(numbers)?, stream.alloc(2 * rows.count)?);
        kernels.normalise(rows, &x, &gains, &mut normal, &mut moments)?;
        let (mut of_x, mut of_gains) = (up(&self.x)?, up(&self.gains)?);
        kernels.normalise_back(rows, &x, &gains, &moments, &d, &mut of_x, &mut of_gains)?;
        let mut of_bias = up(&self.gains[..rows.width])?;
        kernels.bias_back(rows, &stream.upload(&rounded(&self.d))?, &mut of_bias)?;
        let (logits, mut of_logits) = (up(&self.logits)?, stream.alloc(self.logits.len())?);
        let judged = Rows { width: self.padded, ..rows };
        let (vocabulary, targets) = (self.vocabulary, &self.targets);
        let judged = kernels.cross_entropy(judged, vocabulary, targets, &logits, &mut of_logits, WEIGHT)?;
        let mut embedded = stream.alloc(numbers)?;
        let (table, places) = (up(&self.table)?, up(&self.places)?);
        kernels.embed(rows, self.context, &self.tokens, &table, &places, &mut embedded)?;
        let mut of_table = up(&self.table)?;
        kernels.embed_back(rows, &Sorted::new(stream, &self.tokens)?, &d, &mut of_table)?;
        let right = stream.download(&judged.right)?.into_iter().map(|right| right as f32);
        let down = |buffer: &Buffer<f32>| stream.download(buffer);
        Ok(Outputs::new()
            .with("normal", singles(&stream.download(&normal)?))
            .with("of x", down(&of_x)?)
            .with("of gains", down(&of_gains)?)
            .with("of bias", down(&of_bias)?)
            .with("losses", down(&judged.losses)?)
            .with("right", right.collect::<Vec<f32>>())
            .with("of logits", singles(&stream.download(&of_logits)?))
            .with("embedded", down(&embedded)?)
            .with("of table", down(&of_table)?))
    }

    /// The same in double precision. Tokens are so many places further in their window than they should be.
    fn plain(&self, further: usize) -> Outputs {
        let width = self.width;
        let [mut normal, mut of_x, mut embedded] = [(); 3].map(|()| Vec::new());
        let mut of_gains = double(&self.gains);
        let mut of_bias = double(&self.gains[..width]);
        let mut of_table = double(&self.table);
        for (row, (x, d)) in self.x.chunks_exact(width).zip(self.d.chunks_exact(width)).enumerate() {
            let (x, d) = (double(x), double(d));
            let [n, scale] = normalised(&x);
            let g: Vec<f64> = d.iter().zip(&self.gains).map(|(d, gain)| d * f64::from(*gain)).collect();
            let whole = g.iter().sum::<f64>() / width as f64;
            let along = g.iter().zip(&n).map(|(g, n)| g * n).sum::<f64>() / width as f64;
            let token = self.tokens[row] as usize;
            for i in 0..width {
                normal.push(n[i] * f64::from(self.gains[i]) + f64::from(self.gains[width + i]));
                of_x.push(x[i] + (g[i] - whole - n[i] * along) * scale[0]);
                of_gains[i] += d[i] * n[i];
                of_gains[width + i] += d[i];
                of_bias[i] += bf16::from_f64(d[i]).to_f64();
                let place = (row + further) % self.context * width + i;
                embedded.push(f64::from(self.table[token * width + i]) + f64::from(self.places[place]));
                of_table[token * width + i] += d[i];
            }
        }
        let (mut losses, mut right, mut of_logits) = (Vec::new(), Vec::new(), Vec::new());
        for (logits, &target) in self.logits.chunks_exact(self.padded).zip(&self.targets) {
            let (logits, target) = (&logits[..self.vocabulary], target as usize);
            let p = softmax(logits.iter().copied().map(f64::from));
            losses.push(-p[target].ln());
            right.push(f32::from(u8::from(logits.iter().all(|logit| *logit <= logits[target]))));
            let of = |i: usize| (p[i] - f64::from(u8::from(i == target))) * f64::from(WEIGHT);
            of_logits.extend((0..self.padded).map(|i| if i < self.vocabulary { of(i) } else { 0.0 }));
        }
        Outputs::new()
            .with("normal", single(&normal))
            .with("of x", single(&of_x))
            .with("of gains", single(&of_gains))
            .with("of bias", single(&of_bias))
            .with("losses", single(&losses))
            .with("right", right)
            .with("of logits", single(&of_logits))
            .with("embedded", single(&embedded))
            .with("of table", single(&of_table))
    }
}

fn double(x: &[f32]) -> Vec<f64> {
    x.iter().copied().map(f64::from).collect()
}

fn rounded(x: &[f32]) -> Vec<bf16> {
    x.iter().map(|x| bf16::from_f32(*x)).collect()
}

fn singles(x: &[bf16]) -> Vec<f32> {
    x.iter().map(|x| x.to_f32()).collect()
}

fn single(x: &[f64]) -> Vec<f32> {
    x.iter().map(|x| *x as f32).collect()
}

/// `(x − mean) / √(variance + ε)`, and one over that root.
fn normalised(x: &[f64]) -> [Vec<f64>; 2] {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (variance + 1e-5).sqrt();
    [x.iter().map(|x| (x - mean) * scale).collect(), vec![scale]]
}

fn softmax(x: impl Iterator<Item = f64> + Clone) -> Vec<f64> {
    let sum: f64 = x.clone().map(f64::exp).sum();
    x.map(|x| x.exp() / sum).collect()
}

impl Job for Transformer {
    fn name(&self) -> &'static str {
        "foresight/transformer"
    }

    fn summary(&self) -> &'static str {
        "normalisation, biases, cross-entropy and embedding with their gradients; a normalisation is timed"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let entries = [
            "normalise",
            "normalise_back",
            "normalise_sums",
            "bias_sums",
            "add_chunks",
            "cross_entropy",
            "embed",
            "embed_back",
        ];
        vec![KernelSpec::new(transformer().source()).entries(entries).threads(256)]
    }

    fn cases(&self) -> Vec<Case> {
        vec![case(2, 5, 34, 70), case(3, 33, 7, 300), case(1, 2, 130, 1000)]
    }

    fn few(&self) -> usize {
        1
    }

    fn large(&self) -> Vec<Case> {
        vec![case(16, 1024, 768, 1000)]
    }

    fn tried(&self) -> Option<Case> {
        Some(case(2, 5, 34, 70))
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        Given::new(case, seed).on_device(&device.stream()?)
    }

    fn reference(&self, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        Ok(Given::new(case, seed).plain(0))
    }

    /// A unit in the last place of what is rounded.
    fn within(&self, _: &Case) -> [f64; 2] {
        [2e-3, 2e-2]
    }

    fn mistaken(&self, case: &Case, seed: u64) -> Result<(&'static str, Outputs), RunError> {
        Ok(("tokens one place further", Given::new(case, seed).plain(1)))
    }

    /// Of one normalisation.
    fn work(&self, case: &Case) -> Work {
        let numbers =
            ["windows", "context", "width"].map(|name| case.dimension(name) as u64).iter().product::<u64>();
        Work { operations: 8 * numbers, bytes: 6 * numbers }
    }

    fn bench(&self, device: &Device, case: &Case) -> Result<Bench, RunError> {
        const SEED: u64 = 1;
        let stream = device.stream()?;
        let [windows, context, width] = ["windows", "context", "width"].map(|name| case.dimension(name));
        let rows = Rows { count: windows * context, width };
        let numbers = rows.count * width;
        let mut inputs = Inputs::new(SEED);
        let (pattern, gains) = (inputs.normal(PATTERN * width), inputs.normal(2 * width));
        let (x, on_device) = (repeated(&stream, &pattern, numbers)?, stream.upload(&gains)?);
        let there = Rc::new(RefCell::new((stream.alloc::<bf16>(numbers)?, stream.alloc(2 * rows.count)?)));
        let bytes = 6 * numbers / 2;
        let (from, mut to) = (stream.alloc_zeros::<u8>(bytes)?, stream.alloc::<u8>(bytes)?);
        let kernels = RowKernels::new(&stream);
        let (timed, spoilt, seen) = (there.clone(), there.clone(), there);
        let candidate = Side::new("normalisation", move |_: &Stream| {
            let (y, moments) = &mut *timed.borrow_mut();
            kernels.normalise(rows, &x, &on_device, y, moments)
        });
        let baseline = Side::new("a copy of as many bytes", move |stream: &Stream| -> Result<(), RunError> {
            Ok(stream.copy(&from, &mut to)?)
        });
        let evidence = Evidence::new(
            super::OnDevice { job: *self, cases: super::Cases::All }.budget(case),
            move |stream| Ok(stream.fill(&mut spoilt.borrow_mut().0, bf16::NAN)?),
            move |stream| Ok(Outputs::new().with("normal", singles(&stream.download(&seen.borrow().0)?))),
            move |_| {
                let rows = pattern.chunks_exact(width).cycle().take(rows.count);
                let of = |row: &[f32]| -> Vec<f32> {
                    let [n, _] = normalised(&double(row));
                    let (gain, shift) = gains.split_at(width);
                    let scaled = n.iter().zip(gain).zip(shift);
                    scaled
                        .map(|((n, gain), shift)| (n * f64::from(*gain) + f64::from(*shift)) as f32)
                        .collect()
                };
                Ok(Outputs::new().with("normal", rows.flat_map(of).collect::<Vec<f32>>()))
            },
        );
        stream.synchronize()?;
        let bench =
            Bench::new(self.work(case), candidate, baseline).timing(Timing::Launches { count: 3 }).cold();
        Ok(bench.shown_by(evidence).expect_at_most(1.0 / 0.85, "85 % of the bandwidth of a copy"))
    }
}
