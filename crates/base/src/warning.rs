//! Messages on stderr: errors, warnings and notes, which begin with their kind. A stderr that cannot be written, such as a
//! closed pipe, does not end the run.

use std::ffi::OsStr;
use std::io::{IsTerminal as _, Write as _};
use std::sync::OnceLock;

use crate::printable::printable_lines;
use crate::terminal::{fitted, width_of};

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

    /// A message of this kind: on a terminal in colour, with lines that fit.
    pub fn line(self, text: &str) -> String {
        let stderr = std::io::stderr();
        self.styled(text, in_colour(stderr.is_terminal()), width_of(stderr))
    }

    fn styled(self, text: &str, colour: bool, width: Option<usize>) -> String {
        let (word, style) = self.word();
        let line = format!("{word} {}", printable_lines(text));
        let line = width.map_or_else(|| line.clone(), |width| fitted(&line, width));
        if colour { line.replacen(word, &format!("\x1b[{style}m{word}\x1b[0m"), 1) } else { line }
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
    // In one piece, since ranks share a terminal.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_for_terminals_that_want_it() {
        assert_eq!(Kind::Warning.styled("x", false, None), "warning: x");
        assert_eq!(Kind::Error.styled("x\x1b[2K\n  y", true, None), "\x1b[1;31merror:\x1b[0m x\\u{1b}[2K\n  y");
        assert_eq!(Kind::Note.styled(&"word ".repeat(9), false, Some(32)).lines().count(), 2);
        let colours =
            |no_color: Option<&str>, term: Option<&str>| super::colours(no_color.map(OsStr::new), term.map(OsStr::new));
        assert!(colours(None, Some("xterm")) && colours(Some(""), None));
        assert!(!colours(Some("1"), Some("xterm")) && !colours(None, Some("dumb")));
    }
}
