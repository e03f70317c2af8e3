//! Reasons for refusing a text: with a quotation of the text, or without it if the file is private.

use crate::formats::fields::{has_decimal_comma, has_letters_behind_number, why_unreadable};

/// Replacement for text that must not be shown.
const NOT_SHOWN: &str = "other text (not shown: it is a party's)";

/// The reason for refusing a text. Errors reach all ranks, so the error of a private file must not quote its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    full: String,
    /// The reason without the offending text, if `full` contains it.
    private: Option<String>,
}

impl Refusal {
    /// A reason that quotes `text`; `say` makes it from the quotation.
    pub fn quoting(text: &[u8], say: impl Fn(&str) -> String) -> Self {
        Refusal { full: say(&quote(text)), private: Some(say(NOT_SHOWN)) }
    }

    /// A reason with the offending text, and the same reason without it.
    pub fn new(full: String, private: impl Into<String>) -> Self {
        Refusal { full, private: Some(private.into()) }
    }

    /// The same reason within another sentence.
    #[must_use]
    pub fn map(self, say: impl Fn(String) -> String) -> Self {
        Refusal { full: say(self.full), private: self.private.map(say) }
    }

    /// The reason for an error message; without quoted text if the file is `private`.
    pub fn reason(self, private: bool) -> String {
        match self.private {
            Some(reason) if private => reason,
            _ => self.full,
        }
    }
}

/// Refuses a field as a number; `say` names the field. What makes it unreadable is added if that is known.
pub fn not_a_number(field: &[u8], say: impl Fn(&str) -> String) -> Refusal {
    let why = why_unreadable(field).map_or_else(String::new, |why| format!("; it {why}"));
    let unit = "; it has a unit or other text behind its number; write numbers alone";
    let unit = if has_letters_behind_number(field) && why.is_empty() { unit } else { "" };
    let comma = if has_decimal_comma(field) { "; write decimal points instead of commas" } else { "" };
    let full = format!("{}, not a number{why}{unit}{comma}", say(&quote(field)));
    Refusal::new(full, format!("{}, not a number", say(NOT_SHOWN)))
}

impl From<String> for Refusal {
    fn from(full: String) -> Self {
        Refusal { full, private: None }
    }
}

impl From<&str> for Refusal {
    fn from(full: &str) -> Self {
        full.to_string().into()
    }
}

/// The beginning of a line: printable and short.
fn quote(text: &[u8]) -> String {
    let end = text.iter().position(|&b| matches!(b, b'\n' | b'\r')).unwrap_or(text.len()).min(40);
    format!("'{}'", String::from_utf8_lossy(&text[..end]).escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_reason_has_no_text() {
        let refusal =
            Refusal::quoting(b"Rossi", |text| format!("is {text}, not a number")).map(|why| format!("it {why}"));
        assert_eq!(refusal.clone().reason(false), "it is 'Rossi', not a number");
        assert_eq!(refusal.reason(true), format!("it is {NOT_SHOWN}, not a number"));
        assert_eq!(Refusal::from("is empty").reason(true), "is empty");
    }
}
