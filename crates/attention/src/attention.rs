//! Attention of tensors in host memory, on the CPU or on a device: the same calls for both.

use std::sync::Arc;

use gatework_gpu::{Device, Locked, Stream, Target};

use crate::cpu::CpuAttention;
use crate::cuda::schedule::Schedule;
use crate::cuda::{DeviceAttention, Rotation, Workspace};
use crate::form::{Bits, Form, Output};
use crate::shape::{Layout, Mask};
use crate::{Element, Result, Shape};

/// An attention of one shape on one target, over tensors in host memory.
///
/// In f32 on the CPU, in FP8 on a device. Tensors that are on a device already stay there with a
/// [`DeviceAttention`].
#[derive(Debug)]
pub struct Attention {
    shape: Shape,
    runner: Runner,
}

/// The implementation behind an [`Attention`].
#[derive(Debug)]
enum Runner {
    Cpu(CpuAttention),
    Device(Box<OnDevice>),
}

/// An attention on a device, with what all its calls share.
#[derive(Debug)]
struct OnDevice {
    attention: DeviceAttention,
    stream: Stream,
    /// One call at a time: a second waits for the first.
    workspace: Locked<Workspace>,
}

/// Builds an [`Attention`]: shape, mask, scale, soft cap.
#[derive(Debug, Clone)]
pub struct Builder {
    form: Form,
    rotation: Rotation,
    bits: Bits,
    schedule: Option<Schedule>,
}

impl Builder {
    /// Which keys a row sees. Default: all.
    pub fn mask(mut self, mask: Mask) -> Self {
        self.form.mask = mask;
        self
    }

    /// The order of dimensions of all four tensors. Default: heads first.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.form.layout = layout;
        self
    }

    /// The factor of scores. Default: `1 / sqrt(dim)`.
    pub fn scale(mut self, scale: f32) -> Self {
        self.form.scale = scale;
        self
    }

    /// Scaled scores become `cap tanh(score / cap)`, as Gemma 2 has it. Default: they stay as they are.
    pub fn soft_cap(mut self, cap: f32) -> Self {
        self.form.soft_cap = Some(cap);
        self
    }

    /// Attention sinks: a logit for each query head, as gpt-oss learns them, that takes part in the softmax
    /// as a key of no value would. Minus infinity is none. Default: none.
    pub fn sinks(mut self, sinks: impl Into<Arc<[f32]>>) -> Self {
        self.form.sinks = Some(sinks.into());
        self
    }

    /// Whether a device spreads outliers before it quantises. Default: no. The CPU does not quantise, and a
    /// rotation changes no product: there it has no effect.
    pub fn rotation(self, rotation: Rotation) -> Self {
        Self { rotation, ..self }
    }

    /// What the bits of results may depend on. Default: [`Bits::Repeatable`]. On the CPU they are always
    /// [`Bits::BatchInvariant`].
    pub fn bits(self, bits: Bits) -> Self {
        Self { bits, ..self }
    }

    /// How the kernel is run, whatever the bits then depend on. Default: what suits the shape, the bits and
    /// the device. It has no effect on the CPU.
    pub fn schedule(self, schedule: Schedule) -> Self {
        Self { schedule: Some(schedule), ..self }
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.form.shape
    }

    /// The schedule that was asked for.
    pub(crate) fn scheduled(&self) -> Option<Schedule> {
        self.schedule
    }

    /// The rotation that was asked for.
    pub(crate) fn rotated(&self) -> Rotation {
        self.rotation
    }

    /// The logit of a head's sink; minus infinity where it has none.
    pub(crate) fn sink(&self, head: usize) -> f32 {
        self.form.sinks.as_ref().and_then(|sinks| sinks.get(head)).copied().unwrap_or(f32::NEG_INFINITY)
    }

    /// The same for another shape.
    pub(crate) fn reshaped(mut self, shape: Shape) -> Self {
        self.form.shape = shape;
        self
    }

    /// What it asks for, unchecked.
    pub(crate) fn into_form(self) -> Form {
        self.form
    }

    /// Checks the combination: an attention of slices in host memory.
    pub fn build(self, target: &Target) -> Result<Attention> {
        let shape = self.form.shape;
        let runner = match target {
            Target::Cpu => {
                self.form.check()?;
                Runner::Cpu(CpuAttention::new(self.form))
            }
            Target::Gpu(device) => Runner::Device(Box::new(OnDevice::new(self.build_on(device)?, device)?)),
        };
        Ok(Attention { shape, runner })
    }

    /// Checks the combination: an attention of buffers in the memory of `device`.
    pub fn build_on(self, device: &Device) -> Result<DeviceAttention> {
        self.form.check()?;
        DeviceAttention::new(device, self.form, self.rotation, self.bits, self.schedule)
    }
}

impl Attention {
    /// Starts with full attention over tensors with heads first.
    pub fn builder(shape: Shape) -> Builder {
        Builder {
            form: Form::new(shape),
            rotation: Rotation::default(),
            bits: Bits::default(),
            schedule: None,
        }
    }

    /// The shape it was built for.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// `softmax(scale q k^T + mask) v`, in the format of the inputs.
    pub fn forward<T: Element>(&self, q: &[T], k: &[T], v: &[T]) -> Result<Vec<T>> {
        Ok(self.forward_to(q, k, v)?.o)
    }

    /// The same in a format of one's own, with the log-sum-exp of every row: `forward_to::<f32, _>(&q, &k,
    /// &v)`.
    pub fn forward_to<O: Element, T: Element>(&self, q: &[T], k: &[T], v: &[T]) -> Result<Output<O>> {
        self.shape.check_lengths(q.len(), k.len(), v.len())?;
        match &self.runner {
            Runner::Cpu(attention) => attention.forward(q, k, v),
            Runner::Device(device) => device.forward(q, k, v),
        }
    }
}

impl OnDevice {
    fn new(attention: DeviceAttention, device: &Device) -> Result<Self> {
        let stream = device.stream()?;
        let workspace = Locked::new(attention.workspace(&stream)?);
        Ok(Self { attention, stream, workspace })
    }

    fn forward<O: Element, T: Element>(&self, q: &[T], k: &[T], v: &[T]) -> Result<Output<O>> {
        let stream = &self.stream;
        let mut workspace = self.workspace.lock();
        let (q, k, v) = (stream.upload(q)?, stream.upload(k)?, stream.upload(v)?);
        let mut o = stream.alloc(self.attention.shape().output_elements())?;
        self.attention.forward(stream, &mut workspace, [&q, &k, &v], &mut o)?;
        Ok(Output { o: stream.download(&o)?, lse: stream.download(workspace.lse())? })
    }
}
