//! Shared by all other crates of fednmf: the error type and its exit codes, warnings, units, parameters, and files that
//! appear under their name only when they are complete.

pub mod clock;
pub mod error;
pub mod failure;
pub mod file_lock;
pub mod host;
pub mod panics;
pub mod parameters;
pub mod printable;
pub mod stdout;
pub mod terminal;
pub mod unfinished;
pub mod units;
pub mod warning;
pub mod words;
