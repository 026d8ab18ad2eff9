//! Attention on a device: the quantiser, the kernel, and the memory between them.

mod attention;
mod combine;
mod quantise;
pub mod schedule;
mod workspace;

use gatework_gpu::{Buffer, Device, Stream};

pub use self::attention::attention_source;
pub use self::combine::combine_source;
#[cfg(feature = "lab")]
pub(crate) use self::quantise::score_limit;
pub use self::quantise::{Granularity, Quantised, arrange_source, quantise_source};
pub use self::workspace::Workspace;
use crate::attention::Place;
use crate::shape::{Layout, Mask, Shape};
use crate::{Element, Error, Result};
use schedule::Schedule;

/// Query rows of a tile.
const QUERY_TILE: usize = 64;
/// Keys of a tile.
pub(crate) const KEY_TILE: usize = 128;
/// Most tiles of values with one scale, which the tensor cores also add up before f32 does.
const LARGEST_GROUP: usize = 4;

/// Tiles of values with one scale: fewer where keys are few, so that the quantiser reads them only once.
pub(crate) fn value_group(keys: usize) -> usize {
    if keys <= LARGEST_GROUP * KEY_TILE { 1 } else { LARGEST_GROUP }
}

/// An attention of one shape over buffers on one device.
#[derive(Debug, Clone)]
pub struct Attention {
    device: Device,
    shape: Shape,
    mask: Mask,
    layout: Layout,
    scale: f32,
    rotation: Rotation,
    schedule: Schedule,
}

/// Whether queries and keys are rotated before they are quantised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rotation {
    /// As they are.
    #[default]
    None,
    /// By a Hadamard matrix, which spreads outliers over the row and leaves products as they are.
    Hadamard,
}

/// What an [`Attention`] is made from.
#[derive(Debug, Clone)]
pub struct Builder {
    pub(crate) shape: Shape,
    pub(crate) mask: Mask,
    pub(crate) layout: Layout,
    scale: Option<f32>,
    rotation: Rotation,
    schedule: Option<Schedule>,
}

impl Builder {
    /// Which keys a row sees. Default: all.
    pub fn mask(self, mask: Mask) -> Self {
        Self { mask, ..self }
    }

    /// The order of dimensions of all four tensors. Default: heads first.
    pub fn layout(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }

    /// What scores are multiplied with. Default: `1 / sqrt(dim)`.
    pub fn scale(self, scale: f32) -> Self {
        Self { scale: Some(scale), ..self }
    }

    /// Whether to spread outliers. Default: no.
    pub fn rotation(self, rotation: Rotation) -> Self {
        Self { rotation, ..self }
    }

    /// How the kernel is run. Default: what suits the shape and the device.
    pub fn schedule(self, schedule: Schedule) -> Self {
        Self { schedule: Some(schedule), ..self }
    }

    /// Checks the combination. A [`Target`](gatework_gpu::Target) gives an [`Attention`](crate::Attention) of slices in
    /// host memory, a [`Device`] one of buffers in its own.
    pub fn build<P: Place>(self, place: &P) -> Result<P::Attention> {
        place.build(self)
    }

    /// The scale, once the combination is checked.
    pub(crate) fn checked_scale(&self) -> Result<f32> {
        self.shape.check()?;
        let scale = self.scale.unwrap_or_else(|| 1.0 / (self.shape.dim as f32).sqrt());
        if !(scale > 0.0 && scale.is_finite()) {
            return Err(Error::Unsupported {
                what: format!("scale {scale}; it must be positive and finite"),
            });
        }
        Ok(scale)
    }

    pub(crate) fn build_on(self, device: &Device) -> Result<Attention> {
        let scale = self.checked_scale()?;
        let schedule = self.schedule.unwrap_or_else(|| Schedule::suited(&self.shape, device.properties()));
        schedule.check(&self.shape, device.properties())?;
        Ok(Attention {
            device: device.clone(),
            shape: self.shape,
            mask: self.mask,
            layout: self.layout,
            scale,
            rotation: self.rotation,
            schedule,
        })
    }
}

impl Attention {
    /// Starts with full attention over tensors with heads first.
    pub fn builder(shape: Shape) -> Builder {
        Builder {
            shape,
            mask: Mask::default(),
            layout: Layout::default(),
            scale: None,
            rotation: Rotation::default(),
            schedule: None,
        }
    }

    /// The shape it was built for.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// How the kernel is run.
    pub fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// Memory for one attention at a time. Allocate it once and use it for every call.
    pub fn workspace(&self, stream: &Stream) -> Result<Workspace> {
        Workspace::new(self, stream)
    }

    /// `o <- softmax(scale q k^T + mask) v`: quantises and attends, on `stream`, without waiting for it.
    pub fn forward<T: Element, O: Element>(
        &self,
        stream: &Stream,
        workspace: &mut Workspace,
        [q, k, v]: [&Buffer<T>; 3],
        o: &mut Buffer<O>,
    ) -> Result<()> {
        self.quantise(stream, workspace, [q, k, v])?;
        self.attend(stream, workspace, o)
    }

    /// The same from inputs that are e4m3 already.
    pub fn forward_quantised<O: Element>(
        &self,
        stream: &Stream,
        workspace: &mut Workspace,
        inputs: [Quantised<'_>; 3],
        o: &mut Buffer<O>,
    ) -> Result<()> {
        self.arrange(stream, workspace, inputs)?;
        self.attend(stream, workspace, o)
    }

    /// Tiles of queries of a head: as many as its blocks have consumers.
    fn query_tiles(&self) -> usize {
        self.shape.rows.div_ceil(self.schedule.block_rows()) * self.schedule.consumers as usize
    }

    fn key_tiles(&self) -> usize {
        self.shape.keys.div_ceil(KEY_TILE)
    }
}

fn require_length(tensor: &'static str, found: usize, needed: usize) -> Result<()> {
    if found == needed { Ok(()) } else { Err(Error::Length { tensor, found, needed }) }
}
