//! Gate a kernel of your own: what a crate outside Gatework does, with the public API alone.
//!
//! A workload says what its kernel computes: its cases, a plain reference, how far from it the result may be,
//! and results that must be refused, so that a check that accepts everything is found out. The lab does the
//! rest, as it does for every kernel of Gatework.
//!
//! ```sh
//! cargo run -p gatework-lab --example 02_gate_a_kernel
//! ```

use std::error::Error;

use gatework_gpu::{Device, Grid, Kind, Source, args};
use gatework_lab::{
    Case, Control, ErrorBudget, Gates, Inputs, KernelSpec, Outputs, Registry, RunError, Work, Workload,
    poisoned,
};

const THREADS: u32 = 128;

/// `out[i] <- x[n - 1 - i]`.
struct Reverse;

fn source() -> Source {
    Source::new(
        "reverse",
        r#"
        #include "gw/gw.cuh"
        // out[i] <- x[n - 1 - i]. One thread an element.
        GW_KERNEL(reverse)(const u32* x, u32* out, u32 n) {
            const u32 i = gw::global_thread();
            if (i < n) out[i] = x[n - 1 - i];
        }
        "#,
    )
}

fn input(case: &Case, seed: u64) -> Vec<u32> {
    Inputs::new(seed).words(case.dimension("n"))
}

impl Workload for Reverse {
    fn name(&self) -> &str {
        "example/reverse"
    }

    fn summary(&self) -> &str {
        "a vector back to front"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        vec![KernelSpec::new(source()).max_registers(32).threads(THREADS)]
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let sizes: &[usize] = match kind {
            Kind::Emulated => &[2, 129, 1000],
            Kind::Cuda => &[2, 129, 1000, 1 << 20],
        };
        sizes.iter().map(|&n| Case::new(format!("n{n}")).with("n", n)).collect()
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let input = input(case, seed);
        let stream = device.stream()?;
        let reverse = device.kernel(&source())?;
        let x = stream.upload(&input)?;
        let mut out = poisoned::<u32>(&stream, input.len())?;
        let grid = Grid::covering(input.len(), THREADS);
        reverse.launch(&stream, &grid, &args![&x, &mut out, input.len() as u32])?;
        Ok(Outputs::new().with("out", stream.download(&out)?))
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        Outputs::new().with("out", input(case, seed).into_iter().rev().collect::<Vec<u32>>())
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        vec![
            Control::zeros(reference),
            Control::unwritten_tail(reference, 1),
            Control::new("not reversed", Outputs::new().with("out", input(case, seed))),
        ]
    }

    fn work(&self, case: &Case) -> Work {
        Work { operations: 0, bytes: 2 * 4 * case.dimension("n") as u64 }
    }
}

/// Whether every workload of the registry passed.
fn gate_all() -> Result<bool, Box<dyn Error>> {
    let mut registry = Registry::new();
    registry.add(Box::new(Reverse))?;
    // On the emulated device nothing is timed; there the gates are those of correctness, and of the compiler
    // where NVRTC is.
    let gates = Gates::new(Device::open("emulated")?);
    let mut all_passed = true;
    for workload in registry.iter() {
        let record = gates.gate(workload, &());
        println!("{}: {}", record.workload, record.verdict);
        for gate in &record.gates {
            println!("  {} ({}): {}", gate.gate, gate.target, gate.outcome);
        }
        all_passed &= record.verdict.is_passed();
    }
    Ok(all_passed)
}

fn main() -> Result<(), Box<dyn Error>> {
    assert!(gate_all()?, "the kernel did not pass");
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_shows_what_it_says() {
        assert!(super::gate_all().unwrap());
    }
}
