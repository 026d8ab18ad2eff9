//! In which order streams touch memory: what a use must wait for, and how little that costs when it waits for
//! nothing.
//!
//! Every block of memory has a [`Tracking`]: the stream that wrote it last, and those that have read it
//! since. A use on another stream runs after those it conflicts with, reads after the write, writes after
//! everything. The order that a program makes itself, by events or by waiting, is known (see [`Clock`]), and
//! nothing is queued where it suffices. A use on the stream that had the memory last costs a comparison and
//! no lock.

mod line;
mod tracking;

pub(crate) use line::{Clock, Line, Ordered};
pub(crate) use tracking::{Access, Tracking, queued};
