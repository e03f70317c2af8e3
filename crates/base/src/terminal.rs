//! Text that fits a terminal.

use std::os::fd::AsFd;

/// The width of the terminal, if a stream is one that has a size.
pub fn width_of(stream: impl AsFd) -> Option<usize> {
    rustix::termios::tcgetwinsize(stream).ok().map(|size| usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// Breaks text into lines of at most `width` characters between words; a longer word has a line of its own. At least one line.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut length = 0;
    for word in text.split(' ') {
        let letters = word.chars().count();
        let line = lines.last_mut().expect("a line");
        if length > 0 && length + 1 + letters > width {
            lines.push(word.to_string());
            length = letters;
        } else {
            if length > 0 {
                line.push(' ');
                length += 1;
            }
            line.push_str(word);
            length += letters;
        }
    }
    lines
}

/// The least width that is left for text below its indent.
const LEAST: usize = 30;

/// The text with its long lines broken between words. What follows is indented as the line, or as what stands two blanks behind
/// its first word. Commands and JSON are copied, so they stay whole; lines in colour are those of a help, which fit.
pub fn fitted(text: &str, width: usize) -> String {
    let fit = |line: &str| {
        let start = line.trim_start();
        let is_command = ["fednmf ", "mpirun ", "#", "{", "["].iter().any(|first| start.starts_with(first));
        if is_command || line.contains('\x1b') || line.chars().count() <= width {
            return line.to_string();
        }
        let indent = line.len() - start.len();
        let hanging = start.split_once("  ").map(|(_, rest)| line.len() - rest.trim_start().len());
        let at = hanging.filter(|at| at + LEAST <= width).unwrap_or(indent);
        let (head, rest) = line.split_at(at);
        let rest = wrapped(rest, width.saturating_sub(head.chars().count()).max(LEAST));
        head.to_string() + &rest.join(&format!("\n{}", " ".repeat(head.chars().count())))
    };
    text.split('\n').map(fit).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(wrapped("to be or not", 5), ["to be", "or", "not"]);
        assert_eq!(wrapped("abcdefg hi", 4), ["abcdefg", "hi"]);
        assert_eq!(wrapped("", 4), [""]);
    }

    #[test]
    fn what_follows_a_break_is_below_its_text() {
        let text = "time      some words that do not fit into a line of forty\n\nshort\n";
        let shown = "time      some words that do not fit\n          into a line of forty\n\nshort\n";
        assert_eq!(fitted(text, 40), shown);
        let paragraph = "  a paragraph is indented as its first line is, whatever";
        assert!(fitted(paragraph, 40).lines().all(|line| line.starts_with("  ") && line.len() <= 40));
        let command = "fednmf --input a-file-with-a-long-name.npy --output another-one.h5";
        assert_eq!(fitted(command, 40), command);
        let help = "  \x1b[1m--option\x1b[0m  says what the option does";
        assert_eq!(fitted(help, 40), help);
        // A gap in the middle of a long line is no column.
        let late = format!("{}  {}", "word ".repeat(6), "more ".repeat(6));
        assert!(fitted(&late, 40).lines().all(|line| !line.starts_with(' ')), "{}", fitted(&late, 40));
    }
}
