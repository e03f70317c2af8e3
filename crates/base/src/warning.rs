//! Messages on stderr. A stderr that cannot be written, such as a closed pipe, does not end the run.

use std::io::Write as _;

/// The line of a warning.
pub fn line(text: &str) -> String {
    format!("fednmf: warning: {text}")
}

/// Prints a warning, whether the run is quiet or not. `Progress::warn` prints above a progress bar.
pub fn warn(text: &str) {
    say(&line(text));
}

/// Prints a line.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
