#![doc = include_str!("../README.md")]

mod budget;
mod control;
mod error;
mod gates;
mod inputs;
pub mod mutation;
mod record;
mod registry;
pub mod runtime;
mod store;
mod tensor;
mod workload;

pub use budget::{Bounds, Deviation, ErrorBudget, Format, Judgement, Rounding};
pub use control::Control;
pub use error::{Error, Result};
pub use gates::{Checked, Gate, Gates, Outcome, Step, TestBed, check_case};
pub use inputs::{Inputs, poisoned};
pub use record::{
    BinaryRecord, CaseRecord, DeviceRecord, EntryRecord, GateRecord, KernelRecord, RECORD_VERSION, Record,
};
pub use registry::Registry;
pub use store::{LineProblem, Reading, Store, Unreadable, read_records};
pub use tensor::{Outputs, Tensor};
pub use workload::{Case, KernelSpec, RunError, Work, Workload};
