//! Where a proof is made: on a target, or on several devices together.

use std::sync::Arc;

use gatework_gpu::{Device, DeviceChoice, Observer, Target};
use gatework_stark::{Plan, Prover};

use crate::command::device_memory::MemoryOptions;
use crate::command::ending::Failure;
use crate::command::shell::Shell;

pub(super) enum Place {
    One(Target),
    /// Those of a name as `emulated:4`.
    Several(String, Vec<Device>),
}

impl Place {
    /// Opens what `--device` names, each device with no more memory than was said.
    pub(super) fn open(shell: &Shell, memory: MemoryOptions) -> Result<Self, Failure> {
        let DeviceChoice::Several(set) = shell.device.choice else {
            return Ok(Self::One(memory.limited(shell.target()?)?));
        };
        let name = set.to_string();
        let devices = Device::open_all(&name)?;
        devices.iter().for_each(|device| memory.limit(device));
        Ok(Self::Several(name, devices))
    }

    /// What was named.
    pub(super) fn id(&self) -> &str {
        match self {
            Self::One(target) => target.id(),
            Self::Several(name, _) => name,
        }
    }

    /// The devices, of which there are none on the CPU.
    pub(super) fn devices(&self) -> &[Device] {
        match self {
            Self::One(target) => target.device().map_or(&[], std::slice::from_ref),
            Self::Several(_, devices) => devices,
        }
    }

    /// The most of this machine's memory that a proof here holds at once.
    pub(super) fn host_bytes(&self, plan: &Plan) -> u64 {
        match self {
            Self::One(target) => plan.host_bytes(target),
            Self::Several(_, devices) => {
                let shares = plan.shares(devices.len());
                let others = shares.other * (devices.len() as u64).saturating_sub(1);
                let emulated = devices.iter().all(Device::is_emulated);
                plan.column_bytes() + if emulated { shares.first + others } else { 0 }
            }
        }
    }

    /// A prover here.
    pub(super) fn prover(&self, observer: Arc<dyn Observer>) -> Result<Prover, Failure> {
        let builder = Prover::builder().observer(observer);
        Ok(match self {
            Self::One(target) => builder.build(target)?,
            Self::Several(_, devices) => builder.build_over(devices)?,
        })
    }
}
