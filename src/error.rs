//! The one error type: what went wrong, in words for the user, and the exit code that says whose turn it is.

use std::fmt;

/// Whose turn it is to mend an error; decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The command line or an input file is wrong: exit code 2.
    Input,
    /// The run failed: exit code 1.
    Failed,
}

/// An error with a message that says what, where and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub kind: Kind,
    pub message: String,
    /// Whether every rank has this same error, so that all can end in peace; otherwise the job must be aborted.
    pub everywhere: bool,
}

pub type Result<T> = std::result::Result<T, Error>;

/// Exit code of a run that ended as asked.
pub const EXIT_DONE: i32 = 0;
/// Exit code of a run that failed.
pub const EXIT_FAILED: i32 = 1;
/// Exit code for wrong usage and wrong input.
pub const EXIT_INPUT: i32 = 2;
/// Exit code of a run stopped early after a good checkpoint (`EX_TEMPFAIL`): queue it again with `--resume`.
pub const EXIT_REQUEUE: i32 = 75;

impl Error {
    /// Wrong command line or wrong input file.
    pub fn input(message: impl Into<String>) -> Self {
        Error { kind: Kind::Input, message: message.into(), everywhere: false }
    }

    /// The run failed through no fault of its input.
    pub fn failed(message: impl Into<String>) -> Self {
        Error { kind: Kind::Failed, message: message.into(), everywhere: false }
    }

    /// The same error with a place before it, as in `t.mtx: line 3: …`.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        Error { message: format!("{place}: {}", self.message), ..self }
    }

    /// The same error, known to every rank.
    #[must_use]
    pub fn on_all_ranks(self) -> Self {
        Error { everywhere: true, ..self }
    }

    /// The process exit code for this error.
    pub fn exit_code(&self) -> i32 {
        match self.kind {
            Kind::Input => EXIT_INPUT,
            Kind::Failed => EXIT_FAILED,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<hdf5::Error> for Error {
    fn from(e: hdf5::Error) -> Self {
        Error::failed(format!("HDF5: {e}"))
    }
}
