//! The error type of the crate: a message for the user and the exit code of the process.

use std::fmt;

/// What caused an error; determines the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The command line or an input file is wrong: exit code 2.
    Input,
    /// The run failed: exit code 1.
    Failed,
}

/// An error whose message says what is wrong, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub kind: ErrorKind,
    pub message: String,
    /// Whether every rank has this error, so that all ranks can exit normally; otherwise the job must be aborted.
    pub everywhere: bool,
}

pub type Result<T> = std::result::Result<T, Error>;

/// Exit code of a completed run.
pub const EXIT_DONE: i32 = 0;
/// Exit code of a run that failed.
pub const EXIT_FAILED: i32 = 1;
/// Exit code for wrong usage and wrong input.
pub const EXIT_INPUT: i32 = 2;
/// Exit code of a run that stopped early after a valid checkpoint (`EX_TEMPFAIL`): requeue it with `--resume`.
pub const EXIT_REQUEUE: i32 = 75;

impl Error {
    /// Wrong command line or wrong input file.
    pub fn input(message: impl Into<String>) -> Self {
        Error { kind: ErrorKind::Input, message: message.into(), everywhere: false }
    }

    /// A failure that the input did not cause.
    pub fn failed(message: impl Into<String>) -> Self {
        Error { kind: ErrorKind::Failed, message: message.into(), everywhere: false }
    }

    /// The same error with a location in front of it, as in `t.mtx: line 3: …`.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        Error { message: format!("{place}: {}", self.message), ..self }
    }

    /// The same error, marked as known to every rank.
    #[must_use]
    pub fn on_all_ranks(self) -> Self {
        Error { everywhere: true, ..self }
    }

    /// The exit code of the process for this error.
    pub fn exit_code(&self) -> i32 {
        match self.kind {
            ErrorKind::Input => EXIT_INPUT,
            ErrorKind::Failed => EXIT_FAILED,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
