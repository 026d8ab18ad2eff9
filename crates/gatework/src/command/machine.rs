//! What this machine has, and where an engine would run on it.

use gatework_gpu::{DeviceChoice, DeviceListing, DeviceSet, Error, Presence, list_devices, presence};
use serde::Serialize;

const TOOLS: [&str; 4] = ["cuobjdump", "nvdisasm", "ncu", "compute-sanitizer"];

/// Parts of the tool chain and devices, and the device that was asked for.
pub(crate) struct Machine {
    pub(crate) choice: DeviceChoice,
    pub(crate) devices: Vec<DeviceListing>,
    pub(crate) parts: Vec<Part>,
}

/// A part of the tool chain.
#[derive(Serialize)]
pub(crate) struct Part {
    pub(crate) name: &'static str,
    #[serde(flatten)]
    pub(crate) presence: Presence,
}

/// Something Gatework does, and where it would run, or why it would not.
#[derive(Serialize)]
pub(crate) struct Job {
    pub(crate) name: &'static str,
    #[serde(flatten)]
    pub(crate) presence: Presence,
}

fn found(what: String) -> Presence {
    Presence::Found { what }
}

/// What runs on one device refuses several, in the runtime's words.
pub(crate) fn several(set: &DeviceSet) -> Presence {
    Presence::Missing { reason: Error::SeveralDevices { given: set.to_string() }.to_string() }
}

impl Machine {
    pub(crate) fn examine(choice: DeviceChoice) -> Self {
        let named = |name, presence| Part { name, presence };
        let mut parts = vec![
            named("CUDA driver", presence::cuda_driver()),
            named("NVRTC", presence::nvrtc()),
            named("NCCL", presence::nccl()),
            named("C++ compiler", presence::cxx()),
        ];
        parts.extend(TOOLS.map(|tool| named(tool, presence::tool(tool))));
        Self { choice, devices: list_devices().unwrap_or_default(), parts }
    }

    fn part(&self, name: &str) -> Option<&Presence> {
        self.parts.iter().find(|part| part.name == name).map(|part| &part.presence)
    }

    /// `what`, if all of these parts are here; else the first that is not.
    pub(crate) fn with(&self, parts: &[&str], what: &str) -> Presence {
        let missing = parts.iter().filter_map(|name| self.part(name)).find(|part| !part.is_found());
        missing.cloned().unwrap_or_else(|| found(what.to_owned()))
    }

    /// Whether kernels run on the CUDA device of that number.
    pub(crate) fn cuda(&self, ordinal: usize) -> Presence {
        match (self.devices.get(ordinal), self.part("CUDA driver")) {
            (Some(device), _) => {
                let properties = &device.properties;
                let compiled =
                    format!("{} ({}, {})", properties.id, properties.name, properties.architecture);
                self.with(&["NVRTC"], &compiled)
            }
            (None, Some(Presence::Missing { reason })) => Presence::Missing { reason: reason.clone() },
            (None, _) if self.devices.is_empty() => {
                Presence::Missing { reason: "the driver reports no device".to_owned() }
            }
            (None, _) => Presence::Missing {
                reason: format!("the driver reports {} device(s), numbered from 0", self.devices.len()),
            },
        }
    }

    /// Where an engine with kernels and with code for the CPU would run; `kernels` and `native` say how.
    pub(crate) fn engine(&self, kernels: &str, native: &str) -> Presence {
        let on_cpu = || found(format!("on the CPU, {native}"));
        let on_device = |ordinal| match self.cuda(ordinal) {
            Presence::Found { what } => found(format!("on {what}, {kernels}")),
            missing => missing,
        };
        match self.choice {
            DeviceChoice::Cpu => on_cpu(),
            DeviceChoice::Auto if self.devices.is_empty() => on_cpu(),
            DeviceChoice::Auto => on_device(0),
            DeviceChoice::Cuda(ordinal) => on_device(ordinal),
            DeviceChoice::Emulated => {
                self.with(&["C++ compiler"], &format!("on the emulated device, {kernels}"))
            }
            DeviceChoice::Several(set) => several(&set),
        }
    }

    /// The same for an engine that takes several devices together.
    pub(crate) fn engine_over(&self, kernels: &str, native: &str) -> Presence {
        let DeviceChoice::Several(set) = self.choice else { return self.engine(kernels, native) };
        let name = set.to_string();
        let parts: &[&str] =
            if name.starts_with("emulated") { &["C++ compiler"] } else { &["CUDA driver", "NVRTC"] };
        self.with(parts, &format!("on the devices of '{name}' together, {kernels}"))
    }

    /// The same for an engine that takes the CPU unless it is told otherwise.
    pub(crate) fn engine_where_told(&self, kernels: &str, native: &str) -> Presence {
        match self.choice {
            DeviceChoice::Auto => found(format!("on the CPU, {native}")),
            _ => self.engine(kernels, native),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine without a driver, with or without a C++ compiler.
    fn machine(choice: DeviceChoice, compiler: Presence) -> Machine {
        let missing = Presence::Missing { reason: "no CUDA device".into() };
        let parts = vec![
            Part { name: "CUDA driver", presence: missing },
            Part { name: "C++ compiler", presence: compiler },
        ];
        Machine { choice, devices: Vec::new(), parts }
    }

    fn said(presence: Presence) -> String {
        match presence {
            Presence::Found { what } => what,
            Presence::Missing { reason } => format!("not: {reason}"),
        }
    }

    #[test]
    fn an_engine_runs_where_the_device_that_was_asked_for_is() {
        let gcc = || found("g++ 14".into());
        let engine = |choice, compiler| said(machine(choice, compiler).engine("in FP8", "in f32"));
        assert_eq!(engine(DeviceChoice::Auto, gcc()), "on the CPU, in f32");
        assert_eq!(engine(DeviceChoice::Cpu, gcc()), "on the CPU, in f32");
        assert_eq!(engine(DeviceChoice::Cuda(0), gcc()), "not: no CUDA device");
        assert_eq!(engine(DeviceChoice::Emulated, gcc()), "on the emulated device, in FP8");
        let none = Presence::Missing { reason: "no compiler".into() };
        assert_eq!(engine(DeviceChoice::Emulated, none), "not: no compiler");
        let four = "emulated:4".parse().unwrap();
        assert!(engine(four, gcc()).starts_with("not: 'emulated:4' names several devices"));
        let over = |choice| said(machine(choice, gcc()).engine_over("by kernels", "in f32"));
        assert_eq!(over(four), "on the devices of 'emulated:4' together, by kernels");
        assert_eq!(over("cuda:0,1".parse().unwrap()), "not: no CUDA device");
        assert_eq!(over(DeviceChoice::Emulated), "on the emulated device, by kernels");
        let told = |choice| said(machine(choice, gcc()).engine_where_told("transformers alone", "in f32"));
        assert_eq!(told(DeviceChoice::Auto), "on the CPU, in f32");
        assert_eq!(told(DeviceChoice::Emulated), "on the emulated device, transformers alone");
    }
}
