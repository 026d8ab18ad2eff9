//! What every command is given, and what `--device` means to it.

use std::path::Path;

use gatework_gpu::{Device, DeviceChoice, Error, Target};
use gatework_lab::measure::RecordedTimes;
use gatework_lab::{Reading, Registry, TestBed, read_records};

use crate::command::ending::Failure;
use crate::command::output::Output;
use crate::command::progress::Progress;

/// The workloads that are known, where to run, where results go, and who is told meanwhile.
pub(crate) struct Shell {
    pub(crate) registry: Registry,
    pub(crate) device: Request,
    pub(crate) output: Output,
    pub(crate) progress: Progress,
}

/// A device as the user asked for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) choice: DeviceChoice,
    pub(crate) origin: Origin,
}

/// Where a device was named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// On the command line: it is meant for this command.
    Flag,
    /// In the environment, for all commands, or nowhere.
    Environment,
}

/// What a command does with the device that it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceUse {
    /// It runs there.
    RunsThere,
    /// It computes, and can only do so on the CPU.
    CpuOnly,
    /// It runs kernels, and can only do so on the emulated device.
    EmulatedOnly,
    /// It computes nothing that has a place: it reads, prints or checks.
    None,
}

impl Request {
    /// Refuses a device that a command would otherwise ignore.
    pub(crate) fn check(&self, command: &str, device_use: DeviceUse) -> Result<(), Failure> {
        if matches!(self.choice, DeviceChoice::Auto | DeviceChoice::Cpu) {
            return Ok(());
        }
        let named = match self.origin {
            Origin::Flag => "--device",
            Origin::Environment => "the environment variable GATEWORK_DEVICE",
        };
        match (device_use, self.origin) {
            (DeviceUse::EmulatedOnly, _) if self.choice == DeviceChoice::Emulated => Ok(()),
            (DeviceUse::EmulatedOnly, Origin::Flag) => Err(Failure::input(format!(
                "'gatework {command}' runs on the emulated device only: leave out --device {}",
                self.choice
            ))),
            (DeviceUse::CpuOnly, _) => Err(Failure::input(format!(
                "'gatework {command}' runs on the CPU only, and {named} asks for {}: use cpu or auto",
                self.choice
            ))),
            (DeviceUse::None, Origin::Flag) => Err(Failure::input(format!(
                "'gatework {command}' uses no device: leave out --device {}",
                self.choice
            ))),
            (DeviceUse::RunsThere, _) | (DeviceUse::None | DeviceUse::EmulatedOnly, Origin::Environment) => {
                Ok(())
            }
        }
    }
}

impl Shell {
    /// Where an engine runs. `auto` without a card is the CPU, and a line that says so.
    pub(crate) fn target(&self) -> Result<Target, Failure> {
        Ok(Target::of(self.device.choice, &|line| self.progress.say(line))?)
    }

    /// The test bed for gates. Kernels have no form that runs on the CPU, so that `auto` without CUDA is an
    /// error.
    pub(crate) fn test_bed(&self) -> Result<TestBed, Failure> {
        match self.device.choice {
            DeviceChoice::Cpu => Ok(TestBed::CompilersOnly {
                why: "kernels do not run on the CPU; use --device emulated or cuda".to_owned(),
            }),
            choice => match Device::open(&choice.to_string()) {
                Err(error @ Error::NoCuda { .. }) if choice == DeviceChoice::Auto => Err(Failure::device(
                    format!("{error}; to check kernels without one, use --device emulated"),
                )),
                opened => Ok(opened?.into()),
            },
        }
    }

    /// The times that are recorded already, which some promises are made against; none if there is no folder
    /// yet.
    pub(crate) fn recorded_times(&self, folder: &Path) -> Result<RecordedTimes, Failure> {
        if !folder.exists() {
            return Ok(RecordedTimes::default());
        }
        Ok(RecordedTimes::of(&self.records(folder)?.records))
    }

    /// The records of a folder or a file, with a warning for each line that is none.
    pub(crate) fn records(&self, path: &Path) -> Result<Reading, Failure> {
        let reading = read_records(path).map_err(|error| {
            Failure::input(format!("{error}; 'gatework lab gate' and 'gatework lab bench' write records"))
        })?;
        self.warn_of(&reading.problems);
        Ok(reading)
    }

    /// Says what could not be read of a file of records.
    pub(crate) fn warn_of(&self, problems: &[gatework_lab::LineProblem]) {
        for problem in problems {
            self.progress.say(&format!("warning: {problem}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_would_be_ignored_is_refused() {
        let check = |choice, origin, device_use| {
            Request { choice, origin }
                .check("private deal", device_use)
                .map_err(|failure| failure.to_string())
        };
        for choice in [DeviceChoice::Auto, DeviceChoice::Cpu] {
            for device_use in
                [DeviceUse::RunsThere, DeviceUse::CpuOnly, DeviceUse::EmulatedOnly, DeviceUse::None]
            {
                assert_eq!(check(choice, Origin::Flag, device_use), Ok(()));
            }
        }
        for choice in [DeviceChoice::Cuda(1), DeviceChoice::Emulated] {
            assert_eq!(check(choice, Origin::Flag, DeviceUse::RunsThere), Ok(()));
            assert_eq!(check(choice, Origin::Environment, DeviceUse::None), Ok(()));
            let refused = check(choice, Origin::Environment, DeviceUse::CpuOnly).unwrap_err();
            let said =
                format!("the CPU only, and the environment variable GATEWORK_DEVICE asks for {choice}");
            assert!(refused.contains(&said), "{refused}");
            let refused = check(choice, Origin::Flag, DeviceUse::None).unwrap_err();
            assert_eq!(
                refused,
                format!("'gatework private deal' uses no device: leave out --device {choice}")
            );
            assert_eq!(check(choice, Origin::Environment, DeviceUse::EmulatedOnly), Ok(()));
        }
        assert_eq!(check(DeviceChoice::Emulated, Origin::Flag, DeviceUse::EmulatedOnly), Ok(()));
        let refused = check(DeviceChoice::Cuda(0), Origin::Flag, DeviceUse::EmulatedOnly).unwrap_err();
        assert!(refused.contains("runs on the emulated device only: leave out --device cuda"), "{refused}");
    }
}
