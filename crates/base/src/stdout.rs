//! What a command prints as its result.

use std::io::{ErrorKind, Write as _};

use crate::error::{Error, Result};

/// Prints text as it is.
///
/// If standard output fails, for example a file on a full disk. A closed pipe (`fednmf list | head`) is no error.
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
