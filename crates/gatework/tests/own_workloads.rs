//! The command of a crate with workloads of its own: a broken one makes it fail.

use gatework::command;
use gatework::gpu::{Device, Kind};
use gatework::lab::{Case, Control, ErrorBudget, KernelSpec, Outputs, RunError, Work, Workload};

/// Copies a count to the device and back, and then adds what it was told to.
struct Count {
    error: u32,
}

impl Workload for Count {
    fn name(&self) -> &str {
        "test/count"
    }

    fn summary(&self) -> &str {
        "a count, there and back"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        Vec::new()
    }

    fn cases(&self, _: Kind) -> Vec<Case> {
        vec![Case::new("one")]
    }

    fn run(&self, device: &Device, _: &Case, seed: u64) -> Result<Outputs, RunError> {
        let stream = device.stream()?;
        let count = stream.upload(&[seed as u32 + self.error])?;
        Ok(Outputs::new().with("count", stream.download(&count)?))
    }

    fn reference(&self, _: &Case, seed: u64) -> Outputs {
        Outputs::new().with("count", vec![seed as u32])
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, _: &Case, _: u64, reference: &Outputs) -> Vec<Control> {
        vec![Control::one_off(reference, "count", 0, 1.0)]
    }

    fn work(&self, _: &Case) -> Work {
        Work { operations: 0, bytes: 4 }
    }
}

fn gate(workload: Count) -> u8 {
    let arguments = ["gatework", "lab", "gate", "--all", "--device", "emulated", "--no-record"];
    command::run(arguments.map(Into::into), vec![Box::new(workload)])
}

#[test]
fn a_right_workload_ends_with_0() {
    assert_eq!(gate(Count { error: 0 }), 0);
}

#[test]
fn a_workload_broken_on_purpose_ends_with_1() {
    assert_eq!(gate(Count { error: 1 }), 1);
}

fn tour(workload: Count) -> u8 {
    let arguments = ["gatework", "tour", "--device", "emulated"];
    command::run(arguments.map(Into::into), vec![Box::new(workload)])
}

#[test]
fn a_stop_that_fails_makes_the_tour_end_with_1() {
    assert_eq!(tour(Count { error: 0 }), 0);
    assert_eq!(tour(Count { error: 1 }), 1);
}
