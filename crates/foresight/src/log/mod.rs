//! What a run writes down: JSON lines, CSV, and event files of TensorBoard.

mod files;
mod tensorboard;

pub use files::{Logs, Offsets, Row};
pub use tensorboard::{crc32c, scalar_event, version_event};
