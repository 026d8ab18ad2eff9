//! `gatework attention run`: attention of tensors in a file.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use gatework_attention::{Attention, Bits, Builder, Element, Layout, Mask, Shape};
use gatework_gpu::Target;
use half::{bf16, f16};
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::files::{require_writable, write_file};
use crate::command::schema;
use crate::command::shell::Shell;

pub(super) const EXAMPLES: &str = "\
Examples:
  gatework attention run --demo
  gatework attention run --input qkv.safetensors --output o.safetensors
  gatework attention run --input qkv.safetensors --output o.safetensors --causal --device cuda
  gatework attention run --input qkv.safetensors --output o.safetensors \\
      --window 128 --batch-invariant

The file holds q, k and v, all F16, BF16 or F32, in [batch, heads, rows, dim]; the
output holds o, in the same form. Head dimensions are 1 to 256; a device pads those of k
and v to 64 and 64, 128 and 128, 192 and 128, or 256 and 256. v may have another dim than q
and k, which o then has too (192 and 128 in multi-head latent attention). k and v may have fewer
heads than q (grouped-query attention), and another number of rows. A tensor called
sinks, if there is one, has a logit for each query head, which takes part in the softmax
without a value (an attention sink).";

#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// Attend over random tensors instead of a file, and compare with double precision
    #[arg(long, conflicts_with_all = ["input", "output", "rows_first"])]
    pub(super) demo: bool,
    /// What the random tensors are made from, with --demo
    #[arg(long, default_value_t = 1, value_name = "SEED", requires = "demo")]
    pub(super) seed: u64,
    /// The file with q, k and v
    #[arg(long, value_name = "FILE", required_unless_present = "demo")]
    pub(super) input: Option<PathBuf>,
    /// The file to write o to
    #[arg(long, value_name = "FILE", required_unless_present = "demo")]
    pub(super) output: Option<PathBuf>,
    /// Each row sees keys up to its own place; the last row sees the last key
    #[arg(long)]
    pub(super) causal: bool,
    /// Each row sees this many keys: its own place and those before it
    #[arg(long, value_name = "KEYS", conflicts_with = "causal")]
    pub(super) window: Option<usize>,
    /// What scores are multiplied with, if not 1 / sqrt(dim)
    #[arg(long, value_name = "FACTOR")]
    pub(super) scale: Option<f32>,
    /// Scores become CAP tanh(score / CAP)
    #[arg(long, value_name = "CAP")]
    pub(super) soft_cap: Option<f32>,
    /// A row's bits depend on its own sequence and head alone, also on a device
    #[arg(long)]
    pub(super) batch_invariant: bool,
    /// The tensors are [batch, rows, heads, dim]
    #[arg(long)]
    pub(super) rows_first: bool,
}

#[derive(Serialize)]
struct Done {
    output: PathBuf,
    shape: Vec<usize>,
    device: String,
    /// Host time from tensors in memory to the output in memory; a first run on a device compiles, too.
    seconds: f64,
}

impl RunOptions {
    pub(super) fn mask(&self) -> Result<Mask, Failure> {
        Ok(match self.window {
            Some(keys) => Mask::sliding(keys)?,
            None if self.causal => Mask::Causal,
            None => Mask::Full,
        })
    }

    /// The attention that the options ask for, of tensors with heads before rows and without sinks.
    pub(super) fn builder(&self, shape: Shape) -> Result<Builder, Failure> {
        let mut builder = Attention::builder(shape).mask(self.mask()?);
        if let Some(scale) = self.scale {
            builder = builder.scale(scale);
        }
        if let Some(cap) = self.soft_cap {
            builder = builder.soft_cap(cap);
        }
        if self.batch_invariant {
            builder = builder.bits(Bits::BatchInvariant);
        }
        Ok(builder)
    }
}

impl schema::Document for Done {
    const SCHEMA: schema::Schema = schema::ATTENTION_RUN;
}

pub(super) fn run(options: &RunOptions, shell: &Shell) -> Result<Ending, Failure> {
    let (Some(path), Some(output)) = (&options.input, &options.output) else {
        return Err(Failure::input("give --input and --output, or --demo".into()));
    };
    require_writable("--output", output)?;
    require_other(path, output)?;
    let bytes = std::fs::read(path).map_err(|error| {
        input(path, format!("{error}; it should be a safetensors file with the tensors q, k and v"))
    })?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|error| input(path, format!("it is no safetensors file: {error}")))?;
    let job = Job::new(options, (path, output), &file)?;
    let shape = job.shape()?;
    let target = shell.target()?;
    let jobs = shell.progress.start(1);
    jobs.doing(format!("attending on {}", target.id()));
    let done = match job.q.dtype() {
        Dtype::F32 => job.attend::<f32>(shape, &target),
        Dtype::F16 => job.attend::<f16>(shape, &target),
        Dtype::BF16 => job.attend::<bf16>(shape, &target),
        other => Err(job
            .bad(format!("the tensors are {other:?}; F16, BF16 and F32 are supported: convert them first"))),
    }?;
    drop(jobs);
    shell.output.show(&done, || {
        format!(
            "{:?} attended on {} in {:.3} s, written to {}",
            done.shape,
            done.device,
            done.seconds,
            done.output.display()
        )
    })?;
    Ok(Ending::Done)
}

/// Refuses to write over what is read.
fn require_other(input: &Path, output: &Path) -> Result<(), Failure> {
    if same_file(input, output) {
        let why = "it is the input, which would be lost: name another file";
        return Err(Failure::input(format!("--output {}: {why}", output.display())));
    }
    Ok(())
}

fn same_file(left: &Path, right: &Path) -> bool {
    matches!((left.canonicalize(), right.canonicalize()), (Ok(left), Ok(right)) if left == right)
}

fn tensor<'a>(path: &Path, file: &SafeTensors<'a>, name: &str) -> Result<TensorView<'a>, Failure> {
    file.tensor(name).map_err(|_| {
        let mut found = file.names();
        found.sort_unstable();
        let found = if found.is_empty() { "nothing".to_owned() } else { found.join(", ") };
        input(path, format!("it has no tensor '{name}' but {found}; call the tensors q, k and v"))
    })
}

struct Job<'a> {
    options: &'a RunOptions,
    path: &'a Path,
    output: &'a Path,
    q: TensorView<'a>,
    k: TensorView<'a>,
    v: TensorView<'a>,
    sinks: Option<TensorView<'a>>,
}

impl<'a> Job<'a> {
    /// The tensors of `file`, which is read from the first path; what comes of them is written to the second.
    fn new(
        options: &'a RunOptions,
        (path, output): (&'a Path, &'a Path),
        file: &SafeTensors<'a>,
    ) -> Result<Self, Failure> {
        let tensor = |name: &str| tensor(path, file, name);
        let sinks = file.tensor("sinks").ok();
        Ok(Self { options, path, output, q: tensor("q")?, k: tensor("k")?, v: tensor("v")?, sinks })
    }

    fn layout(&self) -> Layout {
        if self.options.rows_first { Layout::RowsFirst } else { Layout::HeadsFirst }
    }

    /// The attention that the options ask for. Sinks come with the tensors.
    fn attention(&self, shape: Shape) -> Result<Builder, Failure> {
        let builder = self.options.builder(shape)?.layout(self.layout());
        Ok(match &self.sinks {
            Some(sinks) => builder.sinks(self.as_f32("sinks", sinks)?),
            None => builder,
        })
    }

    /// A tensor's elements, whatever their format.
    fn as_f32(&self, name: &str, view: &TensorView<'_>) -> Result<Vec<f32>, Failure> {
        Ok(match view.dtype() {
            Dtype::F32 => elements::<f32>(view),
            Dtype::F16 => elements::<f16>(view).into_iter().map(Element::to_f32).collect(),
            Dtype::BF16 => elements::<bf16>(view).into_iter().map(Element::to_f32).collect(),
            other => {
                return Err(
                    self.bad(format!("'{name}' is {other:?}; F16, BF16 and F32 are supported: convert it"))
                );
            }
        })
    }

    /// The dimensions of a tensor in the layout that was asked for, by name.
    fn order(&self) -> &'static str {
        match self.layout() {
            Layout::HeadsFirst => "[batch, heads, rows, dim]; if rows come before heads, use --rows-first",
            Layout::RowsFirst => {
                "[batch, rows, heads, dim]; if heads come before rows, leave out --rows-first"
            }
        }
    }

    fn shape(&self) -> Result<Shape, Failure> {
        let sizes = |name: &str, view: &TensorView<'_>| -> Result<[usize; 4], Failure> {
            let [batch, second, third, dim] = view.shape().try_into().map_err(|_| {
                let found = view.shape();
                self.bad(format!("'{name}' is {found:?}, and four dimensions are needed: {}", self.order()))
            })?;
            Ok(match self.layout() {
                Layout::HeadsFirst => [batch, second, third, dim],
                Layout::RowsFirst => [batch, third, second, dim],
            })
        };
        let [batch, heads, rows, dim] = sizes("q", &self.q)?;
        let (k, v) = (sizes("k", &self.k)?, sizes("v", &self.v)?);
        if k[..3] != v[..3] || k[0] != batch || k[3] != dim {
            let (q, k, v) = (self.q.shape(), self.k.shape(), self.v.shape());
            return Err(self.bad(format!(
                "the shapes do not belong together: q is {q:?}, k {k:?} and v {v:?}; k and v must be alike but for the \
                 dim of v, and k must share batch and dim with q, in {}",
                self.order()
            )));
        }
        let formats = [&self.q, &self.k, &self.v].map(|view| view.dtype());
        if formats != [formats[0]; 3] {
            return Err(self.bad(format!("q, k and v are {formats:?}: convert them to one number format")));
        }
        Ok(Shape { batch, heads, key_heads: k[1], rows, keys: k[2], dim, value_dim: v[3] })
    }

    fn attend<T: Element>(&self, shape: Shape, target: &Target) -> Result<Done, Failure> {
        let (out, seconds) = self.computed::<T>(shape, target)?;
        let bytes = bytemuck::cast_slice(&out);
        let sizes = [&self.q.shape()[..3], &[shape.value_dim]].concat();
        let view = TensorView::new(self.q.dtype(), sizes.clone(), bytes)
            .and_then(|view| serialize([("o", view)], None))
            .map_err(|error| Failure::device(format!("the output could not be put into a file: {error}")))?;
        write_file(self.output, &view)?;
        Ok(Done { output: self.output.to_owned(), shape: sizes, device: target.id().to_owned(), seconds })
    }

    /// The output, and how long it took from tensors in memory.
    fn computed<T: Element>(&self, shape: Shape, target: &Target) -> Result<(Vec<T>, f64), Failure> {
        let [q, k, v] = [&self.q, &self.k, &self.v].map(|view| elements::<T>(view));
        let start = Instant::now();
        let attention = self.attention(shape)?.build(target)?;
        let out = attention.forward(&q, &k, &v)?;
        Ok((out, start.elapsed().as_secs_f64()))
    }

    fn bad(&self, what: String) -> Failure {
        input(self.path, what)
    }
}

/// The elements of a tensor; its bytes need not be aligned.
fn elements<T: Element>(view: &TensorView<'_>) -> Vec<T> {
    let mut elements = vec![T::zeroed(); view.data().len() / size_of::<T>()];
    bytemuck::cast_slice_mut::<T, u8>(&mut elements).copy_from_slice(view.data());
    elements
}

fn input(path: &Path, what: String) -> Failure {
    Failure::input(format!("{}: {what}", path.display()))
}

/// Whether the tensors of a file can be attended over, on the CPU.
#[cfg(feature = "fuzzing")]
pub(in crate::command) fn attends(bytes: &[u8]) -> bool {
    let options = RunOptions {
        input: None,
        output: None,
        demo: false,
        seed: 0,
        causal: true,
        window: None,
        scale: None,
        soft_cap: None,
        batch_invariant: false,
        rows_first: false,
    };
    let attend = || {
        let file = SafeTensors::deserialize(bytes).map_err(|error| Failure::input(error.to_string()))?;
        let paths = (Path::new("qkv.safetensors"), Path::new("o.safetensors"));
        let job = Job::new(&options, paths, &file)?;
        let (shape, target) = (job.shape()?, Target::open("cpu")?);
        let elements = match job.q.dtype() {
            Dtype::F32 => job.computed::<f32>(shape, &target)?.0.len(),
            Dtype::F16 => job.computed::<f16>(shape, &target)?.0.len(),
            Dtype::BF16 => job.computed::<bf16>(shape, &target)?.0.len(),
            other => return Err(job.bad(format!("the tensors are {other:?}"))),
        };
        assert_eq!(
            elements,
            job.q.shape().iter().product::<usize>(),
            "the output is as large as the queries"
        );
        Ok(())
    };
    attend().is_ok()
}
