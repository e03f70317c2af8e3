//! Messages on stderr: errors, warnings and notes, which begin with their kind. A stderr that cannot be written, such as a
//! closed pipe, does not end the run.

use std::ffi::OsStr;
use std::io::{IsTerminal as _, Write as _};
use std::sync::OnceLock;

use crate::printable::printable_lines;

/// Whether `--color` asks for colours or forbids them.
static ASKED: OnceLock<bool> = OnceLock::new();

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Error,
    Warning,
    Note,
}

impl Kind {
    /// The word that a message begins with, and its colour as a parameter of `SGR`.
    fn word(self) -> (&'static str, &'static str) {
        match self {
            Kind::Error => ("error:", "1;31"),
            Kind::Warning => ("warning:", "1;33"),
            Kind::Note => ("note:", "1;36"),
        }
    }

    /// A message of this kind, in colour on a terminal.
    pub fn line(self, text: &str) -> String {
        self.styled(text, in_colour(std::io::stderr().is_terminal()))
    }

    fn styled(self, text: &str, colour: bool) -> String {
        let ((word, style), text) = (self.word(), printable_lines(text));
        if colour { format!("\x1b[{style}m{word}\x1b[0m {text}") } else { format!("{word} {text}") }
    }
}

/// Colours for all output, or for none, whatever it is printed to.
pub fn set_colour(wanted: bool) {
    // The first one counts: there is one command line.
    let _ = ASKED.set(wanted);
}

/// Whether output gets colours, which goes to a terminal or not.
pub fn in_colour(to_terminal: bool) -> bool {
    let [no_color, term] = ["NO_COLOR", "TERM"].map(std::env::var_os);
    ASKED.get().copied().unwrap_or_else(|| to_terminal && colours(no_color.as_deref(), term.as_deref()))
}

/// Whether a terminal gets colours: unless NO_COLOR is set (<https://no-color.org>) or TERM says that it has none.
fn colours(no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|term| term != "dumb")
}

/// Prints an error.
pub fn error(text: &str) {
    put(&Kind::Error.line(text));
}

/// Prints a warning, whether the run is quiet or not. `Progress::warn` prints above a progress bar.
pub fn warn(text: &str) {
    put(&Kind::Warning.line(text));
}

/// Prints a note.
pub fn note(text: &str) {
    put(&Kind::Note.line(text));
}

/// Prints a line.
pub fn say(text: &str) {
    put(&printable_lines(text));
}

fn put(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_for_terminals_that_want_it() {
        assert_eq!(Kind::Warning.styled("x", false), "warning: x");
        assert_eq!(Kind::Error.styled("x\x1b[2K\n  y", true), "\x1b[1;31merror:\x1b[0m x\\u{1b}[2K\n  y");
        let colours =
            |no_color: Option<&str>, term: Option<&str>| super::colours(no_color.map(OsStr::new), term.map(OsStr::new));
        assert!(colours(None, Some("xterm")) && colours(Some(""), None));
        assert!(!colours(Some("1"), Some("xterm")) && !colours(None, Some("dumb")));
    }
}
