//! Writes the result of a command to standard output.

use std::io::{ErrorKind, Write as _};

use crate::error::{Error, Result};

/// Prints text as it is.
///
/// # Errors
/// If standard output cannot be written, for example on a full disk. A closed pipe (`fednmf list | head`) is no error.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(Error::failed(format!("the result cannot be printed: standard output is not writable ({e})")))
        }
        _ => Ok(()),
    }
}

/// Prints a line.
///
/// # Errors
/// As [`print`].
pub fn print_line(text: &str) -> Result<()> {
    print(&format!("{text}\n"))
}
