//! What is proved: a run of a Cairo program.

use std::path::Path;

use cairo_vm::cairo_run::{CairoRunConfig, cairo_run};
use cairo_vm::hint_processor::builtin_hint_processor::builtin_hint_processor_definition::BuiltinHintProcessor;
use cairo_vm::types::layout_name::LayoutName;
use stwo_cairo_adapter::adapter::adapt;
use stwo_cairo_adapter::{ProverInput, PublicSegmentContext};

use crate::error::caught;
use crate::{Error, Result};

/// A `ProverInput` of the adapter, as JSON.
pub fn from_json(path: &Path) -> Result<ProverInput> {
    let file = std::fs::File::open(path).map_err(|reason| Error::File { path: path.into(), reason })?;
    serde_json::from_reader(std::io::BufReader::new(file)).map_err(|reason| Error::Format {
        path: path.into(),
        what: "prover input of stwo-cairo's adapter",
        reason: reason.to_string(),
    })
}

/// Runs a compiled Cairo 0 program from its `main`, with every builtin that stwo proves.
pub fn from_program(path: &Path) -> Result<ProverInput> {
    let program = std::fs::read(path).map_err(|reason| Error::File { path: path.into(), reason })?;
    let config = CairoRunConfig {
        entrypoint: "main",
        trace_enabled: true,
        relocate_trace: false,
        layout: LayoutName::all_cairo_stwo,
        proof_mode: true,
        fill_holes: true,
        disable_trace_padding: true,
        ..CairoRunConfig::default()
    };
    let mut hints = BuiltinHintProcessor::new_empty();
    let runner = cairo_run(&program, &config, &mut hints).map_err(|reason| Error::Run(reason.to_string()))?;
    let adapted = caught(|| adapt(&runner)).map_err(Error::Run)?;
    let mut input = adapted.map_err(|reason| Error::Run(reason.to_string()))?;
    // The adapter takes every program for a bootloader, whose `main` has all builtins.
    input.public_segment_context = PublicSegmentContext::new(runner.get_program_builtins());
    // They come from a hash map: without an order every run of a program would be proved with other bytes.
    input.public_memory_addresses.sort_unstable();
    Ok(input)
}

/// Steps that the program took.
pub fn steps(input: &ProverInput) -> usize {
    input.state_transitions.casm_states_by_opcode.counts().iter().map(|(_, count)| count).sum()
}
