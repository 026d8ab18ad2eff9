//! Plain CUDA C++ on the emulated device: a stranger's file is rewritten line by line onto the portable
//! header, launched as a plan says, and what the emulated device finds is told with the file's own lines.

mod files;
mod host;
mod includes;
mod launches;
mod lines;
mod macros;
mod plan;
mod ptx;
mod refusal;
mod rewrite;
mod run;
mod structs;
mod templates;
mod variables;

pub use includes::known_includes;
pub use plan::{Fill, Plan, PlannedArgument};
pub use ptx::KNOWN as KNOWN_PTX;
pub use refusal::Refusal;
pub use rewrite::{KernelText, Rewritten, rewrite};
pub use run::{CheckError, Finding, Report, Sizes, check, check_file};
