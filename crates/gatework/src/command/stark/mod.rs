//! `gatework stark`.

mod bench;
#[cfg(feature = "fuzzing")]
mod fuzzing;
mod memory;
mod place;
mod prove;
mod quiet;
mod statement;
mod stop;
mod throughput;
mod verify;

#[cfg(feature = "fuzzing")]
pub(super) use fuzzing::{holds, sample_proofs};

use clap::Parser;
use gatework_gpu::Target;
use gatework_lab::Workload;
use gatework_stark::workloads;

use crate::command::ending::{Ending, Failure};
use crate::command::machine::{Job, Machine};
use crate::command::noun::{Noun, Stop};
use crate::command::shell::{DeviceUse, Shell};

/// Prove: Circle STARKs with stwo's protocol, on a GPU or on the CPU
#[derive(Debug, Parser)]
#[command(name = "stark")]
pub(crate) enum Stark {
    /// Prove a statement and write the proof to a file
    #[command(after_help = prove::EXAMPLES)]
    Prove(prove::ProveOptions),
    /// Verify a proof with stwo's own verifier
    #[command(
        after_help = "Examples:\n  gatework stark verify proof.json\n\nThe exit code is 1 if the proof does not hold."
    )]
    Verify(verify::VerifyOptions),
    /// Time proofs on a device beside stwo's SimdBackend, and compare them byte for byte
    #[command(after_help = bench::EXAMPLES)]
    Bench(bench::BenchOptions),
}

impl Noun for Stark {
    const AREA: &'static str = "stark";
    const PURPOSE: &'static str =
        "prove that a computation was done right, on a GPU, to anyone who runs stwo's verifier";
    const FIRST_COMMAND: &'static str = "gatework stark prove";

    fn workloads() -> Vec<Box<dyn Workload>> {
        workloads::workloads()
    }

    fn device_use(&self) -> DeviceUse {
        match self {
            Self::Prove(_) | Self::Bench(_) => DeviceUse::RunsThere,
            Self::Verify(_) => DeviceUse::None,
        }
    }

    fn run(self, shell: &Shell) -> Result<Ending, Failure> {
        match self {
            Self::Prove(options) => prove::run(&options, shell),
            Self::Verify(options) => verify::run(&options, shell),
            Self::Bench(options) => bench::run(&options, shell),
        }
    }

    fn jobs(machine: &Machine) -> Vec<Job> {
        vec![Job { name: "stark", presence: machine.engine_over("by kernels", "by stwo's SimdBackend") }]
    }

    fn stops(target: &Target) -> Vec<Stop<'_>> {
        vec![Stop::new("stark", stop::SUMMARY, || stop::visit(target))]
    }
}

#[cfg(test)]
mod tests {
    use crate::command::ending::Failure;

    /// A trace that does not satisfy its constraints is no fault of the device.
    #[test]
    fn only_faults_of_the_device_end_as_such() {
        assert_eq!(Failure::from(gatework_stark::Error::ConstraintsNotSatisfied).code(), 2);
        let device = "emulated".to_owned();
        let too_large =
            gatework_stark::Error::TooLarge { device, needed: 2, free: 1, limit: 1, way_out: "wait" };
        assert_eq!(Failure::from(too_large).code(), 2);
        let out_of_memory = gatework_gpu::Error::OutOfMemory { asked: 2, held: 0, free: 1, limit: 1 };
        assert_eq!(Failure::from(gatework_stark::Error::from(out_of_memory)).code(), 3);
    }
}
