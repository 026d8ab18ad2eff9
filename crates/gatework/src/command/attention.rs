//! `gatework attention run`: attention of tensors in a file.

use std::path::{Path, PathBuf};
use std::time::Instant;

use gatework_attention::{Attention, Element, Layout, Mask, Shape, cpu};
use gatework_gpu::{Device, Error};
use gatework_lab::write_file;
use half::{bf16, f16};
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use serde::Serialize;

use crate::command::cli::{AttentionCommand, AttentionRunOptions};
use crate::command::device::{DeviceChoice, open_emulated};
use crate::command::ending::{Ending, Failure};
use crate::command::interrupt::uninterrupted;
use crate::command::output::Output;
use crate::command::progress::Progress;

#[derive(Serialize)]
struct Done {
    output: PathBuf,
    shape: Vec<usize>,
    device: String,
    /// Host time of upload, attention and download.
    seconds: f64,
}

pub(crate) fn run(
    command: &AttentionCommand,
    choice: &DeviceChoice,
    output: &Output,
    progress: &Progress,
) -> Result<Ending, Failure> {
    let AttentionCommand::Run(options) = command;
    let bytes = std::fs::read(&options.input).map_err(|error| input(&options.input, &error))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|error| input(&options.input, &error))?;
    let tensors =
        ["q", "k", "v"].map(|name| file.tensor(name).map_err(|error| input(&options.input, &error)));
    let [q, k, v] = tensors;
    let job = Job { options, q: q?, k: k?, v: v? };
    let device = Where::choose(choice, progress)?;
    let done = match job.q.dtype() {
        Dtype::F32 => job.attend::<f32>(&device),
        Dtype::F16 => job.attend::<f16>(&device),
        Dtype::BF16 => job.attend::<bf16>(&device),
        other => Err(input(&options.input, &format!("'q' is {other:?}; F16, BF16 and F32 are supported"))),
    }?;
    output.show(&done, || {
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

/// Where the attention runs.
enum Where {
    Cpu,
    Device(Device),
}

impl Where {
    fn choose(choice: &DeviceChoice, progress: &Progress) -> Result<Self, Failure> {
        match choice {
            DeviceChoice::Auto => match Device::open("auto") {
                Err(error @ Error::NoCuda { .. }) => {
                    progress.say(&format!("{error}; running on the CPU"));
                    Ok(Self::Cpu)
                }
                opened => Ok(Self::Device(opened?)),
            },
            DeviceChoice::Cpu => Ok(Self::Cpu),
            DeviceChoice::Cuda(ordinal) => Ok(Self::Device(Device::open(&format!("cuda:{ordinal}"))?)),
            DeviceChoice::Emulated => Ok(Self::Device(open_emulated()?)),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Cpu => "cpu".into(),
            Self::Device(device) => device.properties().id.clone(),
        }
    }
}

struct Job<'a> {
    options: &'a AttentionRunOptions,
    q: TensorView<'a>,
    k: TensorView<'a>,
    v: TensorView<'a>,
}

impl Job<'_> {
    fn layout(&self) -> Layout {
        if self.options.rows_first { Layout::RowsFirst } else { Layout::HeadsFirst }
    }

    fn mask(&self) -> Mask {
        if self.options.causal { Mask::Causal } else { Mask::Full }
    }

    fn shape(&self) -> Result<Shape, Failure> {
        let sizes = |name: &str, view: &TensorView<'_>| -> Result<[usize; 4], Failure> {
            let found: [usize; 4] = view.shape().try_into().map_err(|_| {
                self.bad(&format!("'{name}' has {} dimensions, 4 are needed", view.shape().len()))
            })?;
            let [batch, second, third, dim] = found;
            Ok(match self.layout() {
                Layout::HeadsFirst => [batch, second, third, dim],
                Layout::RowsFirst => [batch, third, second, dim],
            })
        };
        let ([batch, heads, rows, dim], k, v) =
            (sizes("q", &self.q)?, sizes("k", &self.k)?, sizes("v", &self.v)?);
        if k != v || k[0] != batch || k[3] != dim {
            let (q, k, v) = (self.q.shape(), self.k.shape(), self.v.shape());
            return Err(
                self.bad(&format!("the shapes {q:?}, {k:?} and {v:?} of q, k and v do not belong together"))
            );
        }
        if self.k.dtype() != self.q.dtype() || self.v.dtype() != self.q.dtype() {
            return Err(self.bad("q, k and v have different number formats"));
        }
        Ok(Shape { batch, heads, key_heads: k[1], rows, keys: k[2], dim })
    }

    fn attend<T: Element>(&self, device: &Where) -> Result<Done, Failure> {
        let shape = self.shape()?;
        let inputs = [&self.q, &self.k, &self.v].map(|view| elements::<T>(view));
        let [q, k, v] = [&inputs[0][..], &inputs[1][..], &inputs[2][..]];
        let start = Instant::now();
        let out: Vec<T> = match device {
            Where::Cpu => {
                let scale = 1.0 / (shape.dim as f32).sqrt();
                cpu::attention(&shape, self.mask(), self.layout(), scale, [q, k, v]).map_err(failure)?
            }
            Where::Device(device) => {
                on_device(device, shape, self.mask(), self.layout(), [q, k, v]).map_err(failure)?
            }
        };
        let seconds = start.elapsed().as_secs_f64();
        let bytes = bytemuck::cast_slice(&out);
        let view = TensorView::new(self.q.dtype(), self.q.shape().to_vec(), bytes)
            .and_then(|view| serialize([("o", view)], None))
            .map_err(|error| Failure::Device(format!("the output could not be put into a file: {error}")))?;
        let path = &self.options.output;
        uninterrupted(|| write_file(path, &view))?;
        Ok(Done { output: path.clone(), shape: self.q.shape().to_vec(), device: device.name(), seconds })
    }

    fn bad(&self, what: &str) -> Failure {
        input(&self.options.input, &what)
    }
}

fn on_device<T: Element>(
    device: &Device,
    shape: Shape,
    mask: Mask,
    layout: Layout,
    [q, k, v]: [&[T]; 3],
) -> gatework_attention::Result<Vec<T>> {
    let stream = device.stream()?;
    let attention = Attention::builder(shape).mask(mask).layout(layout).build(device)?;
    let mut workspace = attention.workspace(&stream)?;
    let (q, k, v) = (stream.upload(q)?, stream.upload(k)?, stream.upload(v)?);
    let mut o = stream.alloc(shape.query_elements())?;
    attention.forward(&stream, &mut workspace, [&q, &k, &v], &mut o)?;
    Ok(stream.download(&o)?)
}

/// The elements of a tensor; its bytes need not be aligned.
fn elements<T: Element>(view: &TensorView<'_>) -> Vec<T> {
    let mut elements = vec![T::zeroed(); view.data().len() / size_of::<T>()];
    bytemuck::cast_slice_mut::<T, u8>(&mut elements).copy_from_slice(view.data());
    elements
}

fn input(path: &Path, what: &dyn std::fmt::Display) -> Failure {
    Failure::Input(format!("{}: {what}", path.display()))
}

fn failure(error: gatework_attention::Error) -> Failure {
    match error {
        gatework_attention::Error::Gpu(error) => error.into(),
        other => Failure::Input(other.to_string()),
    }
}
