#![doc = include_str!("../README.md")]

mod bench;
mod budget;
mod case;
pub mod check;
mod comparison;
mod control;
mod error;
mod evidence;
mod figures;
mod freshness;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gates;
mod inputs;
pub mod kernels;
pub mod measure;
pub mod mutation;
mod outcome;
pub mod peers;
pub mod profile;
pub mod quantity;
mod record;
mod registry;
pub mod report;
mod roofline;
pub mod runtime;
mod space;
pub mod stats;
mod store;
#[cfg(feature = "suite")]
mod suite;
mod tables;
mod tensor;
pub mod tune;
mod workload;
pub mod zoo;

pub use bench::{Bench, Cache, PeerRequest, Prepare, Queue, Rate, Side, Timing};
pub use budget::{Bounds, Deviation, ErrorBudget, Format, Judgement, Rounding};
pub use case::{Case, RunError, Work};
pub use comparison::{Basis, CaseComparison, Comparison, compare};
pub use control::Control;
pub use error::{Error, Result};
pub use evidence::{END, Evidence, ends, read_ends};
pub use figures::{DocumentProblem, check_document};
pub use freshness::{Freshness, freshness, standing};
pub use gates::{Checked, Gates, TestBed, check_case};
pub use inputs::{Inputs, poisoned, repeated};
pub use outcome::{Gate, Outcome};
pub use record::{
    BinaryRecord, CaseRecord, DeviceRecord, EntryRecord, GateRecord, KernelRecord, MeasuredRecord, Occupancy,
    RECORD_VERSION, Record, Revision,
};
pub use registry::Registry;
pub use store::{LineProblem, Reading, Store, Unreadable, read_records, write_file};
#[cfg(feature = "suite")]
pub use suite::{Excused, Suite, suite};
pub use tables::write_tables;
pub use tensor::{Outputs, Tensor};
pub use workload::{KernelSpec, Workload};
