//! The error types: a message for the user and the exit code of the process. [`Error`] may concern a single rank;
//! [`SharedError`] is the same on all ranks.

use std::fmt;
use std::ops::Deref;

use serde_json::error::Category;

/// What caused an error; determines the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The command line or an input file is wrong: exit code 2.
    Input,
    /// What was requested does not fit into memory: exit code 2.
    Memory,
    /// The run failed: exit code 1.
    Failed,
}

/// An error whose message says what is wrong, where, and what to do. It may exist on this rank only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub kind: ErrorKind,
    pub message: String,
    /// Whether it was a [`SharedError`].
    shared: bool,
}

pub type Result<T> = std::result::Result<T, Error>;

/// An error that every rank has: all return it at the same place, so the next collective is the same on all ranks.
///
/// Collective functions return it. An error of one rank does not convert into it, so `?` cannot leave such a function on
/// one rank while the others wait in a collective. The communicator's `agree_on_error` turns an error of one rank into an
/// error of all; [`Error::on_all_ranks`] marks an error that all ranks detect alike.
///
/// ```compile_fail,E0277
/// use fednmf_base::error::{Error, SharedResult};
///
/// fn read() -> Result<f64, Error> {
///     Err(Error::input("this rank's file is damaged"))
/// }
///
/// fn sum_over_ranks() -> SharedResult<f64> {
///     let own = read()?; // The other ranks would wait in the sum for ever.
///     Ok(own)
/// }
/// ```
///
/// In the other direction, `?` preserves the information that all ranks have the error:
///
/// ```
/// use fednmf_base::error::{Error, Result, SharedResult};
///
/// fn check() -> SharedResult<()> {
///     Err(Error::input("--k 0: must be at least 1").on_all_ranks())
/// }
///
/// fn run() -> Result<()> {
///     check()?;
///     Ok(())
/// }
///
/// assert!(run().unwrap_err().is_shared());
/// assert!(!Error::input("this rank's file is damaged").is_shared());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedError(Error);

/// The result of a collective function: if one rank has an error, all have it.
pub type SharedResult<T> = std::result::Result<T, SharedError>;

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
        Error { kind: ErrorKind::Input, message: without_codes(message.into()), shared: false }
    }

    /// More memory is needed than there is.
    pub fn memory(message: impl Into<String>) -> Self {
        Error { kind: ErrorKind::Memory, ..Error::input(message) }
    }

    /// A failure that the input did not cause.
    pub fn failed(message: impl Into<String>) -> Self {
        Error { kind: ErrorKind::Failed, message: without_codes(message.into()), shared: false }
    }

    /// The same error with a location in front of it, as in `t.mtx: line 3: …`.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        Error { message: format!("{place}: {}", self.message), ..self }
    }

    /// The same error with another message.
    #[must_use]
    pub fn with_message(self, message: String) -> Self {
        Error { message, ..self }
    }

    /// Marks the error as one of all ranks. Only for errors that all ranks detect alike, because they follow from the
    /// command line or from values that were agreed on.
    #[must_use]
    pub fn on_all_ranks(self) -> SharedError {
        SharedError(Error { shared: true, ..self })
    }

    /// Whether every rank has this error, so that all ranks can exit normally. Otherwise the job must be aborted.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// The exit code of the process for this error.
    pub fn exit_code(&self) -> i32 {
        match self.kind {
            ErrorKind::Input | ErrorKind::Memory => EXIT_INPUT,
            ErrorKind::Failed => EXIT_FAILED,
        }
    }
}

impl SharedError {
    /// As [`Error::at`]; the place is the same on all ranks.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        SharedError(self.0.at(place))
    }
}

impl Deref for SharedError {
    type Target = Error;

    fn deref(&self) -> &Error {
        &self.0
    }
}

impl From<SharedError> for Error {
    fn from(error: SharedError) -> Error {
        error.0
    }
}

impl fmt::Display for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for SharedError {}

/// The message without the codes in the texts of I/O errors, as in "Permission denied (os error 13)".
fn without_codes(mut message: String) -> String {
    const BEFORE: &str = " (os error ";
    while let Some(start) = message.find(BEFORE) {
        let code = &message[start + BEFORE.len()..];
        let digits = code.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 || !code[digits..].starts_with(')') {
            break;
        }
        message.replace_range(start..=start + BEFORE.len() + digits, "");
    }
    message
}

/// Describes why a text is not the expected JSON.
pub fn why_not_json(e: &serde_json::Error) -> String {
    match e.classify() {
        Category::Eof => "it ends too early".to_string(),
        Category::Syntax => format!("line {} is not JSON", e.line()),
        Category::Data | Category::Io => "it is JSON with other contents".to_string(),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_no_codes_of_the_system() {
        let refused = std::io::Error::from_raw_os_error(13);
        assert!(refused.to_string().contains("os error"));
        let message = Error::input(format!("a cannot be read ({refused}); b: {refused}")).message;
        assert_eq!(message, "a cannot be read (Permission denied); b: Permission denied");
        for text in ["x (os error", "x (os error )", "x (os error 1", ""] {
            assert_eq!(Error::failed(text).message, text);
        }
    }

    #[test]
    fn json_is_explained_in_words() {
        let why = |text: &str| why_not_json(&serde_json::from_str::<Vec<u8>>(text).unwrap_err());
        assert_eq!(
            [why("[1"), why("[1,\n}"), why("{}")].join("; "),
            "it ends too early; line 2 is not JSON; it is JSON with other contents"
        );
    }
}
