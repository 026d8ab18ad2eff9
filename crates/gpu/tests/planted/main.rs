//! Bugs planted by class, each beside a twin without it: found by every schedule, at its line; the twin
//! passes all.

#[path = "../support/bugs.rs"]
mod bugs;
mod exchanges;
mod grids;
mod hosts;
mod idioms;
mod language;
mod mbarriers;
mod registers;
mod unwritten;
mod warpgroups;
mod words;
