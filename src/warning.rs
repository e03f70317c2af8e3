//! Warnings to the user, on stderr.

/// The line of a warning.
pub fn line(text: &str) -> String {
    format!("fednmf: warning: {text}")
}

/// Prints a warning, whether the run is quiet or not. `Progress::warn` prints beside a progress bar.
pub fn warn(text: &str) {
    eprintln!("{}", line(text));
}
