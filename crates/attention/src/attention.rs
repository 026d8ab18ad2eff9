//! Attention of tensors in host memory, on the CPU or on a device: the same calls for both.

use std::sync::{Mutex, PoisonError};

use gatework_gpu::{Device, Stream, Target};

use crate::cuda::{self, Builder, Workspace};
use crate::{Element, Result, Shape, cpu};

/// An attention of one shape on one target, over tensors in host memory.
///
/// In f32 on the CPU, in FP8 on a device. Tensors that are on a device already stay there with [`cuda::Attention`].
#[derive(Debug)]
pub struct Attention {
    shape: Shape,
    engine: Engine,
}

/// What attends.
#[derive(Debug)]
enum Engine {
    Cpu(cpu::Attention),
    Device(Box<OnDevice>),
}

/// An attention on a device, with what all its calls share.
#[derive(Debug)]
struct OnDevice {
    attention: cuda::Attention,
    stream: Stream,
    /// One call at a time: a second waits for the first.
    workspace: Mutex<Workspace>,
}

/// What an attention gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Output<O> {
    /// The output, in the order of the queries.
    pub o: Vec<O>,
    /// Log-sum-exp of every query row, `[batch, heads, rows]`, natural logarithm; minus infinity for a row that sees no
    /// key.
    pub lse: Vec<f32>,
}

/// Where [`Builder::build`] can build an attention, and what it then is.
pub trait Place {
    /// The attention of this place.
    type Attention;

    /// Builds it.
    fn build(&self, builder: Builder) -> Result<Self::Attention>;
}

impl Place for Target {
    type Attention = Attention;

    fn build(&self, builder: Builder) -> Result<Attention> {
        let shape = builder.shape;
        let engine = match self {
            Self::Cpu => Engine::Cpu(cpu::Attention::new(builder)?),
            Self::Gpu(device) => Engine::Device(Box::new(OnDevice::new(builder, device)?)),
        };
        Ok(Attention { shape, engine })
    }
}

impl Place for Device {
    type Attention = cuda::Attention;

    fn build(&self, builder: Builder) -> Result<cuda::Attention> {
        builder.build_on(self)
    }
}

impl Attention {
    /// Starts with full attention over tensors with heads first.
    pub fn builder(shape: Shape) -> Builder {
        cuda::Attention::builder(shape)
    }

    /// The shape it was built for.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// `softmax(scale q k^T + mask) v`, in the format of the inputs.
    pub fn forward<T: Element>(&self, q: &[T], k: &[T], v: &[T]) -> Result<Vec<T>> {
        Ok(self.forward_to(q, k, v)?.o)
    }

    /// The same in a format of one's own, with the log-sum-exp of every row: `forward_to::<f32, _>(&q, &k, &v)`.
    pub fn forward_to<O: Element, T: Element>(&self, q: &[T], k: &[T], v: &[T]) -> Result<Output<O>> {
        self.shape.check_lengths(q.len(), k.len(), v.len())?;
        match &self.engine {
            Engine::Cpu(attention) => attention.forward(q, k, v),
            Engine::Device(device) => device.forward(q, k, v),
        }
    }
}

impl OnDevice {
    fn new(builder: Builder, device: &Device) -> Result<Self> {
        let attention = builder.build_on(device)?;
        let stream = device.stream()?;
        let workspace = Mutex::new(attention.workspace(&stream)?);
        Ok(Self { attention, stream, workspace })
    }

    fn forward<O: Element, T: Element>(&self, q: &[T], k: &[T], v: &[T]) -> Result<Output<O>> {
        let stream = &self.stream;
        let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let (q, k, v) = (stream.upload(q)?, stream.upload(k)?, stream.upload(v)?);
        let mut o = stream.alloc(self.attention.shape().query_elements())?;
        self.attention.forward(stream, &mut workspace, [&q, &k, &v], &mut o)?;
        Ok(Output { o: stream.download(&o)?, lse: stream.download(workspace.lse())? })
    }
}
