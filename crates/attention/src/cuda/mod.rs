//! Attention on a device: the quantiser, the kernel, and the memory between them.

mod append;
mod attend;
mod cached;
mod combine;
mod packed;
mod quantise;
pub mod schedule;
mod workspace;

use std::sync::Arc;

use gatework_gpu::{Buffer, Device, Stream};

pub(crate) use self::append::DevicePages;
#[cfg(feature = "lab")]
pub(crate) use self::append::append_module;
#[cfg(feature = "lab")]
pub(crate) use self::attend::attention_module;
#[cfg(feature = "lab")]
pub(crate) use self::cached::cached_module;
pub(crate) use self::cached::{Plan, Size, StepMemory, Tiling};
#[cfg(feature = "lab")]
pub(crate) use self::combine::combine_module;
#[cfg(feature = "lab")]
pub(crate) use self::packed::packed_modules;
pub use self::packed::{DevicePackedAttention, PackedWorkspace};
#[cfg(feature = "lab")]
pub(crate) use self::quantise::quantise_module;
pub use self::quantise::{Granularity, Quantised, score_limit};
pub use self::workspace::Workspace;
use crate::dimensions::HeadDimension;
use crate::form::{Bits, Form};
use crate::shape::Shape;
use crate::{Element, Error, Result, shared};
use schedule::Schedule;

/// Query rows of a tile.
const QUERY_TILE: usize = shared::QUERY_TILE as usize;
/// Keys of a tile.
pub(crate) const KEY_TILE: usize = shared::KEY_TILE as usize;
/// Most tiles of values with one scale, which the tensor cores also add up before f32 does.
const LARGEST_GROUP: usize = 4;

/// Tiles of values with one scale: fewer where keys are few, so that the quantiser reads them only once.
pub fn value_group(keys: usize) -> usize {
    if keys <= LARGEST_GROUP * KEY_TILE { 1 } else { LARGEST_GROUP }
}

/// An attention of one shape over buffers on one device. Made by
/// [`Builder::build_on`](crate::Builder::build_on).
#[derive(Debug, Clone)]
pub struct DeviceAttention {
    device: Device,
    /// What its rows are padded to.
    known: &'static HeadDimension,
    form: Form,
    rotation: Rotation,
    schedule: Schedule,
    /// What its workspaces, and those of its copies, are known by.
    identity: Arc<()>,
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

impl DeviceAttention {
    /// Without a schedule, with the one that suits the shape and the device.
    pub(crate) fn new(
        device: &Device,
        form: Form,
        rotation: Rotation,
        bits: Bits,
        schedule: Option<Schedule>,
    ) -> Result<Self> {
        let known = HeadDimension::of(form.shape.dim, form.shape.value_dim)?;
        let (least, most) = known.consumers(form.soft_cap.is_some()).into_inner();
        let schedule = match schedule {
            Some(Schedule { consumers, .. }) if !(least..=most).contains(&consumers) => {
                let dim = form.shape.dim;
                let allowed = format!("there may be {least} to {most}");
                return Err(Error::Unsupported {
                    what: match form.soft_cap {
                        Some(_) => {
                            format!(
                                "{consumers} consumers at head dimension {dim} with a soft cap; {allowed}"
                            )
                        }
                        None => format!("{consumers} consumers at head dimension {dim}; {allowed}"),
                    },
                });
            }
            Some(schedule) => schedule,
            None => {
                let suited = Schedule::suited(&form.shape, form.mask, bits, device.properties())?;
                Schedule { consumers: suited.consumers.clamp(least, most), ..suited }
            }
        };
        schedule.check(&form.shape, form.mask, device.properties())?;
        let (device, identity) = (device.clone(), Arc::new(()));
        Ok(Self { device, known, form, rotation, schedule, identity })
    }

    /// The shape it was built for.
    pub fn shape(&self) -> &Shape {
        &self.form.shape
    }

    /// How the kernel is run.
    pub fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// Memory for one attention at a time. Allocate it once and use it for every call of this attention: that
    /// of another is refused.
    pub fn workspace(&self, stream: &Stream) -> Result<Workspace> {
        Workspace::new(self, stream)
    }

    /// Memory of another shape would be overrun.
    fn require_own(&self, workspace: &Workspace) -> Result<()> {
        if Arc::ptr_eq(&workspace.owner, &self.identity) {
            return Ok(());
        }
        Err(Error::Unsupported { what: "a workspace of another attention; make it with this one".into() })
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
        self.form.shape.rows.div_ceil(self.schedule.block_rows()) * self.schedule.consumers as usize
    }

    fn key_tiles(&self) -> usize {
        self.form.shape.keys.div_ceil(KEY_TILE)
    }
}

fn require_length(tensor: &'static str, found: usize, needed: usize) -> Result<()> {
    if found == needed { Ok(()) } else { Err(Error::Length { tensor, found, needed }) }
}
