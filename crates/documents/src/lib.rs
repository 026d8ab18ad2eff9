//! No code of its own: its test runs the `gatework` command and validates what that prints and writes.
//!
//! ```sh
//! cargo build
//! cargo test --manifest-path crates/documents/Cargo.toml
//! ```
//!
//! `GATEWORK_BINARY` names another command than `target/debug/gatework`.
