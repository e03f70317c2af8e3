//! Text of others on a terminal: names, settings and reasons from other sites and their files. Its control characters could rewrite
//! what a person has read or is about to read.

/// Whether a character controls a terminal, is invisible, or changes the direction of the text around it.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
}

/// The text on one line, with such characters as escapes (`\u{1b}`).
pub fn printable(text: &str) -> String {
    escaped(text, is_control)
}

/// The same of text in lines and columns, whose line breaks and tabs stay.
pub fn printable_lines(text: &str) -> String {
    escaped(text, |c| is_control(c) && !matches!(c, '\n' | '\t'))
}

fn escaped(text: &str, is_control: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_control(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

/// Parses a text that is shown to others: it has no such characters.
///
/// # Errors
/// If it has.
pub fn shown(text: &str) -> Result<String, String> {
    match text.contains(is_control) {
        false => Ok(text.into()),
        true => Err("must not contain control characters".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_reaches_a_terminal() {
        for control in ['\u{1b}', '\r', '\u{8}', '\u{7f}', '\u{9b}', '\u{202e}', '\u{2066}', '\n', '\t', '\0'] {
            let text = format!("gene{control}[2K");
            assert!(!printable(&text).contains(control) && shown(&text).is_err(), "{control:?}");
            assert_eq!(printable_lines(&text).contains(control), matches!(control, '\n' | '\t'), "{control:?}");
        }
        assert_eq!(printable("A\u{1b}[1A"), "A\\u{1b}[1A");
        for same in ["", "Zoë \"x\" \\ 北 a\u{301}", "IL-2Rα"] {
            assert_eq!((printable(same), shown(same)), (same.to_string(), Ok(same.to_string())));
        }
    }
}
